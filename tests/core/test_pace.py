"""Several limits at once: each of them holds, and a burst is a burst."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.config import parse_config
from posthouse.core.limits import Rate
from posthouse.core.pace import (
    HORIZON_S,
    LATE_MAX_S,
    SLACK_SHARE,
    Limit,
    LimitState,
    pay_for_lateness,
    permit,
    return_unused,
)
from posthouse.core.pace_policy import pace_policy

NOW = 1_800_000_000.0

ROUTE = Limit("route main", rate=Rate(20, 1.0, burst=5))
SERVICE = Limit("service shop", rate=Rate(30, 60.0))
BOTH = (ROUTE, SERVICE)

ROUTE_SETTINGS = {"provider": "http", "url": "https://main.example/send", "auth": "none", "quota": "1/min"}


def fresh() -> dict[str, LimitState]:
    return {limit.name: LimitState() for limit in BOTH}


def assert_within(times: Sequence[float], rate: Rate) -> None:
    """No window of any length holds more than the rate allows."""
    for first, begun in enumerate(times):
        for last in range(first, len(times)):
            allowed = rate.burst + (times[last] - begun) / rate.interval_s
            assert last - first + 1 <= allowed + 1e-3, (times[first : last + 1], rate)


def test_all_of_a_burst_may_start_at_once() -> None:
    leave, _, _ = permit([ROUTE], fresh(), want=5, now=NOW)
    assert leave.starts == [NOW] * 5


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 3.0),  # seconds later
            st.sampled_from([(ROUTE,), (SERVICE,), BOTH]),
            st.integers(1, 8),  # wanted
            st.integers(0, 8),  # not used
        ),
        min_size=1,
        max_size=30,
    )
)
def test_each_of_several_limits_holds_whichever_of_them_puts_a_send_off(
    happenings: list[tuple[float, tuple[Limit, ...], int, int]],
) -> None:
    states, now = fresh(), NOW
    times: dict[str, list[float]] = {limit.name: [] for limit in BOTH}
    for later_s, limits, want, unused in happenings:
        now += later_s
        leave, changed, _ = permit(limits, states, want, now)
        states |= changed
        used = max(0, leave.count - unused)
        if used < leave.count:
            states |= return_unused(limits, states, leave, leave.count - used)
        for limit in limits:
            times[limit.name] += leave.starts[:used]
    for limit in BOTH:
        assert limit.rate is not None
        assert_within(sorted(times[limit.name]), limit.rate)


def test_whoever_got_none_asks_again_before_a_later_one_can_have_the_slot() -> None:
    """Else a bulk lane that happens to be asked for in between takes what an urgent one was refused a moment ago."""
    slow = Limit("route main", rate=Rate(1, 1.0, burst=1))
    states = {slow.name: LimitState()}
    states |= permit([slow], states, want=1, now=NOW)[1]
    refused, _, _ = permit([slow], states, want=1, now=NOW)
    assert refused.count == 0
    in_between, _, _ = permit([slow], states, want=1, now=refused.next_at - 0.02)
    at_its_time, _, _ = permit([slow], states, want=1, now=refused.next_at)
    assert (in_between.count, at_its_time.count) == (0, 1)


FIFTY = Limit("route main", rate=Rate(50, 1.0, slack_s=SLACK_SHARE))


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_workers_that_are_late_exceed_no_rate_because_they_pay_for_it(share: float, seed: int) -> None:
    """Four workers ask and start as they can; so many of the starts are late by up to what lets a slot go."""
    rate, chance = FIFTY.rate, random.Random(seed)
    assert rate is not None
    states, times = {FIFTY.name: LimitState()}, []
    happenings: list[tuple[float, float | None]] = [(NOW + chance.random() / 10, None) for _ in range(4)]
    while (happening := heappop(happenings))[0] < NOW + 10:
        now, slot = happening
        if slot is not None:
            times.append(now)
            states |= pay_for_lateness((FIFTY,), states, slot, now)
            continue
        leave, changed, _ = permit((FIFTY,), states, 8, now)
        states |= changed
        late_s = [chance.uniform(0, LATE_MAX_S if chance.random() < share else rate.slack_s) for _ in leave.starts]
        begun = [slot + late for slot, late in zip(leave.starts, late_s, strict=True)]
        for start, slot in zip(begun, leave.starts, strict=True):
            heappush(happenings, (start, slot))
        heappush(happenings, (max([*begun, leave.next_at]) + 0.005, None))

    windows = [bisect_right(times, begun + 1.0 - 1e-9) - place for place, begun in enumerate(times)]
    assert max(windows) <= 50 + rate.burst
    assert len(times) > 10 * (0.9 if share <= 0.05 else 0.4) * 50


def test_what_is_given_back_of_a_slower_limits_leave_is_there_again() -> None:
    leave, changed, _ = permit(BOTH, fresh(), want=1, now=NOW)
    states = changed | return_unused(BOTH, changed, leave, unused=1)
    again, _, _ = permit(BOTH, states, want=1, now=NOW)
    assert again.starts == pytest.approx([NOW])


def test_a_quota_holds_though_one_send_starts_late_and_the_next_at_once() -> None:
    config = parse_config({"database": "sqlite://", "routes": {"main": ROUTE_SETTINGS}}, environment={})
    (limit,) = pace_policy(config).limits("default", "main", NOW)
    assert limit.quota is not None
    states = {limit.name: LimitState()}
    late = limit.quota.part(NOW + 60) * limit.quota.part_s - 0.001  # the very end of a part of the window
    _, states, _ = permit([limit], states, want=1, now=late)
    refused, _, _ = permit([limit], states, want=1, now=late)
    assert refused.count == 0
    assert refused.next_at - (late + HORIZON_S + LATE_MAX_S) >= 60
