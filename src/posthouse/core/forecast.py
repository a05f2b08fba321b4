"""What an outage leaves behind: the backlog, how long it takes to drain, how old mail gets, and what expires.

Emails arrive evenly and are served in the order in which they came, as fast as the capacity allows; one that gets too
old leaves unsent. All of this is arithmetic; the tests hold it against a simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Plan:
    """An outage that begins now, while `pending` emails wait that have just come. Rates are in emails a second."""

    arrivals: float
    capacity: float
    outage_s: float = 0.0
    pending: int = 0
    max_age_s: float = math.inf

    def __post_init__(self) -> None:
        given = (self.arrivals, self.capacity, self.outage_s, self.pending)
        if min(given) < 0 or not all(map(math.isfinite, given)) or not self.max_age_s > 0:
            raise ValueError("a plan needs rates, times and counts from 0 on, and a maximum age above 0")


@dataclass(frozen=True, slots=True)
class Forecast:
    """What becomes of a plan. Counts are of emails, and not rounded."""

    plan: Plan
    backlog: float  # when the outage ends, without what has expired
    drain_s: float | None  # from the end of the outage until nothing waits; None: never, it stays or grows
    oldest_s: float  # how old the oldest is when it is sent or expires; inf: older and older
    expired: float  # until nothing waits; inf: it never ends
    expiry: float  # so many expire each second, for ever

    @property
    def horizon_s(self) -> float:
        """How far a picture should look, from the outage's beginning."""
        if self.drain_s is not None:
            return max(1.0, 1.15 * (self.plan.outage_s + self.drain_s))
        return 3 * max(self.plan.outage_s, min(self.plan.max_age_s, 3600.0))

    def backlog_at(self, at_s: float) -> float:
        """How many wait so long after the outage's beginning."""
        plan, since_s = self.plan, at_s - self.plan.outage_s
        if since_s < 0:
            kept = plan.pending if at_s < plan.max_age_s else 0.0
            return kept + plan.arrivals * min(at_s, plan.max_age_s)
        kept, served, turn_s = _pending(plan)
        left = served + self.backlog - kept + (plan.arrivals - plan.capacity) * since_s
        if since_s < turn_s:
            return left + kept - served
        return max(0.0, min(left, plan.arrivals * plan.max_age_s if plan.arrivals else 0.0))


def forecast(plan: Plan) -> Forecast:
    """What the outage leaves behind."""
    kept, served, turn_s = _pending(plan)
    waited_s = min(plan.outage_s, plan.max_age_s)  # how far back those go that wait at the outage's end
    newcomers = plan.arrivals * waited_s
    expired = plan.pending - served + plan.arrivals * plan.outage_s - newcomers
    spare = plan.capacity - plan.arrivals
    if spare < 0:
        for_ever = (expired, 0.0) if math.isinf(plan.max_age_s) else (math.inf, -spare)
        return Forecast(plan, kept + newcomers, None, plan.max_age_s, *for_ever)
    drain_s = _drain_s(served + newcomers, spare) if plan.arrivals else turn_s
    oldest_s = waited_s + turn_s if plan.arrivals or plan.pending else 0.0
    return Forecast(plan, kept + newcomers, None if math.isinf(drain_s) else drain_s, oldest_s, expired, 0.0)


def _pending(plan: Plan) -> tuple[float, float, float]:
    """Of those that were pending at the beginning: how many still are when the outage ends, how many of these are
    served, and how long after the outage the last of them is served or expires."""
    if not plan.pending or plan.outage_s >= plan.max_age_s:
        return 0.0, 0.0, 0.0
    takes_s = plan.pending / plan.capacity if plan.capacity else math.inf
    turn_s = min(takes_s, plan.max_age_s - plan.outage_s)
    return plan.pending, min(plan.pending, plan.capacity * turn_s) if plan.capacity else 0.0, turn_s


def _drain_s(left: float, spare: float) -> float:
    if not left:
        return 0.0
    return left / spare if spare else math.inf


BARS: Final = " ▁▂▃▄▅▆▇█"
LOOKS: Final = 20  # at each column's backlog


def picture(told: Forecast, width: int, height: int, time_label: Callable[[float], str]) -> list[str]:
    """The backlog over time in `width` columns and `height` lines, above its axis and the times that matter.

    A tick marks the outage's end; `time_label` says a number of seconds in words.
    """
    column_s = told.horizon_s / width
    columns = [
        max(told.backlog_at((place + look / LOOKS) * column_s) for look in range(LOOKS)) for place in range(width)
    ]
    peak = max(*columns, told.backlog)
    labels = [f"{round(peak):,}", *[""] * (height - 1)]
    margin = len(labels[0])
    rows = [f"{label:>{margin}} │{row}" for label, row in zip(labels, _bars(columns, peak, height), strict=True)]
    end = round(told.plan.outage_s / column_s)
    axis = "".join("┴" if column == end and end else "─" for column in range(width))
    times = _times([(0, time_label(0.0)), (end, time_label(told.plan.outage_s)), (width, time_label(told.horizon_s))])
    return [*(row.rstrip() for row in rows), f"{0:>{margin}} └{axis}", " " * (margin + 2) + times]


def _bars(columns: Sequence[float], peak: float, height: int) -> list[str]:
    """From top to bottom. Whatever waits is seen, be it ever so little."""
    eighths = [math.ceil(8 * height * value / peak - 1e-9) if peak else 0 for value in columns]
    return ["".join(BARS[min(8, max(0, e - 8 * level))] for e in eighths) for level in reversed(range(height))]


def _times(labels: Sequence[tuple[int, str]]) -> str:
    """The labels under their columns; one that would stand in another's place is left out, but not the last."""
    *others, (end, last) = labels
    line = ""
    for column, label in others:
        if (not line or column > len(line)) and column + len(label) < end - len(last):
            line = line.ljust(column) + label
    return line.ljust(end - len(last)) + last
