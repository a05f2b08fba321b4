"""A web server on a real port over a SQLite database in memory, and the calls of providers to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession
from sqlalchemy import select

from posthouse.config import RouteSettings, WebSettings
from posthouse.errors import DatabaseUnavailable
from posthouse.providers.registry import build_webhook
from posthouse.providers.transport import HttpAnswer
from posthouse.providers.webhook import WebhookCall
from posthouse.providers.webhook_keys import WebhookKeys
from posthouse.store.schema import events, quarantine
from posthouse.store.store import Store
from posthouse.web.server import WebParts, WebServer, serve
from tests.contract.store_support import POLICIES, Bench
from tests.contract.webhook_cases import CASES, NOW, OUR_ID, WebhookCase, certificate
from tests.migrated import in_memory
from tests.providers.scripted import ScriptedTransport

SECRETS = ("the new secret of links", "the old secret of links")


@dataclass
class Executor:
    """Runs each store call at once, after `before` was awaited; or finds the database away."""

    away: bool = False
    before: Callable[[], Any] | None = None

    async def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.before is not None:
            await self.before()
        if self.away:
            raise DatabaseUnavailable("the database is not available: nobody is there")
        return call(*args, **kwargs)


@dataclass(frozen=True)
class Answered:
    """What a caller gets."""

    status: int
    text: str


@dataclass
class Stage:
    """The server, and what it has stored."""

    server: WebServer
    bench: Bench
    executor: Executor
    client: ClientSession
    webhooks: dict[str, WebhookKeys]
    transport: ScriptedTransport  # its own calls

    async def tell(self, provider: str, *told: str, items: list[Any] | None = None) -> Answered:
        """A genuine call of a provider, to the route of its name."""
        case = CASES[provider]
        given = items if items is not None else [case.told[name].item for name in told]
        return await self.call(provider, case.sign(case.secret, case.body(*given), NOW))

    async def call(self, route: str, call: WebhookCall) -> Answered:
        """A call as it is."""
        return await self.post(f"/webhooks/{route}", call.body, call.headers)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answered:
        async with self.client.post(self.server.url + path, data=body, headers=headers) as response:
            return Answered(response.status, await response.text())

    async def get(self, path: str) -> Answered:
        async with self.client.get(self.server.url + path) as response:
            return Answered(response.status, await response.text())

    def kinds(self) -> list[str]:
        """What was heard, in its order."""
        with self.bench.store.database.read() as connection:
            return list(connection.scalars(select(events.c.kind).order_by(events.c.id)))

    def quarantined(self) -> list[tuple[str, str, str]]:
        """Route, reason and item of everything that could not be read."""
        with self.bench.store.database.read() as connection:
            rows = connection.execute(select(quarantine).order_by(quarantine.c.id))
            return [(row.route, row.reason, row.item) for row in rows]


def keys_of(case: WebhookCase, **settings: Any) -> WebhookKeys:
    """The webhooks of a route with the case's secret."""
    document = {**case.settings, case.setting: [case.secret], **settings}
    built = build_webhook("main", RouteSettings.model_validate(document))
    assert built is not None
    return WebhookKeys(f"routes.{case.settings['provider']}", built, lambda: NOW)


@asynccontextmanager
async def running(
    executor: Executor | None = None, secrets: Sequence[str] = SECRETS, **settings: Any
) -> AsyncIterator[Stage]:
    """A server with a route of each provider, and one send, `k`, whose outcome is unknown."""
    database = in_memory(lambda: NOW)
    bench = Bench(Store(database))
    bench.enqueue("k")
    bench.edit("k", idempotency_key=OUR_ID)
    executor = executor or Executor()
    transport = ScriptedTransport()
    transport.answer = HttpAnswer(200, {}, certificate())
    webhooks = {name: keys_of(case) for name, case in CASES.items()}
    web = WebSettings.model_validate({"port": 0, "shutdown_grace": "5s", **settings})
    server = await serve(WebParts(bench.store, executor, POLICIES, webhooks, secrets, transport, web, lambda: NOW))
    async with ClientSession() as client:
        try:
            yield Stage(server, bench, executor, client, webhooks, transport)
        finally:
            await server.close()
            database.close()
