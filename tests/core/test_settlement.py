"""What one attempt does to its send: the promise's first half."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.lifecycle import TERMINAL, TRANSITIONS, Happening, Status
from posthouse.core.outcome import Outcome, Remainder, Subject, Verdict
from posthouse.core.policy import Category, Failover, TypePolicy
from posthouse.core.sends import Attempt, Change, SendState, Via
from posthouse.core.settlement import end_life, next_try_at, reap, refuse, release, revive, settle
from tests.core.strategies import NOW, attempts_on, chances, policies, sends, verdicts

POLICY = TypePolicy("receipt", routes=("main", "standby"), max_attempts=3)
ONE_ROUTE = replace(POLICY, routes=("main",))
SENDING = SendState(
    id=1, type="receipt", status=Status.SENDING, fence=1, attempts=0, failures=0, expires_at=NOW + 3600, claimed_by=7
)
RESENT = replace(SENDING, fence=5, attempts=4, route="main", unknown_since=NOW - 900, unknown_fence=2)
"""A send that is on its second life: the call under fence 2 may have been accepted."""

UNKNOWN = replace(RESENT, status=Status.UNKNOWN, claimed_by=7)
"""The same while the reconciler asks: fence 5 is the reconciler's."""

ACCEPTED = Verdict(Outcome.ACCEPTED, message_id="m-1")
THROTTLED = Verdict(Outcome.THROTTLED, spends_attempt=False, code="429", retry_after_s=60.0)
REFUSED_CONNECTION = Verdict(Outcome.TRANSIENT, spends_attempt=False, subject=Subject.ROUTE, code="connect_refused")
BUSY = Verdict(Outcome.TRANSIENT, code="503")
BROKEN = Verdict(Outcome.TRANSIENT, maybe_accepted=True, code="500")
REJECTED = Verdict(Outcome.REJECTED, code="422", text="no such mailbox")
MISCONFIGURED = Verdict(Outcome.MISCONFIGURED, spends_attempt=False, code="401")
LOST = Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="read_timeout")


def attempt(send: SendState, verdict: Verdict, *, fence: int | None = None, via: Via = Via.SEND) -> Attempt:
    return Attempt(send.id, send.fence if fence is None else fence, "main", NOW - 5, NOW, verdict, via)


def settled(
    send: SendState, verdict: Verdict, *, fence: int | None = None, via: Via = Via.SEND, policy: TypePolicy = POLICY
) -> Change:
    change = settle(send, attempt(send, verdict, fence=fence, via=via), policy, NOW, chance=0.0)
    assert change is not None
    return change


@pytest.mark.parametrize(
    ("verdict", "status", "spends"),
    [
        (ACCEPTED, Status.ACCEPTED, True),
        (THROTTLED, Status.PENDING, False),
        (REFUSED_CONNECTION, Status.PENDING, False),
        (BUSY, Status.PENDING, True),
        (BROKEN, Status.UNKNOWN, True),
        (REJECTED, Status.FAILED, True),
        (MISCONFIGURED, Status.PENDING, False),
        (LOST, Status.UNKNOWN, True),
    ],
)
def test_what_each_verdict_makes_of_a_first_attempt(verdict: Verdict, status: Status, spends: bool) -> None:
    change = settled(SENDING, verdict)
    assert (change.status, change.spends_attempt) == (status, spends)


def test_an_accepted_send_keeps_the_providers_id() -> None:
    assert settled(SENDING, ACCEPTED).message_id == "m-1"


@pytest.mark.parametrize("category", list(Category))
def test_the_content_of_security_mail_goes_in_the_write_that_accepts_it(category: Category) -> None:
    change = settle(SENDING, attempt(SENDING, ACCEPTED), replace(POLICY, category=category), NOW, 0.0)
    assert change is not None
    assert change.delete_content is (category is Category.SECURITY)


LEFT_OUT = (
    Remainder(("bob@example.com",), BUSY, "<ik-1@example.com>"),
    Remainder(("cleo@example.com",), REJECTED, "<ik-1@example.com>"),
)
PARTLY = replace(ACCEPTED, remainders=LEFT_OUT)


def test_recipients_who_were_left_out_get_a_send_of_their_own_settled_like_any_other() -> None:
    change = settled(SENDING, PARTLY)
    later, never = change.splits
    assert change.status is Status.ACCEPTED
    assert (later.addresses, later.change.status, later.change.failures) == (("bob@example.com",), Status.PENDING, 1)
    assert later.change.next_try_at is not None
    assert later.change.next_try_at > NOW
    assert (never.addresses, never.change.status) == (("cleo@example.com",), Status.FAILED)
    assert never.change.last_error == "rejected on main: 422 no such mailbox"
    assert {split.message_id for split in change.splits} == {"<ik-1@example.com>"}
    assert [split.attempt and split.attempt.verdict for split in change.splits] == [BUSY, REJECTED]


