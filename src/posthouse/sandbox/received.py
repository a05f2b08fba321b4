"""Reads a message that came as it is, as far as the ledger and the mail catcher need it. Nothing in it is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message
from email.policy import compat32
from typing import Any, Final

from posthouse.sandbox.ledger import Acceptance

OUR_ID_HEADER: Final = "X-Posthouse-Id"
"""The header that carries the send's id."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What the ledger enters: the subject as people read it, and the key that duplicates are counted by."""

    subject: str
    key: str | None


def read_summary(raw: bytes) -> Summary:
    """Looks at the headers only. The key is our id or, where there is none, the left part of the Message-ID."""
    head = raw.partition(b"\r\n\r\n")[0]
    message = message_from_bytes(head, policy=compat32)
    our_id = _first(message, OUR_ID_HEADER.lower()).strip()
    message_id = _first(message, "message-id").strip().lstrip("<").partition("@")[0].rstrip(">")
    return Summary(_first(message, "subject"), our_id or message_id or None)


def shown_body(acceptance: Acceptance) -> Mapping[str, Any] | None:
    """The message in the words of the email API, wherever it came in; None once it is no longer kept."""
    return acceptance.body if acceptance.raw is None else read_body(acceptance.raw)


_NAMED: Final = {"from": "from", "to": "to", "cc": "cc", "bcc": "bcc", "reply-to": "reply_to"}


def read_body(raw: bytes) -> dict[str, Any]:
    """Addresses, `headers` as pairs, the first `text` and `html`, and the names and sizes of the `attachments`."""
    message: Message = message_from_bytes(raw, policy=compat32)
    body: dict[str, Any] = {"subject": _first(message, "subject"), "headers": [], "attachments": []}
    for name, value in message.raw_items():
        if (field := _NAMED.get(name.lower())) is not None:
            body[field] = ", ".join(filter(None, [body.get(field), _shown(value)]))
        elif name.lower() != "subject":
            body["headers"].append([name, _shown(value)])
    for part in _leaves(message):
        field = {"text/plain": "text", "text/html": "html"}.get(part.get_content_type(), "")
        if field and field not in body and part.get_content_disposition() != "attachment":
            body[field] = _text(part)
        else:
            body["attachments"].append(_attachment(part))
    return body


def _leaves(message: Message) -> Iterator[Message]:
    """The parts that hold content. A message within the message is one of them, whole."""
    if message.get_content_maintype() != "multipart" or not isinstance(message.get_payload(), list):
        yield message
        return
    for part in message.get_payload():
        if isinstance(part, Message):
            yield from _leaves(part)


def _text(part: Message) -> str:
    octets = _octets(part)
    try:
        return octets.decode(part.get_content_charset("utf-8"), errors="replace")
    except (LookupError, ValueError):  # no such charset
        return octets.decode("latin-1")


def _octets(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b"".join(one.as_bytes() for one in _embedded(part))


def _embedded(part: Message) -> list[Message]:
    payload = part.get_payload()
    return [one for one in payload if isinstance(one, Message)] if isinstance(payload, list) else []


def _attachment(part: Message) -> dict[str, Any]:
    return {
        "filename": _shown(part.get_filename() or ""),
        "content_type": part.get_content_type(),
        "size": len(_octets(part)),
    }


def _first(message: Message, name: str) -> str:
    found = (value for other, value in message.raw_items() if other.lower() == name)
    return _shown(next(found, ""))


def _shown(value: str) -> str:
    """A header as people read it: unfolded, its encoded words decoded, its raw octets taken as UTF-8."""
    text = value.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")
    text = re.sub(r"\r?\n(?=[ \t])", "", text)
    try:
        return str(make_header(decode_header(text)))
    except (LookupError, ValueError):  # an encoded word that is none
        return text
