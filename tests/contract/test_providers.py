"""The provider suite, run for every provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from urllib.parse import unquote

import pytest
from aiohttp import web

from posthouse.config import RouteSettings
from posthouse.email import Email
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.providers.transport import AiohttpTransport
from posthouse.sandbox.http import serve
from posthouse.sandbox.ledger import Ledger
from tests.contract.message_parts import PARTS
from tests.providers.loopback import Api, Received, Reply, answer, drop, running_api, stall
from tests.providers.wire import free_port

pytest.register_assert_rewrite("tests.contract.provider_suite")

from tests.contract.provider_suite import (  # noqa: E402 - its assertions are rewritten first
    SECRET,
    TIMEOUT_S,
    Behaviour,
    Call,
    ProviderHarness,
    ProviderSuite,
    sandbox,
)

ECHO = f"Authorization: Bearer {SECRET}"

REPLIES: dict[Behaviour, Reply] = {
    Behaviour.ACCEPT: answer(200, {"id": "m-1"}),
    Behaviour.ACCEPT_UNREADABLY: answer(200, '{"id": "m-'),
    Behaviour.THROTTLE: answer(429, {"message": f"slow down, {ECHO}"}, Retry_After="30"),
    Behaviour.BE_OUT_OF_SERVICE: answer(503, f"<html><title>Maintenance {SECRET}</title></html>"),
    Behaviour.FAIL_MIDWAY: answer(500, {"error": ECHO}, X_Request_Id=SECRET),
    Behaviour.REFUSE_MESSAGE: answer(422, {"message": f"no subject in {ECHO}"}),
    Behaviour.REFUSE_RECIPIENT: answer(400, {"message": f"invalid recipient, {SECRET}"}),
    Behaviour.REFUSE_CREDENTIAL: answer(401, {"message": f"the key {SECRET} is revoked"}),
    Behaviour.STALL: stall,
    Behaviour.DROP: drop,
}


class HttpHarness(ProviderHarness):
    """A JSON API with bearer keys, idempotency keys and look-up by key."""

    refuses = frozenset({"part headers"})

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, str] = {}
        self._reply = REPLIES[Behaviour.ACCEPT]
        api.reply = self._answer

    def behave(self, behaviour: Behaviour) -> None:
        self._reply = REPLIES[behaviour]

    def provider(self) -> Provider:
        return self._build(self._api.url)

    def provider_of_a_dead_host(self) -> Provider:
        return self._build(f"http://127.0.0.1:{free_port()}")

    def _build(self, base: str) -> Provider:
        settings = {
            "provider": "http",
            "url": f"{base}/v1/send",
            "api_key": SECRET,
            "idempotency_header": "Idempotency-Key",
            "look_up_url": f"{base}/v1/sends/{{id}}",
            "look_up_message_id": "id",
            "connect_timeout": f"{TIMEOUT_S}s",
            "timeout": f"{TIMEOUT_S}s",
        }
        route = RouteSettings.model_validate(settings)
        return build_provider("main", route, transport_factory=AiohttpTransport, now=lambda: 1_800_000_000.0)

    @asynccontextmanager
    async def receiver(self) -> AsyncIterator[tuple[Provider, Ledger]]:
        api = sandbox()
        server = await serve(api, clock=lambda: 1_800_000_000.0)
        provider = self._build(server.url)
        yield provider, api.ledger
        await provider.close()
        await server.close()

    @property
    def calls(self) -> list[Call]:
        posted = [got for got in self._api.received if got.method == "POST"]
        return [Call(got.body, got.headers.get("idempotency-key")) for got in posted]

    @property
    def arrived(self) -> asyncio.Event:
        return self._api.arrived

    def remember(self, key: str, message_id: str) -> None:
        self._known[key] = message_id

    async def _answer(self, request: web.Request, got: Received) -> web.StreamResponse:
        if got.method == "POST":
            return await self._reply(request, got)
        message_id = self._known.get(unquote(got.path.rpartition("/")[2]))
        found = answer(200, {"id": message_id}) if message_id else answer(404, {"message": "not found"})
        return await found(request, got)


class TestHttp(ProviderSuite):
    """The `http` provider."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[ProviderHarness]:
        async with running_api() as api:
            yield HttpHarness(api)


def test_the_suite_knows_every_field_that_an_email_sends() -> None:
    ours = {"key", "type", "template", "variables", "send_at", "expires", "after", "service"}
    assert {field.name for field in fields(Email)} - ours == {name for part in PARTS for name in part.given}
