"""Which route a send takes, and what a verdict does to a route's health."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.lifecycle import Status
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.policy import Failover, TypePolicy
from posthouse.core.routing import (
    STOP_BACKOFF,
    THROTTLE_BACKOFF,
    RouteHealth,
    RouteState,
    candidates,
    health_after,
    opens_at,
    route_plan,
)
from posthouse.core.sends import SendState
from tests.core.strategies import NOW, ROUTES, chances, policies, sends, verdicts

POLICY = TypePolicy("receipt", routes=("main", "standby"))
FRESH = SendState(id=1, type="receipt", status=Status.SENDING, fence=1, attempts=0, failures=0, expires_at=NOW + 60)
OPEN_ON_MAIN = replace(FRESH, attempts=1, route="main", unknown_since=NOW - 9, unknown_fence=1)

HELD = RouteHealth("main", held_until=NOW + 30, reason="429", strikes=1)
STOPPED = RouteHealth("main", RouteState.STOPPED, NOW + 30, "401", strikes=1)

ACCEPTED = Verdict(Outcome.ACCEPTED, message_id="m-1")
THROTTLED = Verdict(Outcome.THROTTLED, spends_attempt=False, code="429", text="slow down")
MISCONFIGURED = Verdict(Outcome.MISCONFIGURED, spends_attempt=False, code="401", text="bad key")


def after(health: RouteHealth, verdict: Verdict, now: float = NOW) -> RouteHealth:
    changed = health_after(health, verdict, now, chance=0.0)
    assert changed is not None
    return changed


# Choosing.


def choose(send: SendState, policy: TypePolicy, health: dict[str, RouteHealth], now: float) -> str | None:
    plan = route_plan(policy, health, now)
    return None if plan is None else plan.next_route(send)


def test_a_new_send_takes_the_first_route_of_its_type() -> None:
    assert choose(FRESH, POLICY, {}, NOW) == "main"


def test_a_held_route_is_passed_over() -> None:
    assert choose(FRESH, POLICY, {"main": HELD}, NOW) == "standby"
    assert choose(FRESH, POLICY, {"main": HELD}, NOW + 30) == "main"


def test_there_is_no_plan_while_all_routes_are_held() -> None:
    both = {"main": HELD, "standby": replace(HELD, name="standby")}
    assert route_plan(POLICY, both, NOW) is None
    assert route_plan(replace(POLICY, routes=()), {}, NOW) is None


def test_after_a_failure_the_next_route_comes_first_and_the_last_one_is_followed_by_the_first() -> None:
    assert choose(replace(FRESH, attempts=1, route="main"), POLICY, {}, NOW) == "standby"
    assert choose(replace(FRESH, attempts=2, route="standby"), POLICY, {}, NOW) == "main"


def test_a_send_that_was_given_back_before_its_first_call_has_not_failed_anywhere() -> None:
    assert choose(replace(FRESH, attempts=0, route="main"), POLICY, {}, NOW) == "main"


def test_after_a_failure_the_same_route_is_better_than_none() -> None:
    failed = replace(FRESH, attempts=1, route="main")
    assert choose(failed, POLICY, {"standby": replace(HELD, name="standby")}, NOW) == "main"


def test_a_send_whose_route_left_its_type_starts_with_the_first() -> None:
    assert choose(replace(FRESH, attempts=1, route="gone"), POLICY, {}, NOW) == "main"


def test_an_unknown_outcome_pins_the_send_to_its_route_whatever_its_health() -> None:
    assert choose(OPEN_ON_MAIN, POLICY, {}, NOW) == "main"
    assert choose(OPEN_ON_MAIN, POLICY, {"main": HELD}, NOW) == "main"
    assert candidates(OPEN_ON_MAIN, POLICY, {}, NOW) == ("main",)


def test_a_type_may_let_an_unknown_outcome_change_its_route() -> None:
    free = replace(POLICY, unknown_may_change_route=True)
    assert choose(OPEN_ON_MAIN, free, {}, NOW) == "standby"
    assert candidates(OPEN_ON_MAIN, free, {}, NOW) == ("main", "standby")


def test_a_pinned_send_whose_type_left_its_route_has_no_candidates() -> None:
    assert candidates(OPEN_ON_MAIN, replace(POLICY, routes=("standby",)), {}, NOW) == ()


@st.composite
def healths(draw: st.DrawFn, name: str = "main") -> RouteHealth:
    return RouteHealth(
        name,
        draw(st.sampled_from(RouteState)),
        draw(st.just(0.0) | st.floats(NOW - 600, NOW + 600)),
        strikes=draw(st.integers(0, 20)),
    )


known_health = st.fixed_dictionaries({}, optional={name: healths(name) for name in ROUTES})


@given(sends(Status.SENDING), policies(), known_health)
def test_a_planned_route_is_the_types_may_be_used_and_respects_the_pin(
    send: SendState, policy: TypePolicy, health: dict[str, RouteHealth]
) -> None:
    plan = route_plan(policy, health, NOW)
    if plan is None:
        first = [name for name in policy.routes if name not in health or not health[name].closed(NOW)][:1]
        waits_for = first if policy.failover is Failover.MANUAL else policy.routes
        assert all(not health[name].takes(NOW) for name in waits_for)
        return
    chosen = plan.next_route(send)
    if send.unresolved and not policy.unknown_may_change_route:
        assert chosen == send.route
        return
    assert chosen in policy.routes
    assert chosen not in health or health[chosen].takes(NOW)


CLOSED = RouteHealth("main", RouteState.CLOSED, NOW + 3600, "by grace: maintenance")


def test_a_route_that_a_person_closed_is_passed_over_and_no_verdict_opens_it() -> None:
    assert choose(FRESH, POLICY, {"main": CLOSED}, NOW) == "standby"
    assert candidates(FRESH, POLICY, {"main": CLOSED}, NOW) == ("main", "standby"), "it may wait for either"
    for verdict in (ACCEPTED, THROTTLED, MISCONFIGURED):
        assert health_after(CLOSED, verdict, NOW, chance=0.0) is None
    assert choose(FRESH, POLICY, {"main": CLOSED}, NOW + 3600) == "main", "its time is over"


def test_with_manual_failover_mail_waits_for_its_route_until_a_person_closes_it() -> None:
    manual = replace(POLICY, failover=Failover.MANUAL)
    assert route_plan(manual, {"main": HELD}, NOW) is None
    assert route_plan(manual, {"main": STOPPED}, NOW) is None
    assert candidates(FRESH, manual, {"main": HELD}, NOW) == ("main",)
    assert choose(replace(FRESH, attempts=1, route="main"), manual, {}, NOW) == "main"
    assert choose(FRESH, manual, {"main": CLOSED}, NOW) == "standby"


def test_a_small_steady_part_goes_through_the_standby() -> None:
    policy = replace(POLICY, standby_share=100)
    chosen = [choose(replace(FRESH, id=number), policy, {}, NOW) for number in range(10_000)]
    assert chosen.count("standby") == 100
    assert max(chosen[place : place + 500].count("standby") for place in range(0, 10_000, 500)) <= 7, "evenly"
    assert {choose(replace(FRESH, id=number), policy, {"main": HELD}, NOW) for number in range(999)} == {"standby"}
    assert {
        choose(replace(FRESH, id=number), policy, {"standby": replace(HELD, name="standby")}, NOW)
        for number in range(999)
    } == {"main"}


# When a route may be used again.


def test_routes_open_when_the_first_of_them_does() -> None:
    both = {"main": HELD, "standby": replace(HELD, name="standby", held_until=NOW + 10)}
    assert opens_at(POLICY.routes, both, NOW) == NOW + 10
    assert opens_at(("main",), both, NOW) == NOW + 30
    assert opens_at(POLICY.routes, {"main": HELD}, NOW) == NOW
    assert opens_at(POLICY.routes, both, NOW + 20) == NOW + 20
    assert opens_at((), both, NOW) == NOW


@given(policies(), known_health)
def test_a_type_opens_exactly_when_it_has_a_plan(policy: TypePolicy, health: dict[str, RouteHealth]) -> None:
    at = opens_at(candidates(FRESH, policy, health, NOW), health, NOW)
    assert at >= NOW
    assert route_plan(policy, health, at) is not None
    if at > NOW:
        assert route_plan(policy, health, NOW) is None


# Health.


@pytest.mark.parametrize("outcome", [Outcome.TRANSIENT, Outcome.REJECTED, Outcome.UNKNOWN])
def test_what_says_nothing_about_the_route_changes_nothing(outcome: Outcome) -> None:
    doubtful = outcome is Outcome.UNKNOWN
    assert health_after(RouteHealth("main"), Verdict(outcome, maybe_accepted=doubtful), NOW, 0.5) is None


def test_a_throttled_route_is_held_as_long_as_it_asked_for() -> None:
    held = after(RouteHealth("main"), replace(THROTTLED, retry_after_s=90.0))
    assert (held.state, held.held_until, held.strikes) == (RouteState.OPEN, NOW + 90.0, 1)
    assert held.reason == "429 slow down"


def test_a_throttled_route_that_did_not_say_rests_ever_longer() -> None:
    first = after(RouteHealth("main"), THROTTLED)
    again = after(first, THROTTLED, now=first.held_until)
    assert first.held_until - NOW == THROTTLE_BACKOFF.delay_s(1, 0.0)
    assert again.held_until - first.held_until == THROTTLE_BACKOFF.delay_s(2, 0.0)


def test_a_route_that_asks_for_no_time_at_all_rests_all_the_same() -> None:
    held = after(RouteHealth("main"), replace(THROTTLED, retry_after_s=0.0))
    assert held.held_until >= NOW + 1.0


def test_a_misconfigured_route_is_stopped_and_tried_by_one_send_at_a_time() -> None:
    stopped = after(RouteHealth("main"), MISCONFIGURED)
    assert (stopped.state, stopped.held_until) == (RouteState.STOPPED, NOW + STOP_BACKOFF.delay_s(1, 0.0))
    assert stopped.slots(32, NOW) == 0
    assert stopped.slots(32, stopped.held_until) == 1


def test_a_held_route_has_one_slot_when_its_time_is_over_and_soon_all() -> None:
    assert HELD.slots(32, NOW) == 0
    allowed = [HELD.slots(32, NOW + 30 + after_s) for after_s in range(11)]
    assert (allowed[0], allowed[-1]) == (1, 32)
    assert allowed == sorted(allowed)


@pytest.mark.parametrize("ill", [HELD, STOPPED])
def test_the_first_acceptance_after_a_rest_makes_a_route_healthy_and_its_traffic_still_comes_back_slowly(
    ill: RouteHealth,
) -> None:
    well = after(ill, ACCEPTED, now=ill.held_until)
    assert (well.state, well.strikes, well.reason) == (RouteState.OPEN, 0, "")
    assert well.takes(ill.held_until)
    assert [well.slots(32, ill.held_until + after_s) for after_s in (0, 11)] == [1, 32]


def test_traffic_is_back_within_the_time_for_which_a_route_was_held() -> None:
    held = after(RouteHealth("main"), replace(THROTTLED, retry_after_s=1.0))
    allowed = [held.slots(32, held.held_until + tenths / 10, chance=0.9) for tenths in range(11)]
    assert (allowed[0], allowed[-1]) == (1, 32)
    assert allowed == sorted(allowed)


# What the provider's own headers say.

FULL = replace(ACCEPTED, full_for_s=30.0)


@pytest.mark.parametrize("verdict", [FULL, Verdict(Outcome.REJECTED, full_for_s=30.0)])
def test_a_route_on_which_nothing_more_fits_is_held_whatever_the_call_came_to_and_gets_no_strike(
    verdict: Verdict,
) -> None:
    held = after(RouteHealth("main"), verdict)
    assert (held.state, held.held_until, held.strikes) == (RouteState.OPEN, NOW + 30.0, 0)
    assert held.slots(32, NOW + 29.9) == 0
    assert held.slots(32, NOW + 30.0) == 1
    assert held.slots(32, NOW + 41.0) == 32


def test_further_answers_that_tell_of_the_same_window_need_no_write() -> None:
    held = after(RouteHealth("main"), FULL)
    assert health_after(held, replace(FULL, full_for_s=29.8), NOW + 0.4, 0.5) is None
    assert after(held, FULL, now=NOW + 20.0).held_until == NOW + 50.0, "a longer window counts"


def test_calls_that_were_too_fast_because_they_were_under_way_add_no_strike() -> None:
    held = after(RouteHealth("main"), FULL)
    assert health_after(held, THROTTLED, NOW + 1.0, 0.5) is None
    assert after(held, replace(THROTTLED, retry_after_s=60.0), now=NOW + 1.0).strikes == 0


def test_a_stopped_route_that_works_again_in_a_full_window_opens_after_it() -> None:
    opened = after(STOPPED, FULL, now=STOPPED.held_until)
    assert (opened.state, opened.held_until) == (RouteState.OPEN, STOPPED.held_until + 30.0)


def test_what_a_person_closed_is_not_opened_by_the_end_of_a_window() -> None:
    closed = RouteHealth("main", RouteState.CLOSED, NOW + 5.0, "by ada")
    assert health_after(closed, FULL, NOW, 0.5) is None


@pytest.mark.parametrize("ill", [HELD, STOPPED])
def test_a_call_that_was_under_way_when_the_route_was_held_does_not_open_it(ill: RouteHealth) -> None:
    assert health_after(ill, ACCEPTED, NOW, 0.5) is None


def test_a_healthy_route_that_goes_on_accepting_needs_no_write() -> None:
    assert health_after(RouteHealth("main"), ACCEPTED, NOW, 0.5) is None


def test_the_other_calls_of_a_burst_add_no_strike() -> None:
    assert health_after(HELD, THROTTLED, NOW, 0.5) is None
    assert health_after(STOPPED, MISCONFIGURED, NOW, 0.5) is None


def test_a_call_under_way_that_asks_for_more_time_gets_it_without_a_strike() -> None:
    longer = after(HELD, replace(THROTTLED, retry_after_s=600.0))
    assert (longer.held_until, longer.strikes) == (NOW + 600.0, 1)
    assert health_after(HELD, replace(THROTTLED, retry_after_s=5.0), NOW, 0.5) is None


def test_a_throttled_probe_leaves_a_stopped_route_stopped() -> None:
    probed = after(STOPPED, replace(THROTTLED, retry_after_s=90.0), now=STOPPED.held_until)
    assert (probed.state, probed.held_until) == (RouteState.STOPPED, STOPPED.held_until + 90.0)


def test_a_throttled_route_that_turns_out_to_be_misconfigured_is_stopped_and_never_held_shorter() -> None:
    throttled = replace(HELD, held_until=NOW + 600.0)
    stopped = after(throttled, MISCONFIGURED)
    assert (stopped.state, stopped.held_until, stopped.reason) == (RouteState.STOPPED, NOW + 600.0, "401 bad key")


@given(healths(), verdicts(Outcome.THROTTLED, Outcome.MISCONFIGURED), chances)
def test_bad_news_never_shortens_a_rest_nor_opens_a_stopped_route(
    health: RouteHealth, verdict: Verdict, chance: float
) -> None:
    changed = health_after(health, verdict, NOW, chance) or health
    assert changed.held_until >= health.held_until
    assert changed.held_until > NOW
    if health.closed(NOW):
        assert changed == health, "only a person opens it"
        return
    assert changed.strikes in (health.strikes, health.strikes + 1)
    if RouteState.STOPPED in (health.state,) or verdict.outcome is Outcome.MISCONFIGURED:
        assert changed.state is RouteState.STOPPED
    if verdict.outcome is Outcome.THROTTLED:
        assert changed.held_until >= NOW + (verdict.retry_after_s or 0.0)
