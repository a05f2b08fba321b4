"""The life of a send: one table, state x happening -> new state. Nothing else changes a status.

A send is `pending` until a worker claims it; `sending` means that a call may have begun. Each call ends in an
outcome. What is known not to have been accepted goes back to `pending` or ends in `failed`; what may have been
accepted goes to `unknown` and stays there until somebody can say: a replay under the same idempotency key, a
look-up, an event, or a person. `accepted` is final, and it wins over every other state when the news comes late,
because it is true. A happening that the table doesn't list for a state changes nothing and is refused.

The picture in `docs/architecture.md` is generated from this table, and a test compares them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """Where a send stands. Terminal unless the line says who moves it on."""

    WAITING = "waiting"  # its dependency is not accepted yet; the dependency sweep moves it on
    PENDING = "pending"  # due now or later; a dispatcher's claim moves it on
    SENDING = "sending"  # a call may have begun; its worker, or the reaper of a dead worker, moves it on
    UNKNOWN = "unknown"  # a call was made and nobody can say yet; the reconciler or a person moves it on
    ACCEPTED = "accepted"  # the provider took it (what the receiver did is `delivery`)
    FAILED = "failed"  # refused for good, or out of attempts; `posthouse retry` can bring it back
    EXPIRED = "expired"  # its time was over before it was accepted
    SUPPRESSED = "suppressed"  # the recipient must not get mail of this category
    CANCELLED = "cancelled"  # withdrawn, or shed, before a call began
    COMBINED = "combined"  # it goes out in another send to its recipient, whose fate is its own


class Happening(StrEnum):
    """What can happen to a send, in the past tense, with its reason."""

    DEPENDENCY_ACCEPTED = "dependency_accepted"  # the send it waits for was accepted
    DEPENDENCY_ENDED = "dependency_ended"  # the send it waits for ended without being accepted
    CLAIMED = "claimed"  # a worker took it and may start a call at any moment
    RELEASED = "released"  # its worker gave it back; no call had begun
    ACCEPTED = "accepted"  # the provider took it, as its own worker, a replay or a look-up says
    ACCEPTED_LATE = "accepted_late"  # the same, said by a worker that had lost the send
    PUT_BACK = "put_back"  # certainly not accepted, and worth another try
    REFUSED = "refused"  # rejected for good, unrenderable, or out of attempts
    OUTCOME_LOST = "outcome_lost"  # the call may have been accepted, and its answer doesn't say
    WORKER_DIED = "worker_died"  # its worker is gone; a call may have been made
    LEFT_UNRESOLVED = "left_unresolved"  # no further try, but an earlier call may have been accepted: held
    FOUND_MISSING = "found_missing"  # the provider says it never got it: as good as put back
    RESENT = "resent"  # sent again although it may have been accepted; marked maybe_duplicate
    RESOLVED_FAILED = "resolved_failed"  # a person says that it was not accepted and must not go out
    LIFE_ENDED = "life_ended"  # its expiry passed
    SUPPRESSED = "suppressed"  # a suppression took effect
    CANCELLED = "cancelled"  # the application or a person withdrew it
    SHED = "shed"  # the outbox was full, and more urgent mail needed its place
    COMBINED = "combined"  # it went into another send, before any call for it
    HURRIED = "hurried"  # a person asked for its next try now
    REVIVED = "revived"  # a person, or the discovery that the route was at fault, gave it another life


S, H = Status, Happening

TRANSITIONS: Final[dict[tuple[Status, Happening], Status]] = {
    (S.WAITING, H.DEPENDENCY_ACCEPTED): S.PENDING,
    (S.WAITING, H.DEPENDENCY_ENDED): S.CANCELLED,
    (S.WAITING, H.LIFE_ENDED): S.EXPIRED,
    (S.WAITING, H.SUPPRESSED): S.SUPPRESSED,
    (S.WAITING, H.CANCELLED): S.CANCELLED,
    (S.PENDING, H.CLAIMED): S.SENDING,
    (S.PENDING, H.ACCEPTED_LATE): S.ACCEPTED,
    (S.PENDING, H.LIFE_ENDED): S.EXPIRED,
    (S.PENDING, H.LEFT_UNRESOLVED): S.UNKNOWN,
    (S.PENDING, H.SUPPRESSED): S.SUPPRESSED,
    (S.PENDING, H.CANCELLED): S.CANCELLED,
    (S.PENDING, H.SHED): S.CANCELLED,
    (S.PENDING, H.COMBINED): S.COMBINED,
    (S.PENDING, H.HURRIED): S.PENDING,
    (S.SENDING, H.RELEASED): S.PENDING,
    (S.SENDING, H.ACCEPTED): S.ACCEPTED,
    (S.SENDING, H.ACCEPTED_LATE): S.ACCEPTED,
    (S.SENDING, H.PUT_BACK): S.PENDING,
    (S.SENDING, H.REFUSED): S.FAILED,
    (S.SENDING, H.OUTCOME_LOST): S.UNKNOWN,
    (S.SENDING, H.WORKER_DIED): S.UNKNOWN,
    (S.SENDING, H.LEFT_UNRESOLVED): S.UNKNOWN,
    (S.SENDING, H.LIFE_ENDED): S.EXPIRED,
    (S.SENDING, H.SUPPRESSED): S.SUPPRESSED,
    (S.UNKNOWN, H.ACCEPTED): S.ACCEPTED,
    (S.UNKNOWN, H.ACCEPTED_LATE): S.ACCEPTED,
    (S.UNKNOWN, H.RELEASED): S.PENDING,
    (S.UNKNOWN, H.PUT_BACK): S.PENDING,
    (S.UNKNOWN, H.FOUND_MISSING): S.PENDING,
    (S.UNKNOWN, H.REFUSED): S.FAILED,
    (S.UNKNOWN, H.OUTCOME_LOST): S.UNKNOWN,
    (S.UNKNOWN, H.LEFT_UNRESOLVED): S.UNKNOWN,
    (S.UNKNOWN, H.RESENT): S.PENDING,
    (S.UNKNOWN, H.RESOLVED_FAILED): S.FAILED,
    (S.ACCEPTED, H.ACCEPTED_LATE): S.ACCEPTED,
    (S.FAILED, H.ACCEPTED_LATE): S.ACCEPTED,
    (S.FAILED, H.REVIVED): S.PENDING,
    (S.EXPIRED, H.ACCEPTED_LATE): S.ACCEPTED,
    (S.EXPIRED, H.REVIVED): S.PENDING,
    (S.SUPPRESSED, H.ACCEPTED_LATE): S.ACCEPTED,
    (S.CANCELLED, H.ACCEPTED_LATE): S.ACCEPTED,
    (S.CANCELLED, H.REVIVED): S.PENDING,
    (S.COMBINED, H.ACCEPTED_LATE): S.ACCEPTED,
}
"""The one table of transitions."""

TERMINAL: Final = frozenset({S.ACCEPTED, S.FAILED, S.EXPIRED, S.SUPPRESSED, S.CANCELLED, S.COMBINED})
OPEN: Final = frozenset(Status) - TERMINAL


def after(status: Status, happening: Happening) -> Status | None:
    """The state a happening leads to, or None when this state does not know it (then nothing may change)."""
    return TRANSITIONS.get((status, happening))


def sources(happening: Happening) -> tuple[Status, ...]:
    """The states a happening may start from, in the order of the enum."""
    return tuple(status for status in Status if (status, happening) in TRANSITIONS)
