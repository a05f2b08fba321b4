"""The bytes of a message as SMTP carries them: the same send gives the same bytes every time.

They are 7-bit clean whatever the words, so that no server has to say 8BITMIME; only an address with a non-ASCII part
before the @ puts UTF-8 into the headers, where there is no other way (RFC 6532). No Bcc is ever in them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from email.header import Header
from email.utils import formatdate
from typing import Final

import idna

from posthouse.address import Address
from posthouse.providers.port import OutgoingMessage

LINE_BYTES_MAX: Final = 998
"""RFC 5322 section 2.1.1, without the CRLF."""

_NEWLINE = re.compile(r"\r\n|\r|\n")
_LONG_LINE = re.compile(rf"[^\n]{{{LINE_BYTES_MAX + 1}}}")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_ATOMS = re.compile(r"[\w!#$%&'*+/=?^`{|}~ -]*", re.ASCII)


def message_bytes(message: OutgoingMessage, message_id: str, date: float) -> bytes:
    """The message with CRLF line ends. `message_id` has its angle brackets; `date` is in seconds since 1970."""
    head = [
        f"Date: {formatdate(date)}",
        *_addresses("From", [message.sender]),
        *_recipients(message),
        *_addresses("Reply-To", message.reply_to),
        header_line("Subject", message.subject),
        f"Message-ID: {message_id}",
        *(header_line(name, value) for name, value in message.headers),
        "MIME-Version: 1.0",
    ]
    return "\r\n".join(head).encode() + b"\r\n" + _body(message, message_id)


def message_id_of(message: OutgoingMessage) -> str:
    """The Message-ID: fixed by the send's idempotency key, so that every attempt carries the same."""
    return message.message_id or f"<{message.idempotency_key}@{ascii_domain(message.sender).rpartition('@')[2]}>"


def ascii_domain(address: Address) -> str:
    """The address with its domain as A-labels (RFC 5890); what stands before the @ is never changed."""
    local, _, domain = address.email.rpartition("@")
    if domain.isascii():
        return address.email
    return f"{local}@{idna.encode(domain, uts46=True).decode()}"


def needs_smtputf8(addresses: Iterable[Address]) -> bool:
    """Whether one of them has a non-ASCII part before the @, which has no ASCII form."""
    return any(not address.email.rpartition("@")[0].isascii() for address in addresses)


def header_line(name: str, value: str) -> str:
    """One header. What is printable ASCII stays literally as it is, on one line where RFC 5322 lets it."""
    if _PRINTABLE.fullmatch(value) and len(name) + 2 + len(value) <= LINE_BYTES_MAX and "=?" not in value:
        return f"{name}: {value}"
    return f"{name}: {_encoded(value, len(name) + 2)}"


def _encoded(value: str, taken: int) -> str:
    """`value` as encoded words (RFC 2047), folded; `taken` characters stand before it on its first line."""
    return Header(value, "utf-8", maxlinelen=76, header_name="x" * max(taken - 2, 0)).encode(
        splitchars="", linesep="\r\n"
    )


def _recipients(message: OutgoingMessage) -> Iterator[str]:
    yield from _addresses("To", message.to)
    yield from _addresses("Cc", message.cc)
    if not message.to and not message.cc:
        yield "To: undisclosed-recipients:;"


def _addresses(name: str, addresses: Sequence[Address]) -> Iterator[str]:
    """One header with one address a line, none where there is no address."""
    if addresses:
        mailboxes = [_mailbox(address) for address in addresses]
        yield f"{name}: " + ",\r\n ".join(mailboxes)


def _mailbox(address: Address) -> str:
    """Only the name is encoded, never the address; a name with specials stands in quotes."""
    spec = ascii_domain(address)
    if not address.name:
        return spec
    if not address.name.isascii() or "=?" in address.name:
        return f"{_encoded(address.name, len('Reply-To: '))}\r\n <{spec}>"
    if _ATOMS.fullmatch(address.name):
        return f"{address.name} <{spec}>"
    quoted = address.name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}" <{spec}>'


def _body(message: OutgoingMessage, message_id: str) -> bytes:
    """Text, HTML, or both as alternatives; the best one last (RFC 2046 section 5.1.4)."""
    given = (("plain", message.text), ("html", message.html))
    parts = [_part(subtype, words) for subtype, words in given if words is not None]
    if len(parts) == 1:
        return parts[0]
    boundary = _boundary(message_id, parts)
    opening = b"--" + boundary + b"\r\n"
    return b"".join(
        [
            b'Content-Type: multipart/alternative; boundary="' + boundary + b'"\r\n\r\n',
            *(opening + part for part in parts),
            b"--" + boundary + b"--\r\n",
        ]
    )


def _boundary(message_id: str, parts: Sequence[bytes]) -> bytes:
    """The same for the same message, and certainly in none of its parts."""
    seed = message_id
    while True:
        boundary = b"=_" + hashlib.sha256(seed.encode()).hexdigest()[:32].encode()
        if not any(boundary in part for part in parts):
            return boundary
        seed += "+"


def _part(subtype: str, words: str) -> bytes:
    """One part with its headers, ending in CRLF."""
    text = _NEWLINE.sub("\n", words)
    text = text if text.endswith("\n") else text + "\n"
    plain = text.isascii() and "\0" not in text and not _LONG_LINE.search(text)
    if plain:
        encoding, content = "7bit", text.encode("ascii")
    else:
        encoding, content = _transfer_encoded(text.encode())
    charset = "us-ascii" if text.isascii() else "utf-8"
    head = f"Content-Type: text/{subtype}; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
    return head.encode() + content.replace(b"\n", b"\r\n")


def _transfer_encoded(content: bytes) -> tuple[str, bytes]:
    """Whichever is shorter: quoted-printable stays readable where most is ASCII (RFC 2045 sections 6.7, 6.8)."""
    quoted = binascii.b2a_qp(content, istext=True, header=False)
    in_base64 = base64.encodebytes(content.replace(b"\n", b"\r\n"))
    return ("quoted-printable", quoted) if len(quoted) <= len(in_base64) else ("base64", in_base64)
