"""From settings to what the deciding functions take."""

from __future__ import annotations

from typing import Any

from posthouse.config import parse_config
from posthouse.core.policy import Category, OnUnknown, Priority, TypePolicy, type_policies

ROUTES = {"main": {"provider": "http"}, "standby": {"provider": "http"}}


def policy(**settings: Any) -> TypePolicy:
    document = {"database": "sqlite://", "routes": ROUTES, "types": {"code": settings}}
    return type_policies(parse_config(document, environment={}))["code"]


def test_the_default_type_always_has_a_policy() -> None:
    policies = type_policies(parse_config({"database": "sqlite://"}, environment={}))
    assert policies == {"default": TypePolicy("default", routes=())}


def test_the_settings_of_a_type_arrive_in_seconds_and_words() -> None:
    made = policy(
        category="security",
        priority="urgent",
        max_age="10m",
        max_attempts=4,
        on_unknown="resend",
        unknown_wait="30s",
        unknown_may_change_route=True,
        retry_first="1s",
        retry_max="20s",
    )
    assert (made.category, made.priority, made.on_unknown) == (Category.SECURITY, Priority.URGENT, OnUnknown.RESEND)
    assert (made.max_age_s, made.max_attempts, made.unknown_wait_s) == (600.0, 4, 30.0)
    assert (made.backoff.first_s, made.backoff.max_s) == (1.0, 20.0)
    assert made.unknown_may_change_route


def test_a_type_without_routes_takes_all_in_the_order_of_the_file() -> None:
    assert policy().routes == ("main", "standby")
    assert policy(routes=["standby"]).routes == ("standby",)


def test_a_short_lived_type_is_tried_often_enough_within_its_life() -> None:
    assert policy(max_age="10m").backoff.max_s == 60.0
    assert policy(max_age="3d").backoff.max_s == 600.0
