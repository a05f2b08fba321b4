"""Finding out what became of an unknown send: which resolver is next, and when.

In this order: an event that carries our id (it arrives by itself); a replay under the same idempotency key, where
the provider honours one and it has not lapsed; a look-up, where the provider can be asked; and after the type's
`unknown_wait`, its `on_unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from posthouse.core.lifecycle import Happening, Status
from posthouse.core.outcome import Found, LookUp
from posthouse.core.policy import REPLAY_BACKOFF, Category, OnUnknown, RouteFacts, TypePolicy
from posthouse.core.sends import Change, SendState

KEY_MARGIN_S: Final = 60.0
"""A replay must have ended this long before the provider forgets the key."""


class Resolver(StrEnum):
    """What to do now about an unknown send."""

    REPLAY = "replay"  # call again under the same key: the provider repeats its first answer
    LOOK_UP = "look-up"  # ask the provider
    WAIT = "wait"  # nothing now; look again at `at`
    RESEND = "resend"  # the type says: send it again, marked maybe_duplicate
    HOLD = "hold"  # a person decides


@dataclass(frozen=True, slots=True)
class Plan:
    """The next resolver, why, and when the send should be looked at again (None: never by itself)."""

    resolver: Resolver
    reason: str
    at: float | None = None


def plan(send: SendState, route: RouteFacts | None, policy: TypePolicy, now: float) -> Plan:
    """The resolver for `send` now. `route` is the one it was handed to, None if it is no longer configured."""
    since = send.unknown_since if send.unknown_since is not None else now
    expired = now >= send.expires_at
    if route is not None and not expired and _key_holds(route, since, now):
        return Plan(Resolver.REPLAY, f"{route.name} honours the idempotency key")
    if route is not None and route.can_look_up:
        return Plan(Resolver.LOOK_UP, f"{route.name} can be asked")
    gives_up_at = since + policy.unknown_wait_s
    if now < gives_up_at:
        return Plan(Resolver.WAIT, "an event may still tell", at=gives_up_at)
    return _last_resort(send, route, policy, expired)


def _key_holds(route: RouteFacts, since: float, now: float) -> bool:
    return now + route.timeout_s + KEY_MARGIN_S < since + route.key_lifetime_s


def _first_certain_no(route: RouteFacts, since: float) -> float:
    return since + route.timeout_s + route.look_up_lag_s


def _last_resort(send: SendState, route: RouteFacts | None, policy: TypePolicy, expired: bool) -> Plan:
    if policy.on_unknown is OnUnknown.HOLD:
        return Plan(Resolver.HOLD, "nobody could say whether it was accepted, and the type says hold")
    if expired:
        return Plan(Resolver.HOLD, "nobody could say whether it was accepted, and it is too late to resend")
    if send.failures >= policy.max_attempts:
        return Plan(Resolver.HOLD, f"nobody could say whether it was accepted, after {send.failures} attempts")
    if (route is None or route.name not in policy.routes) and not policy.unknown_may_change_route:
        return Plan(Resolver.HOLD, f"its type no longer uses its route, {send.route}")
    return Plan(Resolver.RESEND, "nobody could say whether it was accepted, and the type says resend")


def looked_up(send: SendState, answer: LookUp, route: RouteFacts, asked_at: float, now: float, chance: float) -> Change:
    """The change that a look-up's answer makes. A "no" counts only after the provider's indexing lag."""
    since = send.unknown_since if send.unknown_since is not None else asked_at
    if answer.found is Found.ACCEPTED:
        return Change(Happening.ACCEPTED, Status.ACCEPTED, None, message_id=answer.message_id)
    certain_at = _first_certain_no(route, since)
    if answer.found is Found.MISSING and asked_at >= certain_at:
        return Change(Happening.FOUND_MISSING, Status.PENDING, now, last_error=f"{route.name} says it never got it")
    again = now + REPLAY_BACKOFF.delay_s(send.tries_since_lost, chance)
    return _still_open(send, certain_at if now < certain_at < again else again)


def learned(
    send: SendState,
    fence: int,
    answer: LookUp,
    route: RouteFacts,
    policy: TypePolicy,
    asked_at: float,
    now: float,
    chance: float,
) -> Change | None:
    """`looked_up` for the row as it stands: under another fence only the news that it was accepted still counts.

    Where the provider can be asked, the last resort is taken only right after it was asked in vain.
    """
    if send.status is Status.UNKNOWN and send.fence == fence:
        if answer.found is Found.MISSING and _may_be_elsewhere(send, policy):
            answer = replace(answer, found=Found.UNSURE)
        change = _unless_out_of_attempts(send, looked_up(send, answer, route, asked_at, now, chance), policy)
        if change.status is Status.UNKNOWN and asked_at >= _gives_up_at(send, route, policy, asked_at):
            change = _applied(_last_resort(send, route, policy, now >= send.expires_at), send, now)
    elif answer.found is Found.ACCEPTED and send.status is not Status.ACCEPTED:
        change = Change(
            Happening.ACCEPTED_LATE,
            Status.ACCEPTED,
            None,
            message_id=answer.message_id,
            maybe_duplicate=send.status is Status.SENDING,
        )
    else:
        return None
    return keep_or_delete_content(change, policy)


def _may_be_elsewhere(send: SendState, policy: TypePolicy) -> bool:
    """Whether a resend may have gone to another route: then a "no" of one says nothing about the other."""
    return send.maybe_duplicate and policy.unknown_may_change_route


def _gives_up_at(send: SendState, route: RouteFacts, policy: TypePolicy, asked_at: float) -> float:
    since = send.unknown_since if send.unknown_since is not None else asked_at
    return max(since + policy.unknown_wait_s, _first_certain_no(route, since))


def _applied(last_resort: Plan, send: SendState, now: float) -> Change:
    if last_resort.resolver is Resolver.RESEND:
        return resent(send, now)
    return waited(send, None, last_resort.reason)


def _unless_out_of_attempts(send: SendState, change: Change, policy: TypePolicy) -> Change:
    if change.happening is not Happening.FOUND_MISSING or send.failures < policy.max_attempts:
        return change
    reason = f"gave up after {send.failures} attempts; the last: {change.last_error}"
    return Change(Happening.REFUSED, Status.FAILED, None, last_error=reason)


def keep_or_delete_content(change: Change, policy: TypePolicy) -> Change:
    """The content of security mail (codes, reset links) goes in the write that accepts it."""
    accepted = change.status is Status.ACCEPTED
    return replace(change, delete_content=accepted and policy.category is Category.SECURITY)


def waited(send: SendState, at: float | None, reason: str) -> Change:
    """Nothing known yet: look again at `at`, or, at None, hold it for a person."""
    return _still_open(send, at, reason if at is None else None)


def resent(send: SendState, now: float) -> Change:
    """Send it again although it may have been accepted; the earlier call stays open, so its route is pinned."""
    return Change(
        Happening.RESENT,
        Status.PENDING,
        now,
        maybe_duplicate=True,
        unknown_since=send.unknown_since,
        unknown_fence=send.unknown_fence,
    )


def _still_open(send: SendState, at: float | None, reason: str | None = None) -> Change:
    return Change(
        Happening.OUTCOME_LOST if at is not None else Happening.LEFT_UNRESOLVED,
        Status.UNKNOWN,
        at,
        last_error=reason,
        unknown_since=send.unknown_since,
        unknown_fence=send.unknown_fence,
    )
