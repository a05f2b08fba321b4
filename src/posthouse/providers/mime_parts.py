"""One part of a message, its own headers included: how its bytes travel (RFC 2045).

Whatever the words and files, a part is 7-bit clean, so that every server can carry it. The exception is a message
within the message, which may not be encoded.
"""

from __future__ import annotations

from binascii import b2a_base64, b2a_qp
from collections.abc import Iterator
from struct import Struct
from typing import Final

from posthouse.attachment import UNNAMED_TYPE, Attachment
from posthouse.providers.mime_headers import filename_parameters, header_line
from posthouse.raw import LINE_BYTES_MAX, with_crlf
from posthouse.values import value

_BASE64_LINE_CHARS: Final = 76  # RFC 2045 section 6.8
_BASE64_LINE_OCTETS: Final = 57
_BLOCK_LINES: Final = 256  # so few that a block stays in the processor's cache
_BLOCK_OCTETS: Final = _BASE64_LINE_OCTETS * _BLOCK_LINES
_BLOCK: Final = Struct(f"{_BASE64_LINE_CHARS}s" * _BLOCK_LINES)


@value
class Part:
    """Headers and body as pieces of bytes, which are put together once, at the very end: large files are not copied.

    There is no line end after the last one: that belongs to what follows (RFC 2046 section 5.1.1).
    """

    pieces: tuple[bytes, ...]
    is_8bit: bool = False  # not every server can carry it


def text_part(content_type: str, words: str) -> Part:
    """Words. Their line ends become CRLF; that of a last line is kept only if it was given."""
    text = with_crlf(words.encode())
    is_ascii = text.isascii()
    charset = "us-ascii" if is_ascii else "utf-8"
    encoding, body = ("7bit", [text]) if is_ascii and _is_sendable(text) else _encoded_text(text)
    head = f"Content-Type: {content_type}; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
    return Part((head.encode(), *body))


def file_part(attachment: Attachment) -> Part:
    """A file, byte for byte; but for the line ends of a message, which become CRLF."""
    content_type, encoding, body = _encoded_file(attachment)
    in_type, in_disposition = filename_parameters(attachment.filename)
    head = [
        f"Content-Type: {content_type}{in_type}",
        f"Content-Transfer-Encoding: {encoding}",
        f"Content-Disposition: {'inline' if attachment.inline else 'attachment'}{in_disposition}",
    ]
    if attachment.content_id:
        head.append(f"Content-ID: <{attachment.content_id}>")
    head += [header_line(name, value) for name, value in attachment.headers]
    return Part(("\r\n".join([*head, "", ""]).encode(), *body), encoding == "8bit")


def _encoded_text(content: bytes) -> tuple[str, list[bytes]]:
    """Whichever is shorter: quoted-printable stays readable where most is ASCII (RFC 2045 sections 6.7, 6.8)."""
    quoted = b2a_qp(content, istext=True, header=False)
    if b"\n" not in content:
        quoted = with_crlf(quoted)  # its own line ends are like the first one that it was given
    return (
        ("quoted-printable", [quoted]) if len(quoted) <= _base64_size(content) else ("base64", [*_in_base64(content)])
    )


def _is_sendable(content: bytes) -> bool:
    """Whether it can go out as it is, but for 8-bit bytes. Its lines end with CRLF."""
    return b"\0" not in content and max(map(len, content.splitlines()), default=0) <= LINE_BYTES_MAX


def _base64_size(content: bytes) -> int:
    """How long it would be, without doing it."""
    lines, rest = divmod(len(content), _BASE64_LINE_OCTETS)
    return lines * (_BASE64_LINE_CHARS + 2) + -(-rest // 3) * 4


def _in_base64(content: bytes) -> Iterator[bytes]:
    """Block by block, each of which one call cuts into lines: several times as fast as line by line, or all at once."""
    for at in range(0, len(content), _BLOCK_OCTETS):
        if at:
            yield b"\r\n"
        encoded = b2a_base64(content[at : at + _BLOCK_OCTETS], newline=False)
        yield b"\r\n".join(_BLOCK.unpack(encoded) if len(encoded) == _BLOCK.size else _lines_of(encoded))


def _lines_of(encoded: bytes) -> list[bytes]:
    return [encoded[at : at + _BASE64_LINE_CHARS] for at in range(0, len(encoded), _BASE64_LINE_CHARS)]


def _encoded_file(attachment: Attachment) -> tuple[str, str, list[bytes]]:
    """Its content type, encoding and body.

    A message within the message must not be encoded (RFC 2046 section 5.2.1). One with 8-bit bytes goes out as it is,
    and needs a server that takes them; one that no server takes as it is goes out as a file of bytes.
    """
    content_type = attachment.content_type or UNNAMED_TYPE
    if content_type.startswith("message/"):
        body = with_crlf(attachment.content)
        if _is_sendable(body):
            return content_type, "7bit" if body.isascii() else "8bit", [body]
        content_type = UNNAMED_TYPE
    return content_type, "base64", [*_in_base64(attachment.content)]
