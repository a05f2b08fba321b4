"""What is wrong with settings is told all at once, and never in the words of the library that found it."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

from posthouse.config import Config, RouteSettings, parse_config
from posthouse.errors import ConfigError
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.registry import PROVIDERS, build_provider, of_each_route, own_faults
from posthouse.setting_faults import validated
from posthouse.setting_values import Settings

SWORDFISH = "swordfish"
WRONG_VALUES = [True, 7, -7, 1.5, SWORDFISH, "", [SWORDFISH], [7], {"x": SWORDFISH}, datetime.date(2026, 1, 2)]
"""One of each type that TOML has, and some."""

ITS_WORDS = re.compile(r"[Ii]nput|valid |dictionary|tuple|boolean|integer|string|greater|pattern|[Ff]ield required")


def tables() -> list[type[Settings]]:
    """Every table of settings, those of providers included."""
    own = [PROVIDERS[name]().settings for name in PROVIDERS]
    found: list[type[Settings]] = []
    for table in (*_below(Settings), *own):
        if table not in found:
            found.append(table)
    return found


def _below(table: type[Settings]) -> list[type[Settings]]:
    below = table.__subclasses__()
    return [*below, *(deeper for each in below for deeper in _below(each))]


def faults_of(table: type[Settings], document: dict[str, Any]) -> list[ConfigError]:
    try:
        validated(table, document, "here")
    except ConfigError as error:
        return list(error.faults)
    return []


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.__name__)
def test_no_wrong_value_is_told_in_the_librarys_words(table: type[Settings]) -> None:
    for name in table.model_fields:
        for value in WRONG_VALUES:
            for fault in faults_of(table, {name: value}):
                assert not ITS_WORDS.search(fault.reason.partition(" (")[0]), (name, value, str(fault))


@pytest.mark.parametrize("kind", PROVIDERS)
def test_no_secret_is_repeated_in_a_fault_of_another_kind(kind: str) -> None:
    secrets = ("api_key", "password", "username", "webhook_secrets", "access_key_id", "secret_access_key")
    table = PROVIDERS[kind]().settings
    for name in (name for name in secrets if name in table.model_fields):
        for value in ([SWORDFISH], {"x": SWORDFISH}, SWORDFISH):
            assert SWORDFISH not in " ".join(str(fault) for fault in faults_of(table, {name: value}))


def faults(routes: dict[str, dict[str, Any]]) -> list[str]:
    config = parse_config({"database": "sqlite://", "routes": routes}, environment={})
    with pytest.raises(ConfigError) as caught:
        of_each_route(
            config.routes,
            lambda name: build_provider(name, config.routes[name], transport_factory=AiohttpTransport, now=lambda: 0.0),
        )
    assert str(caught.value) == "\n".join(str(fault) for fault in caught.value.faults)
    return str(caught.value).splitlines()


def test_all_that_is_wrong_with_all_routes_is_told_at_once() -> None:
    assert faults(
        {
            "first": {"provider": "http", "url": "here", "concurency": 3, "method": "GET", "ignore": ["tags", "tgas"]},
            "second": {"provider": "smtp", "url": "smtp://user@host", "max_messages": 0},
            "fine": {"provider": "http", "url": "https://api.example.com", "auth": "none"},
            "third": {"provider": "pigeon"},
        }
    ) == [
        "routes.first.url: is not an address such as https://api.example.com/v1/send",
        "routes.first.ignore: entry 2 must be 'from', 'subject', 'reply_to', 'text', 'html', 'alternatives', "
        "'attachments', 'inline', 'part_headers', 'headers', 'tags', 'metadata', 'message_id', 'envelope_sender', "
        "'track_opens' or 'track_clicks'; did you mean 'tags'?",
        "routes.first.method: must be 'POST' or 'PUT'",
        "routes.first.concurency: there is no such setting; did you mean 'concurrency'?",
        "routes.second.max_messages: must be at least 1",
        f"routes.third.provider: 'pigeon' is not a provider; there are: {', '.join(PROVIDERS)}",
    ]


def test_all_that_does_not_go_together_is_told_at_once() -> None:
    own = {
        "provider": "smtp",
        "url": "smtp://host",
        "password": "env:X",
        "ca_file": __file__,
        "dkim_domain": "a.example",
    }

    assert faults({"main": own}) == [
        "routes.main.url: a credential never goes over smtp://, which is clear text; use smtp+starttls:// or smtps://",
        "routes.main.ca_file: is of no use with smtp://, which has no TLS",
        "routes.main.dkim_selector: is missing: dkim_domain, dkim_selector and dkim_key go together",
        "routes.main.dkim_key: is missing: dkim_domain, dkim_selector and dkim_key go together",
    ]


def test_an_unknown_name_does_not_hide_what_does_not_go_together() -> None:
    own = {"provider": "http", "url": "http://api.example.com", "timout": "5s", "idempotency_lifetime": "1h"}

    assert [fault.partition(": ")[0] for fault in faults({"main": own})] == [
        "routes.main.timout",
        "routes.main.url",
        "routes.main.api_key",
        "routes.main.idempotency_lifetime",
    ]
    with pytest.raises(ConfigError) as caught:
        parse_config({"database": "sqlite://", "worker": {"x": 1, "poll_min": "2s"}, "types": {"t": {"y": 1}}})
    assert [fault.setting for fault in caught.value.faults] == ["types.t.y", "worker.x", "worker.poll_min"]


def test_every_table_of_the_file_is_told_of_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"wroker": {}, "types": {"code": {"max_attempts": 0}}, "web": {"port": "x"}}, environment={})

    assert [fault.setting for fault in caught.value.faults] == [
        "database",
        "types.code.max_attempts",
        "web.port",
        "wroker",
    ]


def test_what_is_missing_is_told_with_what_it_is_for() -> None:
    assert faults({"main": {"provider": "ses", "access_key_id": "env:ID"}}) == [
        "routes.main.region: is missing (the region in which the identities are verified, such as `eu-west-1`)",
        "routes.main.secret_access_key: is missing (the secret that signs our calls: `env:NAME` or `file:PATH`)",
    ]


def test_a_providers_own_settings_are_looked_at_in_a_file_that_is_wrong_elsewhere() -> None:
    routes = {
        "main": {"provider": "resend", "timeout": 5},
        "odd": 5,
        "none": {"url": "x"},
        "list": {"provider": ["http"]},
        "fine": {"provider": "http", "url": "https://api.example.com", "auth": "none"},
    }

    assert [fault.setting for fault in own_faults({"routes": routes})] == ["routes.main.api_key"]
    assert list(own_faults({"routes": 5})) == []
    assert list(own_faults({})) == []


def test_the_tables_are_all_there() -> None:
    assert {Config, RouteSettings} < set(tables())
