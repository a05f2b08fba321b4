"""Caps: who is refused when much waits, who makes room, and that nothing flutters at the edge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.caps import Admission, Cap, admit, to_shed
from posthouse.core.policy import Priority

URGENT, NORMAL, BULK = Priority.URGENT, Priority.NORMAL, Priority.BULK
ACCEPT, REFUSE, SHED_LOWER = Admission.ACCEPT, Admission.REFUSE, Admission.SHED_LOWER
CAP, SHEDDING = Cap(100), Cap(100, sheds=True)


@pytest.mark.parametrize(
    ("pending", "bulk", "normal", "urgent"),
    [
        (0, ACCEPT, ACCEPT, ACCEPT),
        (79, ACCEPT, ACCEPT, ACCEPT),
        (80, REFUSE, ACCEPT, ACCEPT),
        (99, REFUSE, ACCEPT, ACCEPT),
        (100, REFUSE, REFUSE, ACCEPT),
        (10_000, REFUSE, REFUSE, ACCEPT),
    ],
)
def test_bulk_is_refused_first_and_urgent_never(
    pending: int, bulk: Admission, normal: Admission, urgent: Admission
) -> None:
    waiting = {BULK: pending}
    assert [admit(CAP, waiting, priority) for priority in (BULK, NORMAL, URGENT)] == [bulk, normal, urgent]


def test_a_lane_may_use_all_of_its_own_cap() -> None:
    lane = Cap(100, shared=False)
    assert admit(lane, {BULK: 99}, BULK) is ACCEPT
    assert admit(lane, {BULK: 100}, BULK) is REFUSE
    assert admit(lane, {URGENT: 100}, URGENT) is ACCEPT


def test_all_that_waits_counts_whatever_its_priority() -> None:
    assert admit(CAP, {URGENT: 40, NORMAL: 30, BULK: 10}, BULK) is REFUSE


def test_many_at_once_have_to_fit_all_together() -> None:
    assert admit(CAP, {BULK: 50}, BULK, count=30) is ACCEPT
    assert admit(CAP, {BULK: 50}, BULK, count=31) is REFUSE


def test_what_was_refused_is_accepted_again_only_with_some_room() -> None:
    assert admit(CAP, {BULK: 75}, BULK) is ACCEPT
    assert admit(CAP, {BULK: 75}, BULK, refusing=True) is REFUSE
    assert admit(CAP, {BULK: 71}, BULK, refusing=True) is ACCEPT


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_small_cap_is_never_closed_for_ever(count: int) -> None:
    assert admit(Cap(count), {}, NORMAL) is ACCEPT
    assert admit(Cap(count), {}, BULK) is ACCEPT
    assert admit(Cap(count), {}, BULK, refusing=True) is ACCEPT


def test_where_it_is_allowed_higher_priorities_make_room_for_themselves() -> None:
    full = {URGENT: 10, NORMAL: 40, BULK: 50}
    assert [admit(SHEDDING, full, priority) for priority in (BULK, NORMAL, URGENT)] == [REFUSE, SHED_LOWER, SHED_LOWER]
    assert to_shed(SHEDDING, full, URGENT, count=60) == {BULK: 50, NORMAL: 10}
    assert to_shed(SHEDDING, full, NORMAL, count=7) == {BULK: 7}


def test_nothing_is_shed_for_what_would_not_fit_all_the_same() -> None:
    full = {NORMAL: 95, BULK: 5}
    assert to_shed(SHEDDING, full, NORMAL, count=6) == {}
    assert admit(SHEDDING, full, NORMAL, count=6) is REFUSE


def test_urgent_mail_comes_in_even_where_nothing_can_be_shed() -> None:
    assert admit(SHEDDING, {URGENT: 100}, URGENT) is ACCEPT
    assert to_shed(SHEDDING, {URGENT: 100, BULK: 5}, URGENT, count=10) == {BULK: 5}


def test_while_there_is_room_nothing_is_shed() -> None:
    assert admit(SHEDDING, {BULK: 50}, URGENT) is ACCEPT
    assert to_shed(SHEDDING, {BULK: 50}, URGENT) == {}


waiting = st.fixed_dictionaries({}, optional=dict.fromkeys(Priority, st.integers(0, 200)))


@given(st.integers(1, 300), st.booleans(), waiting, st.sampled_from(Priority), st.integers(1, 50), st.booleans())
def test_whatever_waits_urgent_mail_is_never_refused_and_a_cap_is_passed_by_urgent_mail_alone(
    count: int, sheds: bool, pending: dict[Priority, int], priority: Priority, more: int, refusing: bool
) -> None:
    cap = Cap(count, sheds)
    admission = admit(cap, pending, priority, count=more, refusing=refusing)
    shed = to_shed(cap, pending, priority, count=more)
    left = sum(pending.values()) + more - sum(shed.values())
    assert priority is not URGENT or admission is not REFUSE
    assert all(0 < number <= pending[lower] for lower, number in shed.items())
    assert priority not in shed
    if admission is SHED_LOWER:
        assert shed
        assert left == cap.count or (priority is URGENT and left > cap.count)
    if admission is ACCEPT and priority is not URGENT:
        assert sum(pending.values()) + more <= cap.count


@given(st.integers(1, 300), waiting, st.integers(1, 50))
def test_a_lower_priority_is_never_accepted_where_a_higher_one_is_refused(
    count: int, pending: dict[Priority, int], more: int
) -> None:
    accepted = [admit(Cap(count), pending, priority, count=more) is ACCEPT for priority in (BULK, NORMAL, URGENT)]
    assert accepted == sorted(accepted)