@pytest.mark.parametrize("status", list(Status))
def test_a_late_partial_acceptance_leaves_nobody_out_and_sends_to_nobody_twice(status: Status) -> None:
    """Where somebody else sends to all, has sent, or the send was withdrawn or over, nobody gets another send."""
    send = replace(SENDING, status=status, fence=3, attempts=2)
    change = settle(send, attempt(send, PARTLY, fence=1), POLICY, NOW, 0.0)
    splits = () if change is None else change.splits
    assert len(splits) == (2 if status in (Status.PENDING, Status.UNKNOWN) else 0)


def test_a_refused_send_fails_at_its_first_attempt_and_says_why() -> None:
    change = settled(SENDING, REJECTED)
    assert change.last_error == "rejected on main: 422 no such mailbox"


def test_a_lost_answer_opens_the_uncertainty_at_the_calls_start() -> None:
    change = settled(SENDING, LOST)
    assert (change.unknown_since, change.unknown_fence) == (NOW - 5, 1)


def test_a_send_fails_when_its_attempts_are_spent() -> None:
    change = settled(replace(SENDING, failures=2, attempts=2), BUSY)
    assert change.status is Status.FAILED
    assert change.last_error == "gave up after 3 attempts; the last: transient on main: 503"


@pytest.mark.parametrize("verdict", [THROTTLED, REFUSED_CONNECTION, MISCONFIGURED])
def test_an_outage_never_spends_the_last_attempt(verdict: Verdict) -> None:
    for failures in (2, 3):
        change = settled(replace(SENDING, failures=failures, attempts=500), verdict)
        assert (change.status, change.spends_attempt) == (Status.PENDING, False)


def test_a_throttled_send_waits_as_long_as_it_was_asked_to() -> None:
    assert settled(SENDING, THROTTLED, policy=ONE_ROUTE).next_try_at == NOW + 60.0


@pytest.mark.parametrize("verdict", [THROTTLED, REFUSED_CONNECTION, MISCONFIGURED])
def test_where_the_route_is_at_fault_the_next_one_is_tried_at_once_and_a_whole_round_waits(verdict: Verdict) -> None:
    """A code doesn't wait for a provider that is down while another is well."""
    waits = [settled(replace(SENDING, attempts=calls), verdict).next_try_at for calls in range(4)]
    assert [wait == NOW for wait in waits] == [True, False, True, False]


@pytest.mark.parametrize(
    ("verdict", "policy", "unresolved"),
    [
        (BUSY, POLICY, False),  # the message's own trouble
        (REFUSED_CONNECTION, ONE_ROUTE, False),
        (REFUSED_CONNECTION, replace(POLICY, failover=Failover.MANUAL), False),
        (REFUSED_CONNECTION, POLICY, True),  # an earlier call is open: no other route may have it
    ],
)
def test_otherwise_it_waits(verdict: Verdict, policy: TypePolicy, unresolved: bool) -> None:
    send = replace(SENDING, unknown_since=NOW - 5.0, unknown_fence=1, fence=2) if unresolved else SENDING
    at = settled(send, verdict, policy=policy).next_try_at
    assert at is not None
    assert at > NOW + 1.0


def test_a_retry_after_longer_than_the_backoff_wins_and_a_shorter_one_loses() -> None:
    tries = replace(SENDING, attempts=5)
    assert settled(tries, replace(BUSY, retry_after_s=900.0)).next_try_at == NOW + 900.0
    assert settled(tries, replace(BUSY, retry_after_s=1.0)).next_try_at == settled(tries, BUSY).next_try_at


def test_a_retry_after_of_zero_is_no_invitation_to_hammer() -> None:
    at = settled(SENDING, replace(THROTTLED, retry_after_s=0.0), policy=ONE_ROUTE).next_try_at
    assert at is not None
    assert at > NOW + 1.0


def test_a_doubtful_answer_that_asks_for_time_gets_it_before_the_replay() -> None:
    assert settled(SENDING, replace(BROKEN, retry_after_s=300.0)).next_try_at == NOW + 300.0


def test_the_sends_of_a_route_at_fault_stay_close_behind() -> None:
    at = settled(replace(SENDING, attempts=40), MISCONFIGURED).next_try_at
    assert at is not None
    assert at <= NOW + POLICY.backoff.first_s


