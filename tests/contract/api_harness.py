"""Plays the server of any HTTP API in the provider suite. What tells one from another is an `ApiCase`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from posthouse.config import RouteSettings
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.sandbox.api import SEND_PATH
from posthouse.sandbox.ledger import Ledger
from tests.providers.loopback import Api, Received, Reply, answer, drop, running_api, stall
from tests.providers.wire import free_port

pytest.register_assert_rewrite("tests.contract.provider_suite")

from tests.contract.provider_suite import (  # noqa: E402 - its assertions are rewritten first
    SECRET,
    TIMEOUT_S,
    Behaviour,
    Call,
    Meaning,
    ProviderHarness,
    sandbox,
)

NOW = 1_800_000_000.0


@dataclass(frozen=True, kw_only=True)
class BatchCase:
    """How several messages by one call look to the server."""

    keys: Callable[[Received], list[str]]  # our ids in it
    results: Callable[[Received], list[Any]]  # all accepted, in their order; each one's id is `m-` and our id
    refused: Any  # the result of a message that is refused for good
    refused_whole: Sequence[Reply]  # calls that are refused for no one message: that says nothing about any
    said_no_more: Any  # a result that leaves a doubt
    named: bool  # whether results name their message's recipients


@dataclass(frozen=True, kw_only=True)
class ApiCase:
    """One API, as its server sees it."""

    settings: Callable[[str], Mapping[str, Any]]  # of a route to a server with this address; None: not given
    replies: Mapping[Behaviour, Reply]  # those that are its own; the accepting one has the id `m-1`
    fields: Callable[[Received], dict[str, Any]]  # a message as it came, in the words of the sandbox
    key: Callable[[Received], str | None]  # the idempotency key or our id in it
    is_send: Callable[[Received], bool] = lambda got: got.method == "POST"  # else it is a look-up
    look_up: Callable[[Received, Mapping[str, str]], Reply] | None = None  # with the ids it knows by our keys
    batch: BatchCase | None = None
    expected: Mapping[Behaviour, Meaning] = field(default_factory=dict)
    refuses: frozenset[str] = frozenset()
    can_say_when: bool = True


class ApiHarness(ProviderHarness):
    """Takes messages and look-ups."""

    def __init__(self, api: Api, case: ApiCase) -> None:
        self._api = api
        self._case = case
        self._known: dict[str, str] = {}
        self._replies: dict[Behaviour, Reply] = {Behaviour.STALL: stall, Behaviour.DROP: drop, **case.replies}
        self._reply = self._replies[Behaviour.ACCEPT]
        self.can_say_when = case.can_say_when
        self.expected = case.expected  # type: ignore[misc]  # each API has its own
        self.refuses = case.refuses  # type: ignore[misc]
        api.reply = self._answer

    def behave(self, behaviour: Behaviour) -> None:
        self._reply = self._replies[behaviour]

    @property
    def batch(self) -> BatchCase:
        assert self._case.batch is not None, "this API takes one message a call"
        return self._case.batch

    def answer_together(self, change: Callable[[list[Any]], Any], status: int = 200) -> None:
        """From now on calls for several are answered with what `change` makes of their results; text goes as it is."""

        async def reply(request: web.Request, got: Received) -> web.StreamResponse:
            body = change(self.batch.results(got))
            return await answer(status, body if isinstance(body, str) else json.dumps(body))(request, got)

        self._reply = reply

    def reply_with(self, reply: Reply) -> None:
        """From now on."""
        self._reply = reply

    @property
    def together(self) -> list[list[str]]:
        """Our ids in each call for several."""
        return [self.batch.keys(got) for got in self._api.received]

    def provider(self) -> Provider:
        return self._build(self._api.url)

    def provider_of_a_dead_host(self) -> Provider:
        return self._build(f"http://127.0.0.1:{free_port()}")

    def _build(self, url: str) -> Provider:
        common = {"api_key": SECRET, "connect_timeout": f"{TIMEOUT_S}s", "timeout": f"{TIMEOUT_S}s"}
        given = {**common, **self._case.settings(url)}
        route = RouteSettings.model_validate({name: value for name, value in given.items() if value is not None})
        return build_provider("main", route, transport_factory=AiohttpTransport, now=lambda: NOW)

    @asynccontextmanager
    async def receiver(self) -> AsyncIterator[tuple[Provider, Ledger]]:
        """The same server with a sandbox behind it, which is told each message in its own words."""
        behind = sandbox()

        async def take(request: web.Request, got: Received) -> web.StreamResponse:
            body = json.dumps(self._case.fields(got)).encode()
            exchange = behind.begin("POST", SEND_PATH, {}, body, NOW)
            behind.finish(exchange, NOW)
            taken = self._replies[Behaviour.ACCEPT] if behind.ledger.acceptances else answer(422, {"message": "unfit"})
            return await taken(request, got)

        self._reply = take
        provider = self.provider()
        yield provider, behind.ledger
        await provider.close()

    @property
    def calls(self) -> list[Call]:
        sends = [got for got in self._api.received if self._case.is_send(got)]
        return [Call(got.body, self._case.key(got)) for got in sends]

    @property
    def arrived(self) -> asyncio.Event:
        return self._api.arrived

    def remember(self, key: str, message_id: str) -> None:
        self._known[key] = message_id

    async def _answer(self, request: web.Request, got: Received) -> web.StreamResponse:
        if self._case.is_send(got):
            return await self._reply(request, got)
        assert self._case.look_up is not None, "this API can't be asked"
        return await self._case.look_up(got, self._known)(request, got)


@asynccontextmanager
async def api_harness(case: ApiCase) -> AsyncIterator[ApiHarness]:
    """The harness on a server of its own."""
    async with running_api() as api:
        yield ApiHarness(api, case)
