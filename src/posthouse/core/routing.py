"""Which route a send takes: the type's order, each route's health, and the pin of an unknown outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from posthouse.core.breaker import Breaker, BreakerState, after, counts, end_probe, ramp
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.policy import SHARES, Failover, TypePolicy
from posthouse.core.retry import Backoff, asked_wait_s
from posthouse.core.sends import SendState

THROTTLE_BACKOFF: Final = Backoff(first_s=2.0, max_s=300.0)
"""How long a throttled route rests when the answer doesn't say."""

STOP_BACKOFF: Final = Backoff(first_s=15.0, max_s=300.0)
"""How long a misconfigured route rests before one send may try it again."""


FOR_EVER: Final = 221_845_392_000.0
"""The year 9000: closed until a person opens it."""

SPREAD: Final = 7919
"""A prime, so that the few sends of a standby are spread evenly over ids in a row."""


CLEAN: Final = Breaker()
"""That of a route that nothing ever happened to."""


class RouteState(StrEnum):
    """Whether a route may be used."""

    OPEN = "open"  # in use; `held_until` may still say: not before
    CLOSED = "closed"  # by a person, until `held_until`
    STOPPED = "stopped"  # misconfigured: one send at a time tries it after `held_until`, the rest waits


@dataclass(frozen=True, slots=True)
class RouteHealth:
    """One row of `email_routes`: what every worker obeys."""

    name: str
    state: RouteState = RouteState.OPEN
    held_until: float = 0.0
    reason: str = ""
    strikes: int = 0  # refusals in a row that held it, with nothing accepted between
    breaker: Breaker = CLEAN
    held_since: float = 0.0  # when its latest hold began
    last_accepted_at: float | None = None  # to within a minute; None: never, as far as is known
    probing: bool = False  # this worker has leave for the one call that may find out whether the provider is back

    def closed(self, now: float) -> bool:
        """Whether a person keeps it closed now."""
        return self.state is RouteState.CLOSED and now < self.held_until

    def takes(self, now: float) -> bool:
        """Whether a call may start now."""
        return now >= self.held_until and (self.probing or not self.is_tripped)

    @property
    def is_tripped(self) -> bool:
        """Whether its breaker is open: the provider fails, whoever asks it."""
        return self.breaker.state is BreakerState.OPEN

    def half_open(self, now: float) -> bool:
        """Whether one call alone may find out how it is."""
        return self.takes(now) and (self.probing or self.state is RouteState.STOPPED)

    def slots(self, concurrency: int, now: float, chance: float = 0.0) -> int:
        """How many calls at once it may have now: one while it is being tried again, then slowly more."""
        if not self.takes(now):
            return 0
        if self.half_open(now):
            return 1
        after_breaker = ramp(concurrency, self.breaker.closed_at, now, chance)
        return min(after_breaker, ramp(concurrency, self.held_until, now, chance, self.held_until - self.held_since))

    @property
    def opens_at(self) -> float:
        """When a call may start again, as far as anybody can say."""
        return max(self.held_until, self.breaker.opens_at) if self.is_tripped else self.held_until


_WELL: Final[dict[str, Any]] = {"state": RouteState.OPEN, "reason": "", "strikes": 0}
"""What an acceptance makes of a route that was held or stopped. When that ended stays: traffic comes back slowly."""

_FULL_MARGIN_S: Final = 0.5
"""Answers that tell of one window's end are apart by as much as they took."""


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """The next call's route for every send of a type, so that a claim can write it before the call begins.

    A crash then leaves a row that says who may have accepted it.
    """

    first: str  # of a send's first call
    after: Mapping[str, str]  # by the route of its latest call
    pins: bool  # a send with an unknown outcome stays with the route that knows it
    standby: str = ""  # of the first call of a few, evenly spread by their ids
    standby_share: int = 0  # so many of SHARES

    def next_route(self, send: SendState) -> str | None:
        """The route of this send's next call. The claim's SQL says the same, and a test compares them."""
        if self.pins and send.unresolved:
            return send.route
        if not send.attempts:
            return self.standby if send.id * SPREAD % SHARES < self.standby_share else self.first
        return self.first if send.route is None else self.after.get(send.route, self.first)


def route_plan(policy: TypePolicy, health: Mapping[str, RouteHealth], now: float) -> RoutePlan | None:
    """The plan for a type now, or None when none of its routes may be used.

    After a failure the next route of the type's order comes first.
    """
    routes = in_use(policy, health, now)
    open_routes = [name for name in routes if _takes(health.get(name), now)]
    if not open_routes:
        return None
    after = {}
    for place, name in enumerate(routes, start=1):
        rotated = routes[place:] + routes[:place]
        after[name] = next(other for other in rotated if other in open_routes)
    standby = open_routes[1] if len(open_routes) > 1 else ""
    share = policy.standby_share if standby and open_routes[0] == policy.routes[0] else 0
    return RoutePlan(open_routes[0], after, not policy.unknown_may_change_route, standby, share)


