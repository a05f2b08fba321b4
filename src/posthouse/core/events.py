"""What a provider, or a mail that came back, says of a message after it was accepted.

News comes late, twice, and in any order. Nothing here depends on which of it came first: see `core/delivery.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from posthouse.address import fold
from posthouse.core.lifecycle import Status
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.policy import TypePolicy
from posthouse.core.sends import Attempt, Change, SendState, Via
from posthouse.core.settlement import settle


class EventKind(StrEnum):
    """What happened. Each of them means that the provider had accepted the message."""

    SENT = "sent"  # the provider says that it has it, or that it is on its way
    DEFERRED = "deferred"  # the receiver put it off; the provider goes on trying
    DELIVERED = "delivered"  # the receiver's server took it
    BOUNCED = "bounced"  # it won't be delivered: refused, given up, or dropped by the provider itself
    COMPLAINED = "complained"  # the recipient called it spam
    UNSUBSCRIBED = "unsubscribed"  # the recipient wants no more of such mail
    OPENED = "opened"  # somebody, or a program on their behalf, loaded its pixel
    CLICKED = "clicked"  # somebody, or a program on their behalf, followed a link


class Cause(StrEnum):
    """Why something was deferred or bounced, as far as anybody says. `core/suppression.py` says what follows."""

    NONE = ""  # nothing was said, or nothing needs a cause
    NO_MAILBOX = (
        "no_mailbox"  # there is no such mailbox (5.1.1), or no such domain, or it takes no mail (5.1.2, 5.1.10)
    )
    MAILBOX_DISABLED = "mailbox_disabled"  # there is one, and it takes nothing (5.2.1)
    MAILBOX_FULL = "mailbox_full"  # 4.2.2, 5.2.2
    GREYLISTED = "greylisted"  # come again in some minutes
    TOO_FAST = "too_fast"  # the receiver wants less from us
    BLOCKED = "blocked"  # the receiver's policy, or our reputation there (5.7.1, block lists)
    NOT_AUTHENTIC = "not_authentic"  # our own SPF, DKIM, DMARC or reverse DNS (5.7.20 to 5.7.27)
    CONTENT = "content"  # this message: its size, its attachments, its words
    EXPIRED = "expired"  # tried for days in vain (4.4.7)
    UNREACHABLE = "unreachable"  # the receiver's servers didn't answer
    LISTED = "listed"  # on the provider's own suppression list: it didn't even try
    AUTO_REPLY = "auto_reply"  # no bounce at all: somebody is out of office
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Event:
    """One piece of news on one message for one recipient."""

    kind: EventKind
    at: float  # when it happened, as the provider says; seconds since 1970
    recipient: str = ""  # the address as the provider has it; empty where it doesn't say
    key: str | None = None  # our id, from the metadata that came back
    message_id: str | None = None  # the provider's, as its answer to the call gave it
    provider_event_id: str | None = None  # what is the same when the provider says it again; never used for another
    cause: Cause = Cause.NONE
    hard: bool = False  # the provider says that this address is bad for good
    code: str = ""  # such as "550 5.1.1"
    text: str = ""  # what the receiver said
    url: str = ""  # of a click

    def identity(self, route: str) -> tuple[str, ...]:
        """The same for what tells the same: who sends an event again may give it another id."""
        about = self.key or self.message_id or ""
        return (route, self.kind, about, fold(self.recipient), f"{self.at:.3f}", self.url)


_SPEAK_FOR_THEMSELVES: Final = frozenset({Status.ACCEPTED, Status.WAITING, Status.SENDING})
"""Accepted already; never called for; or called for right now: that answer says more (such as who was left out), and
where it is lost, the send is `unknown` and what was heard of it is asked then."""


def resolve(send: SendState, event: Event, route: str, policy: TypePolicy, now: float) -> tuple[Attempt, Change] | None:
    """What an event means for a send that is not accepted yet: it was, or nobody could tell of it.

    None where that is nothing new, or not for an event to say now. `route` is where the event came in.
    """
    if send.status in _SPEAK_FOR_THEMSELVES:
        return None
    verdict = Verdict(
        Outcome.ACCEPTED, code=event.kind, text=event.text, message_id=event.message_id, rule="an event tells of it"
    )
    attempt = Attempt(send.id, send.fence, send.route or route, event.at, now, verdict, Via.EVENT)
    change = settle(send, attempt, policy, now, chance=0.0)
    # The call that it tells of was counted when it was made.
    return None if change is None else (attempt, replace(change, spends_attempt=False))
