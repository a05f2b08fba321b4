"""A message that somebody else's server wrote, taken apart (RFC 5322, RFC 2045, RFC 2046) without ever failing.

Whatever is broken (boundaries, encodings, character sets, headers) is read as far as it goes. What is read is bounded:
so much of the message, so many levels, so many parts.
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from posthouse.raw import fields_of, head_and_rest, with_crlf

READ_BYTES_MAX: Final = 1_000_000
"""Reports stand before the message that they return, which alone may be longer."""

DEPTH_MAX: Final = 8
PARTS_MAX: Final = 100
BOUNDARY_CHARS_MAX: Final = 200

_MBOX_LINE = re.compile(rb"\A(?:\s*(?:>?From [^\r\n]*)?\r\n)+")
_BLANK_LINES = re.compile(rb"\r\n(?:[ \t]*\r\n)+")
_PARAMETER = re.compile(r';\s*([\w-]+)\*?\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]")

_MESSAGES: Final = frozenset({"message/rfc822", "message/global"})
_HEADERS_ALONE: Final = frozenset({"text/rfc822-headers", "message/rfc822-headers", "message/global-headers"})


@dataclass(frozen=True, slots=True)
class Fields:
    """Header lines, or lines that look like them: names in small letters."""

    pairs: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Every value under this name, in order."""
        return [value for known, value in self.pairs if known == name]

    def first(self, *names: str) -> str:
        """The first value under the first of these names that has one, or an empty string."""
        return next((value for name in names for value in self.all(name) if value), "")


@dataclass(frozen=True, slots=True)
class Part:
    """A message, or a part of one."""

    fields: Fields
    body: bytes  # as it stands, with CRLF line ends
    parts: tuple[Part, ...] = ()

    @property
    def media_type(self) -> str:
        """Such as `text/plain`, in small letters."""
        return self.fields.first("content-type").partition(";")[0].strip().lower() or "text/plain"

    def parameter(self, name: str) -> str:
        """A parameter of its media type."""
        for known, quoted, plain in _PARAMETER.findall(self.fields.first("content-type")):
            if known.lower() == name:
                return re.sub(r"\\(.)", r"\1", quoted) or plain
        return ""

    @property
    def content(self) -> bytes:
        """Its body without its transfer encoding, with CRLF line ends."""
        encoding = self.fields.first("content-transfer-encoding").strip().lower()
        if encoding == "quoted-printable":
            return with_crlf(quopri.decodestring(self.body))
        return with_crlf(_from_base64(self.body)) if encoding == "base64" else self.body

    @property
    def text(self) -> str:
        """Its body as text with `\\n` line ends, whatever its character set says."""
        content = self.content
        try:
            said = content.decode(self.parameter("charset") or "utf-8", "replace")
        except (LookupError, ValueError, UnicodeError):
            said = content.decode("utf-8", "replace")
        return said.replace("\r\n", "\n")

    @property
    def groups(self) -> list[Fields]:
        """Its body as groups of fields with empty lines between them (RFC 3464 section 2.1, RFC 5965 section 2)."""
        groups = [read_fields(piece + b"\r\n") for piece in _BLANK_LINES.split(b"\r\n" + self.content)]
        return [group for group in groups if group.pairs]

    def walk(self) -> Iterator[Part]:
        """Itself and every part below."""
        yield self
        for part in self.parts:
            yield from part.walk()


def read_message(content: bytes) -> Part:
    """The message, taken apart."""
    whole = with_crlf(content[:READ_BYTES_MAX].replace(b"\0", b"")) + b"\r\n"
    return _part(_MBOX_LINE.sub(b"", whole), DEPTH_MAX)


def read_fields(head: bytes) -> Fields:
    """Header lines, unfolded. What is no header line is left out."""
    return Fields(tuple((name, _unfolded(value)) for name, value in fields_of(head)))


def _unfolded(value: bytes) -> str:
    return " ".join(value.decode("utf-8", "replace").split())


def _part(content: bytes, depth: int) -> Part:
    head, rest = head_and_rest(content)
    part = Part(read_fields(head), rest.removeprefix(b"\r\n"))
    if depth == 0:
        return part
    if part.media_type.startswith("multipart/"):
        pieces = _pieces(part.body, part.parameter("boundary"))
        return Part(part.fields, part.body, tuple(_part(piece, depth - 1) for piece in pieces))
    if part.media_type in _MESSAGES:
        return Part(part.fields, part.body, (_part(part.content.lstrip(b"\r\n"), depth - 1),))
    if part.media_type in _HEADERS_ALONE:
        return Part(part.fields, part.body, (Part(read_fields(part.content + b"\r\n"), b""),))
    return part


def _pieces(body: bytes, boundary: str) -> list[bytes]:
    """What stands between the boundaries. A part that is not ended goes to the end."""
    if not 0 < len(boundary) <= BOUNDARY_CHARS_MAX:
        return []
    line = re.compile(rb"(?:\A|\r\n)--" + re.escape(boundary.encode("utf-8", "replace")) + rb"(--)?[ \t]*(?=\r\n|\Z)")
    pieces: list[bytes] = []
    begin: int | None = None
    for found in line.finditer(body):
        if begin is not None:
            pieces.append(body[begin : found.start()] + b"\r\n")
        begin = None if found[1] else found.end() + 2
        if found[1] or len(pieces) == PARTS_MAX:
            break
    return pieces if begin is None else [*pieces, body[begin:]][:PARTS_MAX]


def _from_base64(body: bytes) -> bytes:
    """As much of it as can be read."""
    letters = _NOT_BASE64.sub(b"", body)
    try:
        return base64.b64decode(letters[: len(letters) // 4 * 4] + _rest(letters))
    except binascii.Error:
        return b""


def _rest(letters: bytes) -> bytes:
    rest = letters[len(letters) // 4 * 4 :]
    return rest + b"=" * (4 - len(rest)) if len(rest) > 1 else b""
