"""Routes of the `smtp` provider as the tests make them, and what its verdicts mean in short."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from posthouse.config import RouteSettings
from posthouse.core.outcome import Outcome, Verdict
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from tests.providers.messages import message
from tests.providers.smtp_server import Script, ScriptedServer, scripted_server
from tests.providers.wire import CERTIFICATE

SHORT = "250ms"
"""For tests in which a timeout has to pass."""

LONG = "20s"
"""For all others: it never passes."""


def route(scheme: str, port: int, user: str = "", **settings: Any) -> Provider:
    given = {
        "provider": "smtp",
        "url": f"{scheme}://{user}127.0.0.1:{port}",
        "connect_timeout": LONG,
        "timeout": LONG,
        "content_timeout": LONG,
        "final_timeout": LONG,
    }
    if scheme != "smtp":
        given["ca_file"] = str(CERTIFICATE)
    if user:
        given["password"] = "swordfish"
    model = RouteSettings.model_validate(given | settings)
    return build_provider("main", model, transport_factory=AiohttpTransport, now=lambda: 0.0)


@asynccontextmanager
async def talking(script: Script | None = None, **settings: Any) -> AsyncIterator[tuple[ScriptedServer, Provider]]:
    """A server with a script, and a route in clear text to it."""
    async with scripted_server(script) as server:
        provider = route("smtp", server.port, **settings)
        yield server, provider
        await provider.close()


async def sent(script: Script, **settings: Any) -> tuple[Verdict, ScriptedServer]:
    """One message to one recipient, and what the server saw of it."""
    async with talking(script, **settings) as (server, provider):
        return await provider.send(message()), server


Meaning = tuple[Outcome, bool, bool]
"""The outcome, whether it may have been accepted, and whether it spends an attempt."""

ACCEPTED = (Outcome.ACCEPTED, False, True)
THROTTLED = (Outcome.THROTTLED, False, False)
OUTAGE = (Outcome.TRANSIENT, False, False)
LATER = (Outcome.TRANSIENT, False, True)
REJECTED = (Outcome.REJECTED, False, True)
MISCONFIGURED = (Outcome.MISCONFIGURED, False, False)
UNKNOWN = (Outcome.UNKNOWN, True, True)


def meaning(verdict: Verdict) -> Meaning:
    return verdict.outcome, verdict.maybe_accepted, verdict.spends_attempt
