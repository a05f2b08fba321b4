"""Reads the JSON of one send: whom it is for, its subject, our id in its metadata, its files."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NoReturn

from posthouse.sandbox.ledger import CaughtFile

OUR_ID: Final = "posthouse_id"
"""The metadata field that carries the send's id where no idempotency header does."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A send that can be taken."""

    recipients: tuple[str, ...]  # bare addresses, casefolded, in the order to, cc, bcc
    subject: str
    our_id: str | None
    content_hash: str
    size: int  # in octets
    body: dict[str, Any]  # without what follows
    files: tuple[CaughtFile, ...] = ()
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Unusable:
    """A send that can't: a stable code and a sentence for people."""

    error: str
    message: str


class _Refused(Exception):
    def __init__(self, error: str, message: str) -> None:
        self.unusable = Unusable(error, message)
        super().__init__(message)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def read_submission(raw: bytes) -> Submission | Unusable:
    """What the request's body says. A field that the sandbox doesn't know is taken as it comes."""
    try:
        body = _decoded(raw)
        recipients = _recipients(body)
        for name, check in _CHECKS.items():
            if name in body:
                check(body[name], name)
        files = tuple(_files(body.pop("attachments", [])))
        finished = _octets(body.pop("raw"), "raw") if "raw" in body else None
    except _Refused as refused:
        return refused.unusable
    subject = body.get("subject")
    metadata = body.get("metadata")
    our_id = metadata.get(OUR_ID) if isinstance(metadata, dict) else None
    return Submission(
        recipients=recipients,
        subject=subject if isinstance(subject, str) else "",
        our_id=str(our_id) if our_id is not None else None,
        content_hash=blake2b(raw, digest_size=16).hexdigest(),
        size=len(raw),
        body=body,
        files=files,
        raw=finished,
    )


def _decoded(raw: bytes) -> dict[str, Any]:
    try:
        body = _DECODER.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise _Refused("invalid_json", f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise _Refused("invalid_json", "the body is not a JSON object")
    return body


def _recipients(body: dict[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for field in ("to", "cc", "bcc"):
        given = body.get(field) or ()
        listed = given if isinstance(given, (list, tuple)) else [given]
        found.extend(_bare(address, field) for address in listed)
    if not found:
        raise _Refused("missing_recipients", "give at least one recipient in to, cc or bcc")
    return tuple(found)


def _bare(address: object, field: str) -> str:
    """The address in `ada@example.com`, `Ada <ada@example.com>` or `{"email": ..., "name": ...}`."""
    text = address.get("email") if isinstance(address, dict) else address
    if isinstance(text, str):
        if text.endswith(">"):
            text = text[text.rfind("<") + 1 : -1]
        local, at, domain = text.strip().rpartition("@")
        if local and at and domain:
            return f"{local}@{domain}".casefold()
    raise _Refused("invalid_recipient", f"{field} holds something that is not an address")


def _files(value: object) -> list[CaughtFile]:
    return [_file(one, f"attachments[{place}]") for place, one in enumerate(_objects(value, "attachments"))]


def _file(given: dict[str, Any], place: str) -> CaughtFile:
    text = {name: _text(given.get(name, ""), f"{place}.{name}") for name in _FILE_TEXTS}
    if text["disposition"] not in ("", "attachment", "inline"):
        raise _unfit(f"{place}.disposition", "neither attachment nor inline")
    return CaughtFile(
        content=_octets(given.get("content"), f"{place}.content"),
        filename=text["filename"],
        content_type=text["content_type"],
        content_id=text["content_id"],
        inline=text["disposition"] == "inline",
    )


_FILE_TEXTS: Final = ("filename", "content_type", "content_id", "disposition")


def _alternatives(value: object, place: str) -> None:
    for number, one in enumerate(_objects(value, place)):
        for name in ("content_type", "content"):
            _text(one.get(name), f"{place}[{number}].{name}")


def _objects(value: object, place: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise _unfit(place, "not a list of objects")
    return value


def _octets(value: object, place: str) -> bytes:
    try:
        return base64.b64decode(_text(value, place), validate=True)
    except ValueError:
        raise _unfit(place, "not base64") from None


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise _unfit(place, "not text")
    return value


def _flag(value: object, place: str) -> None:
    if not isinstance(value, bool):
        raise _unfit(place, "neither true nor false")


def _unfit(place: str, what: str) -> _Refused:
    return _Refused("invalid_part", f"{place} is {what}")


_CHECKS: Final[dict[str, Callable[[object, str], object]]] = {
    "alternatives": _alternatives,
    "envelope_sender": _text,
    "message_id": _text,
    "track_opens": _flag,
    "track_clicks": _flag,
}
