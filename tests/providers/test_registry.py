"""Building a route from its settings: every mistake is named with its setting, and what to do."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.config import RouteSettings, parse_config
from posthouse.core.outcome import Outcome
from posthouse.errors import ConfigError
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.http_settings import HttpSettings
from posthouse.providers.placeholders import pipe_of
from posthouse.providers.port import Provider
from posthouse.providers.registry import PROVIDERS, build_provider
from posthouse.providers.transport import HttpAnswer, HttpRequest
from tests.providers.docs_tables import PAGE, with_tables
from tests.providers.messages import full_message, message

GOOD = {"provider": "http", "url": "https://api.example.com/v1/send", "api_key": "env:MAIN_KEY"}


def build(**settings: Any) -> Provider:
    own = {name: value for name, value in (GOOD | settings).items() if value is not None}
    config = parse_config({"database": "sqlite://", "routes": {"main": own}}, environment={})
    return build_provider("main", config.routes["main"], transport_factory=AiohttpTransport, now=lambda: 0.0)


def test_a_route_is_built_without_opening_or_reading_anything() -> None:
    assert build().facts.name == "main"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"provider": "htp"}, "routes.main.provider: 'htp' is not a provider; did you mean 'http'?"),
        ({"provider": "pigeon"}, "routes.main.provider: 'pigeon' is not a provider; there are: http"),
        ({"url": None}, "routes.main.url: is missing"),
        ({"url": "api.example.com"}, "routes.main.url: is not an address such as https://"),
        ({"url": "ftp://api.example.com"}, "routes.main.url: is not an address"),
        ({"url": "https://api.example.com:99999/"}, "routes.main.url: is not an address"),
        ({"url": "https://api.example.com/a b"}, "routes.main.url: is not an address"),
        ({"url": "https://u:p@api.example.com/"}, "routes.main.url: must not hold credentials; give auth"),
        (
            {"adress_format": "text"},
            "routes.main.adress_format: there is no such setting; did you mean 'address_format'?",
        ),
        ({"method": "GET"}, "routes.main.method: must be 'POST' or 'PUT'"),
        ({"api_key": None}, 'routes.main.api_key: is missing: auth = "bearer" needs it (or set auth = "none")'),
        ({"api_key": 5}, "routes.main.api_key: must be 'env:NAME', 'file:PATH' or the value itself"),
        ({"auth": "basic"}, 'routes.main.username: is missing: auth = "basic" needs it'),
        ({"auth_header": "X Key"}, "routes.main.auth_header: 'X Key' is not the name of a header"),
        ({"headers": {"X-A": "a\nb"}}, "routes.main.headers: the value of X-A must be printable ASCII text"),
        ({"headers": {"content-type": "text/plain"}}, "routes.main.headers: the Content-Type is always"),
        ({"headers": "X-A: 1"}, "routes.main.headers: must be a table of names and values"),
        ({"headers": {"authorization": "x"}}, "routes.main.headers: the header 'authorization' would be sent twice"),
        (
            {"headers": {"Idempotency-key": "x"}, "idempotency_header": "Idempotency-Key"},
            "routes.main.headers: the header 'idempotency-key' would be sent twice",
        ),
        ({"body": 5}, "routes.main.body: must be a table, or text with a JSON object"),
        ({"body": "{"}, "routes.main.body: is text but not JSON"),
        ({"body": "[]"}, "routes.main.body: must be a table"),
        (
            {"body": {"to": "{to}", "message": {"Subject": "{sujbect}"}}},
            "routes.main.body: message.Subject: there is no placeholder {sujbect}; did you mean 'subject'?",
        ),
        ({"body": {"from": "{from}", "subject": "{subject}"}}, "routes.main.body: has no place for {to}"),
        (
            {"body": {"to": "{to}", "subject": "{subject}"}},
            'routes.main.body: has no place for {from} (or set ignore = ["from"])',
        ),
        ({"ignore": ["bcc"]}, "routes.main.ignore: entry 1 must be 'from', 'subject'"),
        ({"idempotency_lifetime": "30m"}, "routes.main.idempotency_lifetime: needs idempotency_header"),
        ({"idempotency_lifetime": "soon"}, "routes.main.idempotency_lifetime: 'soon' is not a duration"),
        ({"message_id": "a..b"}, "routes.main.message_id: 'a..b' is not a path into the answer"),
        ({"message_id": "header:X Id"}, "routes.main.message_id: 'X Id' is not the name of a header"),
        ({"look_up_url": "https://api.example.com/v1"}, "routes.main.look_up_url: must say with {id} where"),
        ({"look_up_found": "id"}, "routes.main.look_up_url: is missing: look_up_found and look_up_message_id need it"),
        ({"health_url": "health"}, "routes.main.health_url: is not an address"),
        ({"ca_file": "/nowhere/ca.pem"}, "routes.main.ca_file: there is no file /nowhere/ca.pem"),
        ({"connect_timeout": "20s"}, "routes.main.connect_timeout: is longer than timeout"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(complaint)):
        build(**settings)


def test_no_setting_shows_a_secret() -> None:
    settings = HttpSettings.model_validate(
        {
            "url": "https://api.example.com",
            "api_key": "swordfish",
            "username": "swordfish",
            "password": "swordfish",
            "headers": {"X-Token": "swordfish"},
        }
    )
    assert "swordfish" not in repr(settings)
    assert "swordfish" not in str(settings)


def test_an_error_about_a_credential_does_not_show_it() -> None:
    with pytest.raises(ConfigError) as caught:
        build(url="https://user:swordfish@api.example.com")
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_every_setting_of_every_provider_is_described(name: str) -> None:
    for field_name, field in PROVIDERS[name]().settings.model_fields.items():
        assert field.description, field_name


def test_the_documentations_tables_are_those_of_the_code(docs_page: str) -> None:
    """Write them anew with: python -m tests.providers.docs_tables"""
    assert with_tables(docs_page) == docs_page
    for field_name in HttpSettings.model_fields:
        assert f"| `{field_name}` |" in docs_page, field_name


def documented_routes() -> list[tuple[str, RouteSettings]]:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    configs = [parse_config({"database": "sqlite://"} | tomllib.loads(block), environment={}) for block in blocks]
    return [(name, route) for config in configs for name, route in config.routes.items()]


@pytest.mark.parametrize(("name", "route"), documented_routes(), ids=lambda v: v if isinstance(v, str) else "")
async def test_every_example_of_the_documentation_works(name: str, route: RouteSettings) -> None:
    sent: list[HttpRequest] = []

    class Accepting:
        async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer:
            sent.append(request)
            return HttpAnswer(200, {}, b'{"id":"m-1"}')

        async def close(self) -> None: ...

    given = RouteSettings.model_validate(
        route.model_dump(include={"provider"})
        | route.own
        | dict.fromkeys({"api_key", "password", "username"} & set(route.own), "k")
    )
    provider = build_provider(name, given, transport_factory=lambda _: Accepting(), now=lambda: 0.0)
    if name == "mime":
        bcc = (Address("bcc@example.com"),)
        verdict = await provider.send(message(raw=b"%PDF", text=None, bcc=bcc))
    else:
        bill = Attachment(b"%PDF", "bill.pdf", "application/pdf")
        verdict = await provider.send(full_message(attachments=[bill]))
        assert all(word in sent[0].body for word in (b"Your order", b"bill.pdf"))
    assert verdict.outcome is Outcome.ACCEPTED, verdict
    assert all(word in sent[0].body for word in (b"ada@example.com", b"bcc@example.com", b"ph-7", b"JVBERg=="))


def test_every_placeholder_of_the_documentation_works(docs_page: str) -> None:
    written = re.findall(r"`\{([^`{}\"]+)\}`", docs_page)
    assert len(written) > 30
    for expression in written:
        pipe_of(expression.replace("\\|", "|"), "docs")
