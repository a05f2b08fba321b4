"""A finished message, as somebody else has built it (RFC 5322): read for its envelope, and otherwise left alone.

Two things are changed, because SMTP can't carry them: a line ends with CRLF, and Bcc is taken out. Header lines that
nobody can read stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import getaddresses
from typing import Final

from posthouse.address import Address
from posthouse.errors import InvalidEmail

SUBJECT_CHARS_MAX: Final = 998
LINE_BYTES_MAX: Final = 998
"""RFC 5322 section 2.1.1, without the CRLF."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_LONG_LINE = re.compile(rb"[^\n]{%d}" % (LINE_BYTES_MAX + 2))  # its CR is one of them
_BCC = re.compile(rb"^Bcc[ \t]*:.*\r\n(?:[ \t].*\r\n)*", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A finished message, and what its headers say."""

    content: bytes  # as it goes out
    parsed: Message

    def addresses(self, header: str) -> tuple[Address, ...]:
        """The mailboxes of a header. Raises InvalidEmail where one can't be read."""
        mailboxes = getaddresses([str(value) for value in self.parsed.get_all(header, [])])
        return tuple(
            Address(email, _decoded(name)).checked(f"raw (its {header})") for name, email in mailboxes if name or email
        )

    @property
    def sender(self) -> Address | None:
        """Its From, where it has one that can be read."""
        try:
            return next(iter(self.addresses("From")), None)
        except InvalidEmail:
            return None

    @property
    def subject(self) -> str:
        """Its subject on one line, for people to read."""
        return _one_line(_decoded(str(self.parsed.get("Subject", ""))))


def read_raw(value: object) -> RawMessage:
    """Reads a finished message. Raises InvalidEmail."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidEmail("raw", f"must be bytes, not {type(value).__name__}")
    whole = _LINE_END.sub(b"\r\n", bytes(value))
    if not whole.strip():
        raise InvalidEmail("raw", "is empty")
    if b"\0" in whole:
        raise InvalidEmail("raw", "contains a NUL, which no mail server takes")
    if not whole.endswith(b"\r\n"):
        whole += b"\r\n"
    if found := _LONG_LINE.search(whole):
        line = whole.count(b"\n", 0, found.start()) + 1
        raise InvalidEmail("raw", f"line {line} is longer than {LINE_BYTES_MAX} bytes; that part must be encoded")
    head, rest = _split(whole)
    return RawMessage(_BCC.sub(b"", head) + rest, BytesHeaderParser().parsebytes(head))


def _split(whole: bytes) -> tuple[bytes, bytes]:
    """The header lines, and what follows, its empty line included."""
    if whole.startswith(b"\r\n"):
        return b"", whole
    end = whole.find(b"\r\n\r\n")
    return (whole, b"") if end < 0 else (whole[: end + 2], whole[end + 2 :])


def _decoded(value: str) -> str:
    try:
        return str(make_header(decode_header(value)))
    except (MessageError, LookupError, UnicodeError, ValueError):
        return value


def _one_line(value: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in value)
    return " ".join(printable.split())[:SUBJECT_CHARS_MAX]
