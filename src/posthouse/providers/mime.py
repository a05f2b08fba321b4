"""The bytes of a message (RFC 5322, RFC 2045 to 2049): the same send gives the same bytes every time.

    mixed( alternative( text, AMP, related( HTML, its images ), others, invitation ), files )

with only those levels that hold more than one part. No Bcc is ever in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from hashlib import blake2b

from posthouse.attachment import AMP_TYPE, Alternative
from posthouse.providers.mime_headers import address_header, ascii_domain, header_line
from posthouse.providers.mime_parts import Part, file_part, text_part
from posthouse.providers.port import OutgoingMessage


@dataclass(frozen=True, slots=True)
class Multipart:
    """Parts that belong together; its boundary is chosen when all of them are known."""

    subtype: str
    parameters: str
    parts: tuple[Node, ...]


Node = Part | Multipart


def message_bytes(message: OutgoingMessage) -> bytes:
    """The message with CRLF line ends, ending in one. A finished message is returned as it is."""
    if message.raw is not None:
        return message.raw
    message_id = message_id_of(message)
    tree = _tree(message)
    head = "\r\n".join([*_head(message, message_id), ""]).encode()
    pieces = [head, *_pieces(tree, _token(message_id, [*_leaves(tree)]))]
    if not pieces[-1].endswith(b"\r\n"):
        pieces.append(b"\r\n")
    return b"".join(pieces)


def message_id_of(message: OutgoingMessage) -> str:
    """The Message-ID: where none is given, fixed by the idempotency key, so that every attempt carries the same."""
    domain = ascii_domain(message.sender).rpartition("@")[2]
    return message.message_id or f"<{message.idempotency_key}@{domain}>"


def _head(message: OutgoingMessage, message_id: str) -> Iterator[str]:
    yield f"Date: {formatdate(message.date)}"
    yield from address_header("From", [message.sender])
    yield from address_header("To", message.to)
    yield from address_header("Cc", message.cc)
    if not message.to and not message.cc:
        yield "To: undisclosed-recipients:;"
    yield from address_header("Reply-To", message.reply_to)
    yield header_line("Subject", message.subject)
    yield f"Message-ID: {message_id}"
    yield from (header_line(name, value) for name, value in message.headers)
    yield "MIME-Version: 1.0"


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
    return parts[0] if len(parts) == 1 else Multipart(subtype, parameters, tuple(parts))


def _leaves(node: Node) -> Iterator[Part]:
    if isinstance(node, Part):
        yield node
    else:
        for part in node.parts:
            yield from _leaves(part)


# Its bytes.


def _token(message_id: str, leaves: list[Part]) -> str:
    """What all boundaries have in common: the same for the same message, and certainly in none of its parts."""
    token = blake2b(message_id.encode(), digest_size=12).hexdigest()
    while any(token.encode() in leaf for leaf in leaves):
        token = blake2b(token.encode(), digest_size=12).hexdigest()
    return token


def _pieces(node: Node, token: str) -> Iterator[bytes]:
    if isinstance(node, Part):
        yield from node.pieces
        return
    boundary = f"=_{node.subtype}_{token}"
    yield f'Content-Type: multipart/{node.subtype}{node.parameters};\r\n boundary="{boundary}"\r\n'.encode()
    if not all(leaf.isascii() for leaf in _leaves(node)):
        yield b"Content-Transfer-Encoding: 8bit\r\n"
    for part in node.parts:
        yield f"\r\n--{boundary}\r\n".encode()
        yield from _pieces(part, token)
    yield f"\r\n--{boundary}--".encode()
