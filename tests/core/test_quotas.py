"""Quotas: never more than the count in any rolling period, nearly all of it usable, and no stall; and the warm-up."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.quotas import DAY_S, Parts, Quota, WarmUp, give_back, opens_at, take, used, warning
from tests.core.strategies import NOW

HOURLY = Quota(100, 3600.0)


def taken(count: int, at: float = NOW, state: Parts = (), quota: Quota = HOURLY) -> Parts:
    granted, state = take(state, at, count, quota)
    assert granted == count
    return state


# Examples.


def test_no_more_is_granted_than_the_quota_has_left() -> None:
    state = taken(70)
    assert used(state, NOW, HOURLY) == 70
    granted, state = take(state, NOW + 60, 50, HOURLY)
    assert (granted, used(state, NOW + 60, HOURLY)) == (30, 100)
    assert take(state, NOW + 120, 1, HOURLY)[0] == 0


def test_what_was_used_counts_for_the_whole_period_and_soon_after_no_more() -> None:
    state = taken(100)
    assert used(state, NOW + 3600, HOURLY) == 100
    assert used(state, NOW + 3600 + 2 * HOURLY.part_s, HOURLY) == 0


def test_the_state_survives_json() -> None:
    state = taken(30, NOW + 900, taken(70))
    read = json.loads(json.dumps(state))
    assert used(read, NOW + 900, HOURLY) == 100
    assert take(read, NOW + 900, 1, HOURLY) == (0, state)
    assert give_back(read, NOW, 70, HOURLY) == give_back(state, NOW, 70, HOURLY)


def test_the_state_stays_small() -> None:
    state: Parts = ()
    for minute in range(3 * 60):
        _, state = take(state, NOW + minute * 60.0, 1, HOURLY)
    assert len(state) <= 26


def test_unused_ones_are_given_back_to_the_time_they_were_taken_from() -> None:
    state = taken(40, NOW + 1800, taken(60))
    state = give_back(state, NOW, 50, HOURLY)
    assert used(state, NOW + 1800, HOURLY) == 50
    assert used(state, NOW + 3600 + 2 * HOURLY.part_s, HOURLY) == 40


def test_no_more_is_given_back_than_was_taken_then() -> None:
    assert give_back(taken(40), NOW, 99, HOURLY) == ()
    assert give_back(taken(40), NOW - 900, 99, HOURLY) == taken(40)


def test_a_full_quota_says_when_it_opens() -> None:
    assert opens_at((), NOW, HOURLY) == NOW
    state = taken(60, NOW + 1800, taken(40))
    at = opens_at(state, NOW + 1800, HOURLY)
    assert NOW + 3600 < at <= NOW + 3600 + HOURLY.part_s + 1
    assert take(state, at, 100, HOURLY)[0] == 40


def test_no_rounding_makes_a_quota_open_a_moment_later_than_it_says() -> None:
    quota = Quota(1, 17.3)
    first = quota.part(NOW)
    for number in range(first, first + 500):
        state = ((number, 1),)
        assert take(state, opens_at(state, number * quota.part_s, quota), 1, quota)[0] == 1


def test_a_quota_that_was_lowered_opens_when_enough_of_what_was_used_is_over() -> None:
    state = taken(60, NOW + 1800, taken(40))
    lowered = Quota(50, 3600.0)
    at = opens_at(state, NOW + 1800, lowered)
    assert at > NOW + 5400
    assert take(state, at, 99, lowered)[0] == 50


def test_a_clock_that_was_wrong_by_days_closes_no_quota_for_days() -> None:
    state = taken(100, NOW + 5 * DAY_S)
    assert take(state, NOW, 100, HOURLY)[0] == 100


def test_a_clock_that_was_a_little_ahead_loses_nothing_that_was_used() -> None:
    assert used(taken(100, NOW + 600), NOW, HOURLY) == 100


def test_a_worker_whose_clock_is_behind_still_sees_what_one_ahead_of_it_has_seen_leave() -> None:
    part_begins = HOURLY.part(NOW) * HOURLY.part_s
    first = part_begins + 0.9 * HOURLY.part_s
    state = taken(1, first + 3600 + HOURLY.part_s, taken(99, first))
    assert take(state, first + 3590, 100, HOURLY)[0] == 0


def test_a_start_that_is_late_by_the_slack_still_keeps_its_distance() -> None:
    quota = Quota(1, 3600.0, slack_s=36.0)
    end_of_part = (quota.part(NOW) + 1) * quota.part_s - 0.01
    state = taken(1, end_of_part, quota=quota)
    assert opens_at(state, end_of_part, quota) >= end_of_part + 36.0 + 3600.0


@pytest.mark.parametrize(
    ("before", "after", "warned_at", "expected"),
    [
        (79, 80, 0.0, True),
        (10, 100, 0.0, True),
        (70, 79, 0.0, False),
        (80, 90, 0.0, False),
        (79, 80, NOW - 3599, False),
        (79, 80, NOW - 3600, True),
    ],
)
def test_crossing_four_fifths_warns_once_a_period(before: int, after: int, warned_at: float, expected: bool) -> None:
    assert warning(before, after, HOURLY, warned_at, NOW) is expected


@pytest.mark.parametrize(("count", "period_s"), [(0, 3600.0), (-1, 3600.0), (5, 0.0), (5, float("inf"))])
def test_a_quota_that_makes_no_sense_is_refused(count: int, period_s: float) -> None:
    with pytest.raises(ValueError, match="quota"):
        Quota(count, period_s)


# Properties, against the true times.

steps = st.tuples(
    st.floats(-0.03, 0.5),  # time that passes, in periods; a clock may be behind by less than a part
    st.integers(0, 60),
    st.floats(0.0, 1.0),  # how much of it is used
    st.floats(0.0, 1.0),  # how late, of the slack
)


@given(
    st.integers(1, 100),
    st.sampled_from([60.0, 3600.0, DAY_S]),
    st.sampled_from([0.0, 0.01]),
    st.lists(steps, max_size=40),
)
def test_no_rolling_period_ever_has_more_than_the_quota(
    count: int, period_s: float, slack: float, happenings: list[tuple[float, int, float, float]]
) -> None:
    quota = Quota(count, period_s, slack * period_s)
    state: Parts = ()
    now = latest = NOW
    true: list[float] = []
    for passed, want, share, late in happenings:
        now = max(now + passed * period_s, latest - quota.part_s)
        latest = max(latest, now)
        granted, state = take(state, now, want, quota)
        assert 0 <= granted <= want
        unused = round(granted * (1 - share))
        state = give_back(state, now, unused, quota)
        true += [now + late * quota.slack_s] * (granted - unused)
    true.sort()
    for place in range(len(true) - count):
        assert true[place + count] - true[place] > period_s - 1e-3


@given(
    st.integers(1, 50),
    st.floats(1.0, 5000.0),
    st.lists(st.tuples(st.floats(0.0, 0.4), st.integers(0, 60)), max_size=30),
)
def test_a_closed_quota_opens_when_it_says_and_not_before(
    count: int, period_s: float, happenings: list[tuple[float, int]]
) -> None:
    quota = Quota(count, period_s)
    state: Parts = ()
    now = NOW
    for passed, want in happenings:
        now += passed * quota.period_s
        _, state = take(state, now, want, quota)
    opens = opens_at(state, now, quota)
    assert now <= opens <= now + quota.period_s + 2 * quota.part_s
    assert take(state, opens, 1, quota)[0] == 1
    if opens > now:
        assert take(state, (now + opens) / 2, 1, quota)[0] == 0


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_at_full_demand_nearly_all_of_the_quota_is_used(batch: int) -> None:
    quota, end = Quota(100, 3600.0, slack_s=36.0), NOW + 30 * DAY_S
    state: Parts = ()
    sent, now = 0, NOW
    while now < end:
        granted, state = take(state, now, batch, quota)
        sent += granted
        now = now + 1.0 if granted else opens_at(state, now, quota)
    assert 0.95 <= sent / (100 * 30 * 24) <= 1.0


# Warm-up.

WARM_UP = WarmUp(NOW, first=50, growth=2.0, until=1000)


@pytest.mark.parametrize(
    ("day", "limit"), [(-3, 50), (0, 50), (0.99, 50), (1, 100), (2.5, 200), (4, 800), (5, None), (99_999_999, None)]
)
def test_a_warm_up_grows_day_by_day_until_it_is_over(day: float, limit: int | None) -> None:
    assert WARM_UP.daily_limit(NOW + day * DAY_S) == limit


def test_a_warm_up_that_starts_where_it_ends_limits_nothing() -> None:
    assert WarmUp(NOW, 1000, 2.0, 1000).daily_limit(NOW) is None


@pytest.mark.parametrize(("first", "growth"), [(0, 2.0), (50, 1.0), (50, 0.5), (50, float("inf"))])
def test_a_warm_up_that_never_ends_is_refused(first: int, growth: float) -> None:
    with pytest.raises(ValueError, match="warm-up"):
        WarmUp(NOW, first, growth, 1000)


@given(st.integers(1, 1000), st.floats(1.01, 4.0), st.integers(1, 1_000_000), st.integers(0, 5000))
def test_a_warm_up_never_shrinks_and_never_passes_its_end(first: int, growth: float, until: int, day: int) -> None:
    warm_up = WarmUp(NOW, first, growth, until)
    one, next_ = (warm_up.daily_limit(NOW + d * DAY_S) for d in (day, day + 1))
    assert one is None or first <= one <= until
    assert next_ is None or (one is not None and next_ >= one)
