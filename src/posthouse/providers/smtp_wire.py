"""One SMTP connection as lines: a command out, its reply in; and the content with its final dot.

It is aiosmtplib's protocol, told to be stricter: what nobody asked for is not overlooked. A server that says two
things at once, or speaks up between commands, is out of step, and nothing it says after that can be told apart from
the answer to an earlier command. Such a connection is closed, never used again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Container
from contextlib import suppress
from typing import Final, cast

from aiosmtplib.errors import SMTPException, SMTPResponseException, SMTPServerDisconnected
from aiosmtplib.protocol import SMTPProtocol

from posthouse.core.smtp_replies import FAULT_CODES, Fault, Phase, Reply
from posthouse.providers.transport import CONNECT_CODES, connect_code, system_detail

UNASKED_BYTES_MAX: Final = 4096
REPLY_CODES: Final = range(100, 600)


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


class Wire(SMTPProtocol):
    """The connection. `phase` is the step that is under way, for whoever has to tell what a loss means."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.phase = Phase.BANNER
        self.in_step = True
        self.gone: asyncio.Future[None] = self._loop.create_future()  # done when the connection is no more
        self._unasked = b""

    @property
    def usable(self) -> bool:
        """Whether a command may still be sent."""
        return self.in_step and self.is_connected

    # What the loop calls.

    def data_received(self, data: bytes) -> None:
        """Takes a reply that is waited for; anything else puts the two sides out of step."""
        waiter = self._response_waiter
        if not self._response_pending or waiter is None or waiter.done():
            self._be_out_of_step(data)
            return
        super().data_received(data)
        if waiter.done() and self._buffer:
            self._be_out_of_step(bytes(self._buffer))

    def connection_lost(self, exc: Exception | None) -> None:
        """Wakes whoever waits for a reply or for the end. May be called twice."""
        super().connection_lost(exc)
        if not self.gone.done():
            self.gone.set_result(None)

    def _be_out_of_step(self, data: bytes) -> None:
        self.in_step = False
        self._unasked = (self._unasked + data)[:UNASKED_BYTES_MAX]

    # What a session calls.

    async def greeting(self) -> None:
        """Waits for the server's first words. Raises Refused and Broken, as all of these."""
        self.phase = Phase.BANNER
        self._expect(await self._reply(), (220,))

    async def ask(self, phase: Phase, *parts: bytes, expected: Container[int]) -> Reply:
        """One command and its reply, which has one of the expected codes."""
        self.phase = phase
        self._must_be_in_step()
        try:
            code, text = await self.execute_command(*parts)
        except SMTPException as error:
            raise self._broken(error) from None
        return self._expect(self._checked(code, text), expected)

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """STARTTLS. What arrived in clear text before the handshake is thrown away, and the connection with it."""
        self.phase = Phase.STARTTLS
        try:
            await self._shake_hands(context, host)
        except SMTPResponseException as error:
            raise Refused(self._checked(error.code, error.message)) from None
        except ssl.SSLError as error:
            raise Broken(Phase.STARTTLS, _tls_code(error), system_detail(error)) from None
        except (SMTPException, OSError) as error:
            raise self._broken(error) from None
        self._must_be_in_step()

    async def _shake_hands(self, context: ssl.SSLContext, host: str) -> None:
        try:
            await self.start_tls(context, server_hostname=host)
        except SMTPResponseException:
            raise
        except BaseException:
            self.abort()
            self.connection_lost(None)  # the loop doesn't say so of a connection that ends in the handshake
            raise

    async def send_content(self, content: bytes) -> None:
        """Hands over the content without its final dot: `content` is dot-stuffed and ends with CRLF."""
        self.phase = Phase.CONTENT
        self._must_be_in_step()
        try:
            self.write(content)
            await self._drain_helper()
        except (SMTPException, OSError) as error:
            raise self._early_reply() or self._broken(error) from None
        if early := self._early_reply():
            raise early
        self._must_be_in_step()

    async def send_dot(self) -> Reply:
        """The final dot, and the answer to it. From the moment it is written only the server knows the outcome."""
        try:
            self.write(b".\r\n")
        except SMTPException as error:
            raise self._broken(error) from None
        self.phase = Phase.DOT
        return await self._reply()

    async def part(self, wait_s: float) -> None:
        """Says goodbye and waits for the server's: until then it counts the connection as open."""
        with suppress(Broken, Refused, TimeoutError):
            async with asyncio.timeout(wait_s):
                await self.ask(self.phase, b"QUIT", expected=(221,))
        self.abort()
        await asyncio.wait([self.gone])

    def abort(self) -> None:
        """Cuts the connection at once; what is still to be written is thrown away."""
        self.in_step = False
        if self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).abort()

    # Reading.

    async def _reply(self) -> Reply:
        try:
            code, text = await self.read_response()
        except SMTPServerDisconnected as error:
            if (cut := self._cut_reply()) is not None:
                return cut
            raise self._broken(error) from None
        except SMTPException as error:
            raise self._broken(error) from None
        return self._checked(code, text)

    def _checked(self, code: int, text: str) -> Reply:
        if code not in REPLY_CODES:
            raise Broken(self.phase, "bad_reply")
        return Reply(self.phase, code, text)

    def _cut_reply(self) -> Reply | None:
        """The first line of an answer whose other lines were lost: its code counts (RFC 5321 section 4.2.1)."""
        line, end, _ = bytes(self._buffer).partition(b"\n")
        return _read_line(self.phase, line) if end else None

    def _early_reply(self) -> Refused | None:
        """What a server said that would not wait for the end of the content."""
        reply = _read_line(Phase.CONTENT, self._unasked.partition(b"\n")[0])
        return Refused(reply) if reply is not None and reply.code >= 400 else None

    @staticmethod
    def _expect(reply: Reply, expected: Container[int]) -> Reply:
        if reply.code not in expected:
            raise Refused(reply)
        return reply

    def _must_be_in_step(self) -> None:
        if not self.in_step:
            raise Broken(self.phase, "out_of_step")

    def _broken(self, error: Exception) -> Broken:
        return Broken(self.phase, "bad_reply" if isinstance(error, SMTPResponseException) else "lost")


Connect = Callable[[str, int, ssl.SSLContext | None], Awaitable[Wire]]
"""Makes a connection to a host and a port, with TLS from the first byte where there is a context. Raises OSError."""


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> Wire:
    """A connection over the network."""
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(Wire, host, port, ssl=tls, server_hostname=host if tls else None)
    return wire


def _read_line(phase: Phase, line: bytes) -> Reply | None:
    code = line[:3]
    if not code.isdigit() or int(code) not in REPLY_CODES or line[3:4] not in (b"-", b" ", b"\r", b""):
        return None
    return Reply(phase, int(code), line[4:].decode("utf-8", "replace").strip())


def _tls_code(error: ssl.SSLError) -> str:
    """An end in the middle of the handshake is an outage, not a set-up."""
    return "lost" if (code := connect_code(error)) == "connect_reset" else code
