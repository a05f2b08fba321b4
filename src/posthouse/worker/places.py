"""This worker's places on the routes whose calls at once are limited over all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from posthouse.core.places import Holding
from posthouse.core.policy import RouteFacts
from posthouse.errors import DatabaseUnavailable
from posthouse.providers.port import Provider
from posthouse.store.access import StoreAccess
from posthouse.store.control import Control
from posthouse.worker.pulse import Pulse

LOOK_EVERY_S: Final = 1.0
"""How soon a worker that holds more than its share sees that others go short."""

UNUSED_S: Final = 30.0
"""Places that nobody asked for so long are given back."""


class Places:
    """What this worker may use of each limited route. It asks for places when they are missed, and gives back what is
    over its share, or unused: first the connections are closed, then the others are told."""

    def __init__(
        self,
        facts: Mapping[str, RouteFacts],
        providers: Mapping[str, Provider],
        control: Control,
        access: StoreAccess,
        worker: int,
        pulse: Pulse,
        dead_after_s: float,
        now: Callable[[], float],
    ) -> None:
        self._totals = {name: route.total_concurrency for name, route in facts.items() if route.total_concurrency}
        self._facts = facts
        self._providers = providers
        self._control = control
        self._access = access
        self._worker = worker
        self._pulse = pulse
        self._dead_after_s = dead_after_s
        self._now = now
        self._held = dict.fromkeys(self._totals, 0)  # as the others know it
        self._fair = dict.fromkeys(self._totals, 0)  # a call beyond it may end, but none begins
        self._missed_at: dict[str, float] = {}
        self._missed = asyncio.Event()

    def allowed(self, route: str) -> int:
        """How many calls at once this worker may make on the route, whatever else holds it."""
        concurrency = self._facts[route].concurrency
        return min(concurrency, self._held[route], self._fair[route]) if route in self._totals else concurrency

    def miss(self, route: str) -> None:
        """Says that a call could start if there were a place for it."""
        if route in self._totals:
            self._missed_at[route] = asyncio.get_running_loop().time()
            if not self._held[route]:
                self._missed.set()

    async def run(self, used: Callable[[str], int], freed: Callable[[], None]) -> None:
        """Looks after the places until it is cancelled. `used` are calls under way; `freed` hears of new places."""
        while True:
            self._missed.clear()
            if await self.look(used):
                freed()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S if any(self._held.values()) else None):
                    await self._missed.wait()

    async def look(self, used: Callable[[str], int]) -> bool:
        """Adjusts every limited route once; whether there are more places than before on some."""
        more = False
        for route in self._totals:
            with suppress(DatabaseUnavailable):  # then it stays as it is
                more |= await self._adjust(route, used(route))
        return more

    async def _adjust(self, route: str, used: int) -> bool:
        """Gives back, or asks for more; whether there are more than before."""
        loop_now = asyncio.get_running_loop().time()
        wants = self._missed_at.get(route, -UNUSED_S) + UNUSED_S > loop_now and self._pulse.may_start
        wanted = self._facts[route].concurrency if wants else used
        before = self._held[route]
        if not (before or wanted):
            return False
        keep = min(before, max(used, self._fair[route] if wants else 0))
        if keep < before:
            self._held[route] = keep
            keep = max(keep, await self._providers[route].limit_connections(keep))
        mine = Holding(self._worker, keep, wanted)
        granted = await self._access.run(
            self._control.hold_places, route, mine, self._totals[route], self._now() - self._dead_after_s, self._now()
        )
        if granted.places > before:
            await self._providers[route].limit_connections(granted.places)
        self._held[route], self._fair[route] = granted.places, granted.fair
        return granted.places > before
