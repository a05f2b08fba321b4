"""A credential goes over HTTP without TLS to nobody but a host of this machine or its own network."""

from __future__ import annotations

from typing import Any

import pytest

from posthouse.config import parse_config
from posthouse.errors import ConfigError
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.nearby import is_nearby
from posthouse.providers.registry import build_provider

KEYS: dict[str, dict[str, Any]] = {
    "http": {"api_key": "k"},
    "mailgun": {"api_key": "k", "domain": "shop.example"},
    "postmark": {"api_key": "k"},
    "resend": {"api_key": "k"},
    "sendgrid": {"api_key": "k"},
    "ses": {"access_key_id": "i", "secret_access_key": "k", "region": "eu-west-1"},
}


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST", "api.localhost"),
        *(
            "10.1.2.3",
            "172.16.0.9",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.7",
            "fd00::7",
            "fe80::1",
            "::ffff:10.0.0.1",
        ),
        *("sandbox", "mail-gateway", "mail_gateway", "gateway.local", "mail.shop.svc.cluster.local"),
        *("host.docker.internal", "api.test", "printer.home.arpa"),
    ],
)
def test_a_host_of_the_own_network_is_nearby(host: str) -> None:
    assert is_nearby(host)


@pytest.mark.parametrize(
    "host",
    [
        *("api.example.com", "shop.example", "8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "134744072"),
        *(
            "0x08080808",
            "8.8",
            "localhost.example.com",
            "internal.example.com",
            "notlocal.com",
            "mylocal.de",
            "127.0.0.1.nip.io",
        ),
    ],
)
def test_a_host_that_may_be_anywhere_is_not(host: str) -> None:
    assert not is_nearby(host)


def faults(provider: str, **settings: Any) -> list[str]:
    own = {"provider": provider, **KEYS[provider], **settings}
    config = parse_config({"database": "sqlite://", "routes": {"main": own}}, environment={})
    try:
        build_provider("main", config.routes["main"], transport_factory=AiohttpTransport, now=lambda: 0.0)
    except ConfigError as error:
        return [str(fault) for fault in error.faults]
    return []


@pytest.mark.parametrize("provider", KEYS)
def test_no_route_takes_its_credential_out_in_clear_text(provider: str) -> None:
    for url in ("http://api.example.com/v1/send", "HTTP://8.8.8.8:8080/"):
        assert [fault.partition(" to ")[0] for fault in faults(provider, url=url)] == [
            "routes.main.url: a credential never goes over http://"
        ]
    for url in ("https://api.example.com/v1/send", "http://127.0.0.1:8025/v1/send", "http://sandbox:8025/v1/send"):
        assert faults(provider, url=url) == []


def test_every_address_that_a_call_goes_to_is_looked_at() -> None:
    away = "http://api.example.com/{id}"

    assert faults("http", url="https://api.example.com", look_up_url=away, health_url=away) == [
        "routes.main.health_url: a credential never goes over http:// to api.example.com; use https://",
        "routes.main.look_up_url: a credential never goes over http:// to api.example.com; use https://",
    ]


def test_what_has_no_credential_may_go_anywhere_but_its_headers_may_be_one() -> None:
    url = "http://api.example.com/v1/send"

    assert faults("http", url=url, auth="none", api_key=None) == []
    assert len(faults("http", url=url, auth="none", headers={"X-Token": "t"})) == 1
