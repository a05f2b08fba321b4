"""Counting what waits, where it is capped: for whoever enqueues, for people, and to make room where that is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from posthouse.core.cap_policy import OUTBOX, CapPolicy, Full, refused_words
from posthouse.core.caps import overdrawn
from posthouse.core.policy import Priority
from posthouse.store.access import StoreAccess
from posthouse.store.backlog import BacklogTable
from posthouse.store.rows import SWEEP_ROWS
from posthouse.worker.alarm import Alarm

SHED_REASON: Final = "shed: the outbox was full, and more urgent mail needed the room"


class BacklogWatch:
    """One look a sweep; of all workers, one at a time."""

    def __init__(
        self, caps: CapPolicy, table: BacklogTable, access: StoreAccess, alarm: Alarm, now: Callable[[], float]
    ) -> None:
        self._caps = caps
        self._table = table
        self._access = access
        self._alarm = alarm
        self._now = now

    async def look(self) -> None:
        """Counts, unless another worker has just done so. Raises DatabaseUnavailable."""
        turn = self._now()
        if not self._caps or not await self._access.run(self._table.take_turn, turn):
            return
        counted = await self._access.run(self._table.count, self._caps)
        if not await self._access.run(self._table.write, self._caps, counted, turn):
            return
        for full in self._caps.full(counted):
            self._alarm.sound(*_told(full))
        if self._caps.outbox is not None:
            for priority, count in overdrawn(self._caps.outbox, counted.priorities).items():
                await self._shed(priority, count, turn)

    async def _shed(self, priority: Priority, count: int, turn: float) -> None:
        ids = await self._access.run(self._table.newest, self._caps, priority, count)
        shed = 0
        for begin in range(0, len(ids), SWEEP_ROWS):
            some = ids[begin : begin + SWEEP_ROWS]
            ended = await self._access.run(self._table.shed, some, SHED_REASON, turn, self._now())
            if ended is None:
                break
            shed += ended
        if shed:
            self._alarm.sound("outbox sheds", f"{shed:,} {priority} sends were cancelled: {OUTBOX} is reached")


def _told(full: Full) -> tuple[str, str]:
    """The alert's name and its text."""
    name = full.setting.removesuffix(".max_pending").replace("types.", "type ")
    pending = f"{full.pending:,} sends are pending, {full.setting} is {full.cap.count:,}"
    return name, f"{pending}: {refused_words(full)} refused"
