"""Quotas: so many sends in any hour or day, counted in a rolling window; and the daily limit of a warm-up.

The window is kept in parts of equal length, so its state is a short list of (number of the part, count) that fits into
JSON. A part counts until all of it has left the window: the count is never too low, and at full demand 24 of 25 parts
of the quota can be used.

`take` before a claim, under the row's lock, at most as many as the claim may bring; `give_back` what it did not, with
the time at which it was taken. While nothing is granted, `opens_at` says when something will be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PARTS: Final = 24
KEPT_PARTS: Final = PARTS + 1  # one more than counts, for a worker whose clock is a little behind
DAY_S: Final = 86400.0

WARNED_FROM: Final = 0.8
"""The share of a quota from which its owner should know."""

INTO_PART_S: Final = 0.001
"""Past a part's beginning by so much, no rounding says that it is still the part before."""

Parts = tuple[tuple[int, int], ...]
AnyParts = Sequence[Sequence[int]]  # as JSON gives them back


@dataclass(frozen=True, slots=True)
class Quota:
    """At most `count` in any `period_s` seconds, also where each starts up to `slack_s` after it was taken."""

    count: int
    period_s: float
    slack_s: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.period_s < math.inf or not 0 <= self.slack_s < math.inf:
            raise ValueError("a quota needs a count of at least 1, and a finite time above 0")

    @property
    def part_s(self) -> float:
        """How long one part of the window is."""
        return (self.period_s + self.slack_s) / PARTS

    def part(self, at: float) -> int:
        """The number of the part that a time is in."""
        return math.floor(at / self.part_s)


def used(state: AnyParts, now: float, quota: Quota) -> int:
    """How much of the quota is used now."""
    return sum(count for _, count in _counting(state, now, quota))


def take(state: AnyParts, now: float, want: int, quota: Quota) -> tuple[int, Parts]:
    """How many of `want` may be sent now, and the state with them."""
    granted = max(0, min(want, quota.count - used(state, now, quota)))
    this = quota.part(now)
    counts = {number: there for number, there in state if abs(this - number) <= KEPT_PARTS}
    counts[this] = counts.get(this, 0) + granted
    return granted, tuple(sorted((number, there) for number, there in counts.items() if there))


def give_back(state: AnyParts, taken_at: float, count: int, quota: Quota) -> Parts:
    """The state without `count` that were taken at `taken_at` and not used."""
    then = quota.part(taken_at)
    lowered = [(number, max(0, there - count) if number == then else there) for number, there in state]
    return tuple((number, there) for number, there in lowered if there)


def opens_at(state: AnyParts, now: float, quota: Quota) -> float:
    """When at least one more may be taken; `now` if it may at once."""
    left = used(state, now, quota)
    opens = now
    for number, count in _counting(state, now, quota):
        if left < quota.count:
            break
        left -= count
        opens = (number + PARTS + 1) * quota.part_s + INTO_PART_S
    return opens


def warning(before: int, after: int, quota: Quota, warned_at: float, now: float) -> bool:
    """Whether to warn: what is used has just crossed 80 % of the quota, and nobody was warned within a period.

    `warned_at` is 0.0 where nobody ever was.
    """
    threshold = WARNED_FROM * quota.count
    return before < threshold <= after and now - warned_at >= quota.period_s


def _counting(state: AnyParts, now: float, quota: Quota) -> list[tuple[int, int]]:
    """The parts of which some may be in the window, the oldest first.

    Those of a clock that was ahead count too, but not those of one that was wrong by more than a period: they would
    close the quota until that time has come.
    """
    this = quota.part(now)
    return sorted((number, count) for number, count in state if abs(this - number) <= PARTS)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A new sender's daily limit: `first` on the first day, `growth` times as much each day, over when it is `until`.

    Used as `Quota(daily_limit, DAY_S)` while there is one. Days are counted from `start`, in seconds since 1970.
    """

    start: float
    first: int
    growth: float
    until: int

    def __post_init__(self) -> None:
        if self.first < 1 or not 1 < self.growth < math.inf:
            raise ValueError("a warm-up needs at least 1 on its first day, and a growth above 1")

    @property
    def days(self) -> int:
        """How many days it lasts."""
        return max(0, math.ceil(math.log(self.until / self.first, self.growth))) if self.until > self.first else 0

    def daily_limit(self, now: float) -> int | None:
        """At most so many in a day, now; None when the warm-up is over."""
        day = max(0, math.floor((now - self.start) / DAY_S))
        return int(self.first * self.growth**day) if day < self.days else None
