"""Kill switches: what a person has closed, and how a lane that was opened again comes back.

A `Switch` closes everything within its scope, at once and without touching a row: its lanes are not asked for, sends
lose nothing, and those that expire meanwhile end as they would have. Pause and resume write and delete rows; workers
make one `Switches` of all rows whenever they read them, and ask it for each lane of a round, and once more right before
a call begins: that is the one choke point. `paced` is the speed right after a resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from posthouse.core.lanes import SEPARATOR


class Scope(StrEnum):
    """What a switch closes."""

    ALL = "all"  # everything; its value is empty
    TYPE = "type"  # a message type
    SERVICE = "service"  # what one internal caller asked for
    CAMPAIGN = "campaign"  # one bulk send
    GROUP = "group"  # everything to one mailbox group
    LANE = "lane"  # exactly one lane, by its name
    ROUTE = "route"  # one provider account: its sends may take another route


@dataclass(frozen=True, slots=True)
class Switch:
    """One thing that is closed. Times in seconds since 1970."""

    scope: Scope
    value: str
    reason: str = ""
    who: str = ""
    since: float = 0.0
    until: float | None = None  # when it opens by itself; None: when a person opens it

    def __post_init__(self) -> None:
        if (self.scope is Scope.ALL) != (not self.value):
            raise ValueError(f"a switch of the scope {self.scope} needs {'no' if self.value else 'a'} value")

    def is_on(self, now: float) -> bool:
        """Whether it still closes anything."""
        return self.until is None or now < self.until


PARTS: Final = (Scope.TYPE, Scope.SERVICE, Scope.CAMPAIGN, Scope.GROUP)
"""What the parts of a lane's name are, in its order."""


class Switches:
    """All switches, ready to be asked for hundreds of lanes a round. Never changed: make a new one of new rows."""

    def __init__(self, switches: Iterable[Switch] = ()) -> None:
        self._by_value: Mapping[tuple[Scope, str], Switch] = {(each.scope, each.value): each for each in switches}

    def closing(self, lane: str, now: float) -> Switch | None:
        """The switch that keeps this lane closed, of several the one that does so for longest."""
        if not self._by_value:
            return None
        keys = [(Scope.ALL, ""), (Scope.LANE, lane), *zip(PARTS, lane.split(SEPARATOR), strict=False)]
        return self._longest(keys, now)

    def closing_route(self, route: str, now: float) -> Switch | None:
        """The switch that keeps this route closed."""
        return self._longest([(Scope.ALL, ""), (Scope.ROUTE, route)], now)

    def _longest(self, keys: Iterable[tuple[Scope, str]], now: float) -> Switch | None:
        on = [each for key in keys if (each := self._by_value.get(key)) is not None and each.is_on(now)]
        return max(on, key=_lasts_until, default=None)


def _lasts_until(switch: Switch) -> float:
    return float("inf") if switch.until is None else switch.until


PACED_FROM: Final = 10.0
PACED_FOR_S: Final = 60.0
DOUBLES_EACH_S: Final = 10.0


def paced(resumed_at: float, now: float) -> float | None:
    """How many sends a second may start from what was resumed; None: no limit of this kind.

    It begins with 10 a second and doubles each 10 s, for a minute: whoever resumed sees what happens while it can
    still be stopped, and neither a provider nor a mailbox group gets all of it at once. A switch that ran out by
    itself was resumed then.
    """
    since_s = max(0.0, now - resumed_at)
    return PACED_FROM * 2.0 ** (since_s / DOUBLES_EACH_S) if since_s < PACED_FOR_S else None