def in_use(policy: TypePolicy, health: Mapping[str, RouteHealth], now: float) -> tuple[str, ...]:
    """The routes of a type that nobody has closed; where a person decides on failover, the first of them alone."""
    routes = tuple(name for name in policy.routes if name not in health or not health[name].closed(now))
    return routes[:1] if policy.failover is Failover.MANUAL else routes


def _takes(health: RouteHealth | None, now: float) -> bool:
    return health is None or health.takes(now)


def candidates(send: SendState, policy: TypePolicy, health: Mapping[str, RouteHealth], now: float) -> tuple[str, ...]:
    """The routes that the send may take: those of its type, or only the one that knows of an unknown outcome."""
    if send.unresolved and not policy.unknown_may_change_route:
        return tuple(name for name in policy.routes if name == send.route)
    if policy.failover is Failover.AUTOMATIC:
        return policy.routes
    return in_use(policy, health, now) or policy.routes[:1]


def opens_at(routes: Iterable[str], health: Mapping[str, RouteHealth], now: float) -> float:
    """When the first of `routes` may be used again; `now` if one may be used already, or there is none."""
    return max(now, min((health[name].opens_at if name in health else now for name in routes), default=now))


def after_call(
    health: RouteHealth, verdict: Verdict, successes: int, worker: int, now: float, chance: float
) -> RouteHealth | None:
    """The route's health after one call, and the successes that `worker` had there before it; None: as it is.

    A route at fault stops by itself, whatever its breaker says.
    """
    changed = health_after(health, verdict, now, chance) or health
    failed = None if verdict.outcome is Outcome.MISCONFIGURED else counts(verdict)
    breaker = health.breaker
    if health.is_tripped:
        breaker = end_probe(breaker, worker, failed, now, chance)
    elif failed is not None:
        breaker = after(breaker, successes, failed, now, chance)
    tripped = failed and breaker.state is BreakerState.OPEN
    changed = replace(changed, breaker=breaker, reason=_said(verdict) if tripped else changed.reason)
    return None if changed == health else changed


def health_after(health: RouteHealth, verdict: Verdict, now: float, chance: float) -> RouteHealth | None:
    """The route's health after one verdict, or None when it stays as it is, as one that a person has closed does."""
    if health.closed(now):
        return None
    changed = _judged(health, verdict, now, chance)
    return _full(changed or health, verdict, now) or changed


def credential_changed(health: RouteHealth, now: float) -> RouteHealth | None:
    """A stopped route may be tried at once, still by one send at a time; None: there is nothing to change."""
    waits = health.state is RouteState.STOPPED and now < health.held_until
    return replace(health, held_until=now) if waits else None


def _full(health: RouteHealth, verdict: Verdict, now: float) -> RouteHealth | None:
    """Held until something fits again, where the answer said that nothing does. That is no refusal: no strike."""
    if verdict.full_for_s is None or (until := now + verdict.full_for_s) <= health.held_until + _FULL_MARGIN_S:
        return None
    if health.held_until <= now:
        health = replace(health, held_since=now, reason=health.reason or "by its own word nothing more fits")
    return replace(health, held_until=until)


def _judged(health: RouteHealth, verdict: Verdict, now: float, chance: float) -> RouteHealth | None:
    if verdict.outcome is Outcome.ACCEPTED:
        healthy = health.state is RouteState.OPEN and not health.strikes
        # While it is held, that was a call that had begun before: it says nothing about what comes after.
        return None if healthy or now < health.held_until else replace(health, **_WELL)
    if verdict.outcome is Outcome.THROTTLED:
        asked = asked_wait_s(verdict.retry_after_s)
        wait = asked if asked is not None else THROTTLE_BACKOFF.delay_s(health.strikes + 1, chance)
        return _held(health, RouteState.OPEN, now + wait, verdict, now)
    if verdict.outcome is Outcome.MISCONFIGURED:
        wait = STOP_BACKOFF.delay_s(health.strikes + 1, chance)
        return _held(health, RouteState.STOPPED, now + wait, verdict, now)
    return None


def _held(health: RouteHealth, state: RouteState, until: float, verdict: Verdict, now: float) -> RouteHealth | None:
    """Held longer than it is, never shorter. Calls that were under way add no strike, but may ask for more time."""
    state = RouteState.STOPPED if health.state is RouteState.STOPPED else state
    until = max(until, health.held_until)
    if now < health.held_until and health.state is state:
        longer = until > health.held_until and verdict.retry_after_s is not None
        return replace(health, held_until=until) if longer else None
    since = health.held_since if now < health.held_until else now
    strikes = health.strikes + 1
    return replace(health, state=state, held_until=until, held_since=since, reason=_said(verdict), strikes=strikes)


def _said(verdict: Verdict) -> str:
    return " ".join(part for part in (verdict.code, verdict.text) if part)