# Late results.


@pytest.mark.parametrize("status", [Status.PENDING, Status.FAILED, Status.EXPIRED, Status.SUPPRESSED, Status.CANCELLED])
def test_a_late_acceptance_wins_over_whatever_was_decided_meanwhile(status: Status) -> None:
    change = settled(replace(SENDING, status=status, fence=4), ACCEPTED, fence=2)
    assert (change.happening, change.status) == (Happening.ACCEPTED_LATE, Status.ACCEPTED)
    assert not change.maybe_duplicate


def test_a_late_acceptance_of_a_send_that_is_being_sent_again_is_marked() -> None:
    change = settled(RESENT, ACCEPTED, fence=2)
    assert change.status is Status.ACCEPTED
    assert change.maybe_duplicate


def test_a_second_acceptance_is_marked_and_says_so() -> None:
    change = settled(replace(RESENT, status=Status.ACCEPTED, message_id="m-2"), ACCEPTED, fence=2)
    assert change.maybe_duplicate
    assert change.message_id is None
    assert "accepted twice" in str(change.last_error)


def test_the_same_acceptance_told_twice_is_one_acceptance() -> None:
    accepted = replace(RESENT, status=Status.ACCEPTED, message_id="m-1")
    assert settle(accepted, attempt(accepted, ACCEPTED, fence=2), POLICY, NOW, 0.0) is None
    assert settle(accepted, attempt(accepted, ACCEPTED, via=Via.REPLAY, fence=4), POLICY, NOW, 0.0) is None
    assert settle(accepted, attempt(accepted, replace(ACCEPTED, message_id=None)), POLICY, NOW, 0.0) is None


def test_the_late_certain_answer_to_the_very_call_that_was_lost_resolves_it() -> None:
    reaped = replace(SENDING, status=Status.UNKNOWN, unknown_since=NOW - 60, unknown_fence=1, claimed_by=None)
    assert settled(reaped, REFUSED_CONNECTION).status is Status.PENDING
    assert settled(reaped, REJECTED).status is Status.FAILED
    assert settled(reaped, REFUSED_CONNECTION).unknown_fence is None


def test_a_late_lost_answer_adds_nothing_to_what_the_reaper_said() -> None:
    reaped = replace(SENDING, status=Status.UNKNOWN, unknown_since=NOW - 60, unknown_fence=1, claimed_by=None)
    assert settle(reaped, attempt(reaped, LOST), POLICY, NOW, 0.0) is None


# With an earlier call still open.


def test_a_refusal_of_a_later_call_leaves_the_open_one_to_a_person() -> None:
    change = settled(RESENT, REJECTED)
    assert (change.status, change.next_try_at) == (Status.UNKNOWN, None)
    assert change.unknown_fence == 2
    assert "an earlier attempt may have been accepted" in str(change.last_error)


def test_running_out_of_attempts_leaves_the_open_call_to_a_person() -> None:
    change = settled(replace(RESENT, failures=2), BUSY)
    assert (change.happening, change.status, change.next_try_at) == (
        Happening.LEFT_UNRESOLVED,
        Status.UNKNOWN,
        None,
    )


def test_a_later_failure_in_between_keeps_the_earlier_call_open_and_has_it_asked_about_again() -> None:
    change = settled(RESENT, BUSY)
    assert (change.status, change.unknown_since, change.unknown_fence) == (Status.UNKNOWN, NOW - 900, 2)
    assert change.next_try_at is not None


def test_a_refused_replay_is_left_to_a_person_because_providers_check_before_they_look_at_the_key() -> None:
    change = settled(UNKNOWN, REJECTED, via=Via.REPLAY)
    assert (change.status, change.unknown_fence, change.next_try_at) == (Status.UNKNOWN, 2, None)


@pytest.mark.parametrize("verdict", [BUSY, THROTTLED, REFUSED_CONNECTION, MISCONFIGURED])
def test_a_replay_that_did_not_get_through_says_nothing_about_the_first_call(verdict: Verdict) -> None:
    change = settled(UNKNOWN, verdict, via=Via.REPLAY)
    assert (change.status, change.unknown_since, change.unknown_fence) == (Status.UNKNOWN, NOW - 900, 2)
    assert not change.spends_attempt
    assert change.next_try_at is not None
    assert change.next_try_at >= NOW + (verdict.retry_after_s or 0.0)


