"""Header lines of a message, without their last line end: what is read back is exactly what was given.

What is printable ASCII stays literally as it is, on one line, as far as RFC 5322 lets it; the rest goes out as encoded
words (RFC 2047), and a file's name in the form of RFC 2231. Only an address with a non-ASCII part before the @ puts
UTF-8 into a header, where there is no other way (RFC 6532).
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Sequence
from typing import AnyStr, Final
from urllib.parse import quote

import idna

from posthouse.address import Address
from posthouse.raw import LINE_BYTES_MAX

LINE_CHARS_WANTED: Final = 76
"""What RFC 2047 section 2 allows a line with an encoded word; RFC 5322 would like 78 of all lines."""

FOLD: Final = "\r\n "
"""Where a header goes on in the next line."""

_WORD_CHARS_MAX: Final = 75  # RFC 2047 section 2
_WORD_FRAME: Final = len("=?utf-8?q??=")
_WORD_CHARS_MIN: Final = _WORD_FRAME + len("=F0=9F=93=AE")  # one character of four bytes

_LIKE_AN_ENCODED_WORD = re.compile(r"=\?[^?]*\?[bBqQ]\?.*\?=")
_PHRASE = re.compile(r"[\w!#$%&'*+/=?^`{|}~-]+(?: [\w!#$%&'*+/=?^`{|}~-]+)*", re.ASCII)  # RFC 5322 section 3.2.3
_PLAIN_FILENAME = re.compile(r"[\w!#$&()+,.@^`{}~-]+(?: [\w!#$&()+,.@^`{}~-]+)*", re.ASCII)

_SAFE_IN_A_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!*+-/")
"""What needs no encoding in the Q encoding, even within a name (RFC 2047 section 5, rule 3)."""

_Q_OCTETS: Final = [chr(octet) if octet in _SAFE_IN_A_WORD else f"={octet:02X}" for octet in range(256)]
_Q_OCTETS[0x20] = "_"


def header_line(name: str, value: str) -> str:
    """Any header of words."""
    if not _is_literal(value):
        return f"{name}: {_encoded(value, len(name) + 2)}"
    line = f"{name}: {value}" if value else f"{name}:"
    if len(line) <= LINE_BYTES_MAX:
        return line
    folded = _folded(name, value)
    longest = max(map(len, folded.split("\r\n")))
    return folded if longest <= LINE_BYTES_MAX else f"{name}: {_encoded(value, len(name) + 2)}"


def address_header(name: str, addresses: Sequence[Address]) -> str:
    """A header with one address a line, of which there is one at least."""
    first, *others = addresses
    mailboxes = [_mailbox(first, len(name) + 2), *[_mailbox(address, 1) for address in others]]
    return f"{name}: " + f",{FOLD}".join(mailboxes)


def filename_parameters(filename: str) -> tuple[str, str]:
    """A file's name for its Content-Type, where old programs look, and for its Content-Disposition (RFC 2231).

    Each begins with the semicolon before it; both are empty where there is no name. A name that programs could read in
    different ways in quotes goes out encoded.
    """
    if not filename:
        return "", ""
    if _PLAIN_FILENAME.fullmatch(filename):
        return f';{FOLD}name="{filename}"', f';{FOLD}filename="{filename}"'
    return f';{FOLD}name="{_encoded(filename, len(" name="))}"', _extended("filename", filename)


def ascii_domain(address: Address) -> str:
    """The address with its domain as A-labels (RFC 5890); what stands before the @ is never changed."""
    if address.email.isascii():
        return address.email
    local, _, domain = address.email.rpartition("@")
    if domain.isascii():
        return address.email
    return f"{local}@{idna.encode(domain, uts46=True).decode()}"


def _is_literal(value: str) -> bool:
    """Whether it is read back as it is: by programs that take off spaces at the edges, and decode whatever they can."""
    plain = value.isascii() and value.isprintable() and value[:1] != " " and value[-1:] != " "
    return plain and not ("=?" in value and _LIKE_AN_ENCODED_WORD.search(value))


def _folded(name: str, value: str) -> str:
    """Folded at single spaces, which come back as they were."""
    first, *words = re.split(r"(?<=[^ ]) (?=[^ ])", value)
    lines = [f"{name}: {first}"]
    for word in words:
        if len(lines[-1]) + 1 + len(word) <= LINE_CHARS_WANTED:
            lines[-1] += f" {word}"
        else:
            lines.append(f" {word}")
    return "\r\n".join(lines)


def _mailbox(address: Address, taken: int) -> str:
    """Only the name is encoded, never the address; `taken` characters stand before it on its first line."""
    spec = ascii_domain(address)
    if not address.name:
        return f"<{spec}>" if spec.startswith('"') else spec  # many parsers take bare quotes for a name's
    shown = _shown_name(address.name, taken)
    behind = taken if FOLD not in shown else 0
    room = LINE_CHARS_WANTED - behind - len(shown.rpartition("\r\n")[2])
    return f"{shown} <{spec}>" if len(spec) + len(" <>,") <= room else f"{shown}{FOLD}<{spec}>"


def _shown_name(name: str, taken: int) -> str:
    """Encoded if its line would be too long as well: programs that fold it again lose its quotes."""
    if not (name.isascii() and name.isprintable()) or "=?" in name:
        return _encoded(name, taken)
    shown = name if _PHRASE.fullmatch(name) else _quoted(name)
    return shown if taken + len(shown) <= LINE_CHARS_WANTED else _encoded(name, taken)


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _encoded(value: str, taken: int) -> str:
    """`value` as encoded words, whichever encoding is shorter; `taken` characters stand before the first one."""
    in_q = ["".join([_Q_OCTETS[octet] for octet in char.encode()]) for char in value]
    octets = len(value.encode())
    if sum(map(len, in_q)) <= -(-octets // 3) * 4:
        words = _grouped(in_q, taken, lambda room: room)
        return FOLD.join(f"=?utf-8?q?{''.join(word)}?=" for word in words)
    groups = _grouped([char.encode() for char in value], taken, lambda room: room // 4 * 3)
    return FOLD.join(f"=?utf-8?b?{b2a_base64(b''.join(word), newline=False).decode()}?=" for word in groups)


def _grouped(chars: list[AnyStr], taken: int, capacity: Callable[[int], int]) -> Iterator[list[AnyStr]]:
    """Whole characters, each of so many letters or octets, in groups that fill one encoded word each.

    `capacity` tells how many fit into so many letters.
    """
    room = capacity(max(LINE_CHARS_WANTED - taken, _WORD_CHARS_MIN) - _WORD_FRAME)
    group: list[AnyStr] = []
    for char in chars:
        room -= len(char)
        if room < 0:
            yield group
            group, room = [], capacity(_WORD_CHARS_MAX - _WORD_FRAME) - len(char)
        group.append(char)
    yield group


def _extended(name: str, value: str) -> str:
    """A parameter as RFC 2231 writes it: percent-encoded, in numbered pieces where it is long."""
    chars = [quote(char, safe="!#$&+^`{}") for char in value]
    whole = f"{FOLD}{name}*=utf-8''{''.join(chars)}"
    if len(whole) <= LINE_CHARS_WANTED:
        return f";{whole}"
    lines, line = [], f" {name}*0*=utf-8''"
    for char in chars:
        if len(line) + len(char) >= LINE_CHARS_WANTED:
            lines.append(line)
            line = f" {name}*{len(lines)}*="
        line += char
    return "".join(f";\r\n{line}" for line in (*lines, line))
