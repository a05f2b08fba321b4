"""One connection from its greeting to its end, and the transactions on it (RFC 5321 section 3)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Final

from aiosmtplib.esmtp import parse_esmtp_extensions

from posthouse.core.smtp_replies import Phase, Reply
from posthouse.errors import ConfigError
from posthouse.providers.smtp_auth import SmtpCredential, authenticate, chosen_method
from posthouse.providers.smtp_envelope import Mail
from posthouse.providers.smtp_settings import Security, SmtpSettings
from posthouse.providers.smtp_wire import Broken, Command, Connect, Refused, Wire, expect
from posthouse.providers.transport import connect_code, system_detail
from posthouse.values import value

SUCCESS: Final = range(200, 300)
SESSION_ENDS: Final = 421
"""The one refusal after which the server closes the connection (RFC 5321 section 3.8)."""
LEAVE: Final = 354
"""The leave to send the content."""
TOGETHER_BYTES: Final = 16 * 1024
"""So much of a content, at most, goes out in one piece with its final dot."""

_RSET: Final = Command(Phase.RSET, b"RSET")
_DATA: Final = Command(Phase.DATA, b"DATA")


@value
class Transmitted:
    """What became of one transaction: the final answer, None where every recipient was refused before it."""

    final: Reply | None
    refused: tuple[tuple[str, Reply], ...]  # by recipient


class within:  # noqa: N801 - reads as asyncio.timeout does
    """Raises Broken when the deadline (of the loop's clock) passes."""

    def __init__(self, deadline: float, phase: Callable[[], Phase]) -> None:
        self._timeout = asyncio.timeout_at(deadline)
        self._phase = phase

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise Broken(self._phase(), "timeout") from None


class Session:
    """One connection that is let in."""

    def __init__(self, wire: Wire, extensions: dict[str, str]) -> None:
        self.wire = wire
        self.transactions = 0
        self.extensions = extensions  # that the server offers, with their parameters
        self._pipelining = "pipelining" in extensions

    @property
    def reused(self) -> bool:
        """Whether a transaction has been on it already."""
        return self.transactions > 1

    async def transmit(self, mail: Mail, deadline: float, content_s: float, final_s: float) -> Transmitted:
        """One transaction: up to the leave to send the content by `deadline`, then each part on its own timer.

        Raises Refused and Broken.
        """
        self.wire.until(deadline)
        try:
            refused = await self._envelope(mail)
        except Refused:
            await self._hear_out(deadline)
            raise
        if len(refused) == len(mail.recipients):
            await self._hear_out(deadline, to_nobody=True)
            return Transmitted(None, refused)
        final = await self._content(mail.content, content_s, final_s)
        if final.code not in SUCCESS:
            raise Refused(replace(final, alone=len(mail.recipients) == 1))
        return Transmitted(final, refused)

    async def _envelope(self, mail: Mail) -> tuple[tuple[str, Reply], ...]:
        """Up to the leave to send the content: the refused recipients, each with its reply.

        A server with PIPELINING gets all commands in one go, DATA last (RFC 2920 section 3.1), any other one gets each
        after the reply to the one before. A reply that ends the session is about all recipients.
        """
        self.transactions += 1
        opening, recipients = (
            self._opening(mail),
            [Command(Phase.RCPT, b"RCPT " + mail.rcpt_to(recipient)) for recipient in mail.recipients],
        )
        if self._pipelining:
            self.wire.say(*opening, *recipients, _DATA)
        for command in opening:
            expect(await self._reply(command), (250,))
        refused: list[tuple[str, Reply]] = []
        for recipient, command in zip(mail.recipients, recipients, strict=True):
            reply = await self._reply(command)
            if reply.code == SESSION_ENDS or reply.code < 400:
                expect(reply, SUCCESS)
            else:
                refused.append((recipient, reply))
        if len(refused) < len(recipients):
            expect(await self._reply(_DATA), (LEAVE,))
        return tuple(refused)

    async def _reply(self, command: Command) -> Reply:
        """The reply to a command, which is sent now where it did not go out with the others."""
        if not self._pipelining:
            self.wire.say(command)
        return await self.wire.hear()

    async def _hear_out(self, deadline: float, *, to_nobody: bool = False) -> None:
        """Takes the replies to what went out together with a refused command, so that both sides stay in step.

        The refusal stands whatever they are, and if they never come; but if they don't fit, nobody can tell what the
        refusal was the answer to. Leave to send content `to_nobody` is taken back by a lone dot, which the server has
        to refuse (RFC 2920 section 3.1); where the dot might make a message for somebody, the connection is cut.
        """
        if not self.wire.awaits:
            return
        self.wire.until(deadline)
        try:
            last = await self._last_reply()
            if last.code == LEAVE and to_nobody:
                last = await self.wire.send_dot(b"")
        except Broken as broken:
            if broken.fault.code == "out_of_step":
                raise
            return
        if last.code < 400:
            self.wire.abort()

    async def _last_reply(self) -> Reply:
        """The reply to DATA, which was the last command that went out."""
        reply = await self.wire.hear()
        while self.wire.awaits:
            reply = await self.wire.hear()
        self.wire.must_be_in_step()
        if reply.code < 400 and reply.code != LEAVE:
            raise Broken(reply.phase, "out_of_step")
        return reply

    async def _content(self, content: bytes, content_s: float, final_s: float) -> Reply:
        """The content and the answer to it. A small one goes out in one piece with its final dot."""
        now = self.wire.now
        head, tail = content[:-TOGETHER_BYTES], content[-TOGETHER_BYTES:]
        if head:
            self.wire.until(now() + content_s)
            await self.wire.send_content(head)
        self.wire.until(now() + final_s)
        return await self.wire.send_dot(tail)

    def _opening(self, mail: Mail) -> list[Command]:
        """The envelope's sender; on a connection in use again a RSET before it, which shows whether it still works."""
        sender = Command(Phase.MAIL, b"MAIL " + mail.mail_from(self.extensions))
        return [_RSET, sender] if self.reused else [sender]

    async def still_there(self, deadline: float) -> Reply:
        """Asks for nothing but an answer. Raises Refused and Broken."""
        self.wire.until(deadline)
        return await self.wire.ask(Phase.RSET, b"NOOP", expected=(250,))


class SessionOpener:
    """Makes connections of one route, then sessions of them: encrypted and let in."""

    def __init__(
        self, settings: SmtpSettings, credential: SmtpCredential, connect: Connect, connect_timeout_s: float
    ) -> None:
        self._settings = settings
        self._credential = credential
        self._connect = connect
        self._connect_timeout_s = connect_timeout_s
        self._context: ssl.SSLContext | None = None

    async def connect(self, deadline: float) -> Wire:
        """A new connection. Raises Broken."""
        server = self._settings.url
        context = self._tls() if server.security is Security.TLS else None
        until = min(deadline, asyncio.get_running_loop().time() + self._connect_timeout_s)
        try:
            async with asyncio.timeout_at(until):
                return await self._connect(server.host, server.port, context)
        except OSError as error:  # ssl.SSLError and TimeoutError are among them
            detail = " ".join(filter(None, [f"{server.host}:{server.port}", system_detail(error)]))
            raise Broken(Phase.CONNECT, connect_code(error), detail) from None

    async def let_in(self, wire: Wire, deadline: float) -> Session:
        """A session on a new connection. Raises Refused and Broken."""
        async with within(deadline, lambda: wire.phase):
            return await self._let_in(wire)

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context(cafile=self._settings.ca_file)
        return self._context

    async def _let_in(self, wire: Wire) -> Session:
        await wire.greeting()
        extensions, methods = await self._hello(wire)
        if self._settings.url.security is Security.STARTTLS:
            if "starttls" not in extensions:
                raise Broken(Phase.EHLO, "no_starttls")
            await wire.secure(self._tls(), self._settings.url.host)
            extensions, methods = await self._hello(wire)  # what was said in clear text counts for nothing
        await self._authenticate(wire, methods)
        return Session(wire, extensions)

    async def _hello(self, wire: Wire) -> tuple[dict[str, str], list[str]]:
        name = self._settings.local_hostname or _own_address(wire)
        reply = await wire.ask(Phase.EHLO, b"EHLO", name.encode("ascii"), expected=(250,))
        return parse_esmtp_extensions(reply.text)

    async def _authenticate(self, wire: Wire, offered: list[str]) -> None:
        try:
            login = self._credential.read()
        except ConfigError as error:
            raise Broken(Phase.AUTH, "no_credential", str(error)) from None
        if login is None:
            return
        method = chosen_method(self._settings.auth_method, offered)
        if method is None:
            raise Broken(Phase.AUTH, "no_auth", f"it offers {', '.join(offered) or 'none'}")

        async def ask(*parts: bytes, expected: tuple[int, ...]) -> Reply:
            return await wire.ask(Phase.AUTH, *parts, expected=expected)

        try:
            await authenticate(ask, method, login)
        except Refused:
            self._credential.refused(login)
            raise


def _own_address(wire: Wire) -> str:
    """Our end's address as RFC 5321 section 4.1.3 writes it: a name that we can't prove helps nobody."""
    transport = wire.transport
    name = transport.get_extra_info("sockname") if transport is not None else None
    host = str(name[0]).partition("%")[0] if name else "127.0.0.1"
    return f"[IPv6:{host}]" if ":" in host else f"[{host}]"
