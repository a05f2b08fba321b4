"""The HTTP shell: carries the replies of `SandboxApi` out over real connections, good and bad ones.

Nothing is decided here. The control API and the mail catcher stand beside it on the same port.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, cast

from aiohttp import web

from posthouse.errors import ConfigError
from posthouse.sandbox.api import Exchange, SandboxApi
from posthouse.sandbox.control import control_routes
from posthouse.sandbox.gate import Clock, Gate, abort_with_reset, follow_schedule
from posthouse.sandbox.pages import page_routes
from posthouse.sandbox.replies import Reply, ReplyKind
from posthouse.sandbox.shapes import SHAPES
from posthouse.sandbox.webhook_calls import tell, webhook_pages

REQUEST_BYTES_MAX: Final = 32 * 1024 * 1024

_DRIPS_MAX: Final = 50


class SandboxServer:
    """A sandbox that listens. Close it when done."""

    def __init__(self, runner: web.AppRunner, gate: Gate[web.RequestHandler]) -> None:
        self._runner = runner
        self._gate = gate
        self._kept: list[asyncio.Task[None]] = []

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Goes on with it until it is closed."""
        self._kept.append(asyncio.create_task(work))

    @property
    def url(self) -> str:
        """Where it listens, such as `http://127.0.0.1:8025`."""
        return f"http://{self._gate.place}"

    async def close(self) -> None:
        """Stops listening and cuts every connection, as a provider that goes away."""
        for work in self._kept:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
        self._gate.close()
        for connection in self._gate.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)  # lets the handlers see it, so that nothing waits for them
        await self._runner.cleanup()


async def serve(api: SandboxApi, *, clock: Clock, host: str = "127.0.0.1", port: int = 0) -> SandboxServer:
    """Listens on `host` and `port` (0: any free one). Raises ConfigError where that is not possible."""
    busy: set[web.RequestHandler] = set()
    app = web.Application(client_max_size=REQUEST_BYTES_MAX)
    answer = _Shell(api, clock, busy).answer
    for path in (*(path for shape in SHAPES for path in shape.calls), "/v1/{tail:.*}"):
        app.router.add_route("*", path, answer)  # before the pages, whose `/messages/...` takes in one of them
    app.add_routes(control_routes(api, clock))
    app.add_routes(webhook_pages(api))
    app.add_routes(page_routes(api))
    # A handler is cancelled when its client leaves: that ends a stall, and tells whether a late acceptance counts.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    gate = Gate(cast(web.Server, runner.server), busy, host, port)  # `setup` has made the server
    try:
        await gate.begin(api, clock)
    except ConfigError:
        await runner.cleanup()
        raise
    server = SandboxServer(runner, gate)
    api.webhooks.sandbox_url = server.url
    server.keep(follow_schedule(api, clock, gate))
    server.keep(tell(api.webhooks, clock))
    return server


class _Shell:
    """Carries replies out; keeps `busy` up to date."""

    def __init__(self, api: SandboxApi, clock: Clock, busy: set[web.RequestHandler]) -> None:
        self._api = api
        self._clock = clock
        self._busy = busy

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One call to the email API."""
        self._busy.add(request.protocol)
        try:
            return await self._answer(request)
        finally:
            self._busy.discard(request.protocol)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        exchange = self._api.begin(request.method, request.rel_url.raw_path_qs, request.headers, body, self._clock())
        reply = exchange.reply
        if reply.kind is ReplyKind.ANSWER:
            if reply.delay_s:
                await self._wait(exchange)
            else:
                self._finish(exchange)
            return web.Response(status=reply.status, headers=reply.headers, body=reply.body)
        try:
            return await _carry_out(request, reply)
        finally:
            self._finish(exchange)

    async def _wait(self, exchange: Exchange) -> None:
        """Lets a slow call take its time. It goes on without its caller, as it would at a provider."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + exchange.reply.delay_s
        try:
            await asyncio.sleep(exchange.reply.delay_s)
        except asyncio.CancelledError:
            loop.call_at(ends_at, lambda: self._finish(exchange, client_gone=True))
            raise
        self._finish(exchange)

    def _finish(self, exchange: Exchange, *, client_gone: bool = False) -> None:
        self._api.finish(exchange, self._clock(), client_gone=client_gone)


async def _carry_out(request: web.Request, reply: Reply) -> web.StreamResponse:
    if reply.kind is ReplyKind.DRIP:
        return await _drip(request, reply)
    if reply.kind is ReplyKind.TRUNCATE:
        return await _truncate(request, reply)
    if reply.kind is ReplyKind.STALL:
        await asyncio.Event().wait()  # until the client leaves, which cancels this
    return _reset(request)


async def _drip(request: web.Request, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = len(reply.body)
    await response.prepare(request)
    size = max(1, len(reply.body) // _DRIPS_MAX)
    drips = [reply.body[start : start + size] for start in range(0, len(reply.body), size)]
    for drip in drips:
        await asyncio.sleep(reply.delay_s / len(drips))
        await response.write(drip)
    return response


async def _truncate(request: web.Request, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    await response.prepare(request)
    await response.write(reply.body)
    if request.transport is not None:
        request.transport.close()
    return response


def _reset(request: web.Request) -> web.StreamResponse:
    """Ends the connection with RST, so that nothing at all arrives. What is returned goes nowhere."""
    transport = request.transport
    if transport is not None:
        abort_with_reset(transport)
    return web.Response()
