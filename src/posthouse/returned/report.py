"""Reports that programs can read: of delivery (RFC 3464, RFC 6533), and of complaints (RFC 5965)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from posthouse.core.causes import cause_of
from posthouse.core.events import Cause, Event, EventKind
from posthouse.returned.origin import addresses_in, moment
from posthouse.returned.parts import Fields, Part

TEXT_CHARS_MAX: Final = 2000
RECIPIENTS_MAX: Final = 1000
"""No message of ours has more."""

BAD_FOR_GOOD: Final = frozenset({Cause.NO_MAILBOX, Cause.MAILBOX_DISABLED})
"""What a receiver says of an address itself, where it says 5."""

ACTIONS: Final = {
    "failed": EventKind.BOUNCED,
    "failure": EventKind.BOUNCED,  # as some write it
    "delayed": EventKind.DEFERRED,
    "delivered": EventKind.DELIVERED,
    "expanded": EventKind.DELIVERED,  # it reached a list, which sends it on in its own name
    "relayed": EventKind.SENT,  # it went on to where nobody reports
}
"""RFC 3464 section 2.3.3."""

_CLASSES: Final = {"2": EventKind.DELIVERED, "4": EventKind.DEFERRED, "5": EventKind.BOUNCED}
_STATUS = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)")
_REPLY = re.compile(r"(?<![\d.#])([245]\d\d)(?=[ -]|\Z)")
_TYPED = re.compile(r"\A\s*[\w-]{1,40}\s*;\s*")
_DIAGNOSTIC = re.compile(r"\A\s*(?:smtp|x-[\w-]+|dns|500)\s*;\s*", re.IGNORECASE)


FEEDBACK: Final[Mapping[str, EventKind | None]] = {
    "abuse": EventKind.COMPLAINED,
    "fraud": EventKind.COMPLAINED,
    "miscategorized": EventKind.COMPLAINED,
    "opt-out": EventKind.UNSUBSCRIBED,
    "opt-out-list": EventKind.UNSUBSCRIBED,
    "not-spam": None,  # the reverse of a complaint
    "auth-failure": None,  # RFC 6591: about our domain's authentication, and often about others' mail
    "dmarc": None,
}
"""The registry of feedback types. `virus` and `other` are for a person to look at, as is what isn't known."""


def delivery_events(report: Part, message: Part, now: float) -> list[Event]:
    """An event for each recipient that the report says something of."""
    dated = message.fields.all("date")
    told = (_delivery_event(fields, dated, now) for fields in report.groups)  # the first group is about the message
    return [*islice((event for event in told if event is not None), RECIPIENTS_MAX)]


def _delivery_event(fields: Fields, dated: list[str], now: float) -> Event | None:
    if not fields.first("final-recipient", "original-recipient", "action"):
        return None
    status = next(iter(_STATUS.findall(fields.first("status"))), "")
    kind = ACTIONS.get(fields.first("action").partition(" ")[0].strip(";,.").lower()) or _CLASSES.get(status[:1])
    if kind is None:
        return None
    told = _DIAGNOSTIC.sub("", fields.first("diagnostic-code"))[:TEXT_CHARS_MAX]
    at = moment((*fields.all("last-attempt-date"), *dated), now)
    return spoken_event(kind, recipient_of(fields), at, told, status)


def spoken_event(kind: EventKind, recipient: str, at: float, told: str, status: str = "") -> Event:
    """An event of what a receiver said. `hard` only where it says 5, and says that it is the address."""
    status = status or next(iter(_STATUS.findall(told)), "")
    reply = next(iter(_REPLY.findall(told)), "")
    bad = kind in (EventKind.BOUNCED, EventKind.DEFERRED)
    cause = cause_of(status, told) if bad else Cause.NONE
    for_good = kind is EventKind.BOUNCED and (status or reply).startswith("5") and cause in BAD_FOR_GOOD
    return Event(kind, at, recipient, cause=cause, hard=for_good, code=f"{reply} {status}".strip(), text=told)


def recipient_of(fields: Fields) -> str:
    """Whom we had sent it to, where the report says so; else who it was for in the end."""
    for value in (*fields.all("original-recipient"), *fields.all("final-recipient")):
        if found := addresses_in(_TYPED.sub("", value)):
            return found[0]
    return ""


def complaint_events(report: Part, message: Part, now: float) -> list[Event] | None:
    """What the recipients of a complaint's message said of it; None where that is for a person to read."""
    fields = Fields(tuple(pair for group in report.groups for pair in group.pairs))
    type_ = fields.first("feedback-type").strip().lower()
    if type_ not in FEEDBACK:
        return None
    kind = FEEDBACK[type_]
    if kind is None:
        return []
    dates = (*fields.all("arrival-date"), *fields.all("received-date"), *message.fields.all("date"))
    return [
        Event(kind, moment(dates, now), recipient, text=type_) for recipient in _complainers(fields, message) or [""]
    ]


def _complainers(fields: Fields, message: Part) -> list[str]:
    """Who complained, where it isn't blotted out: else the only one to whom the message was."""
    named = [*fields.all("original-rcpt-to"), *fields.all("removal-recipient")]
    found = [address for value in named for address in addresses_in(value)]
    return list(dict.fromkeys(found)) or _only_recipient(message)


def _only_recipient(message: Part) -> list[str]:
    to = [address for part in _returned(message) for value in part.fields.all("to") for address in addresses_in(value)]
    return to if len(set(to)) == 1 else []


def _returned(message: Part) -> Iterator[Part]:
    return (part for part in message.walk() if part is not message and part.fields.first("message-id", "from"))
