"""How soon an email of a type would leave, asked now: for the words on an application's page.

"You will have the code in a moment", or "email is slow right now, it can take ten minutes"; and when to offer to send
another one, which while email is slow only makes two of them. An estimate from what all workers know, never a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from posthouse.core.policy import TypePolicy
from posthouse.core.routing import FOR_EVER, RouteHealth, RouteState, in_use
from posthouse.core.switches import Switch

DELAYED_FROM_S: Final = 30.0
"""What leaves within this is on time."""

STALLED_FROM_S: Final = 30.0
"""When the oldest due email has waited for so long and none was accepted lately, nobody can say how long it takes."""

RESEND_AFTER_S: Final = 60.0
"""How long people wait for an email that has left before they ask for another one."""


class Reason(StrEnum):
    """Why an email would be late. Stable: programs compare it, and none tells a recipient about our affairs."""

    ON_TIME = "on_time"  # it would not
    PAUSED = "paused"  # somebody has closed its lane
    NO_ROUTE = "no_route"  # none of its routes may be used now
    STALLED = "stalled"  # mail is due and nothing leaves: no worker, or nothing is accepted
    BACKLOG = "backlog"  # others are before it


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is known of the lanes of a type: what is due there, and what left lately."""

    due: int = 0
    oldest_due_s: float = 0.0  # for how long the oldest has been due
    accepted_per_s: float = 0.0  # over the last minutes


@dataclass(frozen=True, slots=True)
class Outlook:
    """What an application may tell, asked before or after it enqueues."""

    delayed: bool
    by_s: float | None  # how long until it leaves, about; 0 = in a moment; None = nobody can say
    resend_after_s: float  # from now on; then another one may be offered
    reason: Reason
    detail: str = ""  # for people who run it: whose switch, what the route said


def outlook(
    policy: TypePolicy, health: Mapping[str, RouteHealth], switch: Switch | None, waiting: Waiting, now: float
) -> Outlook:
    """The outlook for an email of this type; `switch` is the one that closes its lane, where one does."""
    reason, closed_s, detail = _closed(policy, health, switch, now)
    queued_s = waiting.due / waiting.accepted_per_s if waiting.accepted_per_s else 0.0
    by_s = None if closed_s is None else closed_s + queued_s
    if reason is Reason.ON_TIME and not waiting.accepted_per_s and waiting.oldest_due_s >= STALLED_FROM_S:
        return _told(policy, Reason.STALLED, None, f"{waiting.due:,} due, none accepted lately")
    if reason is Reason.ON_TIME and by_s is not None and by_s >= DELAYED_FROM_S:
        return _told(policy, Reason.BACKLOG, by_s, f"{waiting.due:,} due before it")
    return _told(policy, reason, by_s, detail)


def _closed(
    policy: TypePolicy, health: Mapping[str, RouteHealth], switch: Switch | None, now: float
) -> tuple[Reason, float | None, str]:
    """Why nothing of the type may start now, and for how long."""
    if switch is not None:
        return Reason.PAUSED, None if switch.until is None else switch.until - now, switch.reason
    routes = [health.get(name, RouteHealth(name)) for name in in_use(policy, health, now) or policy.routes]
    known_s = [max(0.0, route.opens_at - now) for route in routes if not _waits_for_somebody(route)]
    opens_s = min(known_s, default=None)
    if opens_s is not None and opens_s < DELAYED_FROM_S:
        return Reason.ON_TIME, opens_s, ""
    return Reason.NO_ROUTE, opens_s, "; ".join(f"{route.name}: {route.reason}" for route in routes)


def _waits_for_somebody(route: RouteHealth) -> bool:
    """Whether nobody can say when it works again: at its time it is only tried, or not even that."""
    return route.state is RouteState.STOPPED or route.is_tripped or route.opens_at >= FOR_EVER


def _told(policy: TypePolicy, reason: Reason, by_s: float | None, detail: str) -> Outlook:
    """When the email has expired, another one is what there should be; never offered later than that, or than the
    cooldown allows."""
    delayed = by_s is None or by_s >= DELAYED_FROM_S
    leaves_s = policy.max_age_s if by_s is None else by_s
    offered_s = max(min(leaves_s + RESEND_AFTER_S, policy.max_age_s), policy.cooldown_s)
    return Outlook(delayed, by_s, offered_s, reason, detail)
