"""The kill switches as this worker sees them: asked for each lane of a round, and again right before each call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from posthouse.core.limits import Rate
from posthouse.core.pace import SLACK_SHARE, Limit
from posthouse.core.slowdown import Slowdowns
from posthouse.core.switches import Switch, Switches, paced
from posthouse.store.access import StoreAccess
from posthouse.store.switchboard import Switchboard, SwitchRow

READ_EVERY_S: Final = 0.5
"""A switch is obeyed within this time and a round of claiming."""


class Gates:
    """Knows what is closed, what was opened a moment ago, and what is slowed."""

    def __init__(self, switchboard: Switchboard, access: StoreAccess, now: Callable[[], float]) -> None:
        self._switchboard = switchboard
        self._access = access
        self._now = now
        self._switches = Switches()
        self._slowdowns = Slowdowns()
        self._resumed: tuple[tuple[Switches, str, float], ...] = ()
        self._read_at: float | None = None

    async def refresh(self) -> None:
        """Reads the switches again, unless that was a moment ago. Raises DatabaseUnavailable."""
        begun_at = asyncio.get_running_loop().time()
        if self._read_at is None or begun_at - self._read_at >= READ_EVERY_S:
            rows, slowdowns = await self._access.run(self._switchboard.gates)
            self._know(rows)
            self._slowdowns = Slowdowns(slowdowns)
            self._read_at = begun_at

    def _know(self, rows: Sequence[SwitchRow]) -> None:
        now = self._now()
        self._switches = Switches(row.switch for row in rows if row.resumed_at is None)
        opened = [(row.switch, _opened_at(row, now)) for row in rows]
        self._resumed = tuple(
            (Switches([_without_end(switch)]), f"{switch.scope} {switch.value}".strip(), at)
            for switch, at in opened
            if at is not None and paced(at, now) is not None
        )

    def closing(self, lane: str) -> Switch | None:
        """The switch that keeps this lane closed now."""
        return self._switches.closing(lane, self._now())

    def pace(self, lane: str, route: str) -> list[Limit]:
        """The limits of a group that is slowed, and of what was opened a moment ago: traffic comes back slowly."""
        limits = self._slowdowns.limits(lane, route)
        for switches, name, opened_at in self._resumed:
            rate = paced(opened_at, self._now()) if switches.closing(lane, 0.0) else None
            if rate is not None:
                limits.append(Limit(f"resumed {name}", rate=Rate(int(rate), 1.0, slack_s=SLACK_SHARE)))
        return limits


def _opened_at(row: SwitchRow, now: float) -> float | None:
    """When a person, or its own end, opened it; None while it is closed."""
    if row.resumed_at is not None:
        return row.resumed_at
    return None if row.switch.is_on(now) else row.switch.until


def _without_end(switch: Switch) -> Switch:
    return Switch(switch.scope, switch.value)
