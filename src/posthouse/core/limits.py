"""Rate limits that any number of workers share: one timestamp each (GCRA), and no leader.

The state is `tat`, the "theoretical arrival time" of ITU-T I.371: how far the slots that were given away reach.
0.0 is a limit that was never used. Each change is one atomic update of that one number, under the row's lock:

- `reserve` before a claim: how many sends may start soon, and when. Claim no more than that.
- Start the k-th of them at `reservation.start_at(k)`; a time that has passed means at once. A slot that could not be
  used within `slack_s` of its time is let go, not used late: others have the slots after it.
- `give_back` what the claim did not fill: always the last slots, and only while nobody has reserved after them.
- `hold` when the provider says Retry-After. Slots that were reserved before are the worker's to let go.
- `follow` where another limit has put the starts later than the reservation would have.
- `spend` when a send turned out to need more than its one slot, as where recipients are counted and not messages.

Where nothing was granted, sleeping until `reservation.next_at` is enough; asking nearly a horizon before that loses no
slot to the way to the database. A crash loses the slots that it held, which is the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

GRAIN_S: Final = 1e-6
"""Databases keep microseconds: two times that differ by less are the same."""

HOLD_STEP_S: Final = 1e-5
"""A hold moves the timestamp by at least this, so that no slot reserved before it can be given back past it."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` starts in any `per_s` seconds, and at most `burst` of them at once.

    Starts may be late by up to `slack_s`, each by another amount, and it still holds. Burst and slack are paid for by
    the interval: with a burst of 1 and no slack it is `per_s / count`. No `w` seconds hold more than
    `burst + (w + slack_s) / interval_s` starts.
    """

    count: int
    per_s: float
    burst: int = 1
    slack_s: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.per_s < math.inf or not 0 <= self.slack_s < math.inf:
            raise ValueError("a rate needs a count of at least 1, and a finite time above 0")
        if not 1 <= self.burst <= self.count:
            raise ValueError(f"a burst of {self.burst} is not between 1 and the {self.count} that the rate allows")

    @property
    def interval_s(self) -> float:
        """Between two starts at full demand."""
        return (self.per_s + self.slack_s) / (self.count + 1 - self.burst)

    @property
    def tolerance_s(self) -> float:
        """How far ahead of an even pace a burst may run."""
        return (self.burst - 1) * self.interval_s


@dataclass(frozen=True, slots=True)
class Reservation:
    """Slots that one worker may use, and the limit's timestamp after them."""

    granted: int
    first_at: float  # of the first slot, or of the first to come where none was granted; may have passed
    interval_s: float
    tat: float

    def start_at(self, place: int) -> float:
        """When the slot at `place`, from 0 on, may be used; a time that has passed means at once."""
        return self.first_at + place * self.interval_s

    def without(self, unused: int) -> Reservation:
        """The reservation when its last slots have been given back."""
        return replace(self, granted=self.granted - unused, tat=self.tat - unused * self.interval_s)

    @property
    def next_at(self) -> float:
        """When the first slot after these may be used, if nobody else reserves it."""
        return self.start_at(self.granted)


def reserve(tat: float, now: float, want: int, rate: Rate, horizon_s: float) -> Reservation:
    """Up to `want` slots that may be used within `horizon_s`. `now` may be a little behind another worker's."""
    base = max(tat, now)
    first_at = base - rate.tolerance_s
    within = math.floor((now + horizon_s + GRAIN_S - first_at) / rate.interval_s) + 1
    granted = max(0, min(want, within))
    return Reservation(granted, first_at, rate.interval_s, base + granted * rate.interval_s if granted else tat)


def give_back(tat: float, reservation: Reservation, unused: int) -> float:
    """The timestamp without the last `unused` slots of a reservation, where it is still the latest one.

    Slots that others have reserved meanwhile stand behind these, so then nothing is given back.
    """
    if abs(tat - reservation.tat) >= HOLD_STEP_S / 2:
        return tat
    return tat - min(unused, reservation.granted) * reservation.interval_s


def follow(tat: float, starts: Iterable[float], rate: Rate) -> float:
    """The timestamp after starts at these times, none of them before its slot: whoever is later pushes on the rest."""
    for at in starts:
        tat = max(tat, at) + rate.interval_s
    return tat


def hold(tat: float, until: float, rate: Rate) -> float:
    """The timestamp that lets nothing start before `until`, and no burst right then."""
    return max(tat + HOLD_STEP_S, until + rate.tolerance_s)


def spend(tat: float, now: float, extra: int, rate: Rate) -> float:
    """The timestamp after `extra` slots were used that nobody had reserved: those to come wait for as long."""
    return max(tat, now) + extra * rate.interval_s
