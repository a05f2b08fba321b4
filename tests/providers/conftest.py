"""What the provider tests share."""

from __future__ import annotations

from typing import Any

import pytest

from posthouse.config import RouteSettings
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from tests.providers.docs_tables import PAGE
from tests.providers.scripted import NOW, URL, Build, ScriptedTransport


@pytest.fixture(scope="session")
def docs_page() -> str:
    """The reference page of the `http` provider."""
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture
def wire() -> ScriptedTransport:
    return ScriptedTransport()


@pytest.fixture
def build(wire: ScriptedTransport) -> Build:
    """Builds a route with the given settings, as the composition root does."""

    def build(**settings: Any) -> Provider:
        own = {"provider": "http", "url": URL, "api_key": "k-123456"} | settings
        route = RouteSettings.model_validate({name: value for name, value in own.items() if value is not None})
        return build_provider("main", route, transport_factory=wire.open, now=lambda: NOW)

    return build
