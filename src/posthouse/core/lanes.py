"""Lanes: one queue for each (type, service, campaign, mailbox group), and how much of each to claim.

Everything in a lane passes the same gates, so a closed lane is simply not asked for. Priorities are served in
order, but each that has due mail gets at least one slot of a round, and its turn where a round has too few, or where
a limit has leave for too few: bulk never starves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.core.policy import Priority

SEPARATOR: Final = "/"
ORDER: Final = tuple(Priority)
TURNS: Final = 4
"""One in so many rounds starts with another priority: with its share, or with the slots where there are too few."""


def lane_name(type_: str, service: str = "", campaign: str = "", mailbox_group: str = "") -> str:
    """The lane's name as it stands in the table, without its empty tail: `receipt`, `digest/shop`."""
    return SEPARATOR.join((type_, service, campaign, mailbox_group)).rstrip(SEPARATOR)


def type_of(lane: str) -> str:
    """The message type of a lane's sends."""
    return lane.partition(SEPARATOR)[0]


def service_of(lane: str) -> str:
    """The service of a lane's sends; empty where they have none."""
    return _part(lane, 1)


def campaign_of(lane: str) -> str:
    """The campaign of a lane's sends; empty where they have none."""
    return _part(lane, 2)


def group_of(lane: str) -> str:
    """The mailbox group of a lane's sends; empty where it says none."""
    return _part(lane, 3)


def _part(lane: str, place: int) -> str:
    parts = lane.split(SEPARATOR)
    return parts[place] if place < len(parts) else ""


@dataclass(frozen=True, slots=True)
class DueLane:
    """An open lane with due mail, and how many calls its routes could start now."""

    name: str
    priority: Priority
    due_since: float
    capacity: int


@dataclass(frozen=True, slots=True)
class Share:
    """How many sends of one lane to claim."""

    lane: str
    count: int


def share(lanes: Sequence[DueLane], free: int, turn: int = 0) -> list[Share]:
    """Divides `free` slots: urgent before normal before bulk, the oldest lane first, fair within a priority.

    Leave for them is to be asked for in this order. `turn` counts the rounds; it matters only where slots become free
    one at a time, or leave for them does.
    """
    usable = sorted((lane for lane in lanes if lane.capacity > 0), key=lambda lane: lane.due_since)
    groups = [group for p in ORDER if (group := [lane for lane in usable if lane.priority is p])]
    another = turn // TURNS % len(groups) if groups and turn % TURNS == TURNS - 1 else 0
    if 0 < free < len(groups):
        groups.insert(0, groups.pop(another))
        another = 0
    shares: list[list[Share]] = []
    for place, group in enumerate(groups):
        reserved = min(len(groups) - place - 1, max(free - 1, 0))  # one slot for each lower priority
        granted = _divide(group, free - reserved)
        shares.append(granted)
        free -= sum(s.count for s in granted)
    if another:
        shares.insert(0, shares.pop(another))
    return [each for granted in shares for each in granted]


def _divide(group: Sequence[DueLane], free: int) -> list[Share]:
    """Equal parts, what a lane can't use going to the others; when there are fewer slots than lanes, the oldest."""
    counts = dict.fromkeys((lane.name for lane in group), 0)
    hungry = list(group)
    while free > 0 and hungry:
        part = max(1, free // len(hungry))
        for lane in list(hungry):
            taken = min(part, free, lane.capacity - counts[lane.name])
            counts[lane.name] += taken
            free -= taken
            if counts[lane.name] >= lane.capacity:
                hungry.remove(lane)
            if not free:
                break
    return [Share(name, count) for name, count in counts.items() if count]
