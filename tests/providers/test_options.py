"""Whose options an email's are."""

from __future__ import annotations

from typing import Any

from posthouse.core.policy import RouteFacts
from posthouse.providers.options import own_options

FACTS = RouteFacts("standby", kind="smtp")


def test_a_route_has_those_of_its_provider_and_its_own() -> None:
    options = {"smtp": {"a": 1}, "standby": {"b": 2}, "http": {"c": 3}, "main": {"d": 4}}
    assert own_options(options, FACTS) == {"a": 1, "b": 2}
    assert own_options({}, FACTS) == {}


def test_its_own_win_table_by_table() -> None:
    options: dict[str, dict[str, Any]] = {
        "smtp": {"tags": {"a": 1, "b": 1}, "list": [1, 2], "plain": 1},
        "standby": {"tags": {"b": 2}, "list": [3], "plain": {"c": 3}},
    }
    assert own_options(options, FACTS) == {"tags": {"a": 1, "b": 2}, "list": [3], "plain": {"c": 3}}
    assert options["smtp"]["tags"] == {"a": 1, "b": 1}
