"""What a person may do to a send, and what is refused with a way on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.intervention import Verdict, cancel, resolve, retry
from posthouse.core.lifecycle import TERMINAL, TRANSITIONS, Status
from posthouse.core.sends import SendState
from posthouse.errors import NotPossible
from tests.core.strategies import NOW, sends


def in_state(status: Status, *, unresolved: bool = False) -> SendState:
    opened = (NOW - 60, 1) if unresolved or status is Status.UNKNOWN else (None, None)
    return SendState(1, "receipt", status, 3, 2, 2, NOW + 60, "main", None, *opened)


@pytest.mark.parametrize("status", [Status.WAITING, Status.PENDING])
def test_a_send_that_nobody_has_tried_can_be_cancelled(status: Status) -> None:
    assert cancel(in_state(status)).change.status is Status.CANCELLED


def test_cancelling_a_send_that_may_have_been_accepted_holds_it_instead_of_telling_a_lie() -> None:
    change = cancel(in_state(Status.PENDING, unresolved=True)).change
    assert (change.status, change.next_try_at, change.unknown_fence) == (Status.UNKNOWN, None, 1)


@pytest.mark.parametrize("status", sorted(TERMINAL | {Status.SENDING, Status.UNKNOWN}))
def test_what_may_be_under_way_or_has_ended_cannot_be_cancelled(status: Status) -> None:
    with pytest.raises(NotPossible, match="can't be cancelled"):
        cancel(in_state(status))


@pytest.mark.parametrize("status", [Status.FAILED, Status.EXPIRED, Status.CANCELLED])
def test_what_ended_unsent_can_start_afresh_under_a_new_idempotency_key(status: Status) -> None:
    made = retry(in_state(status), NOW)
    assert (made.change.status, made.change.next_try_at) == (Status.PENDING, NOW)
    assert made.fresh_start
    assert made.new_key


def test_hurrying_a_pending_send_changes_its_time_and_nothing_else() -> None:
    made = retry(in_state(Status.PENDING, unresolved=True), NOW)
    assert (made.change.status, made.change.next_try_at, made.change.unknown_fence) == (Status.PENDING, NOW, 1)
    assert not made.fresh_start
    assert not made.new_key


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (Status.ACCEPTED, "a new email needs a new key"),
        (Status.SENDING, "look again in a moment"),
        (Status.UNKNOWN, "posthouse resolve"),
        (Status.WAITING, "waits for another email"),
        (Status.SUPPRESSED, "must not get it"),
    ],
)
def test_what_cannot_be_tried_again_says_why_and_what_is_possible(status: Status, hint: str) -> None:
    with pytest.raises(NotPossible, match=hint):
        retry(in_state(status), NOW)


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict.ACCEPTED, Status.ACCEPTED),
        (Verdict.FAILED, Status.FAILED),
        (Verdict.RESEND, Status.PENDING),
    ],
)
def test_a_person_ends_the_uncertainty(verdict: Verdict, status: Status) -> None:
    assert resolve(in_state(Status.UNKNOWN), verdict, NOW).change.status is status


def test_a_resend_by_a_person_is_marked_and_keeps_its_key_and_its_pin() -> None:
    made = resolve(in_state(Status.UNKNOWN), Verdict.RESEND, NOW)
    assert (made.change.maybe_duplicate, made.change.unknown_fence) == (True, 1)
    assert made.fresh_start
    assert not made.new_key


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.UNKNOWN}))
def test_only_what_is_unknown_can_be_resolved(status: Status) -> None:
    with pytest.raises(NotPossible, match="nothing to resolve"):
        resolve(in_state(status), Verdict.ACCEPTED, NOW)


@given(sends(), st.sampled_from(["cancel", "retry", *Verdict]))
def test_a_person_does_nothing_that_the_table_does_not_list(send: SendState, wish: str) -> None:
    try:
        made = {"cancel": lambda: cancel(send), "retry": lambda: retry(send, NOW)}.get(
            wish, lambda: resolve(send, Verdict(wish), NOW)
        )()
    except NotPossible:
        return
    assert TRANSITIONS[send.status, made.change.happening] is made.change.status
    if made.new_key:
        assert not send.unresolved
    if send.unresolved and made.change.status not in TERMINAL:
        assert made.change.unknown_fence == send.unknown_fence
