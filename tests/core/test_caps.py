"""Caps: who is refused when much waits, who makes room, and that nothing flutters at the edge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.cap_policy import Backlog, CapPolicy
from posthouse.core.caps import Admission, Cap, admit, overdrawn, shed, to_shed
from posthouse.core.lifecycle import Status, after
from posthouse.core.policy import Priority
from posthouse.core.sends import SendState
from tests.core.strategies import sends

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


# What workers cancel, where the outbox sheds.


@pytest.mark.parametrize(
    ("pending", "gone"),
    [
        ({BULK: 60, NORMAL: 40}, {}),
        ({BULK: 60, NORMAL: 50}, {BULK: 10}),
        ({BULK: 130}, {}),  # nobody of a higher priority needs the room
        ({BULK: 120, NORMAL: 5}, {BULK: 5}),
        ({NORMAL: 130}, {}),
        ({URGENT: 20, NORMAL: 90, BULK: 10}, {BULK: 10, NORMAL: 10}),
        ({URGENT: 130}, {}),
    ],
)
def test_no_more_is_cancelled_than_higher_priorities_have_come(
    pending: dict[Priority, int], gone: dict[Priority, int]
) -> None:
    assert overdrawn(SHEDDING, pending) == gone
    assert overdrawn(CAP, pending) == {}


@given(st.integers(1, 300), waiting)
def test_what_is_cancelled_never_makes_more_room_than_is_missing(count: int, pending: dict[Priority, int]) -> None:
    gone = overdrawn(Cap(count, sheds=True), pending)
    assert URGENT not in gone
    assert sum(gone.values()) <= max(0, sum(pending.values()) - count)
    assert all(number <= pending[priority] for priority, number in gone.items())


@given(sends())
def test_only_a_pending_send_without_any_call_is_shed(send: SendState) -> None:
    change = shed(send, "the outbox was full")
    untouched = send.status is Status.PENDING and not send.attempts and not send.unresolved
    assert (change is not None) is untouched
    if change is not None:
        assert change.status is after(send.status, change.happening) is Status.CANCELLED


# The caps of a configuration.

POLICY = CapPolicy(Cap(100), {"digest": Cap(10, shared=False)}, {"digest": BULK, "news": BULK, "code": URGENT})


def test_a_types_own_cap_is_full_before_the_outbox_is() -> None:
    full = POLICY.refusal(Backlog({BULK: 10}, {"digest": 10}), {"digest": 1})
    assert full is not None
    assert (full.setting, full.pending) == ("types.digest.max_pending", 10)
    assert POLICY.refusal(Backlog({BULK: 10}, {"digest": 10}), {"news": 1}) is None


def test_what_is_asked_for_in_one_call_counts_together() -> None:
    assert POLICY.refusal(Backlog({NORMAL: 70}), {"news": 5, "receipt": 5}) is None
    full = POLICY.refusal(Backlog({NORMAL: 70}), {"news": 6, "receipt": 5})
    assert full is not None
    assert (full.priority, full.pending, full.count) == (BULK, 75, 6)


def test_a_type_that_is_not_configured_counts_as_normal() -> None:
    counted = POLICY.count([("code", 1), ("news/shop", 2), ("news//spring", 3), ("digest", 4), ("gone", 5)])
    assert counted == Backlog({URGENT: 1, BULK: 9, NORMAL: 5}, {"digest": 4})


def test_what_is_full_names_the_highest_priority_that_is_refused() -> None:
    assert POLICY.full(Backlog({NORMAL: 79}, {"digest": 9})) == []
    assert [full.priority for full in POLICY.full(Backlog({NORMAL: 80}))] == [BULK]
    assert [full.priority for full in POLICY.full(Backlog({URGENT: 100}))] == [NORMAL]
    assert [full.setting for full in POLICY.full(Backlog(types={"digest": 10}))] == ["types.digest.max_pending"]
