"""What the outbox refuses before it touches the database, whatever the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.config import RouteSettings
from posthouse.core.policy import TypePolicy
from posthouse.email import Email
from posthouse.errors import InvalidEmail
from posthouse.outbox import Outbox
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.registry import build_provider


class Reached(Exception):
    """The outbox has found nothing to refuse, and begins to write."""


class NoConnection:
    """Says that it was asked for."""

    def __getattribute__(self, name: str) -> Any:
        raise Reached


def enqueue(own: Mapping[str, Any] = {}, **parts: Any) -> None:
    """On an outbox with two routes, `main` and `standby`, of the `http` provider with settings of its `own`."""
    settings = {"provider": "http", "url": "https://api.example.com/v1/send", "auth": "none", **own}
    route = RouteSettings.model_validate(settings)
    providers = {
        name: build_provider(name, route, transport_factory=AiohttpTransport, now=lambda: 0.0)
        for name in ("main", "standby")
    }
    routes = ("main", "standby")
    policies = {
        "default": TypePolicy("default", routes),
        "newsletter": TypePolicy("newsletter", routes, unsubscribe_link=True),
    }
    outbox = Outbox(
        policies, providers, sender=Address("shop@example.com", "Shop"), clock=lambda: 0.0, new_key=lambda: "key"
    )
    plain = {"key": "k", "to": "ada@example.com", "subject": "s", "text": "t"}
    outbox.enqueue(NoConnection(), Email(**(plain | parts)))


@pytest.mark.parametrize("name", ["main", "standby", "http"])
def test_options_go_by_the_name_of_a_route_or_its_provider(name: str) -> None:
    with pytest.raises(Reached):
        enqueue(options={name: {"pool": "a"}})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mian", "options.mian: is neither a route nor a provider of one; did you mean 'main'?"),
        ("postmark", "options.postmark: is neither a route nor a provider of one; there are: http, main, standby"),
        ("", "options.: is neither a route nor a provider of one; there are: http, main, standby"),
    ],
)
def test_options_for_nobody_are_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidEmail) as refused:
        enqueue(options={name: {"pool": "a"}})
    assert str(refused.value) == reason


def test_options_that_every_route_refuses_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidEmail, match="main: options: to says who gets the message"):
        enqueue(options={"http": {"to": "eve@example.com"}})


def test_an_email_with_a_link_to_unsubscribe_is_for_one_person() -> None:
    reason = r"to: 2 recipients \(with cc and bcc\), and emails of type 'newsletter' have a link"
    for several in ({"to": ["ada@example.com", "eve@example.com"]}, {"bcc": "eve@example.com"}):
        with pytest.raises(InvalidEmail, match=reason):
            enqueue(type="newsletter", **several)
        with pytest.raises(Reached):
            enqueue(type="default", **several)
        with pytest.raises(Reached):
            enqueue(type="newsletter", headers=[("List-Unsubscribe", "<mailto:u@shop.example>")], **several)
    with pytest.raises(Reached):
        enqueue(type="newsletter")


def test_a_route_that_can_not_carry_the_link_is_no_route_for_it() -> None:
    body = {"from": "{from}", "to": "{to}", "subject": "{subject}", "text": "{text}"}

    with pytest.raises(InvalidEmail, match=r"no route of type 'newsletter' can carry it .*headers"):
        enqueue({"body": body, "ignore": ["metadata"]}, type="newsletter")
    with pytest.raises(Reached):
        enqueue({"body": body, "ignore": ["metadata"]}, type="default")
