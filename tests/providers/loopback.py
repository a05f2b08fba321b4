"""A scripted HTTP API on loopback: what the provider tests talk to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Received:
    """One request, as the server read it."""

    method: str
    path: str  # with its query, as it was on the wire
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Reply = Callable[[web.Request, Received], Awaitable[web.StreamResponse]]


def answer(status: int = 200, body: str | bytes | dict[str, Any] = "", **headers: str) -> Reply:
    """A reply with a status, a body (a dict becomes JSON) and headers, written with _ for -."""
    content = json.dumps(body) if isinstance(body, dict) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def reply(_: web.Request, __: Received) -> web.StreamResponse:
        payload = content.encode() if isinstance(content, str) else content
        return web.Response(status=status, body=payload, headers=named)

    return reply


async def drop(request: web.Request, _: Received) -> web.StreamResponse:
    """Reads the request, then cuts the connection without a word."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.Event().wait()
    raise AssertionError


async def stall(_: web.Request, __: Received) -> web.StreamResponse:
    """Reads the request and never answers."""
    await asyncio.Event().wait()
    raise AssertionError


@dataclass
class Api:
    """What it received, and what it replies next."""

    reply: Reply = field(default_factory=lambda: answer(200, {"id": "m-1"}))
    received: list[Received] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[object] = field(default_factory=set)  # every one that brought a request
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        got = Received(request.method, request.raw_path, headers, body)
        self.received.append(got)
        self.connections.add(request.transport)
        self.arrived.set()
        return await self.reply(request, got)


@asynccontextmanager
async def running_api() -> AsyncIterator[Api]:
    """An Api that listens on a free port of 127.0.0.1."""
    api = Api()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()
