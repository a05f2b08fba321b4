"""Rate limits: the bound holds however many workers ask and however wrong their clocks, and nearly all is used."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.limits import HOLD_STEP_S, Rate, Reservation, give_back, hold, reserve, spend
from tests.core.strategies import NOW

NEVER_USED = 0.0
ROUNDING_S = 1e-4  # a thousand additions to a number of ten digits

TEN = Rate(10, 1.0)
BURSTY = Rate(100, 60.0, burst=5)


def starts(slots: Reservation, now: float, count: int | None = None) -> list[float]:
    """When its slots are used by somebody who is always on time."""
    return [max(now, slots.start_at(place)) for place in range(slots.granted if count is None else count)]


def near(value: float) -> object:
    return pytest.approx(value, abs=ROUNDING_S)


# Examples.


def test_an_even_pace_follows_from_a_burst_of_one() -> None:
    slots = reserve(NEVER_USED, NOW, 5, TEN, horizon_s=1.0)
    assert slots.granted == 5
    assert starts(slots, NOW) == [near(NOW + place / 10) for place in range(5)]


def test_a_limit_that_rested_lets_its_burst_start_at_once_and_the_rest_evenly() -> None:
    slots = reserve(NEVER_USED, NOW, 7, BURSTY, horizon_s=60.0)
    assert starts(slots, NOW) == [*[NOW] * 5, near(NOW + BURSTY.interval_s), near(NOW + 2 * BURSTY.interval_s)]


def test_nothing_is_granted_beyond_the_horizon() -> None:
    assert reserve(NEVER_USED, NOW, 100, TEN, horizon_s=0.5).granted == 6  # at 0.0, 0.1, … 0.5
    assert reserve(NOW + 3.0, NOW, 100, TEN, horizon_s=0.5).granted == 0
    assert reserve(NEVER_USED, NOW, 0, TEN, horizon_s=0.5).granted == 0


def test_where_nothing_is_granted_nothing_is_spent() -> None:
    assert reserve(NOW + 3.0, NOW, 100, TEN, horizon_s=0.5).tat == NOW + 3.0


def test_two_workers_share_one_limit() -> None:
    first = reserve(NEVER_USED, NOW, 4, TEN, horizon_s=1.0)
    second = reserve(first.tat, NOW, 4, TEN, horizon_s=1.0)
    assert starts(second, NOW) == [near(NOW + place / 10) for place in range(4, 8)]


def test_unused_slots_go_to_the_next_who_asks() -> None:
    slots = reserve(NEVER_USED, NOW, 8, TEN, horizon_s=1.0)
    tat = give_back(slots.tat, slots, unused=5)
    assert reserve(tat, NOW, 1, TEN, horizon_s=1.0).first_at == near(NOW + 0.3)


def test_unused_slots_before_somebody_elses_are_lost() -> None:
    mine = reserve(NEVER_USED, NOW, 4, TEN, horizon_s=1.0)
    other = reserve(mine.tat, NOW, 4, TEN, horizon_s=1.0)
    assert give_back(other.tat, mine, unused=4) == other.tat


def test_no_more_is_given_back_than_was_granted() -> None:
    slots = reserve(NEVER_USED, NOW, 3, TEN, horizon_s=1.0)
    assert give_back(slots.tat, slots, unused=99) == near(NOW)


def test_a_database_that_keeps_microseconds_still_takes_slots_back() -> None:
    slots = reserve(NEVER_USED, NOW + 0.123456789, 8, Rate(7, 1.0), horizon_s=2.0)
    assert give_back(round(slots.tat, 6), slots, unused=8) == near(NOW + 0.123457)


@pytest.mark.parametrize("rate", [TEN, BURSTY])
def test_a_hold_lets_nothing_start_before_its_end_and_no_burst_then(rate: Rate) -> None:
    tat = hold(NEVER_USED, NOW + 30.0, rate)
    assert reserve(tat, NOW, 9, rate, horizon_s=1.0).granted == 0
    after = reserve(tat, NOW + 30.0, 9, rate, horizon_s=5.0)
    assert starts(after, NOW + 30.0)[:2] == [near(NOW + 30.0), near(NOW + 30.0 + rate.interval_s)]


def test_a_hold_that_ends_before_what_is_reserved_changes_next_to_nothing() -> None:
    assert hold(NOW + 9.0, NOW + 3.0, TEN) == NOW + 9.0 + HOLD_STEP_S


def test_a_hold_is_not_undone_by_what_is_given_back_after_it() -> None:
    slots = reserve(NEVER_USED, NOW, 10, TEN, horizon_s=2.0)
    tat = hold(slots.tat, slots.tat, TEN)
    assert give_back(tat, slots, unused=10) == tat


def test_what_was_spent_without_a_reservation_is_waited_for_afterwards() -> None:
    slots = reserve(NEVER_USED, NOW, 1, TEN, horizon_s=1.0)
    tat = spend(slots.tat, NOW, 19, TEN)  # one message, twenty recipients
    assert reserve(tat, NOW, 1, TEN, horizon_s=60.0).first_at == near(NOW + 2.0)


def test_what_is_spent_on_a_limit_that_rested_is_waited_for_from_then_on() -> None:
    assert reserve(spend(NEVER_USED, NOW, 20, TEN), NOW, 1, TEN, horizon_s=60.0).first_at == near(NOW + 2.0)


def test_starts_that_are_late_by_the_slack_stay_within_the_rate_beside_punctual_ones() -> None:
    rate = Rate(14, 1.0, slack_s=0.1)
    times = starts(reserve(NEVER_USED, NOW, 30, rate, horizon_s=9.0), NOW)
    assert_within_the_rate([times[0] + rate.slack_s, *times[1:]], rate)
    assert rate.interval_s * 14 == near(1.1)


def test_a_clock_that_counts_microseconds_is_late_enough() -> None:
    next_at = reserve(NOW + 0.1234567, NOW, 1, TEN, horizon_s=0.0).next_at
    assert reserve(NOW + 0.1234567, next_at - 6e-7, 1, TEN, horizon_s=0.0).granted == 1


@pytest.mark.parametrize(
    ("count", "per_s", "burst", "slack_s"), [(0, 1.0, 1, 0.0), (5, 0.0, 1, 0.0), (5, 1.0, 6, 0.0), (5, 1.0, 0, 0.0)]
)
def test_a_rate_that_makes_no_sense_is_refused(count: int, per_s: float, burst: int, slack_s: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        Rate(count, per_s, burst, slack_s)


@pytest.mark.parametrize("slack_s", [-1.0, float("inf"), float("nan")])
def test_a_slack_that_makes_no_sense_is_refused(slack_s: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Rate(5, 1.0, 1, slack_s)


# What is written in the settings.


# Properties: any number of workers, any order, clocks that differ.


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    count = draw(st.integers(1, 200))
    return Rate(
        count,
        draw(st.sampled_from([0.1, 1.0, 60.0, 3600.0])),
        draw(st.integers(1, min(count, 20))),
        draw(st.sampled_from([0.0, 0.03, 1.0])),
    )


@dataclass
class Bench:
    """One limit, whoever uses it, and every start that it led to."""

    rate: Rate
    tat: float = NEVER_USED
    now: float = NOW
    starts: list[float] = field(default_factory=list)
    open: list[tuple[Reservation, int]] = field(default_factory=list)  # with what is unused of each

    def reserve(self, want: int, horizon: float, use: float, late: float) -> None:
        slots = reserve(self.tat, self.now, want, self.rate, horizon * self.rate.interval_s)
        assert slots.granted <= want
        assert slots.tat >= self.tat
        self.tat = slots.tat
        count = round(slots.granted * use)
        self.starts += [at + late * self.rate.slack_s for at in starts(slots, self.now, count)]
        self.open.append((slots, slots.granted - count))

    def give_back(self, place: int) -> None:
        if self.open:
            self.tat = give_back(self.tat, *self.open.pop(place % len(self.open)))


def assert_within_the_rate(starts: Iterable[float], rate: Rate) -> None:
    """No window has more than the burst and what its length allows, nor more than the rate says."""
    ordered = sorted(starts)
    for place, first in enumerate(ordered):
        for count, last in enumerate(ordered[place:], 1):
            assert count <= rate.burst + (last - first + rate.slack_s + ROUNDING_S) / rate.interval_s
            assert count <= rate.count or last - first > rate.per_s - ROUNDING_S


fractions = st.floats(0.0, 1.0)
moves = st.one_of(
    st.tuples(st.just("time"), st.floats(-3.0, 30.0)),  # in intervals
    st.tuples(st.just("reserve"), st.integers(0, 30), st.floats(0.0, 20.0), fractions, fractions),
    st.tuples(st.just("give back"), st.integers(0, 3)),
    st.tuples(st.just("hold"), st.floats(-10.0, 20.0)),
)


@given(rates(), st.lists(moves, max_size=30))
def test_no_window_ever_has_more_starts_than_the_rate_allows(rate: Rate, happenings: list[tuple[object, ...]]) -> None:
    bench = Bench(rate)
    for what, *how in happenings:
        if what == "time":
            bench.now += float(how[0]) * rate.interval_s  # type: ignore[arg-type]
        elif what == "reserve":
            bench.reserve(*how)  # type: ignore[arg-type]
        elif what == "give back":
            bench.give_back(*how)  # type: ignore[arg-type]
        else:
            bench.tat = hold(bench.tat, bench.now + float(how[0]) * rate.interval_s, rate)  # type: ignore[arg-type]
    assert_within_the_rate(bench.starts, rate)


@given(rates(), st.lists(moves, max_size=15), st.floats(0.0, 20.0))
def test_whatever_came_before_a_hold_nothing_reserved_after_it_starts_before_its_end(
    rate: Rate, happenings: list[tuple[object, ...]], length: float
) -> None:
    bench = Bench(rate)
    for what, *how in happenings:
        if what == "reserve":
            bench.reserve(*how)  # type: ignore[arg-type]
    until = bench.now + length
    bench.tat = hold(bench.tat, until, rate)
    while bench.open:
        bench.give_back(0)
    bench.starts.clear()
    bench.reserve(30, 100.0, 1.0, 0.0)
    assert all(at >= until - ROUNDING_S for at in bench.starts)


@given(rates(), st.floats(0.0, 1e6), st.floats(0.0, 30.0), st.integers(1, 50))
def test_after_sleeping_for_what_the_limiter_says_something_is_granted(
    rate: Rate, ahead: float, horizon_s: float, want: int
) -> None:
    refused = reserve(NOW + ahead, NOW, want, rate, horizon_s)
    slept_until = NOW + (max(refused.next_at, NOW) - NOW)
    assert reserve(refused.tat, slept_until, want, rate, horizon_s).granted >= 1


@given(rates(), st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 40))
def test_a_debt_is_paid_back_to_the_last_unit(rate: Rate, wants: list[int], extra: int) -> None:
    plain = bent = NEVER_USED
    for want in wants:
        plain = reserve(plain, NOW, want, rate, 1e9).tat
        bent = reserve(bent, NOW, want, rate, 1e9).tat
        bent = spend(bent, NOW, extra, rate)
        plain = reserve(plain, NOW, extra, rate, 1e9).tat if extra else plain
    assert bent == near(plain)


@pytest.mark.parametrize("workers", [1, 4, 16])
@pytest.mark.parametrize(
    "rate",
    [Rate(14, 1.0), Rate(1000, 1.0, 20), Rate(100, 60.0, 5), Rate(5000, 3600.0, 50), Rate(14, 1.0, slack_s=0.04)],
    ids=lambda rate: f"{rate.count} in {rate.per_s:.0f} s, burst {rate.burst}",
)
def test_at_full_demand_nearly_all_of_the_rate_is_used(rate: Rate, workers: int) -> None:
    chance = random.Random(f"{rate} {workers}")
    horizon_s, end = 0.5, NOW + max(60.0, 300 * rate.interval_s)
    tat, begun = NEVER_USED, list[float]()
    asks = [(NOW + chance.random(), worker) for worker in range(workers)]
    while (due := min(asks))[0] < end:
        now = due[0] + 0.02 * chance.random()  # the way to the database
        slots = reserve(tat, now, 64, rate, horizon_s)
        tat = slots.tat
        begun += starts(slots, now)
        again_at = max(now, slots.next_at - horizon_s / 2) + 0.05 * chance.random()
        asks[asks.index(due)] = (again_at, due[1])

    allowed = rate.count / rate.per_s * (end - NOW)
    assert len([at for at in begun if at < end]) >= 0.95 * allowed
    assert max(_most_within(begun, rate.per_s - ROUNDING_S), 1) <= rate.count


def _most_within(times: list[float], window_s: float) -> int:
    ordered, behind, most = sorted(times), 0, 0
    for place, at in enumerate(ordered):
        while at - ordered[behind] > window_s:
            behind += 1
        most = max(most, place - behind + 1)
    return most
