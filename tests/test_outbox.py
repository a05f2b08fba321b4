"""What the outbox refuses before it touches the database, whatever the database."""

from __future__ import annotations

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


def enqueue(**parts: Any) -> None:
    """On an outbox with two routes, `main` and `standby`, of the `http` provider."""
    settings = {"provider": "http", "url": "https://api.example.com/v1/send", "auth": "none"}
    route = RouteSettings.model_validate(settings)
    providers = {
        name: build_provider(name, route, transport_factory=AiohttpTransport, now=lambda: 0.0)
        for name in ("main", "standby")
    }
    policies = {"default": TypePolicy("default", routes=("main", "standby"))}
    outbox = Outbox(
        policies, providers, sender=Address("shop@example.com", "Shop"), clock=lambda: 0.0, new_key=lambda: "key"
    )
    outbox.enqueue(NoConnection(), Email(key="k", to="ada@example.com", subject="s", text="t", **parts))


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
