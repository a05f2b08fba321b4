"""Counting what goes to each mailbox group, and judging how the groups take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from posthouse.core.group_health import CountKey, HealthPolicy, count_key_of_call
from posthouse.core.lanes import group_of
from posthouse.core.mailbox_groups import OTHER
from posthouse.core.outcome import Verdict
from posthouse.core.slowdown import Slowdown
from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.store.group_health import JUDGED_EVERY_S, GroupHealth, Judged
from posthouse.worker.alarm import Alarm


class GroupWatch:
    """One look a sweep: writes what this worker counted, and judges where it is its turn."""

    def __init__(
        self, policy: HealthPolicy, table: GroupHealth, access: StoreAccess, alarm: Alarm, now: Callable[[], float]
    ) -> None:
        self._policy = policy
        self._table = table
        self._access = access
        self._alarm = alarm
        self._now = now
        self._counted: Counter[CountKey] = Counter()
        self._looked_at: float | None = None

    def note(self, lane: str, route: str, verdict: Verdict, at: float) -> None:
        """Counts what the answer to a call says. A crash forgets those of some seconds."""
        key = count_key_of_call(verdict, group_of(lane) or OTHER, route, at)
        if key is not None:
            self._counted[key] += 1

    async def look(self) -> None:
        """Raises DatabaseUnavailable."""
        await self._write()
        now = self._now()
        if self._looked_at is not None and 0.0 <= now - self._looked_at < JUDGED_EVERY_S:
            return
        judged = await self._access.run(self._table.judge, self._policy, now)
        self._looked_at = now
        for one in judged or ():
            self._tell(one)

    async def _write(self) -> None:
        if not self._counted:
            return
        counted, self._counted = self._counted, Counter()
        try:
            await self._access.run(self._table.count, counted)
        except DatabaseUnavailable:
            self._counted += counted
            raise

    def _tell(self, judged: Judged) -> None:
        """Its beginning and its end; the steps between stand in `posthouse status`."""
        before, after = judged.before, judged.after
        if before is None and after is not None:
            self._alarm.sound(f"group {judged.where} slowed", after.words)
        elif after is None and before is not None and before.is_on:
            self._alarm.sound(f"group {judged.where} recovered", _over(before, self._now()))


def _over(slowed: Slowdown, now: float) -> str:
    return f"{slowed.where} was slowed for {(now - slowed.since) / 60:.0f} min and has its pace back"
