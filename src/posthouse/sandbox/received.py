"""Reads a message that came as it is, as far as the ledger and the mail catcher need it. Nothing in it is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.policy import compat32
from email.utils import collapse_rfc2231_value
from typing import Any, Final

from posthouse.header import OUR_ID_HEADER
from posthouse.sandbox.ledger import Acceptance, CaughtFile


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


@dataclass(frozen=True, slots=True)
class Shown:
    """A caught message in the words of the email API, its files apart."""

    body: Mapping[str, Any]
    files: Sequence[CaughtFile] = ()


def shown(acceptance: Acceptance) -> Shown | None:
    """The message, wherever it came in; None once it is no longer kept."""
    if acceptance.raw is None:
        return None if acceptance.body is None else Shown(acceptance.body, acceptance.files)
    read = read_message(acceptance.raw)
    return replace(read, body={**read.body, **(acceptance.body or {})})


_NAMED: Final = {"from": "from", "to": "to", "cc": "cc", "bcc": "bcc", "reply-to": "reply_to"}


def read_message(raw: bytes) -> Shown:
    """Addresses, `headers` as pairs, the first `text` and `html`, the other `alternatives`, and the files."""
    message: Message = message_from_bytes(raw, policy=compat32)
    body = _head(message)
    files = []
    for part, within in _leaves(message):
        field = {"text/plain": "text", "text/html": "html"}.get(part.get_content_type(), "")
        attached = part.get_content_disposition() == "attachment"
        if field and field not in body and not attached:
            body[field] = _text(part)
        elif within == "alternative" and part.get_content_maintype() == "text" and not attached:
            alternative = {"content_type": _content_type(part, {"charset"}), "content": _text(part)}
            body.setdefault("alternatives", []).append(alternative)
        else:
            files.append(_file(part))
    return Shown(body, files)


def _head(message: Message) -> dict[str, Any]:
    head: dict[str, Any] = {"subject": _first(message, "subject"), "headers": []}
    for name, value in message.raw_items():
        if (field := _NAMED.get(name.lower())) is not None:
            head[field] = ", ".join(filter(None, [head.get(field), _readable(value)]))
        elif name.lower() != "subject":
            head["headers"].append([name, _readable(value)])
    return head


def _leaves(message: Message, within: str = "") -> Iterator[tuple[Message, str]]:
    """The parts that hold content, and what kind of multipart each stands in. A message within is one, whole."""
    if message.get_content_maintype() != "multipart" or not isinstance(message.get_payload(), list):
        yield message, within
        return
    for part in message.get_payload():
        if isinstance(part, Message):
            yield from _leaves(part, message.get_content_subtype())


def _text(part: Message) -> str:
    octets = _octets(part)
    try:
        return octets.decode(part.get_content_charset("utf-8"), errors="replace")
    except (LookupError, ValueError):  # no such charset
        return octets.decode("latin-1")


def _octets(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return (
        payload if isinstance(payload, bytes) else b"".join(one.as_bytes(policy=_AS_IT_CAME) for one in _embedded(part))
    )


_AS_IT_CAME: Final = compat32.clone(mangle_from_=False, max_line_length=0, linesep="\r\n")


def _embedded(part: Message) -> list[Message]:
    payload = part.get_payload()
    return [one for one in payload if isinstance(one, Message)] if isinstance(payload, list) else []


def _file(part: Message) -> CaughtFile:
    content_id = _first(part, "content-id").strip()
    return CaughtFile(
        content=_octets(part),
        filename=_readable(part.get_filename() or ""),
        content_type=_content_type(part, {"name"}),
        content_id=content_id.removeprefix("<").removesuffix(">"),
        inline=part.get_content_disposition() == "inline",
    )


def _content_type(part: Message, without: Set[str]) -> str:
    """With its parameters, but those `without`."""
    parameters = [(name, collapse_rfc2231_value(value)) for name, value in (part.get_params() or ())[1:]]
    kept = (f"{name}={_token(value)}" for name, value in parameters if name.lower() not in without)
    return "; ".join([part.get_content_type(), *map(_readable, kept)])


def _token(value: str) -> str:
    return value if re.fullmatch(r"[\w!#$&^.+'*~-]+", value, re.ASCII) else '"{}"'.format(value.replace('"', "'"))


def _first(message: Message, name: str) -> str:
    found = (value for other, value in message.raw_items() if other.lower() == name)
    return _readable(next(found, ""))


def _readable(value: str) -> str:
    """A header as people read it: unfolded, its encoded words decoded, its raw octets taken as UTF-8."""
    text = value.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")
    text = re.sub(r"\r?\n(?=[ \t])", "", text)
    try:
        return str(make_header(decode_header(text)))
    except (MessageError, LookupError, ValueError):  # an encoded word that is none
        return text
