"""The routes as this worker sees them: their health, shared by all workers, and its own slots on each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from posthouse.core.breaker import NO_TALLY, Tally, begin_probe, counts, may_probe
from posthouse.core.concurrency import Adaptive, ended, tells
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.policy import RouteFacts, TypePolicy
from posthouse.core.routing import (
    RouteHealth,
    RoutePlan,
    RouteState,
    after_call,
    candidates,
    credential_changed,
    health_after,
    opens_at,
    route_plan,
)
from posthouse.core.sends import SendState
from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.store.control import Control
from posthouse.worker.alarm import Alarm
from posthouse.worker.places import Places
from posthouse.worker.slots import Slots

ADAPTIVE_FIRST: Final = 32.0
"""So many calls at once a new worker begins with; the first windows double it."""

HEALTH_AGE_MAX_S: Final = 0.5
"""Nothing is called by what was known of the routes longer ago."""

TRYING_S: Final = 1.0
TELL_EVERY_S: Final = 1.0
PROBE_MARGIN_S: Final = 5.0
PROBE_LEASE_MAX_S: Final = 60.0

log = logging.getLogger("posthouse.worker")


class Routes:
    """Health is refreshed from the table that all workers share; `slots` are this worker's own."""

    def __init__(
        self,
        facts: Mapping[str, RouteFacts],
        places: Places,
        control: Control,
        access: StoreAccess,
        alarm: Alarm,
        worker: int,
        now: Callable[[], float],
        spread: float,
    ) -> None:
        self.facts = facts
        self._worker = worker
        self._spread = spread  # between 0 and 1, another one in each worker: how fast its traffic comes back
        self._adaptive = {name: Adaptive(limit=ADAPTIVE_FIRST) for name in facts}
        self._tallies: dict[str, Tally] = {}
        self._told_at: dict[str, float] = {}
        self._probes_wanted: set[str] = set()
        self._places = places
        self.health: dict[str, RouteHealth] = {}
        self.slots = Slots(facts, self._allowed, self._takes_well, lambda name: self._adaptive[name].baseline_s)
        self._control = control
        self._access = access
        self._alarm = alarm
        self._now = now
        self.accepted_at: dict[str, float] = {}  # when this worker's latest call on a route was accepted
        self._read_at: float | None = None

    def room(self, route: str) -> int:
        """How many calls may start on the route now."""
        self._miss_places(route)
        return self.slots.room(route)

    def free(self, route: str, *, ahead: bool) -> int:
        """How many sends to claim for the route now; with those that may wait for a slot, or without."""
        self._miss_places(route)
        return self.slots.claimable(route, ahead=ahead)

    def _miss_places(self, route: str) -> None:
        if (
            route in self.facts
            and self.any_takes((route,))
            and self._places.allowed(route) <= self.slots.used_on(route)
        ):
            self._places.miss(route)

    def _takes_well(self, route: str) -> int:
        return self._adaptive[route].allowed(self.facts[route].concurrency)

    def _allowed(self, route: str) -> int:
        """How many calls the route may have at once just now, as far as its health and our places go."""
        health, places = self.health.get(route), self._places.allowed(route)
        if health is None:
            return places
        now = self._now()
        return min(places, health.slots(places, now, self._spread)) if health.takes(now) else 0

    def plan(self, policy: TypePolicy) -> RoutePlan | None:
        """The next call's route for every send of a type; None while none of its routes may be used."""
        now = self._now()
        for name in policy.routes:
            self.want(name)
        return route_plan(policy, {name: self._as_planned(health, now) for name, health in self.health.items()}, now)

    def want(self, route: str) -> None:
        """Says that there is mail for the route: if its provider fails, it is time to see whether it is back."""
        health = self.health.get(route)
        if health is not None and may_probe(health.breaker, self._now()) and not health.probing:
            self._probes_wanted.add(route)

    def _as_planned(self, health: RouteHealth, now: float) -> RouteHealth:
        """A route that one call is trying takes no other one: they go where failover says."""
        trying = health.half_open(now) and self.slots.used_on(health.name)
        return replace(health, held_until=now + TRYING_S) if trying else health

    async def begin_probes(self) -> bool:
        """Asks for the one call that may find out whether a failing provider is back, where there is mail for it.

        Whether there is leave for one. Raises DatabaseUnavailable.
        """
        wanted, self._probes_wanted = self._probes_wanted, set()
        for name in wanted:
            lease_s = min(self.facts[name].timeout_s, PROBE_LEASE_MAX_S) + PROBE_MARGIN_S
            begin = partial(_begin_probe, worker=self._worker, now=self._now(), lease_s=lease_s)
            health = await self._access.run(self._control.change_route, name, begin, self._now())
            self.health[name] = replace(health, probing=self._probes(health))
        return any(self.health[name].probing for name in wanted)

    def candidates(self, send: SendState, policy: TypePolicy) -> tuple[str, ...]:
        """The routes that the send may take."""
        return candidates(send, policy, self.health, self._now())

    def any_takes(self, names: Iterable[str]) -> bool:
        """Whether a call may start now on one of these routes."""
        now = self._now()
        return any(name not in self.health or self.health[name].takes(now) for name in names)

    def opens_at(self, names: Iterable[str]) -> float:
        """When the first of these routes may be used; now if one may be used already."""
        return opens_at(names, self.health, self._now())

    async def refresh(self, older_than_s: float) -> None:
        """Reads the table again if what is known is older than this."""
        begun_at = asyncio.get_running_loop().time()
        if self._read_at is None or begun_at - self._read_at >= older_than_s:
            read = await self._access.run(self._control.route_health)
            self.health = {name: replace(health, probing=self._probes(health)) for name, health in read.items()}
            self._read_at = begun_at

    def _probes(self, health: RouteHealth) -> bool:
        probe = health.breaker
        return health.is_tripped and probe.probe_by == self._worker and self._now() < probe.probe_until

    def stopped(self) -> list[str]:
        """The routes that are stopped, as far as is known here."""
        return [name for name in self.facts if (h := self.health.get(name)) and h.state is RouteState.STOPPED]

    async def try_again(self, route: str) -> None:
        """A stopped route's credential has changed: one send may try it now. Raises DatabaseUnavailable."""
        now = self._now()
        decide = partial(credential_changed, now=now)
        self.health[route] = await self._access.run(self._control.change_route, route, decide, now)
        log.warning("the credential of route %s has changed; it is tried again", route)
        self.slots.freed.set()

    async def note(
        self, route: str, verdict: Verdict, latency_s: float, now: float, chance: float, *, shared: bool = False
    ) -> None:
        """Lets a call change the route's health, here at once and for all workers. `shared`: by several sends."""
        self._learn(route, verdict, latency_s, now, shared)
        known, tally = self.health.get(route) or RouteHealth(route), self._tallies.get(route, NO_TALLY)
        succeeded = counts(verdict) is False
        if verdict.outcome is Outcome.ACCEPTED:
            self.accepted_at[route] = now
        if succeeded:
            self._tallies[route] = tally.with_success(now)
            if known.breaker.is_clean(now) and health_after(known, verdict, now, chance) is None:
                return  # nearly always
            told_lately = now - self._told_at.get(route, 0.0) < TELL_EVERY_S
            if told_lately and verdict.full_for_s is None and not known.probing:
                return
        successes = tally.successes(now) + succeeded
        decide = partial(after_call, verdict=verdict, worker=self._worker, now=now, chance=chance, successes=successes)
        changed = decide(known)
        if changed is None:
            return
        self._told_at[route], self._tallies[route] = now, NO_TALLY
        self.health[route] = replace(changed, probing=False)
        with suppress(DatabaseUnavailable):  # then it is held here, and the others find out by themselves
            self.health[route] = await self._access.run(self._control.change_route, route, decide, now)
        self._tell(known, self.health[route], now)

    def _learn(self, route: str, verdict: Verdict, latency_s: float, now: float, shared: bool) -> None:
        """How many calls at once the route takes well, from how long this one took."""
        if (told := tells(verdict)) is not None:
            known, maximum = self._adaptive[route], self.facts[route].concurrency
            self._adaptive[route] = ended(
                known, latency_s, told, self.slots.used_on(route), now, maximum, shared=shared
            )

    def _tell(self, before: RouteHealth, after: RouteHealth, now: float) -> None:
        """In the log each change once; the alarm is told again as long as it lasts, and keeps quiet where it should."""
        if after.state is RouteState.STOPPED:
            self._alarm.sound(f"route {after.name}", f"it is stopped, its sends wait: {after.reason}")
        elif after.is_tripped:
            self._alarm.sound(f"route {after.name}", f"its provider fails, nothing goes that way: {after.reason}")
        if after.state is RouteState.STOPPED and before.state is not RouteState.STOPPED:
            log.error("route %s is stopped, its sends wait: %s", after.name, after.reason)
        elif _was_out(before) and not _was_out(after):
            log.warning("route %s works again", after.name)
        elif after.held_until > now:
            level = logging.WARNING if after.strikes else logging.DEBUG  # what fits is the provider's everyday word
            log.log(level, "route %s is held for %.1f s: %s", after.name, after.held_until - now, after.reason)


def _was_out(health: RouteHealth) -> bool:
    return health.is_tripped or health.state is RouteState.STOPPED


def _begin_probe(health: RouteHealth, worker: int, now: float, lease_s: float) -> RouteHealth | None:
    breaker = begin_probe(health.breaker, worker, now, lease_s)
    return None if breaker is None else replace(health, breaker=breaker)
