"""What a message that came back says: the one way into this package."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from posthouse.core.events import Event
from posthouse.returned.origin import Origin, moment, origin_of
from posthouse.returned.parts import Part, read_message
from posthouse.returned.report import complaint_events, delivery_events, spoken_event
from posthouse.returned.shapes import refusals_in
from posthouse.returned.signs import sign_of

_DELIVERY: Final = frozenset({"message/delivery-status", "message/global-delivery-status"})
_FEEDBACK: Final = "message/feedback-report"
_TEXTS: Final = ("text/plain", "text/html")
_FROM_A_SERVER = re.compile(r"mailer-daemon|postmaster|mail ?delivery|mdaemon", re.IGNORECASE)
"""What comes from there is a bounce, even where nobody understands it: for a person to look at."""


class Kind(StrEnum):
    """What a message is."""

    REPORT = "report"  # of delivery, for programs (RFC 3464)
    COMPLAINT = "complaint"  # for programs (RFC 5965)
    BOUNCE = "bounce"  # in words of a known shape
    AUTOMATIC = "automatic"  # a program's mail that changes nothing
    UNREAD = "unread"  # for a person to look at


@dataclass(frozen=True, slots=True)
class Returned:
    """A message that came back, read."""

    kind: Kind
    events: tuple[Event, ...] = ()
    reason: str = ""  # what it is that changes nothing, or why nobody can tell
    route: str | None = None  # the one whose bounce address it came to


def read_returned(
    content: bytes, now: float, *, recipient: str = "", bounce_addresses: Mapping[str, str] | None = None
) -> Returned:
    """Reads a message that came back. Raises nothing, whatever stands in it.

    `recipient` is the address that it came to, where the mail server says so; `bounce_addresses` are the routes' own,
    by name. Read again, the same message gives events with the same ids.
    """
    message = read_message(content)
    read = _read(message, now)
    if not read.events:
        return read
    origin = origin_of(message, recipient, bounce_addresses or {})
    if not origin:  # anybody may send such a thing, and about any address
        return Returned(Kind.UNREAD, reason=f"a {read.kind} that doesn't say about which message")
    return replace(read, events=_told_apart(read.events, origin, content, message), route=origin.route)


def _read(message: Part, now: float) -> Returned:
    parts = [part for part in _own_parts(message) if not part.parts]
    for part in parts:
        if part.media_type in _DELIVERY and (events := delivery_events(part, message, now)):
            return Returned(Kind.REPORT, tuple(events))
        if part.media_type == _FEEDBACK:
            return _complaint(complaint_events(part, message, now))
    at = moment(message.fields.all("date"), now)
    for text in (part.text for part in parts if part.media_type in _TEXTS):
        if refusals := refusals_in(text):
            events = [spoken_event(said.kind, said.recipient, at, said.reason) for said in refusals]
            return Returned(Kind.BOUNCE, tuple(events))
    if not _FROM_A_SERVER.search(message.fields.first("from")) and (rule := sign_of(message.fields)) is not None:
        return Returned(Kind.AUTOMATIC, reason=rule.name)
    return Returned(Kind.UNREAD, reason="neither a report nor a bounce of a known shape")


def _complaint(events: list[Event] | None) -> Returned:
    if events is None:
        return Returned(Kind.UNREAD, reason="feedback of a type for a person to read")
    return Returned(Kind.COMPLAINT, tuple(events), "" if events else "feedback that is no complaint")


def _own_parts(message: Part) -> list[Part]:
    """Its parts without those of the messages that it returns: a report in there is not about ours."""
    if not message.media_type.startswith("multipart/"):
        return [message] if not message.parts else []
    return [below for part in message.parts for below in _own_parts(part)]


def _told_apart(events: Sequence[Event], origin: Origin, content: bytes, message: Part) -> tuple[Event, ...]:
    """The events with the send that they are about, and ids that are the same when the message is read again."""
    its_name = message.fields.first("message-id").encode("utf-8", "replace") or content
    about = f"\0{origin.key}\0{origin.message_id}\0".encode("utf-8", "replace")
    return tuple(
        replace(event, key=origin.key, message_id=origin.message_id, provider_event_id=_digest(its_name + about, event))
        for event in events
    )


def _digest(about: bytes, event: Event) -> str:
    told = f"{event.kind} {event.recipient}".encode("utf-8", "replace")
    return hashlib.sha256(about + told).hexdigest()
