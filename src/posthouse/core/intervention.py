"""What a person may do to a send, and what it then becomes. What its state doesn't allow raises NotPossible."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from posthouse.core.lifecycle import Happening, Status
from posthouse.core.policy import TypePolicy
from posthouse.core.reconcile import keep_or_delete_content, resent, waited
from posthouse.core.sends import Change, SendState
from posthouse.errors import NotPossible

UNDER_WAY: Final = "a call for it may be under way right now; look again in a moment"
COMBINED: Final = "it goes out in another send; posthouse show says in which"
UNRESOLVED: Final = "nobody knows whether it was accepted; say so with: posthouse resolve"


class Verdict(StrEnum):
    """What a person found out about an unknown send, or decides."""

    ACCEPTED = "accepted"  # the provider has it
    FAILED = "failed"  # it was not accepted and must not go out
    RESEND = "resend"  # send it (again), at the risk of a second copy


@dataclass(frozen=True, slots=True)
class Intervention:
    """A change by a person. `fresh_start` gives new attempts, time and, where it is certain that nothing was
    accepted, a new idempotency key (a provider may have stored its refusal under the old one)."""

    change: Change
    fresh_start: bool = False
    new_key: bool = False


def cancel(send: SendState) -> Intervention:
    """Withdraws a send for which no call is under way."""
    if send.status is Status.WAITING or (send.status is Status.PENDING and not send.unresolved):
        return Intervention(Change(Happening.CANCELLED, Status.CANCELLED, None))
    if send.status is Status.PENDING:
        return Intervention(waited(send, None, "cancelled, but an earlier attempt may have been accepted"))
    if send.status is Status.SENDING:
        raise NotPossible(f"it can't be cancelled: {UNDER_WAY}")
    if send.status is Status.UNKNOWN:
        raise NotPossible(f"it can't be cancelled: {UNRESOLVED}")
    if send.status is Status.COMBINED:
        raise NotPossible(f"it can't be cancelled: {COMBINED}")
    raise NotPossible(f"it can't be cancelled: it has ended already ({send.status})")


def retry(send: SendState, now: float) -> Intervention:
    """Gives an ended send another life, or a pending one its next try at once."""
    if send.status in (Status.FAILED, Status.EXPIRED, Status.CANCELLED):
        return Intervention(Change(Happening.REVIVED, Status.PENDING, now), fresh_start=True, new_key=True)
    if send.status is Status.PENDING:
        return Intervention(_hurried(send, now))
    reasons = {
        Status.ACCEPTED: "it was accepted; a new email needs a new key",
        Status.SENDING: UNDER_WAY,
        Status.UNKNOWN: UNRESOLVED,
        Status.WAITING: "it waits for another email to be accepted",
        Status.SUPPRESSED: (
            "its recipient must not get it (posthouse show says why); if they may again, say so with posthouse "
            "unsuppress, and ask for the email anew under a new key"
        ),
        Status.COMBINED: COMBINED,
    }
    raise NotPossible(f"it can't be tried again: {reasons[send.status]}")


def resolve(send: SendState, verdict: Verdict, now: float, policy: TypePolicy | None = None) -> Intervention:
    """Ends the uncertainty about an unknown send, in the words of a person. No `policy`: its type is not known here."""
    if send.status is not Status.UNKNOWN:
        raise NotPossible(f"there is nothing to resolve: it is {send.status}")
    if verdict is Verdict.ACCEPTED:
        change = Change(Happening.ACCEPTED, Status.ACCEPTED, None)
        return Intervention(change if policy is None else keep_or_delete_content(change, policy))
    if verdict is Verdict.FAILED:
        said = "a person says that it was not accepted"
        return Intervention(Change(Happening.RESOLVED_FAILED, Status.FAILED, None, last_error=said))
    return Intervention(resent(send, now), fresh_start=True)


def _hurried(send: SendState, now: float) -> Change:
    return Change(
        Happening.HURRIED,
        Status.PENDING,
        now,
        unknown_since=send.unknown_since,
        unknown_fence=send.unknown_fence,
    )
