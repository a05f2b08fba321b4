"""The routes as this worker sees them: their health, shared by all workers, and its own free slots on each."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

from posthouse.core.outcome import Verdict
from posthouse.core.policy import RouteFacts, TypePolicy
from posthouse.core.routing import RouteHealth, RoutePlan, RouteState, candidates, health_after, opens_at, route_plan
from posthouse.core.sends import SendState
from posthouse.errors import DatabaseUnavailable
from posthouse.store.control import Control
from posthouse.worker.access import StoreAccess
from posthouse.worker.alarm import Alarm
from posthouse.worker.places import Places

log = logging.getLogger("posthouse.worker")


class Routes:
    """Health is refreshed from the table that all workers share; a call holds a slot while it is under way."""

    def __init__(
        self,
        facts: Mapping[str, RouteFacts],
        places: Places,
        control: Control,
        access: StoreAccess,
        alarm: Alarm,
        now: Callable[[], float],
    ) -> None:
        self.facts = facts
        self._places = places
        self.health: dict[str, RouteHealth] = {}
        self.freed = asyncio.Event()  # set whenever a slot becomes free; whoever waits for it clears it
        self._control = control
        self._access = access
        self._alarm = alarm
        self._now = now
        self._used: Counter[str] = Counter()
        self._read_at: float | None = None

    @property
    def used(self) -> int:
        """Calls under way on all routes."""
        return self._used.total()

    def used_on(self, route: str) -> int:
        """Calls under way on one route."""
        return self._used[route]

    @contextmanager
    def slot(self, route: str) -> Iterator[None]:
        """One slot, for the duration of a call."""
        self._used[route] += 1
        try:
            yield
        finally:
            self._used[route] -= 1
            self.freed.set()

    def free(self, route: str) -> int:
        """How many calls may start on the route now."""
        health = self.health.get(route)
        if health is not None and not health.takes(self._now()):
            return 0
        places = self._places.allowed(route)
        allowed = places if health is None else min(places, health.slots(places, self._now()))
        if places <= self._used[route]:
            self._places.miss(route)
        return max(0, allowed - self._used[route])

    def plan(self, policy: TypePolicy) -> RoutePlan | None:
        """The next call's route for every send of a type; None while none of its routes may be used."""
        return route_plan(policy, self.health, self._now())

    def candidates(self, send: SendState, policy: TypePolicy) -> tuple[str, ...]:
        """The routes that the send may take."""
        return candidates(send, policy, self.health, self._now())

    def opens_at(self, names: Iterable[str]) -> float:
        """When the first of these routes may be used; now if one may be used already."""
        return opens_at(names, self.health, self._now())

    async def refresh(self, older_than_s: float) -> None:
        """Reads the table again if what is known is older than this."""
        begun_at = asyncio.get_running_loop().time()
        if self._read_at is None or begun_at - self._read_at >= older_than_s:
            self.health = await self._access.run(self._control.route_health)
            self._read_at = begun_at

    async def note(self, route: str, verdict: Verdict, now: float, chance: float) -> None:
        """Lets a verdict change the route's health, here at once and for all workers."""
        known = self.health.get(route, RouteHealth(route))
        changed = health_after(known, verdict, now, chance)
        if changed is None:
            return
        self.health[route] = changed
        decide = partial(health_after, verdict=verdict, now=now, chance=chance)
        with suppress(DatabaseUnavailable):  # then it is held here, and the others find out by themselves
            self.health[route] = await self._access.run(self._control.change_route, route, decide, now)
        self._tell(known, self.health[route], now)

    def _tell(self, before: RouteHealth, after: RouteHealth, now: float) -> None:
        if after.state is RouteState.STOPPED and before.state is not RouteState.STOPPED:
            self._alarm.sound(f"route {after.name}", f"it is stopped, its sends wait: {after.reason}")
            log.error("route %s is stopped, its sends wait: %s", after.name, after.reason)
        elif after.state is RouteState.OPEN and before.state is RouteState.STOPPED:
            log.warning("route %s works again", after.name)
        elif after.held_until > now:
            log.warning("route %s is held for %.1f s: %s", after.name, after.held_until - now, after.reason)
