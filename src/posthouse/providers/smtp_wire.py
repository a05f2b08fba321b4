"""One SMTP connection: commands out, one or several at once, their replies in; and the content with its final dot.

It knows which replies are still to come, and what nobody asked for is not overlooked. A server that says more than it
was asked, or speaks up between commands, is out of step, and nothing it says after that can be told apart from the
answer to an earlier command. Such a connection is closed, never used again.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Container
from contextlib import suppress
from typing import Final, NamedTuple, cast

from posthouse.core.smtp_replies import FAULT_CODES, Fault, Phase, Reply
from posthouse.providers.smtp_framing import BadReply, Incoming, Said
from posthouse.providers.transport import CONNECT_CODES, connect_code, system_detail

UNASKED_BYTES_MAX: Final = 4096

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
"""Would end the command, and begin another one."""


class Broken(Exception):
    """The conversation ended without a reply to judge: `fault` says where and how."""

    def __init__(self, phase: Phase, code: str, detail: str = "") -> None:
        words = FAULT_CODES.get(code) or CONNECT_CODES[code]
        super().__init__(f"{words} ({detail})" if detail else words)
        self.fault = Fault(phase, code)


class Refused(Exception):
    """The server gave another reply than the conversation needs to go on."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"{reply.phase}: {reply.code} {reply.text}")
        self.reply = reply


def expect(reply: Reply, codes: Container[int]) -> Reply:
    """The reply, which has one of the codes. Raises Refused."""
    if reply.code not in codes:
        raise Refused(reply)
    return reply


class Command(NamedTuple):
    """A line without its end, and the step that its reply is about."""

    phase: Phase
    line: bytes