def test_a_lost_replay_does_not_renew_the_keys_life() -> None:
    change = settled(UNKNOWN, LOST, via=Via.REPLAY)
    assert (change.status, change.unknown_since, change.unknown_fence) == (Status.UNKNOWN, NOW - 900, 2)


def test_a_lost_resend_gets_its_own_time_to_be_found_out() -> None:
    change = settled(RESENT, LOST)
    assert change.unknown_since == NOW - 5
    assert change.unknown_fence == 2  # still pinned by the first


def test_a_resend_whose_worker_died_gets_its_own_time_to_be_found_out() -> None:
    change = reap(RESENT, claimed_at=NOW - 20, now=NOW)
    assert (change.unknown_since, change.unknown_fence) == (NOW - 20, 2)


# What is not an attempt.


def test_the_send_of_a_dead_worker_becomes_unknown_and_is_looked_at_at_once() -> None:
    change = reap(SENDING, claimed_at=NOW - 20, now=NOW)
    assert (change.status, change.next_try_at, change.spends_attempt) == (Status.UNKNOWN, NOW, True)
    assert (change.unknown_since, change.unknown_fence) == (NOW - 20, 1)


def test_that_no_call_had_begun_is_true_also_after_the_reaper_took_it_for_one() -> None:
    reaped = replace(UNKNOWN, fence=UNKNOWN.unknown_fence or 0)
    change = release(reaped, NOW)
    assert change is not None
    assert (change.status, change.unknown_fence) == (Status.PENDING, None)
    assert release(replace(reaped, fence=reaped.fence + 1), NOW) is None


def test_only_a_send_in_hand_can_be_reaped() -> None:
    with pytest.raises(AssertionError):
        reap(replace(SENDING, status=Status.PENDING), NOW - 20, NOW)


def test_a_send_that_cannot_be_rendered_fails_alone_and_spends_nothing() -> None:
    change = refuse(SENDING, "the template receipt is missing")
    assert change is not None
    assert (change.status, change.spends_attempt, change.last_error) == (
        Status.FAILED,
        False,
        "the template receipt is missing",
    )


@pytest.mark.parametrize("send", [RESENT, UNKNOWN])
def test_a_send_that_can_no_longer_be_rendered_is_held_while_a_call_is_open(send: SendState) -> None:
    change = refuse(send, "the template receipt is missing")
    assert change is not None
    assert (change.status, change.next_try_at, change.unknown_fence) == (Status.UNKNOWN, None, 2)


@pytest.mark.parametrize("status", [Status.WAITING, Status.PENDING, Status.SENDING])
def test_a_send_expires_before_it_was_accepted(status: Status) -> None:
    change = end_life(replace(SENDING, status=status))
    assert change is not None
    assert (change.status, change.next_try_at) == (Status.EXPIRED, None)


def test_a_send_with_an_open_call_is_held_rather_than_called_expired() -> None:
    change = end_life(replace(RESENT, status=Status.PENDING))
    assert change is not None
    assert (change.status, change.next_try_at, change.unknown_fence) == (Status.UNKNOWN, None, 2)


@pytest.mark.parametrize("status", sorted(TERMINAL | {Status.UNKNOWN}))
def test_what_has_ended_or_is_unknown_does_not_expire(status: Status) -> None:
    assert end_life(replace(SENDING, status=status)) is None


@pytest.mark.parametrize("status", sorted(TERMINAL | {Status.PENDING, Status.WAITING}))
def test_what_nobody_has_in_hand_cannot_be_refused(status: Status) -> None:
    assert refuse(replace(SENDING, status=status), "unreadable") is None


# Properties.

CALLED = tuple(set(Status) - {Status.WAITING})
"""Where a send may stand when the result of some call for it arrives."""

ANY_VERDICT = verdicts()
NOT_ACCEPTED = tuple(set(Outcome) - {Outcome.ACCEPTED})

Case = tuple[SendState, Attempt, TypePolicy, float]


@st.composite
def cases(
    draw: st.DrawFn,
    *statuses: Status,
    unresolved: bool | None = None,
    verdict: st.SearchStrategy[Verdict] = ANY_VERDICT,
) -> Case:
    send = draw(sends(*(statuses or CALLED), unresolved=unresolved).filter(lambda send: send.fence > 0))
    return send, draw(attempts_on(send, verdict)), draw(policies()), draw(chances)


@given(cases())
def test_settling_only_ever_does_what_the_table_lists(case: Case) -> None:
    send, call, policy, chance = case
    change = settle(send, call, policy, NOW, chance)
    if change is not None:
        assert TRANSITIONS[send.status, change.happening] is change.status
        assert (change.unknown_since is None) is (change.unknown_fence is None)


