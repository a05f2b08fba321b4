"""Building an `smtp` route from its settings: every mistake is named, and no password goes in clear text."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from posthouse.config import parse_config
from posthouse.errors import ConfigError
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.providers.smtp_settings import Security, SmtpSettings
from tests.providers.docs_tables import SMTP_PAGE, with_smtp_tables

GOOD = {"provider": "smtp", "url": "smtp+starttls://user@smtp.example.com:587", "password": "env:STANDBY_PASSWORD"}


def build(**settings: Any) -> Provider:
    own = {name: value for name, value in (GOOD | settings).items() if value is not None}
    config = parse_config({"database": "sqlite://", "routes": {"main": own}}, environment={})
    return build_provider("main", config.routes["main"], transport_factory=AiohttpTransport, now=lambda: 0.0)


def test_a_route_is_built_without_opening_or_reading_anything() -> None:
    assert build().facts.name == "main"


CLEAR_TEXT = "routes.main.url: a credential never goes over smtp://, which is clear text"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"url": None}, "routes.main.url: is missing"),
        ({"url": "smtp.example.com:587"}, "routes.main.url: is not an address such as smtp+starttls://"),
        ({"url": "https://smtp.example.com"}, "routes.main.url: is not an address"),
        ({"url": "smtps://"}, "routes.main.url: is not an address"),
        ({"url": "smtps://host:99999"}, "routes.main.url: is not an address"),
        ({"url": "smtps://host/path"}, "routes.main.url: is not an address"),
        ({"url": "smtps://ho st"}, "routes.main.url: is not an address"),
        ({"url": 5}, "routes.main.url: is not an address"),
        ({"url": "smtps://user:swordfish@host"}, "routes.main.url: must not hold the password; give it as password"),
        ({"url": "smtp://user@host"}, CLEAR_TEXT),
        ({"url": "smtp://host"}, CLEAR_TEXT),
        ({"url": "smtp://host", "password": None, "auth_method": "plain"}, CLEAR_TEXT),
        ({"password": None}, "routes.main.password: is missing: the url names a user"),
        ({"url": "smtps://host"}, "routes.main.url: names no user, whom password and auth_method need"),
        ({"auth_method": "ntlm"}, "routes.main.auth_method: must be 'plain', 'login', 'cram-md5' or 'xoauth2'"),
        ({"envelope_sender": "bounces"}, "routes.main.envelope_sender: 'bounces' is not an email address"),
        ({"bounce_address": "bounces@shop.example"}, "routes.main.bounce_address: 'bounces@shop.example' is not of"),
        ({"bounce_address": "x" * 33 + "{id}@shop.example"}, "routes.main.bounce_address: before its @ there would be"),
        ({"bounce_address": "a b{id}@shop.example"}, "routes.main.bounce_address: "),
        (
            {"bounce_address": "b{id}@shop.example", "envelope_sender": "b@shop.example"},
            "routes.main.bounce_address: is the address that bounces go to, and so is envelope_sender",
        ),
        ({"local_hostname": "a b"}, "routes.main.local_hostname: 'a b' is neither a host's name nor an address"),
        ({"ca_file": "/nowhere/ca.pem"}, "routes.main.ca_file: there is no file /nowhere/ca.pem"),
        (
            {"url": "smtp://host", "password": None, "ca_file": str(SMTP_PAGE)},
            "routes.main.ca_file: is of no use with smtp://",
        ),
        ({"max_messages": 0}, "routes.main.max_messages: must be at least 1"),
        ({"final_timeout": "0s"}, "routes.main.final_timeout: must be more than 0"),
        ({"final_timout": "1s"}, "routes.main.final_timout: there is no such setting; did you mean 'final_timeout'?"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(complaint)) as caught:
        build(**settings)
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("smtps://mail.example", (Security.TLS, "mail.example", 465, None)),
        ("smtp+starttls://mail.example", (Security.STARTTLS, "mail.example", 587, None)),
        ("smtp://[::1]", (Security.NONE, "::1", 25, None)),
        ("smtp://127.0.0.1:2525/", (Security.NONE, "127.0.0.1", 2525, None)),
    ],
)
def test_a_url_says_where_and_how(url: str, parts: tuple[Any, ...]) -> None:
    server = SmtpSettings.model_validate({"url": url}).url
    assert (server.security, server.host, server.port, server.user) == parts


def test_a_users_name_may_be_an_address() -> None:
    settings = SmtpSettings.model_validate({"url": "smtps://shop%40example.com@mail.example", "password": "swordfish"})
    assert settings.url.user == "shop@example.com"
    assert "swordfish" not in repr(settings)
    assert "swordfish" not in str(settings)


def test_the_longest_call_covers_the_wait_after_the_final_dot() -> None:
    assert build().facts.timeout_s == 15 + 180 + 600


def test_the_documentations_tables_are_those_of_the_code() -> None:
    """Write them anew with: python -m tests.providers.docs_tables"""
    page = SMTP_PAGE.read_text(encoding="utf-8")
    assert with_smtp_tables(page) == page
    for field_name in SmtpSettings.model_fields:
        assert f"| `{field_name}` |" in page, field_name


def test_every_example_of_the_documentation_works() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", SMTP_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        config = parse_config({"database": "sqlite://"} | tomllib.loads(block), environment={})
        for name, route in config.routes.items():
            assert build_provider(name, route, transport_factory=AiohttpTransport, now=lambda: 0.0).facts.name == name
