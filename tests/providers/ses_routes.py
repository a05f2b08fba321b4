"""Routes of the `ses` provider as the tests make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from posthouse.config import RouteSettings
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from tests.contract.provider_suite import SECRET
from tests.providers.sigv4_server import Account

REGION: Final = "eu-west-1"
KEY_ID: Final = "AKIDEXAMPLE"
ACCOUNT: Final = Account(KEY_ID, SECRET, REGION)

OWN: Final = {
    "provider": "ses",
    "api_key": None,
    "region": REGION,
    "access_key_id": KEY_ID,
    "secret_access_key": SECRET,
}
"""The settings that every route needs; what is None is not given."""


def route(url: str, now: Callable[[], float], **settings: Any) -> Provider:
    """A route to a server on loopback."""
    given = {**OWN, "url": url, **settings}
    model = RouteSettings.model_validate({name: value for name, value in given.items() if value is not None})
    return build_provider("main", model, transport_factory=AiohttpTransport, now=now)
