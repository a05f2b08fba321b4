"""This worker's leave to start sends: asked of the limits that all workers share, before it claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from posthouse.core.pace import Limit, Permit
from posthouse.core.pace_policy import PacePolicy
from posthouse.errors import DatabaseUnavailable
from posthouse.store.pacing import Pacing
from posthouse.worker.access import StoreAccess
from posthouse.worker.alarm import Alarm

LATE_MAX_S: Final = 0.25
"""A slot that could not be used within this time of its own is let go: later ones are others'."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave for up to `count` sends of one lane on one route."""

    count: int
    next_at: float  # where there was less than was wanted: when to ask again
    limits: tuple[Limit, ...] = ()
    permit: Permit | None = None  # None where nothing limits the lane on this route

    def start_at(self, place: int) -> float:
        """When the send at `place`, from 0 on, may start; 0.0 means at once."""
        return 0.0 if self.permit is None else self.permit.start_at(place)


class Pace:
    """Asks for leave, gives back what is not used, and waits for the moment."""

    def __init__(
        self, policy: PacePolicy, pacing: Pacing, access: StoreAccess, alarm: Alarm, now: Callable[[], float]
    ) -> None:
        self._policy = policy
        self._pacing = pacing
        self._access = access
        self._alarm = alarm
        self._now = now

    async def ask(self, lane: str, route: str, want: int) -> Leave:
        """Leave for up to `want` sends. Raises DatabaseUnavailable."""
        limits = self._policy.limits(lane, route, self._now())
        if not limits:
            return Leave(want, 0.0)
        permit, warnings = await self._access.run(self._pacing.permit, limits, want, self._now())
        for name in warnings:
            self._alarm.sound(f"quota of {name}", "80 % of it is used")
        return Leave(permit.count, permit.next_at, limits, permit)

    async def give_back(self, leave: Leave, unused: int) -> None:
        """Takes back the last `unused` of a leave. What can't be given back is lost, which is the safe side."""
        if leave.permit is None or unused <= 0:
            return
        try:
            await self._access.run(self._pacing.give_back, leave.limits, leave.permit, unused)
        except DatabaseUnavailable:
            return

    async def spend(self, leave: Leave, recipients: int) -> bool:
        """Counts the recipients of one send beyond the first, where they count; False where a quota has no room."""
        if recipients < 2 or not any(limit.by_recipient for limit in leave.limits):
            return True
        return await self._access.run(self._pacing.spend, leave.limits, recipients - 1, self._now())

    async def until(self, start_at: float) -> bool:
        """Waits for a slot's moment; False where it has passed already."""
        wait_s = start_at - self._now()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return not start_at or self._now() - start_at <= LATE_MAX_S
