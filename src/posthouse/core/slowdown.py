"""A mailbox group that gets less for a while on one route: how much, why, and how it comes back, by steps.

What went there lately is halved, and halved again after each step's time while the signal stays bad. After each
step's time without it the pace doubles; it is over once it is back at what it was, was well there, and holds nothing
back. A pace that turned out too fast is tried again only after a longer time: so a receiver with a fixed limit is asked
too much of seldom, and nothing flaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from posthouse.core.group_health import (
    COMPLAINTS_WINDOW_MIN_S,
    DAY_S,
    Bucket,
    Counts,
    GroupRoute,
    HealthPolicy,
    Signal,
    Trouble,
    busiest,
    trouble,
)
from posthouse.core.lanes import group_of
from posthouse.core.limits import Rate
from posthouse.core.mailbox_groups import OTHER
from posthouse.core.pace import SLACK_SHARE, Limit

PER_MINUTE_MIN: Final = 10
"""Nothing is slowed below this: it is no volume that anybody minds, and a one-time code waits for seconds at most."""

HOLDS_BACK_FROM: Final = 0.9
"""Where less than this part of the pace was used, it holds nothing back."""

LEFT_ALONE_S: Final = DAY_S
"""Where a person ended it, none begins within this time."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How fast one signal's steps follow each other."""

    step_s: float  # so long a pace is watched
    retry_s: float  # so long until a pace that was too fast is tried again


STEPS: Final = {
    Signal.PUSHED_BACK: Steps(600.0, 3600.0),
    Signal.COMPLAINTS: Steps(COMPLAINTS_WINDOW_MIN_S, DAY_S),
}


@dataclass(frozen=True, slots=True)
class Slowdown:
    """One row of `email_slowdowns`. Times are seconds since 1970."""

    group: str
    route: str
    per_minute: int  # sends that may start
    was_per_minute: int  # what went there before
    signal: Signal
    reason: str
    since: float
    changed_at: float
    too_fast_per_minute: int | None = None  # the pace at which the signal stayed bad last
    ended_at: float | None = None  # when a person ended it

    @property
    def where(self) -> GroupRoute:
        """What it slows."""
        return GroupRoute(self.group, self.route)

    @property
    def is_on(self) -> bool:
        """Whether it slows anything."""
        return self.ended_at is None

    @property
    def words(self) -> str:
        """What it does and why."""
        return f"{self.where} is slowed to {self.per_minute:,} a minute: {self.reason}"


def judge(
    where: GroupRoute,
    known: Slowdown | None,
    buckets: Sequence[Bucket],
    past: Counts,
    policy: HealthPolicy,
    now: float,
) -> Slowdown | None:
    """The slow-down of a group from now on; None where there is none, or it is over. See `trouble`.

    `other` is nobody: one domain's trouble there says nothing about the rest, so it is counted and never slowed.
    """
    if where.group == OTHER or not policy.slow_down:
        return None
    if known is not None and known.ended_at is not None:
        return known if now - known.ended_at < LEFT_ALONE_S else None
    found = trouble(buckets, past, policy, now, 0.0 if known is None else known.changed_at)
    if known is None:
        return None if found is None else _begun(where, found, now)
    return _faster(known, buckets, now) if found is None else _slower(known, found, now)


def _begun(where: GroupRoute, found: Trouble, now: float) -> Slowdown | None:
    if found.per_minute < 2 * PER_MINUTE_MIN:
        return None
    half = _half(found.per_minute)
    return Slowdown(where.group, where.route, half, found.per_minute, found.signal, found.reason, now, now)


def _slower(known: Slowdown, found: Trouble, now: float) -> Slowdown:
    if now - known.changed_at < STEPS[found.signal].step_s or known.per_minute == PER_MINUTE_MIN:
        return known
    half = max(PER_MINUTE_MIN, _half(min(known.per_minute, found.per_minute)))
    return replace(
        known,
        per_minute=half,
        signal=found.signal,
        reason=found.reason,
        changed_at=now,
        too_fast_per_minute=min(known.per_minute, 2 * half),  # what the next double would be
    )


def _half(pace: int) -> int:
    """Rounded up: the next step takes all of it back, and not all but one, for which it would need another step."""
    return (pace + 1) // 2


def _faster(known: Slowdown, buckets: Sequence[Bucket], now: float) -> Slowdown | None:
    steps, watched_s = STEPS[known.signal], now - known.changed_at
    too_fast = known.too_fast_per_minute
    if too_fast is not None and known.per_minute >= too_fast:
        too_fast = None  # it is not any more
    pace = 2 * known.per_minute
    if known.per_minute < known.was_per_minute:
        pace = min(pace, known.was_per_minute)
    if watched_s < (steps.step_s if too_fast is None or pace < too_fast else steps.retry_s):
        return known
    used = busiest(buckets, known.changed_at, now)
    if known.per_minute >= known.was_per_minute and used < HOLDS_BACK_FROM * known.per_minute:
        return None
    return replace(known, per_minute=pace, changed_at=now, too_fast_per_minute=too_fast)


class Slowdowns:
    """All of them, ready to be asked for each lane of a round. Never changed: make a new one of new rows."""

    def __init__(self, rows: Iterable[Slowdown] = ()) -> None:
        self._by_place: Mapping[GroupRoute, Slowdown] = {row.where: row for row in rows if row.is_on}

    def limits(self, lane: str, route: str) -> list[Limit]:
        """The limits that hold for this lane's sends on this route; nearly always none."""
        slowed = self._by_place.get(GroupRoute(group_of(lane), route)) if self._by_place else None
        return [] if slowed is None else [limit_of(slowed)]


def limit_of(slowed: Slowdown) -> Limit:
    """A slow-down as a limit like any other."""
    rate = Rate(slowed.per_minute, 60.0, slack_s=SLACK_SHARE)
    return Limit(f"slow-down of {slowed.where}", rate, why=slowed.words)
