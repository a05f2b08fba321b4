"""The outlook: what an application may tell about an email that it asks for now."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.breaker import Breaker, BreakerState
from posthouse.core.outlook import DELAYED_FROM_S, RESEND_AFTER_S, Outlook, Reason, Waiting, outlook
from posthouse.core.policy import Failover, TypePolicy
from posthouse.core.routing import FOR_EVER, RouteHealth, RouteState
from posthouse.core.switches import Scope, Switch
from tests.core.strategies import NOW

POLICY = TypePolicy("one-time-code", routes=("main", "standby"), max_age_s=600.0)
MAIN_HELD = RouteHealth("main", held_until=NOW + 120, reason="429 slow down")
STANDBY_HELD = RouteHealth("standby", held_until=NOW + 90, reason="421 busy")
STOPPED = RouteHealth("main", RouteState.STOPPED, NOW + 15, "401 bad key")
PAUSED = Switch(Scope.TYPE, "one-time-code", "wrong link in the template", "grace")
BUSY = Waiting(due=20, oldest_due_s=2.0, accepted_per_s=10.0)


def asked(*health: RouteHealth, switch: Switch | None = None, waiting: Waiting = BUSY) -> Outlook:
    return outlook(POLICY, {route.name: route for route in health}, switch, waiting, NOW)


def test_a_route_that_works_and_a_short_queue_are_on_time() -> None:
    assert asked() == Outlook(False, 2.0, 62.0, Reason.ON_TIME)


def test_another_one_is_not_offered_before_it_may_be_asked_for() -> None:
    cooling = replace(POLICY, cooldown_s=90.0)
    assert outlook(cooling, {}, None, BUSY, NOW).resend_after_s == 90.0
    assert outlook(replace(POLICY, cooldown_s=30.0), {}, None, BUSY, NOW).resend_after_s == 62.0


def test_an_idle_type_is_on_time() -> None:
    assert asked(waiting=Waiting()) == Outlook(False, 0.0, RESEND_AFTER_S, Reason.ON_TIME)


def test_while_one_route_works_the_others_do_not_matter() -> None:
    assert asked(MAIN_HELD).reason is Reason.ON_TIME
    assert asked(STOPPED).reason is Reason.ON_TIME


def test_a_short_hold_is_no_delay() -> None:
    assert not asked(replace(MAIN_HELD, held_until=NOW + 5), replace(STANDBY_HELD, held_until=NOW + 9)).delayed


def test_with_all_routes_held_it_leaves_when_the_first_opens() -> None:
    told = asked(MAIN_HELD, STANDBY_HELD)
    assert (told.delayed, told.by_s, told.reason) == (True, 92.0, Reason.NO_ROUTE)
    assert told.detail == "main: 429 slow down; standby: 421 busy"
    assert told.resend_after_s == 152.0


def test_with_all_routes_stopped_nobody_can_say() -> None:
    told = asked(STOPPED, replace(STOPPED, name="standby"))
    assert (told.delayed, told.by_s, told.reason) == (True, None, Reason.NO_ROUTE)


def test_with_every_provider_failing_nobody_can_say_although_they_are_tried_every_few_seconds() -> None:
    tripped = RouteHealth("main", reason="503", breaker=Breaker(BreakerState.OPEN, held_until=NOW + 3))
    told = asked(tripped, replace(tripped, name="standby"))
    assert (told.delayed, told.by_s, told.reason) == (True, None, Reason.NO_ROUTE)
    assert asked(tripped).reason is Reason.ON_TIME


def test_a_route_that_a_person_has_closed_opens_at_its_time_or_when_they_say_so() -> None:
    closed = RouteHealth("main", RouteState.CLOSED, NOW + 600, "moving away")
    for_ever = RouteHealth("standby", RouteState.CLOSED, FOR_EVER)
    assert (asked(closed, for_ever).by_s, asked(closed, for_ever).reason) == (602.0, Reason.NO_ROUTE)
    assert asked(replace(closed, held_until=FOR_EVER), for_ever).by_s is None
    assert asked(closed).reason is Reason.ON_TIME


def test_where_a_person_decides_on_failover_only_the_first_route_counts() -> None:
    manual = replace(POLICY, failover=Failover.MANUAL)
    assert outlook(manual, {"main": MAIN_HELD}, None, BUSY, NOW).by_s == 122.0


def test_a_type_without_routes_never_leaves() -> None:
    assert outlook(replace(POLICY, routes=()), {}, None, BUSY, NOW).reason is Reason.NO_ROUTE


def test_with_one_stopped_and_one_held_it_waits_for_the_held_one_at_most() -> None:
    told = asked(replace(STOPPED, held_until=NOW + 300), STANDBY_HELD)
    assert (told.by_s, told.reason) == (92.0, Reason.NO_ROUTE)


def test_a_paused_type_is_late_until_somebody_resumes_it() -> None:
    told = asked(switch=PAUSED)
    assert (told.delayed, told.by_s, told.reason, told.detail) == (True, None, Reason.PAUSED, PAUSED.reason)
    assert asked(switch=replace(PAUSED, until=NOW + 60)).by_s == 62.0


def test_a_long_queue_takes_as_long_as_it_does_at_the_pace_of_late() -> None:
    told = asked(waiting=Waiting(due=3000, oldest_due_s=200.0, accepted_per_s=10.0))
    assert (told.delayed, told.by_s, told.reason) == (True, 300.0, Reason.BACKLOG)
    assert told.detail == "3,000 due before it"


def test_a_short_hold_and_a_short_queue_together_can_be_a_delay() -> None:
    held = (replace(MAIN_HELD, held_until=NOW + 20), replace(STANDBY_HELD, held_until=NOW + 20))
    told = asked(*held, waiting=Waiting(due=200, oldest_due_s=20.0, accepted_per_s=10.0))
    assert (told.delayed, told.by_s, told.reason) == (True, 40.0, Reason.BACKLOG)


def test_where_mail_is_due_and_nothing_leaves_nobody_can_say() -> None:
    told = asked(waiting=Waiting(due=3, oldest_due_s=40.0))
    assert (told.delayed, told.by_s, told.reason) == (True, None, Reason.STALLED)
    assert asked(waiting=Waiting(due=3, oldest_due_s=1.0)).reason is Reason.ON_TIME


@pytest.mark.parametrize("switch", [PAUSED, replace(PAUSED, until=NOW + 10_000)])
def test_another_one_is_offered_once_the_first_has_expired(switch: Switch) -> None:
    assert asked(switch=switch).resend_after_s == POLICY.max_age_s


healths = st.fixed_dictionaries(
    {},
    optional={
        name: st.builds(RouteHealth, st.just(name), st.sampled_from(RouteState), st.floats(NOW - 300, NOW + 3000))
        for name in POLICY.routes
    },
)
switches = st.none() | st.builds(
    Switch, st.just(Scope.TYPE), st.just("one-time-code"), until=st.none() | st.floats(NOW + 1, NOW + 9999)
)
waitings = st.builds(Waiting, st.integers(0, 100_000), st.floats(0, 1e5), st.just(0.0) | st.floats(0.001, 1000))


@given(healths, switches, waitings)
def test_every_outlook_agrees_with_itself(
    health: dict[str, RouteHealth], switch: Switch | None, waiting: Waiting
) -> None:
    told = outlook(POLICY, health, switch, waiting, NOW)
    assert told.delayed == (told.by_s is None or told.by_s >= DELAYED_FROM_S)
    assert told.by_s is None or told.by_s >= 0
    assert 0 < told.resend_after_s <= POLICY.max_age_s
    assert not told.delayed or told.reason is not Reason.ON_TIME
    if switch is not None:
        assert told.reason is Reason.PAUSED
