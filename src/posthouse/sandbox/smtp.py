"""The SMTP shell: carries the outputs of `SmtpSession` out over real connections, good and bad ones.

Nothing is decided here. It is a server of our own because ready-made ones keep steps to themselves at which a fault
must be possible: the banner, a pause between messages, a reply that is cut or comes too late.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final, cast

from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.gate import Clock, Gate, abort_with_reset, follow_schedule
from posthouse.sandbox.smtp_framing import Incoming
from posthouse.sandbox.smtp_replies import Output, Then
from posthouse.sandbox.smtp_session import SmtpSession

IDLE_S: Final = 0.5
"""After so long without a command a connection counts as idle."""


class SmtpServer:
    """A sandbox that listens for SMTP. Close it when done."""

    def __init__(self, gate: Gate[_Connection], watch: asyncio.Task[None], scheme: str) -> None:
        self._gate = gate
        self._watch = watch
        self._scheme = scheme

    @property
    def url(self) -> str:
        """Where it listens, such as `smtp://127.0.0.1:1025`; `smtps` where connections begin with TLS."""
        return f"{self._scheme}://{self._gate.place}"

    @property
    def port(self) -> int:
        """The port that it has taken."""
        return self._gate.port

    async def close(self) -> None:
        """Stops listening and cuts every connection."""
        self._watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watch
        self._gate.close()
        await asyncio.gather(*(connection.abort() for connection in self._gate.connections))


async def serve_smtp(
    api: SandboxApi,
    *,
    clock: Clock,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    implicit_tls: bool = False,
    idle_s: float = IDLE_S,
) -> SmtpServer:
    """Listens on `host` and `port` (0: any free one). Raises ConfigError where that is not possible.

    `tls` is offered as STARTTLS or, with `implicit_tls`, begins every connection.
    """
    connections = SmtpConnections(api, clock, tls, implicit_tls, idle_s)
    gate = Gate(connections, connections.busy, host, port, tls if implicit_tls else None)
    await gate.begin(api, clock)
    watch = asyncio.create_task(follow_schedule(api, clock, gate))
    return SmtpServer(gate, watch, "smtps" if implicit_tls else "smtp")


class SmtpConnections:
    """Makes the server's end of a connection for each client, and knows which are open and have a message under way."""

    def __init__(
        self,
        api: SandboxApi,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        implicit_tls: bool = False,
        idle_s: float = IDLE_S,
    ) -> None:
        self.api: Final = api
        self.clock: Final = clock
        self.tls: Final = tls
        self.implicit_tls: Final = implicit_tls
        self.idle_s: Final = idle_s
        self.connections: set[_Connection] = set()
        self.busy: set[_Connection] = set()

    def __call__(self) -> _Connection:
        return _Connection(self)


class _Connection(asyncio.Protocol):
    """One client: reads what comes, hands whole lines and contents to the session, does what it says."""

    def __init__(self, owner: SmtpConnections) -> None:
        self._owner = owner
        self._session = SmtpSession(owner.api, tls=owner.tls is not None, encrypted=owner.implicit_tls)
        self._incoming = Incoming()
        self._arrived = asyncio.Event()  # something has come in, or the client has left
        self._gone = False
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._owner.connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        self._incoming.feed(data)
        self._arrived.set()

    def eof_received(self) -> bool:
        self._gone = True
        self._arrived.set()
        # What was asked before is still answered, which TLS has no way to do.
        return self.transport is not None and self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._gone = True
        self._arrived.set()
        self._owner.connections.discard(self)

    def close(self) -> None:
        """Closes the connection when its message is answered."""
        self._closing = True
        self._arrived.set()

    async def abort(self) -> None:
        """Cuts the connection at once."""
        if self.transport is not None:
            self.transport.abort()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            going_on = await self._carry_out(self._session.open(self._owner.clock()))
            while going_on:
                self._note_busy()
                going_on = await self._go_on()
        except OSError:  # the client left, or its handshake failed
            pass
        finally:
            self._owner.busy.discard(self)
            if self.transport is not None:
                self.transport.close()

    def _note_busy(self) -> None:
        if self._session.in_transaction:
            self._owner.busy.add(self)
        else:
            self._owner.busy.discard(self)

    async def _go_on(self) -> bool:
        """Answers what has come in or waits for more. Whether the connection stays open."""
        if self._closing and not self._session.in_transaction:
            return False
        if (output := self._next_output()) is not None:
            return await self._carry_out(output)
        if self._gone:
            return False
        if (output := self._session.held_back()) is not None:
            return await self._carry_out(output)
        return await self._wait()

    def _next_output(self) -> Output | None:
        """What the session says to the next whole line or content; None while there is none."""
        if self._session.reads_content:
            piece = self._incoming.next_content()
            return None if piece is None else self._session.content(piece, self._owner.clock())
        piece = self._incoming.next_line()
        return None if piece is None else self._session.line(piece, self._owner.clock())

    async def _wait(self) -> bool:
        self._arrived.clear()
        if self._session.is_idle:
            try:
                async with asyncio.timeout(self._owner.idle_s):
                    await self._arrived.wait()
            except TimeoutError:
                output = self._session.idle(self._owner.clock())
                if output is not None and not await self._carry_out(output):
                    return False
        await self._arrived.wait()
        return True

    async def _carry_out(self, output: Output) -> bool:
        if output.delay_s and not output.dripped:
            await asyncio.sleep(output.delay_s)
        self._session.finish(output, self._owner.clock(), client_gone=self._gone)
        if output.dripped:
            await self._drip(output)
        else:
            self._write(output.lines)
        if output.then is Then.RESET and self.transport is not None:
            abort_with_reset(self.transport)
        elif output.then is Then.STALL:
            await self._ignore_the_client()
        elif output.then is Then.START_TLS:
            return await self._start_tls()
        return output.then is Then.GO_ON

    async def _drip(self, output: Output) -> None:
        for place in range(len(output.lines)):
            if self._gone:
                return
            await asyncio.sleep(output.delay_s / len(output.lines))
            self._write(output.lines[place : place + 1])

    def _write(self, lines: bytes) -> None:
        if lines and self.transport is not None:
            self.transport.write(lines)

    async def _ignore_the_client(self) -> None:
        while not self._gone:
            self._incoming.clear()
            self._arrived.clear()
            await self._arrived.wait()

    async def _start_tls(self) -> bool:
        if self.transport is None or self._owner.tls is None:
            return False
        self._incoming.clear()
        loop = asyncio.get_running_loop()
        self.transport = await loop.start_tls(self.transport, self, self._owner.tls, server_side=True)
        self._session.tls_started()
        return self.transport is not None
