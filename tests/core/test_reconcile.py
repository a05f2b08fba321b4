"""Finding out what became of an unknown send: in the right order, and always with an end."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.lifecycle import TRANSITIONS, Happening, Status
from posthouse.core.outcome import Found, LookUp, Outcome, Verdict
from posthouse.core.policy import Category, OnUnknown, RouteFacts, TypePolicy
from posthouse.core.reconcile import KEY_MARGIN_S, Plan, Resolver, learned, plan, resent, waited
from posthouse.core.sends import Attempt, Change, SendState, Via
from posthouse.core.settlement import settle
from tests.core.strategies import NOW, chances, policies, route_facts, sends

POLICY = TypePolicy("code", routes=("main",), on_unknown=OnUnknown.RESEND, unknown_wait_s=3600.0, max_attempts=5)
UNKNOWN = SendState(
    id=1,
    type="code",
    status=Status.UNKNOWN,
    fence=2,
    attempts=1,
    failures=1,
    expires_at=NOW + 7 * 86_400,
    route="main",
    unknown_since=NOW,
    unknown_fence=1,
)
WITH_KEY = RouteFacts("main", key_lifetime_s=86_400.0)
WITH_LOOK_UP = RouteFacts("main", can_look_up=True, look_up_lag_s=600.0, timeout_s=15.0)
DUMB = RouteFacts("main")

FOUND = LookUp(Found.ACCEPTED, "m-1")
MISSING = LookUp(Found.MISSING)
UNSURE = LookUp(Found.UNSURE)


def planned(route: RouteFacts | None, after_s: float, send: SendState = UNKNOWN, policy: TypePolicy = POLICY) -> Plan:
    return plan(send, route, policy, NOW + after_s)


def test_a_key_that_holds_is_replayed_first() -> None:
    both = replace(WITH_KEY, can_look_up=True)
    assert planned(both, 5.0).resolver is Resolver.REPLAY


def test_a_route_that_can_be_asked_is_asked() -> None:
    assert planned(WITH_LOOK_UP, 5.0).resolver is Resolver.LOOK_UP


def test_a_route_that_knows_neither_is_waited_for_until_the_types_time_is_over() -> None:
    waiting = planned(DUMB, 5.0)
    assert (waiting.resolver, waiting.at) == (Resolver.WAIT, NOW + 3600.0)
    assert planned(DUMB, 3600.0).resolver is Resolver.RESEND


def test_a_type_that_says_hold_is_held() -> None:
    assert planned(DUMB, 3600.0, policy=replace(POLICY, on_unknown=OnUnknown.HOLD)).resolver is Resolver.HOLD


def test_a_lapsed_key_is_never_replayed() -> None:
    last_s = 86_400.0 - KEY_MARGIN_S - WITH_KEY.timeout_s
    assert planned(WITH_KEY, last_s - 1.0).resolver is Resolver.REPLAY
    assert planned(WITH_KEY, last_s).resolver is not Resolver.REPLAY


def test_nothing_is_replayed_or_resent_after_its_expiry() -> None:
    expired = replace(UNKNOWN, expires_at=NOW + 60.0)
    assert planned(WITH_KEY, 60.0, expired).resolver is Resolver.WAIT
    assert planned(WITH_KEY, 3600.0, expired).resolver is Resolver.HOLD
    assert planned(WITH_LOOK_UP, 60.0, expired).resolver is Resolver.LOOK_UP


def test_a_send_out_of_attempts_is_held_rather_than_resent() -> None:
    assert planned(DUMB, 3600.0, replace(UNKNOWN, failures=5)).resolver is Resolver.HOLD


def test_a_send_whose_route_is_gone_is_held_unless_its_type_may_change_route() -> None:
    free = replace(POLICY, unknown_may_change_route=True)
    assert planned(None, 3600.0).resolver is Resolver.HOLD
    assert planned(None, 3600.0, policy=free).resolver is Resolver.RESEND


def test_a_send_whose_type_no_longer_uses_its_route_is_held_because_the_queue_could_not_send_it() -> None:
    moved = replace(POLICY, routes=("standby",))
    assert planned(DUMB, 3600.0, policy=moved).resolver is Resolver.HOLD
    assert planned(DUMB, 3600.0, policy=replace(moved, unknown_may_change_route=True)).resolver is Resolver.RESEND


def test_a_route_that_can_be_asked_is_asked_even_when_nobody_ran_until_the_time_was_over() -> None:
    assert planned(WITH_LOOK_UP, 7 * 3600.0, replace(UNKNOWN, fence=40)).resolver is Resolver.LOOK_UP


# Answers.


def told(
    answer: LookUp,
    *,
    asked_s: float,
    took_s: float = 1.0,
    send: SendState = UNKNOWN,
    fence: int | None = None,
    policy: TypePolicy = POLICY,
    chance: float = 0.5,
) -> Change:
    """The change after a look-up that was made `asked_s` after the call and answered `took_s` later."""
    asked_at, fence = NOW + asked_s, send.fence if fence is None else fence
    change = learned(send, fence, answer, WITH_LOOK_UP, policy, asked_at, asked_at + took_s, chance)
    assert change is not None
    return change


def test_a_look_up_that_finds_it_accepts_it_with_the_providers_id() -> None:
    change = told(FOUND, asked_s=5.0)
    assert (change.status, change.message_id, change.unknown_fence) == (Status.ACCEPTED, "m-1", None)


@pytest.mark.parametrize("category", list(Category))
def test_security_mail_that_is_found_loses_its_content_like_any_accepted(category: Category) -> None:
    policy = replace(POLICY, category=category)
    change = told(FOUND, asked_s=5.0, policy=policy)
    assert change.delete_content is (category is Category.SECURITY)


def test_a_no_within_the_lag_means_nothing_yet() -> None:
    change = told(MISSING, asked_s=614.0, took_s=0.5)
    assert (change.status, change.unknown_since, change.unknown_fence) == (Status.UNKNOWN, NOW, 1)
    assert change.next_try_at == NOW + 615.0  # when a "no" counts


def test_a_no_that_was_asked_for_within_the_lag_means_nothing_however_late_it_comes() -> None:
    change = told(MISSING, asked_s=614.0, took_s=86.0)
    assert change.status is Status.UNKNOWN


def test_a_no_after_the_lag_puts_the_send_back_unmarked() -> None:
    change = told(MISSING, asked_s=615.0)
    assert (change.happening, change.status, change.next_try_at) == (
        Happening.FOUND_MISSING,
        Status.PENDING,
        NOW + 616.0,
    )
    assert (change.unknown_since, change.unknown_fence, change.maybe_duplicate) == (None, None, False)


def test_a_no_of_one_route_says_nothing_about_the_other_that_a_send_may_have_gone_to() -> None:
    free = replace(POLICY, unknown_may_change_route=True)
    twice = replace(UNKNOWN, maybe_duplicate=True)
    change = told(MISSING, asked_s=700.0, send=twice, policy=free)
    assert (change.status, change.unknown_fence) == (Status.UNKNOWN, 1)
    assert told(MISSING, asked_s=700.0, send=twice).status is Status.PENDING  # its route was pinned


def test_a_no_for_a_send_that_is_out_of_attempts_ends_it() -> None:
    change = told(MISSING, asked_s=615.0, send=replace(UNKNOWN, failures=5))
    assert (change.status, change.next_try_at) == (Status.FAILED, None)
    assert change.last_error == "gave up after 5 attempts; the last: main says it never got it"


def test_the_last_resort_comes_only_right_after_the_provider_was_asked_in_vain() -> None:
    assert told(UNSURE, asked_s=3599.0).happening is Happening.OUTCOME_LOST
    assert told(UNSURE, asked_s=3600.0).happening is Happening.RESENT
    held = told(UNSURE, asked_s=3600.0, policy=replace(POLICY, on_unknown=OnUnknown.HOLD))
    assert (held.happening, held.next_try_at) == (Happening.LEFT_UNRESOLVED, None)
    assert told(UNSURE, asked_s=3600.0, send=replace(UNKNOWN, expires_at=NOW + 60)).next_try_at is None
    assert told(LookUp(Found.ACCEPTED), asked_s=3600.0).status is Status.ACCEPTED


def test_the_last_question_comes_after_the_providers_lag_however_short_the_types_wait() -> None:
    hasty = replace(POLICY, unknown_wait_s=1.0)
    assert told(UNSURE, asked_s=614.0, policy=hasty).happening is Happening.OUTCOME_LOST
    assert told(UNSURE, asked_s=616.0, policy=hasty).happening is Happening.RESENT


def test_an_unusable_answer_is_asked_for_again_ever_more_slowly() -> None:
    waits = []
    for takes in (1, 2, 3, 20):
        change = told(UNSURE, asked_s=700.0, took_s=0.0, send=replace(UNKNOWN, fence=1 + takes), chance=0.0)
        assert change.next_try_at is not None
        waits.append(change.next_try_at - NOW - 700.0)
    assert waits == [1.0, 2.0, 4.0, 60.0]


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.WAITING, Status.ACCEPTED}))
def test_a_look_up_that_comes_too_late_still_brings_its_good_news(status: Status) -> None:
    change = told(FOUND, asked_s=5.0, send=replace(UNKNOWN, status=status, fence=9), fence=2)
    assert TRANSITIONS[status, change.happening] is Status.ACCEPTED
    assert change.maybe_duplicate is (status is Status.SENDING)


@pytest.mark.parametrize("answer", [MISSING, UNSURE])
@pytest.mark.parametrize("status", list(Status))
def test_a_look_up_that_comes_too_late_brings_no_other_news(answer: LookUp, status: Status) -> None:
    moved_on = replace(UNKNOWN, status=status, fence=9)
    assert learned(moved_on, 2, answer, WITH_LOOK_UP, POLICY, NOW + 700, NOW + 701, 0.5) is None


def test_finding_an_accepted_send_accepted_is_no_news() -> None:
    accepted = replace(UNKNOWN, status=Status.ACCEPTED)
    assert learned(accepted, 2, FOUND, WITH_LOOK_UP, POLICY, NOW + 5, NOW + 6, 0.5) is None


def test_a_wait_is_looked_at_again_and_a_hold_never_by_itself() -> None:
    assert waited(UNKNOWN, NOW + 9, "an event may still tell").next_try_at == NOW + 9
    held = waited(UNKNOWN, None, "the type says hold")
    assert (held.happening, held.next_try_at, held.last_error) == (
        Happening.LEFT_UNRESOLVED,
        None,
        "the type says hold",
    )


def test_a_resend_is_marked_and_stays_pinned() -> None:
    change = resent(UNKNOWN, NOW + 9)
    assert (change.status, change.next_try_at, change.maybe_duplicate) == (Status.PENDING, NOW + 9, True)
    assert (change.unknown_since, change.unknown_fence) == (NOW, 1)


# Properties.


@given(sends(Status.UNKNOWN), st.none() | route_facts(), policies())
def test_no_plan_sends_what_must_not_be_sent(send: SendState, route: RouteFacts | None, policy: TypePolicy) -> None:
    assert send.route is not None
    assert send.unknown_since is not None
    made = plan(send, None if route is None else replace(route, name=send.route), policy, NOW)
    if made.resolver is Resolver.REPLAY:
        assert route is not None
        assert NOW + route.timeout_s < send.unknown_since + route.key_lifetime_s
    if made.resolver in (Resolver.REPLAY, Resolver.RESEND):
        assert send.expires_at > NOW
    if made.resolver is Resolver.RESEND:
        assert policy.on_unknown is OnUnknown.RESEND
        assert send.unknown_since + policy.unknown_wait_s <= NOW
        assert policy.unknown_may_change_route or send.route in policy.routes
    if made.resolver is Resolver.LOOK_UP:
        assert route is not None
        assert route.can_look_up
    assert (made.at is not None) is (made.resolver is Resolver.WAIT)
    assert made.at is None or made.at > NOW


@given(sends(Status.UNKNOWN), route_facts(), policies(), st.sampled_from(Found), st.floats(0.0, 60.0), chances)
def test_every_answer_and_every_last_resort_is_a_listed_change(
    send: SendState, route: RouteFacts, policy: TypePolicy, found: Found, took_s: float, chance: float
) -> None:
    changes = [
        learned(send, send.fence, LookUp(found), route, policy, NOW - took_s, NOW, chance),
        waited(send, NOW + 1, "soon"),
        waited(send, None, "hold"),
        resent(send, NOW),
    ]
    for change in changes:
        assert change is not None
        assert TRANSITIONS[send.status, change.happening] is change.status
        assert change.status is not Status.UNKNOWN or change.unknown_fence == send.unknown_fence


def applied(send: SendState, change: Change) -> SendState:
    """The row after a change, as the store writes it."""
    return replace(
        send,
        status=change.status,
        attempts=send.attempts + 1,
        failures=send.failures + change.spends_attempt,
        unknown_since=change.unknown_since,
        unknown_fence=change.unknown_fence,
    )


LOST = Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="read_timeout")
NEVER_RESOLVING = (
    LOST,
    Verdict(Outcome.TRANSIENT, code="503"),
    Verdict(Outcome.TRANSIENT, maybe_accepted=True, code="500"),
    Verdict(Outcome.THROTTLED, spends_attempt=False, retry_after_s=30.0),
    Verdict(Outcome.MISCONFIGURED, spends_attempt=False),
)


def one_step(send: SendState, route: RouteFacts, policy: TypePolicy, now: float, verdict: Verdict) -> Change:
    """What the reconciler does with an unknown send it took, when nothing it tries ever tells."""
    made = plan(send, route, policy, now)
    if made.resolver is Resolver.REPLAY:
        call = Attempt(send.id, send.fence, route.name, now, now + route.timeout_s, verdict, Via.REPLAY)
        change = settle(send, call, policy, now + route.timeout_s, 0.5)
        assert change is not None
        return change
    if made.resolver is Resolver.LOOK_UP:
        change = learned(send, send.fence, UNSURE, route, policy, now, now, 0.5)
        assert change is not None
        return change
    return resent(send, now) if made.resolver is Resolver.RESEND else waited(send, made.at, made.reason)


@given(
    route_facts().filter(lambda route: route.key_lifetime_s < 3600.0),
    policies(),
    st.sampled_from(NEVER_RESOLVING),
    st.floats(0.0, 7200.0),
)
def test_every_uncertainty_ends_in_a_resend_or_with_a_person_in_bounded_time(
    route: RouteFacts, policy: TypePolicy, verdict: Verdict, nobody_ran_s: float
) -> None:
    send, now = replace(UNKNOWN, route=route.name), NOW + 1.0
    longest_s = max(route.key_lifetime_s, policy.unknown_wait_s, route.timeout_s + route.look_up_lag_s)
    for _ in range(200):
        send = replace(send, fence=send.fence + 1)
        change = one_step(send, route, policy, now, verdict)
        send = applied(send, change)
        if send.status is not Status.UNKNOWN or change.next_try_at is None:
            break
        assert change.next_try_at > now
        now = change.next_try_at + nobody_ran_s / 10
    else:
        pytest.fail("still undecided after 200 steps")
    assert now <= NOW + longest_s + route.timeout_s + 600.0 + nobody_ran_s


@given(route_facts(), policies())
def test_a_provider_that_swallows_every_answer_gets_a_bounded_number_of_spaced_calls(
    route: RouteFacts, policy: TypePolicy
) -> None:
    policy = replace(policy, routes=(route.name,), on_unknown=OnUnknown.RESEND)
    send, now, resends = replace(UNKNOWN, route=route.name), NOW + 1.0, []
    for _ in range(5000):
        send = replace(send, fence=send.fence + 1)
        if send.status is Status.PENDING:
            resends.append(now)
            call = Attempt(send.id, send.fence, route.name, now, now + route.timeout_s, LOST)
            change = settle(replace(send, status=Status.SENDING), call, policy, now + route.timeout_s, 0.5)
            assert change is not None
        else:
            change = one_step(send, route, policy, now, LOST)
        send = applied(send, change)
        if change.next_try_at is None:
            break
        now = max(now, change.next_try_at)
    else:
        pytest.fail("still undecided after 5,000 steps")
    assert send.status is Status.UNKNOWN
    assert len(resends) < policy.max_attempts
    assert all(later - earlier > policy.unknown_wait_s - 0.001 for earlier, later in pairwise(resends))
