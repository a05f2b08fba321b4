"""A finished message, as somebody else has built it (RFC 5322): read for its envelope, and otherwise left alone.

Two things are changed, because SMTP can't carry them: a line ends with CRLF, and Bcc is taken out. What can't be sent
at all is refused. Header lines that nobody can read stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.errors import MessageError
from email.header import decode_header, make_header
from typing import Final

from posthouse.address import NAME_CHARS_MAX, Address
from posthouse.errors import InvalidEmail

SUBJECT_CHARS_MAX: Final = 998
LINE_BYTES_MAX: Final = 998
"""RFC 5322 section 2.1.1, without the CRLF."""

_FIELD = re.compile(rb"^([!-9;-~]+)[ \t]*:([^\r]*(?:\r\n[ \t][^\r]*)*)\r\n", re.MULTILINE)
_HIDDEN: Final = frozenset({"bcc", "resent-bcc"})
_RESENT: Final = ("resent-to", "resent-cc", "resent-bcc")

_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_COMMENT: Final = r"\((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*\)"
_PIECE = re.compile(rf"({_COMMENT})|([,;:])|({_QUOTED}|<[^>]*>|.)", re.DOTALL)
"""A comment, a separator, or what a mailbox is made of (RFC 5322 section 3.4)."""

_NAMED = re.compile(rf"(?P<name>(?:{_QUOTED}|[^\"<])*)<(?P<email>[^<>]*)>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A finished message, and what its headers say."""

    content: bytes  # as it goes out
    fields: tuple[tuple[str, str], ...]  # names in small letters, and unfolded values; Bcc is among them

    def recipients(self) -> dict[str, tuple[Address, ...]]:
        """Who gets it, by the name of the email's field. Raises InvalidEmail where that can't be told."""
        if again := next((name for name, _ in self.fields if name in _RESENT), None):
            raise InvalidEmail("to", f"is missing: the message was sent before (it has {again.title()})")
        return {name: self._addresses(name) for name in ("to", "cc", "bcc")}

    @property
    def sender(self) -> Address | None:
        """Its From, where it has one that can be read."""
        try:
            return next(iter(self._addresses("from")), None)
        except InvalidEmail:
            return None

    @property
    def subject(self) -> str:
        """Its subject on one line, for people to read."""
        return _one_line(_decoded(next(self._values("subject"), "")))[:SUBJECT_CHARS_MAX]

    def _values(self, wanted: str) -> Iterator[str]:
        return (value for name, value in self.fields if name == wanted)

    def _addresses(self, name: str) -> tuple[Address, ...]:
        mailboxes = [text for value in self._values(name) for text in _mailboxes(value)]
        return tuple(_address(text, f"raw (its {name.title()})") for text in mailboxes)


def read_raw(value: object) -> RawMessage:
    """Reads a finished message. Raises InvalidEmail."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidEmail("raw", f"must be bytes, not {type(value).__name__}")
    whole = with_crlf(bytes(value))
    if not whole.endswith(b"\r\n"):
        whole += b"\r\n"
    head, rest = head_and_rest(whole)
    fields = tuple((name, _unfolded(value)) for name, value in fields_of(head))
    content = _FIELD.sub(lambda field: b"" if _name(field) in _HIDDEN else field[0], head) + rest
    _refuse_what_nobody_takes(content, whole)
    return RawMessage(content, fields)


def with_crlf(content: bytes) -> bytes:
    """The same lines, whatever they ended with, each ending with CRLF."""
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return content.replace(b"\n", b"\r\n")


def head_and_rest(content: bytes) -> tuple[bytes, bytes]:
    """The header lines of a message with CRLF line ends, and what follows, its empty line included."""
    if content.startswith(b"\r\n"):
        return b"", content
    end = content.find(b"\r\n\r\n")
    return (content, b"") if end < 0 else (content[: end + 2], content[end + 2 :])


def fields_of(head: bytes) -> Iterator[tuple[str, bytes]]:
    """The headers that can be read: their names in small letters, and their values as they stand, folds and all."""
    return ((_name(field), field[2]) for field in _FIELD.finditer(head))


def _refuse_what_nobody_takes(content: bytes, whole: bytes) -> None:
    """Raises InvalidEmail; lines are counted in the `whole` message, as it was given."""
    if not content.strip():
        raise InvalidEmail("raw", "is empty")
    if b"\0" in content:
        raise InvalidEmail("raw", "contains a NUL, which no mail server takes")
    longest = max(content.split(b"\r\n"), key=len)
    if len(longest) > LINE_BYTES_MAX:
        number = whole.split(b"\r\n").index(longest) + 1
        reason = f"line {number} is longer than {LINE_BYTES_MAX} bytes; that part must be encoded"
        raise InvalidEmail("raw", reason)
    try:
        head_and_rest(whole)[0].decode()
    except UnicodeDecodeError as error:
        number = whole.count(b"\n", 0, error.start) + 1
        raise InvalidEmail("raw", f"line {number}, a header, is neither ASCII nor UTF-8; encode it") from None


def _unfolded(value: bytes) -> str:
    return value.decode("utf-8", "replace").replace("\r\n", "").strip()


def _name(field: re.Match[bytes]) -> str:
    return field[1].decode("ascii").lower()


# Addresses. The standard library's parsers leave out what they don't understand, and a recipient with it.


def _mailboxes(value: str) -> Iterator[str]:
    """The mailboxes of a list, without comments and groups; a semicolon separates as well, as some people write it."""
    mailbox = ""
    for comment, separator, piece in _PIECE.findall(f"{value},"):
        if separator == ":" and "@" not in mailbox:  # so far it was a group's name
            mailbox = ""
        elif separator in (",", ";"):
            if mailbox.strip():
                yield mailbox.strip()
            mailbox = ""
        elif not comment:
            mailbox += separator or piece


def _address(text: str, field_name: str) -> Address:
    named = _NAMED.fullmatch(text)
    if named is None:
        return Address(text).checked(field_name)
    name = re.sub(r"\\(.)|\"", r"\1", named["name"])
    return Address(named["email"].strip(), _one_line(_decoded(name))[:NAME_CHARS_MAX]).checked(field_name)


def _decoded(value: str) -> str:
    try:
        return str(make_header(decode_header(value)))
    except (MessageError, LookupError, UnicodeError, ValueError):
        return value


def _one_line(value: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in value)
    return " ".join(printable.split())
