"""Kill switches: exactly what is within their scope is closed, for as long as they say, and comes back slowly."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.lanes import lane_name
from posthouse.core.switches import PACED_FOR_S, PACED_FROM, Scope, Switch, Switches, paced
from tests.core.strategies import NOW

LANES = [
    "receipt",
    "receipt/shop",
    "newsletter//spring",
    "newsletter//spring/gmail",
    "receipt/shop//gmail",
    "spring",
    "shop",
]


def closed(*switches: Switch, now: float = NOW) -> list[str]:
    index = Switches(switches)
    return [lane for lane in LANES if index.closing(lane, now)]


@pytest.mark.parametrize(
    ("scope", "value", "lanes"),
    [
        (Scope.ALL, "", LANES),
        (Scope.TYPE, "receipt", ["receipt", "receipt/shop", "receipt/shop//gmail"]),
        (Scope.TYPE, "rec", []),
        (Scope.SERVICE, "shop", ["receipt/shop", "receipt/shop//gmail"]),
        (Scope.CAMPAIGN, "spring", ["newsletter//spring", "newsletter//spring/gmail"]),
        (Scope.GROUP, "gmail", ["newsletter//spring/gmail", "receipt/shop//gmail"]),
        (Scope.LANE, "receipt/shop", ["receipt/shop"]),
        (Scope.LANE, "receipt", ["receipt"]),
        (Scope.ROUTE, "receipt", []),
    ],
)
def test_a_switch_closes_exactly_its_scope(scope: Scope, value: str, lanes: list[str]) -> None:
    assert closed(Switch(scope, value)) == lanes


def test_without_switches_everything_is_open() -> None:
    assert closed() == []
    assert Switches().closing_route("main", NOW) is None


def test_a_route_is_closed_by_its_own_switch_and_by_the_one_for_all() -> None:
    mine, everything = Switch(Scope.ROUTE, "main"), Switch(Scope.ALL, "")
    assert Switches([mine]).closing_route("main", NOW) == mine
    assert Switches([mine]).closing_route("standby", NOW) is None
    assert Switches([everything]).closing_route("standby", NOW) == everything
    assert Switches([Switch(Scope.TYPE, "main")]).closing_route("main", NOW) is None


def test_a_switch_opens_by_itself_at_its_time() -> None:
    switch = Switch(Scope.TYPE, "receipt", until=NOW + 60)
    assert "receipt" in closed(switch, now=NOW + 59.9)
    assert closed(switch, now=NOW + 60) == []


def test_a_switch_without_an_end_stays_until_it_is_deleted() -> None:
    assert "receipt" in closed(Switch(Scope.TYPE, "receipt"), now=NOW + 1e9)


def test_a_worker_whose_clock_is_behind_obeys_at_once() -> None:
    assert "receipt" in closed(Switch(Scope.TYPE, "receipt", since=NOW + 5))


def test_of_several_the_one_that_closes_longest_is_named() -> None:
    short, long = Switch(Scope.TYPE, "receipt", until=NOW + 5), Switch(Scope.SERVICE, "shop", until=NOW + 9)
    endless = Switch(Scope.ALL, "")
    assert Switches([short, long]).closing("receipt/shop", NOW) == long
    assert Switches([short, long]).closing("receipt", NOW) == short
    assert Switches([short, long, endless]).closing("receipt/shop", NOW) == endless


@pytest.mark.parametrize(("scope", "value"), [(Scope.ALL, "receipt"), (Scope.TYPE, ""), (Scope.LANE, "")])
def test_a_switch_without_the_value_that_its_scope_needs_is_refused(scope: Scope, value: str) -> None:
    with pytest.raises(ValueError, match="value"):
        Switch(scope, value)


names = st.sampled_from(["", "a", "b", "c"])
switches = st.one_of(
    st.builds(Switch, st.just(Scope.ALL), st.just(""), until=st.none() | st.floats(NOW - 5, NOW + 5)),
    st.builds(
        Switch,
        st.sampled_from([scope for scope in Scope if scope is not Scope.ALL]),
        st.sampled_from(["a", "b", "c", "a/b", "a//c"]),
        until=st.none() | st.floats(NOW - 5, NOW + 5),
    ),
)


@given(
    st.lists(switches, max_size=8, unique_by=lambda switch: (switch.scope, switch.value)),
    st.sampled_from("abc"),
    names,
    names,
    names,
)
def test_the_index_says_what_a_look_at_every_switch_says(
    all_: list[Switch], type_: str, service: str, campaign: str, group: str
) -> None:
    lane = lane_name(type_, service, campaign, group)
    mine = {
        *((Scope.ALL, ""), (Scope.LANE, lane), (Scope.TYPE, type_), (Scope.SERVICE, service)),
        *((Scope.CAMPAIGN, campaign), (Scope.GROUP, group)),
    }
    on = [switch for switch in all_ if (switch.scope, switch.value) in mine and switch.is_on(NOW)]
    found = Switches(all_).closing(lane, NOW)
    assert (found in on) if on else (found is None)


def test_hundreds_of_lanes_are_asked_for_in_no_time() -> None:
    index = Switches(Switch(Scope.CAMPAIGN, f"campaign-{number}") for number in range(500))
    lanes = [f"newsletter//other-{number}/gmail" for number in range(500)]
    begun = time.process_time()
    assert not any(index.closing(lane, NOW) for lane in lanes)
    assert time.process_time() - begun < 0.1


@pytest.mark.parametrize(
    ("since_s", "expected"), [(0.0, 10.0), (10.0, 20.0), (30.0, 80.0), (59.999, 639.9), (60.0, None), (1e9, None)]
)
def test_what_was_resumed_comes_back_doubling_for_a_minute(since_s: float, expected: float | None) -> None:
    assert paced(NOW, NOW + since_s) == (None if expected is None else pytest.approx(expected, rel=1e-3))


@given(st.floats(-100.0, 100.0))
def test_a_pace_never_falls_and_is_over_in_time(since_s: float) -> None:
    pace, later = paced(NOW, NOW + since_s), paced(NOW, NOW + since_s + 1.0)
    assert (pace is None) == (NOW + since_s - NOW >= PACED_FOR_S)
    assert pace is None or pace >= PACED_FROM
    assert later is None or (pace is not None and later >= pace)
