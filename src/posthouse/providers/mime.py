"""The bytes of a message (RFC 5322, RFC 2045 to 2049): the same send gives the same bytes every time.

    mixed( alternative( text, AMP, related( HTML, its images ), others, invitation ), files )

with only those levels that hold more than one part. No Bcc is ever in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from email.utils import formatdate
from functools import lru_cache
from hashlib import blake2b

from posthouse.attachment import AMP_TYPE, Alternative
from posthouse.providers.mime_headers import address_header, ascii_domain, header_line
from posthouse.providers.mime_parts import Part, file_part, text_part
from posthouse.providers.port import OutgoingMessage
from posthouse.values import value


@value
class Multipart:
    """Parts that belong together; its boundary is chosen when all of them are known."""

    subtype: str
    parameters: str
    parts: tuple[Node, ...]
    is_8bit: bool


Node = Part | Multipart


def message_bytes(message: OutgoingMessage) -> bytes:
    """The message with CRLF line ends, ending in one. A finished message is returned as it is."""
    if message.raw is not None:
        return message.raw
    message_id = message_id_of(message)
    head = "\r\n".join([*_head(message, message_id), ""]).encode()
    tree = _tree(message)
    token = message_id
    while True:  # once, but for a message that was made to hold its token
        token = blake2b(token.encode(), digest_size=12).hexdigest()
        pieces = [head]
        written = _write(tree, token, pieces)
        if not pieces[-1].endswith(b"\r\n"):
            pieces.append(b"\r\n")
        content = b"".join(pieces)
        if content.count(token.encode()) == written:
            return content


def message_id_of(message: OutgoingMessage) -> str:
    """The Message-ID: where none is given, fixed by the idempotency key, so that every attempt carries the same."""
    domain = ascii_domain(message.sender).rpartition("@")[2]
    return message.message_id or f"<{message.idempotency_key}@{domain}>"


def _head(message: OutgoingMessage, message_id: str) -> Iterator[str]:
    yield f"Date: {_date(int(message.date))}"
    yield address_header("From", [message.sender])
    if message.to:
        yield address_header("To", message.to)
    if message.cc:
        yield address_header("Cc", message.cc)
    if not message.to and not message.cc:
        yield "To: undisclosed-recipients:;"
    if message.reply_to:
        yield address_header("Reply-To", message.reply_to)
    yield header_line("Subject", message.subject)
    yield f"Message-ID: {message_id}"
    for name, words in message.headers:
        yield header_line(name, words)
    yield "MIME-Version: 1.0"


@lru_cache(maxsize=256)
def _date(second: int) -> str:
    return formatdate(second)


# The tree.


def _tree(message: OutgoingMessage) -> Node:
    """What stands in what. An image that the HTML shows belongs to it, and is a file where there is no HTML."""
    images: list[Part] = []
    files: list[Part] = []
    for attachment in message.attachments:
        shown = attachment.inline and message.html is not None
        (images if shown else files).append(file_part(attachment))
    words = list(_words(message, images))
    body = [_together("alternative", words)] if words else []
    return _together("mixed", [*body, *files] or [text_part("text/plain", "")])


def _words(message: OutgoingMessage, images: list[Part]) -> Iterator[Node]:
    """The forms of the words, the best one last (RFC 2046 section 5.1.4); AMP where its specification wants it."""
    if message.text is not None:
        yield text_part("text/plain", message.text)
    yield from _forms(item for item in message.alternatives if item.media_type == AMP_TYPE)
    if message.html is not None:
        html = text_part("text/html", message.html)
        yield _together("related", [html, *images], '; type="text/html"')  # RFC 2387 section 3.1
    others = [item for item in message.alternatives if item.media_type != AMP_TYPE]
    yield from _forms(sorted(others, key=lambda item: item.is_calendar))


def _forms(alternatives: Iterable[Alternative]) -> Iterator[Part]:
    return (text_part(item.content_type, item.content) for item in alternatives)


def _together(subtype: str, parts: list[Node] | list[Part], parameters: str = "") -> Node:
    if len(parts) == 1:
        return parts[0]
    return Multipart(subtype, parameters, tuple(parts), any(part.is_8bit for part in parts))


# Its bytes.


def _write(node: Node, token: str, pieces: list[bytes]) -> int:
    """Adds its bytes; how many times they have the token, which all boundaries have in common: the same for the same
    message, and certainly in none of its parts."""
    if isinstance(node, Part):
        pieces += node.pieces
        return 0
    boundary = f"=_{node.subtype}_{token}"
    encoding = "Content-Transfer-Encoding: 8bit\r\n" if node.is_8bit else ""
    head = f'Content-Type: multipart/{node.subtype}{node.parameters};\r\n boundary="{boundary}"\r\n{encoding}'
    pieces.append(head.encode())
    between = f"\r\n--{boundary}\r\n".encode()
    written = 2 + len(node.parts)
    for part in node.parts:
        pieces.append(between)
        written += _write(part, token, pieces)
    pieces.append(f"\r\n--{boundary}--".encode())
    return written
