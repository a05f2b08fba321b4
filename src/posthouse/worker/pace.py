"""This worker's leave to start sends: asked of the limits that all workers share, before it claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from posthouse.core.pace import LATE_MAX_S, Limit, Permit, late_for
from posthouse.core.pace_policy import PacePolicy
from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.store.pacing import Pacing
from posthouse.values import value
from posthouse.worker.alarm import Alarm
from posthouse.worker.gates import Gates

NO_LEAVE_WAIT_MAX_S: Final = 30.0
"""A send without leave waits for at most this long, whatever a quota says: its own time goes on, and others may give
back what they had. So long waits one whose recipients are more than a quota has room for."""


@value
class Slot:
    """Leave for one send."""

    limits: tuple[Limit, ...] = ()
    start_at: float = 0.0  # 0.0: at once
    next_at: float | None = None  # where there is no leave: when to ask again
    permit: Permit | None = None  # where there is, of how many it is
    place: int = 0  # among them, from 0 on


FREE: Final = Slot()
"""Leave where nothing limits."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave for up to `count` sends of one lane on one route."""

    count: int
    next_at: float  # where there was less than was wanted: when to ask again
    limits: tuple[Limit, ...] = ()
    permit: Permit | None = None  # None where nothing limits the lane on this route

    def slot(self, place: int) -> Slot:
        """The leave of the send at `place`, from 0 on."""
        if self.permit is None:
            return FREE
        return Slot(self.limits, self.permit.start_at(place), permit=self.permit, place=place)


class Pace:
    """Asks for leave, gives back what is not used, and waits for the moment."""

    def __init__(
        self,
        policy: PacePolicy,
        gates: Gates,
        pacing: Pacing,
        access: StoreAccess,
        alarm: Alarm,
        now: Callable[[], float],
    ) -> None:
        self._gates = gates
        self._policy = policy
        self._pacing = pacing
        self._access = access
        self._alarm = alarm
        self._now = now

    async def ask(self, lane: str, route: str, want: int) -> Leave:
        """Leave for up to `want` sends. Raises DatabaseUnavailable."""
        limits = self._limits(lane, route)
        if not limits:
            return Leave(want, 0.0)
        permit, warnings = await self._access.run(self._pacing.permit, limits, want, self._now())
        for name in warnings:
            self._alarm.sound(f"quota of {name}", "80 % of it is used")
        return Leave(permit.count, permit.next_at, limits, permit)

    def limits(self, lane: str, route: str) -> bool:
        """Whether a send of the lane needs leave on the route."""
        return bool(self._limits(lane, route))

    def _limits(self, lane: str, route: str) -> tuple[Limit, ...]:
        return (*self._policy.limits(lane, route, self._now()), *self._gates.pace(lane, route))

    async def give_back(self, leave: Leave, unused: int) -> None:
        """Takes back the last `unused` of a leave. What can't be given back is lost, which is the safe side."""
        if leave.permit is not None and unused > 0:
            await self._return(leave.limits, leave.permit, unused)

    async def give_back_slot(self, slot: Slot) -> None:
        """Takes back leave that no call began with. Of a rate it is lost where somebody has leave for later."""
        if slot.permit is not None:
            await self._return(slot.limits, slot.permit.up_to(slot.place), 1)

    async def _return(self, limits: tuple[Limit, ...], permit: Permit, unused: int) -> None:
        with suppress(DatabaseUnavailable):
            await self._access.run(self._pacing.give_back, limits, permit, unused)

    async def ask_one(self, lane: str, route: str) -> Slot:
        """Leave for one send. Raises DatabaseUnavailable."""
        leave = await self.ask(lane, route, 1)
        if leave.count:
            return leave.slot(0)
        return Slot(leave.limits, next_at=min(leave.next_at, self._now() + NO_LEAVE_WAIT_MAX_S))

    async def wait(self, slot: Slot, recipients: int) -> float | None:
        """Waits for a slot's moment; None where it has come, else when to try again. Raises DatabaseUnavailable."""
        if slot is FREE:
            return None
        if slot.next_at is not None:
            return slot.next_at
        if not await self._spend(slot, recipients):
            return self._now() + NO_LEAVE_WAIT_MAX_S
        wait_s = slot.start_at - self._now()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        now = self._now()
        if now - slot.start_at > LATE_MAX_S:
            return now
        if late_for(slot.limits, slot.start_at, now):
            await self._access.run(self._pacing.pay_for_lateness, slot.limits, slot.start_at, now)
        return None

    async def _spend(self, slot: Slot, recipients: int) -> bool:
        """Counts the recipients of one send beyond the first, where they count; False where a quota has no room."""
        if recipients < 2 or not any(limit.by_recipient for limit in slot.limits):
            return True
        return await self._access.run(self._pacing.spend, slot.limits, recipients - 1, self._now())
