"""The HTTP shell: carries the replies of `SandboxApi` out over real connections, good and bad ones.

Nothing is decided here. The control API and the mail catcher stand beside it on the same port.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Set
from typing import Final, cast

from aiohttp import web

from posthouse.errors import ConfigError
from posthouse.sandbox.api import Exchange, SandboxApi
from posthouse.sandbox.control import control_routes
from posthouse.sandbox.pages import page_routes
from posthouse.sandbox.replies import Reply, ReplyKind

Clock = Callable[[], float]
"""Seconds since 1970."""

REQUEST_BYTES_MAX: Final = 32 * 1024 * 1024
GATE_CHECK_S: Final = 0.05
"""How late a window of refused connections may begin and end."""

_DRIPS_MAX: Final = 50
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER, on for 0 s: close sends RST


class SandboxServer:
    """A sandbox that listens. Close it when done."""

    def __init__(self, runner: web.AppRunner, gate: Gate, watch: asyncio.Task[None]) -> None:
        self._runner = runner
        self._gate = gate
        self._watch = watch

    @property
    def url(self) -> str:
        """Where it listens, such as `http://127.0.0.1:8025`."""
        host = f"[{self._gate.host}]" if ":" in self._gate.host else self._gate.host
        return f"http://{host}:{self._gate.port}"

    async def close(self) -> None:
        """Stops listening and cuts every connection, as a provider that goes away."""
        self._watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watch
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
    app.router.add_route("*", "/v1/{tail:.*}", _Shell(api, clock, busy).answer)
    app.add_routes(control_routes(api, clock))
    app.add_routes(page_routes(api))
    # A handler is cancelled when its client leaves: that ends a stall, and tells whether a late acceptance counts.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    gate = Gate(cast(web.Server, runner.server), busy, host, port)  # `setup` has made the server
    try:
        await gate.open()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError("port", f"can't listen on {host}:{port}: {error.strerror or error}") from None
    if api.refuses(clock()):
        gate.shut()
    return SandboxServer(runner, gate, asyncio.create_task(_follow_schedule(api, clock, gate)))


async def _follow_schedule(api: SandboxApi, clock: Clock, gate: Gate) -> None:
    while True:
        await asyncio.sleep(GATE_CHECK_S)
        if api.refuses(clock()):
            gate.shut()
        else:
            # Somebody else may have taken the port for a moment: the next check tries again.
            with contextlib.suppress(OSError):
                await gate.open()


class Gate:
    """The listening socket, which really closes while connections are refused, and reopens on the same port.

    `busy` are the connections with a call under way.
    """

    def __init__(self, protocols: web.Server, busy: Set[web.RequestHandler], host: str, port: int) -> None:
        self._protocols = protocols
        self._busy = busy
        self._server: asyncio.Server | None = None
        self._placeholder: socket.socket | None = None
        self.host = host
        self.port = port

    @property
    def connections(self) -> list[web.RequestHandler]:
        """The connections that are open."""
        return list(self._protocols.connections)

    async def open(self) -> None:
        """Listens, unless it does already. Raises OSError."""
        if self._server is not None:
            return
        self._let_go()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocols, self.host, self.port, reuse_address=True, backlog=1024)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def shut(self) -> None:
        """Refuses connections from now on; idle ones are closed, busy ones when their call is answered."""
        if self._server is None:
            return
        family = self._server.sockets[0].family
        self._server.close()
        self._server = None
        self._hold(family)
        for connection in self.connections:
            if connection in self._busy:
                connection.close()
            elif connection.transport is not None:
                connection.transport.close()

    def close(self) -> None:
        """Stops for good."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._let_go()

    def _hold(self, family: int) -> None:
        """Keeps the port from being given to others: a socket that is bound and doesn't listen refuses connections."""
        self._placeholder = socket.socket(family, socket.SOCK_STREAM)
        self._placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # taken in this very moment: reopening will tell
            self._placeholder.bind((self.host, self.port))

    def _let_go(self) -> None:
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None


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
        exchange = self._api.begin(request.method, request.rel_url.raw_path, request.headers, body, self._clock())
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
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()
    return web.Response()