class Wire(asyncio.Protocol):
    """The connection. `phase` is the step that is under way, for whoever has to tell what a loss means."""

    def __init__(self) -> None:
        self.phase = Phase.BANNER
        self.in_step = True
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()  # done when it is no more
        self.transport: asyncio.Transport | None = None
        self._awaited = deque([Phase.BANNER])  # the steps whose replies are to come, in their order
        self._incoming = Incoming()
        self._heard: deque[Reply] = deque()  # replies that came and were not yet taken
        self._fault: str | None = None  # why no more replies come
        self._waiter: asyncio.Future[None] | None = None
        self._room = asyncio.Event()  # more can be written
        self._room.set()
        self._deadline = math.inf  # by the loop's clock
        self._timer: asyncio.TimerHandle | None = None  # due at the deadline or earlier

    @property
    def awaits(self) -> bool:
        """Whether replies are still to be heard."""
        return bool(self._awaited or self._heard)

    @property
    def usable(self) -> bool:
        """Whether a command may still be sent."""
        return self.in_step and not self.awaits and self._connected

    @property
    def _connected(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Takes the replies that are waited for; anything more puts the two sides out of step."""
        if self._fault is not None or (not self._awaited and len(self._incoming) > UNASKED_BYTES_MAX):
            return
        self._incoming.feed(data)
        try:
            while self._awaited and (said := self._incoming.next_reply()) is not None:
                self._take(said)
        except BadReply:
            self._fail("bad_reply")
        if self._incoming and not self._awaited:
            self.in_step = False
            self._room.set()  # who still sends need not go on
        if self._heard:
            self._wake()

    def eof_received(self) -> bool:
        """The server says nothing more: nor do we."""
        self._lose()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Wakes whoever waits for a reply, for room or for the end. May be called twice."""
        self.transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._lose()
        self._room.set()
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        """Enough is waiting to leave."""
        self._room.clear()

    def resume_writing(self) -> None:
        """There is room again."""
        self._room.set()

    def _take(self, said: Said) -> None:
        self._heard.append(Reply(self._awaited.popleft(), said.code, said.text))

    def _lose(self) -> None:
        try:
            if self._fault is None and self._awaited and (said := self._incoming.cut_reply()) is not None:
                self._take(said)
        except BadReply:
            self._fail("bad_reply")
        self._fail("lost")

    def _fail(self, fault: str) -> None:
        self._fault = self._fault or fault
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _ring(self) -> None:
        """The deadline has passed, unless it was moved."""
        self._timer = None
        if self._deadline > self.now():
            self.until(self._deadline)
        else:
            self._fail("timeout")
            self._room.set()

    # What a session calls.

    def now(self) -> float:
        """The time of the loop's clock."""
        return self._loop.time()

    def until(self, deadline: float) -> None:
        """From now on a reply, or room to write, comes by this time of the loop's clock, or the connection is Broken.

        Deadlines move with every message and hardly ever pass: a timer that rings too early costs less than a new one.
        """
        self._deadline = deadline
        if self._timer is not None and self._timer.when() > deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and deadline < math.inf:
            self._timer = self._loop.call_at(deadline, self._ring)

    async def greeting(self) -> None:
        """Waits for the server's first words. Raises Refused and Broken, as all of these."""
        expect(await self.hear(), (220,))

    async def ask(self, phase: Phase, *parts: bytes, expected: Container[int]) -> Reply:
        """One command and its reply, which has one of the expected codes."""
        self.say(Command(phase, b" ".join(parts)))
        return expect(await self.hear(), expected)

    def say(self, *commands: Command) -> None:
        """Sends commands in one go; each one's reply is then to be heard, in the same order."""
        self.phase = commands[0].phase
        self.must_be_in_step()
        if _CONTROL.search(b"".join(command.line for command in commands)):
            raise ValueError("a command with a control character")
        self._write(b"".join(command.line + b"\r\n" for command in commands))
        self._awaited.extend(command.phase for command in commands)

    async def hear(self) -> Reply:
        """The next reply that is to come."""
        if not self._heard:
            self.phase = self._awaited[0]
            if self._fault is None:
                await self._until_woken()
        if not self._heard:
            raise Broken(self.phase, self._fault or "lost")
        reply = self._heard.popleft()
        self.phase = reply.phase
        return reply

    async def _until_woken(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """STARTTLS. What arrived in clear text before the handshake is thrown away, and the connection with it."""
        await self.ask(Phase.STARTTLS, b"STARTTLS", expected=(220,))
        self.must_be_in_step()
        if self.transport is None:
            raise Broken(Phase.STARTTLS, "lost")
        try:
            self.transport = await self._shaken_hands(self.transport, context, host)
        except ssl.SSLError as error:
            raise Broken(Phase.STARTTLS, _tls_code(error), system_detail(error)) from None
        except OSError:
            raise Broken(Phase.STARTTLS, "lost") from None
        self.must_be_in_step()

    async def _shaken_hands(
        self, transport: asyncio.Transport, context: ssl.SSLContext, host: str
    ) -> asyncio.Transport | None:
        try:
            return await self._loop.start_tls(transport, self, context, server_hostname=host)
        except BaseException:
            self.abort()
            self.connection_lost(None)  # the loop doesn't say so of a connection that ends in the handshake
            raise

    async def send_content(self, head: bytes) -> None:
        """The beginning of the content: all that need not go out together with the final dot."""
        self.phase = Phase.CONTENT
        await self._must_not_be_interrupted()
        self._write(head)
        await self._room.wait()
        await self._must_not_be_interrupted()

    async def send_dot(self, tail: bytes) -> Reply:
        """The rest of the content, which ends with CRLF, with the final dot; and the answer to it.

        From the moment that the dot is written only the server knows the outcome.
        """
        self.phase = Phase.CONTENT
        await self._must_not_be_interrupted()
        self._write(tail + b".\r\n")
        self._awaited.append(Phase.DOT)
        return await self.hear()

    async def _must_not_be_interrupted(self) -> None:
        """Hears a refusal that would not wait. To write on to a server that has closed would lose its words."""
        for _ in range(2):  # the loop sees in one turn what has arrived, and has read it by the next
            await asyncio.sleep(0)
        if early := self._early_reply():
            raise early
        self.must_be_in_step()

    def must_be_in_step(self) -> None:
        """Raises Broken where the server has said what nobody asked for."""
        if not self.in_step:
            raise Broken(self.phase, "out_of_step")

    async def part(self, wait_s: float) -> None:
        """Says goodbye and waits for the server's: until then it counts the connection as open."""
        self.until(self.now() + wait_s)
        with suppress(Broken, Refused):
            await self.ask(self.phase, b"QUIT", expected=(221,))
        self.abort()
        await asyncio.wait([self.gone])

    def abort(self) -> None:
        """Cuts the connection at once; what is still to be written is thrown away."""
        self.in_step = False
        if self.transport is not None:
            self.transport.abort()

    def _write(self, octets: bytes) -> None:
        if self._fault is not None or self.transport is None or self.transport.is_closing():
            raise Broken(self.phase, self._fault or "lost")
        self.transport.write(octets)

    def _early_reply(self) -> Refused | None:
        """What a server said that would not wait for the end of the content."""
        try:
            said = self._incoming.cut_reply()
        except BadReply:
            return None
        return Refused(Reply(Phase.CONTENT, *said)) if said is not None and said.code >= 400 else None


Connect = Callable[[str, int, ssl.SSLContext | None], Awaitable[Wire]]
"""Makes a connection to a host and a port, with TLS from the first byte where there is a context. Raises OSError."""


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> Wire:
    """A connection over the network."""
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(Wire, host, port, ssl=tls, server_hostname=host if tls else None)
    return wire


def _tls_code(error: ssl.SSLError) -> str:
    """An end in the middle of the handshake is an outage, not a set-up."""
    return "lost" if (code := connect_code(error)) == "connect_reset" else code
