"""How a round's free slots are divided: urgent first, bulk never starved."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.lanes import TURNS, DueLane, lane_name, share, type_of
from posthouse.core.policy import Priority
from tests.core.strategies import NOW

URGENT, NORMAL, BULK = Priority.URGENT, Priority.NORMAL, Priority.BULK


def due(name: str, priority: Priority = NORMAL, *, age_s: float = 0.0, capacity: int = 100) -> DueLane:
    return DueLane(name, priority, NOW - age_s, capacity)


def granted(lanes: list[DueLane], free: int, turn: int = 0) -> dict[str, int]:
    return {part.lane: part.count for part in share(lanes, free, turn)}


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("receipt",), "receipt"),
        (("receipt", "shop"), "receipt/shop"),
        (("digest", "", "spring-sale"), "digest//spring-sale"),
        (("digest", "", "", "gmail"), "digest///gmail"),
    ],
)
def test_a_lane_is_named_without_its_empty_tail_and_tells_its_type(parts: tuple[str, ...], name: str) -> None:
    assert lane_name(*parts) == name
    assert type_of(name) == parts[0]


def test_urgent_mail_is_served_before_normal_and_normal_before_bulk() -> None:
    lanes = [due("news", BULK), due("receipt"), due("code", URGENT)]
    assert [part.lane for part in share(lanes, 32)] == ["code", "receipt", "news"]
    assert granted(lanes, 32) == {"code": 30, "receipt": 1, "news": 1}


def test_what_urgent_mail_cannot_use_goes_to_the_others() -> None:
    lanes = [due("news", BULK), due("receipt", capacity=4), due("code", URGENT, capacity=2)]
    assert granted(lanes, 32) == {"code": 2, "receipt": 4, "news": 26}


def test_lanes_of_one_priority_share_alike() -> None:
    assert granted([due("a"), due("b"), due("c")], 30) == {"a": 10, "b": 10, "c": 10}


def test_a_lane_that_can_use_little_leaves_the_rest_to_its_neighbours() -> None:
    assert granted([due("a", capacity=2), due("b"), due("c")], 30) == {"a": 2, "b": 14, "c": 14}


def test_with_fewer_slots_than_lanes_the_oldest_are_served() -> None:
    lanes = [due("new", age_s=1), due("oldest", age_s=9), due("old", age_s=5)]
    assert granted(lanes, 2) == {"oldest": 1, "old": 1}


def test_with_a_single_slot_the_urgent_mail_goes_first() -> None:
    assert granted([due("news", BULK, age_s=3600), due("code", URGENT)], 1) == {"code": 1}


def test_with_a_single_slot_each_time_every_priority_still_gets_its_turn() -> None:
    lanes = [due("news", BULK), due("receipt"), due("code", URGENT)]
    served: Counter[str] = Counter()
    for turn in range(6 * TURNS):
        served.update(granted(lanes, 1, turn))
    assert min(served.values()) >= 2
    assert served["code"] >= served.total() * (TURNS - 1) / TURNS


def test_a_lane_without_capacity_takes_no_slot_from_anybody() -> None:
    lanes = [due("code", URGENT), due("receipt", capacity=0), due("news", BULK, capacity=-3)]
    assert granted(lanes, 8) == {"code": 8}


@pytest.mark.parametrize("free", [0, -1])
def test_nothing_is_granted_where_nothing_is_free(free: int) -> None:
    assert share([due("a"), due("b", BULK)], free) == []


def test_nothing_due_needs_nothing() -> None:
    assert share([], 32) == []


due_lanes = st.lists(
    st.builds(
        DueLane,
        name=st.text("abcdef", min_size=1, max_size=6),
        priority=st.sampled_from(Priority),
        due_since=st.floats(NOW - 3600, NOW),
        capacity=st.integers(-2, 40),
    ),
    max_size=12,
    unique_by=lambda lane: lane.name,
)


def test_with_slots_for_all_the_turns_decide_whose_leave_is_asked_for_first() -> None:
    lanes = [due("news", BULK), due("receipt"), due("code", URGENT)]
    rounds = [share(lanes, 8, turn) for turn in range(6 * TURNS)]
    assert Counter(parts[0].lane for parts in rounds) == {"code": 6 * TURNS - 4, "receipt": 2, "news": 2}
    assert all({part.lane: part.count for part in parts} == granted(lanes, 8) for parts in rounds)


@given(due_lanes, st.integers(-2, 64), st.integers(0, 1000))
def test_no_round_grants_more_than_is_free_or_than_a_lane_can_take(lanes: list[DueLane], free: int, turn: int) -> None:
    shares = share(lanes, free, turn)
    capacity = {lane.name: lane.capacity for lane in lanes}
    assert len({part.lane for part in shares}) == len(shares)
    assert all(0 < part.count <= capacity[part.lane] for part in shares)
    assert sum(part.count for part in shares) <= max(free, 0)


@given(due_lanes, st.integers(0, 64), st.integers(0, 1000))
def test_no_slot_is_left_idle_while_a_lane_could_use_it(lanes: list[DueLane], free: int, turn: int) -> None:
    usable = sum(max(lane.capacity, 0) for lane in lanes)
    assert sum(part.count for part in share(lanes, free, turn)) == min(free, usable)


@given(due_lanes, st.integers(3, 64), st.integers(0, 1000))
def test_with_a_slot_for_each_priority_each_gets_one(lanes: list[DueLane], free: int, turn: int) -> None:
    priority = {lane.name: lane.priority for lane in lanes}
    served = {priority[part.lane] for part in share(lanes, free, turn)}
    assert served == {lane.priority for lane in lanes if lane.capacity > 0}


@given(due_lanes, st.integers(0, 64))
def test_within_a_priority_nobody_gets_much_more_than_a_neighbour_who_could_use_it(
    lanes: list[DueLane], free: int
) -> None:
    counts = granted(lanes, free)
    for lane in lanes:
        for other in lanes:
            hungry = counts.get(other.name, 0) < other.capacity
            if lane.priority is other.priority and hungry:
                assert counts.get(lane.name, 0) <= counts.get(other.name, 0) + 1


@given(due_lanes, st.integers(0, 64))
def test_the_order_in_which_lanes_are_listed_does_not_matter(lanes: list[DueLane], free: int) -> None:
    counts = sorted(part.count for part in share(lanes, free))
    assert counts == sorted(part.count for part in share(lanes[::-1], free))