@given(cases(verdict=verdicts(Outcome.ACCEPTED)))
def test_an_accepted_call_always_ends_in_accepted(case: Case) -> None:
    send, call, policy, chance = case
    change = settle(send, call, policy, NOW, chance)
    assert (send.status if change is None else change.status) is Status.ACCEPTED


@given(cases(verdict=verdicts(*NOT_ACCEPTED)))
def test_a_worker_that_lost_its_send_changes_nothing_unless_it_brings_an_acceptance(case: Case) -> None:
    send, call, policy, chance = case
    lost = replace(send, fence=send.fence + 1)
    assert settle(lost, call, policy, NOW, chance) is None


@given(cases(*TERMINAL, verdict=verdicts(*NOT_ACCEPTED)))
def test_what_has_ended_is_changed_by_nothing_but_an_acceptance(case: Case) -> None:
    send, call, policy, chance = case
    assert settle(send, call, policy, NOW, chance) is None


@given(cases(Status.PENDING, Status.SENDING, Status.UNKNOWN, unresolved=True, verdict=verdicts(*NOT_ACCEPTED)))
def test_an_open_call_is_only_closed_by_its_own_answer_or_an_acceptance(case: Case) -> None:
    send, call, policy, chance = case
    change = settle(send, call, policy, NOW, chance)
    own_answer = call.fence == send.unknown_fence and not call.verdict.maybe_accepted
    if change is not None and not own_answer:
        assert change.unknown_fence == send.unknown_fence
        assert change.status not in TERMINAL


@given(cases(verdict=verdicts(*NOT_ACCEPTED).map(lambda verdict: replace(verdict, spends_attempt=False))))
def test_what_spends_nothing_ends_nothing_but_a_refused_send(case: Case) -> None:
    send, call, policy, chance = case
    change = settle(send, call, policy, NOW, chance)
    if change is not None and call.verdict.outcome is not Outcome.REJECTED:
        assert not change.spends_attempt
        assert change.status in (Status.PENDING, Status.UNKNOWN)


def by_another_route(at: float, policy: TypePolicy) -> bool:
    return at == NOW and len(policy.routes) > 1 and policy.failover is Failover.AUTOMATIC


@given(cases(Status.SENDING, Status.UNKNOWN))
def test_nothing_is_tried_again_before_the_answer_allows_it(case: Case) -> None:
    send, call, policy, chance = case
    change = settle(send, call, policy, NOW, chance)
    if change is not None and change.next_try_at is not None and not by_another_route(change.next_try_at, policy):
        assert change.next_try_at >= NOW + (call.verdict.retry_after_s or 0.0)
        assert change.next_try_at >= NOW + 1.0


@given(cases(verdict=verdicts(Outcome.UNKNOWN)))
def test_a_call_that_may_have_been_accepted_never_goes_back_to_the_queue(case: Case) -> None:
    send, call, policy, chance = case
    change = settle(send, call, policy, NOW, chance)
    assert change is None or (change.status is Status.UNKNOWN and change.unknown_fence is not None)


@given(sends(Status.SENDING), st.floats(0.0, 600.0))
def test_whatever_a_dead_worker_left_is_unknown_with_its_first_open_call(send: SendState, age: float) -> None:
    change = reap(send, NOW - age, NOW)
    assert change.status is Status.UNKNOWN
    assert change.unknown_since == NOW - age
    assert change.unknown_fence == (send.unknown_fence if send.unresolved else send.fence)


@given(sends(Status.SENDING), verdicts(Outcome.THROTTLED, Outcome.TRANSIENT), policies(), chances)
def test_the_next_try_is_after_now_and_within_the_longest_wait(
    send: SendState, verdict: Verdict, policy: TypePolicy, chance: float
) -> None:
    at = next_try_at(send, verdict, policy, NOW, chance)
    assert by_another_route(at, policy) or NOW + 1.0 <= at <= NOW + max(
        policy.backoff.max_s, 1.1 * (verdict.retry_after_s or 0.0)
    )


def test_a_send_that_failed_through_its_routes_fault_gets_its_attempt_back() -> None:
    failed = replace(SENDING, status=Status.FAILED, failures=3)
    change = revive(failed, "the route was at fault", NOW)
    assert change is not None
    assert (change.status, change.failures, change.next_try_at) == (Status.PENDING, -1, NOW)
    assert revive(replace(failed, expires_at=NOW), "the route was at fault", NOW) is None
    assert revive(SENDING, "the route was at fault", NOW) is None
