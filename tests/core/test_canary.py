"""When a canary is due, and when people are told that a route does not work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from posthouse.address import Address
from posthouse.config import parse_config
from posthouse.core.breaker import Breaker, BreakerState
from posthouse.core.canary import ACCEPTED_LAG_S, Canary, Sent, canaries, canary_policies, failing, is_due
from posthouse.core.lifecycle import Status
from posthouse.core.policy import type_policies
from posthouse.core.routing import FOR_EVER, RouteHealth, RouteState
from tests.core.strategies import NOW

CANARY = Canary("standby", Address("ops@example.com", "Ops"), 1800.0)
NEVER = RouteHealth("standby")
QUIET = replace(NEVER, last_accepted_at=NOW - 1800.0 - ACCEPTED_LAG_S)
STOPPED = replace(QUIET, state=RouteState.STOPPED, held_until=NOW + 9, reason="401 bad key")
TRIPPED = replace(QUIET, breaker=Breaker(BreakerState.OPEN, held_until=NOW + 9), reason="connect_refused")
CLOSED = replace(QUIET, state=RouteState.CLOSED, held_until=FOR_EVER, reason="by ada")

EARLIER = Sent(CANARY.keys(NOW)[1], Status.ACCEPTED, NOW - 1500.0, NOW + 300.0)
PRESENT = replace(EARLIER, key=CANARY.keys(NOW)[0], created_at=NOW - 60.0, expires_at=NOW + 1740.0)


@pytest.mark.parametrize("health", [NEVER, QUIET, STOPPED, TRIPPED], ids=["never", "quiet", "stopped", "tripped"])
def test_one_is_due_on_a_route_that_was_quiet_and_on_one_that_fails_since_nothing_else_would_find_out(
    health: RouteHealth,
) -> None:
    assert is_due(CANARY, health, [], NOW)
    assert is_due(CANARY, health, [replace(EARLIER, status=Status.EXPIRED)], NOW)


@pytest.mark.parametrize("ago_s", [0.0, 1799.0, 1800.0 + ACCEPTED_LAG_S - 1, -1.0])
def test_none_is_due_where_mail_was_accepted_lately(ago_s: float) -> None:
    assert not is_due(CANARY, replace(NEVER, last_accepted_at=NOW - ago_s), [], NOW)


def test_none_is_due_on_a_route_that_a_person_has_closed() -> None:
    assert not is_due(CANARY, CLOSED, [], NOW)


@pytest.mark.parametrize("status", [Status.PENDING, Status.SENDING, Status.UNKNOWN])
def test_none_is_due_while_an_earlier_one_is_under_way(status: Status) -> None:
    assert not is_due(CANARY, QUIET, [replace(EARLIER, status=status)], NOW)


def test_of_one_slot_there_is_one_whatever_became_of_it_and_however_the_clock_jumps() -> None:
    assert not is_due(CANARY, QUIET, [replace(PRESENT, status=Status.FAILED)], NOW)
    assert is_due(CANARY, replace(QUIET, last_accepted_at=NOW + 86400.0), [], NOW), "the clock was set back"
    keys = {CANARY.keys(NOW + seconds)[0] for seconds in range(0, 3600, 60)}
    assert len(keys) <= 3, "one key a slot"
    assert CANARY.keys(NOW + 1800.0)[1] == CANARY.keys(NOW)[0]


@pytest.mark.parametrize(
    ("health", "sent", "why"),
    [
        (QUIET, replace(PRESENT, status=Status.FAILED, last_error="rejected on standby: 422"), "rejected on standby"),
        (QUIET, replace(EARLIER, status=Status.EXPIRED), "its time ended"),
        (QUIET, replace(EARLIER, status=Status.UNKNOWN, expires_at=NOW), "its time ended"),
        (STOPPED, replace(PRESENT, status=Status.PENDING), "401 bad key"),
        (TRIPPED, replace(PRESENT, status=Status.PENDING), "connect_refused"),
    ],
)
def test_people_are_told_that_the_route_does_not_work(health: RouteHealth, sent: Sent, why: str) -> None:
    told = failing(CANARY, health, [sent], NOW)
    assert told is not None
    assert why in told


@pytest.mark.parametrize(
    ("health", "sent"),
    [
        (QUIET, replace(PRESENT, status=Status.PENDING)),
        (QUIET, PRESENT),
        (QUIET, replace(PRESENT, status=Status.CANCELLED)),
        (CLOSED, replace(EARLIER, status=Status.EXPIRED)),
        (replace(STOPPED, last_accepted_at=NOW - 30), replace(PRESENT, status=Status.FAILED)),
    ],
    ids=["under way", "accepted", "withdrawn", "closed by a person", "worked since"],
)
def test_nobody_is_told_of(health: RouteHealth, sent: Sent) -> None:
    assert failing(CANARY, health, [sent], NOW) is None


def test_a_canary_goes_by_its_route_alone_and_no_later_than_the_next_one() -> None:
    asked = {"provider": "http", "canary_to": "Ops <ops@example.com>", "canary_every": "30m"}
    routes = {"main": {"provider": "http"}, "standby": asked}
    config = parse_config({"database": "sqlite://", "sender": "a@example.com", "routes": routes}, environment={})
    assert canaries(config) == (CANARY,)
    (policy,) = canary_policies(config).values()
    assert (policy.name, policy.routes, policy.max_age_s) == ("canary.standby", ("standby",), 1800.0)
    assert policy.name not in type_policies(config)
