"""Reads the JSON of one send: whom it is for, its subject, our id in its metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NoReturn

OUR_ID: Final = "posthouse_id"
"""The metadata field that carries the send's id where no idempotency header does."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A send that can be taken."""

    recipients: tuple[str, ...]  # bare addresses, casefolded, in the order to, cc, bcc
    subject: str
    our_id: str | None
    content_hash: str
    body: dict[str, Any]


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
    """What the request's body says. Anything beyond its recipients is taken as it comes."""
    try:
        body = _decoded(raw)
        recipients = _recipients(body)
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
        body=body,
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
