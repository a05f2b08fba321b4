"""One connection from its greeting to its end, and the transactions on it (RFC 5321 section 3)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from aiosmtplib.esmtp import parse_esmtp_extensions

from posthouse.core.smtp_replies import Phase, Reply
from posthouse.errors import ConfigError
from posthouse.providers.smtp_auth import SmtpCredential, authenticate, chosen_method
from posthouse.providers.smtp_settings import Security, SmtpSettings
from posthouse.providers.smtp_wire import Broken, Connect, Refused, Wire
from posthouse.providers.transport import connect_code, system_detail

SUCCESS: Final = range(200, 300)
SESSION_ENDS: Final = 421
"""The one refusal after which the server closes the connection (RFC 5321 section 3.8)."""


@dataclass(frozen=True, slots=True)
class Mail:
    """One transaction: the envelope, and the content as it is after DATA, without its final dot."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes = field(repr=False)  # dot-stuffed, ends with CRLF
    size: int  # in bytes, before dots were stuffed
    smtputf8: bool = False


@dataclass(frozen=True, slots=True)
class Transmitted:
    """What became of one transaction: the final answer, None where every recipient was refused before it."""

    final: Reply | None
    refused: tuple[tuple[str, Reply], ...]  # by recipient


@asynccontextmanager
async def within(deadline: float, phase: Callable[[], Phase]) -> AsyncIterator[None]:
    """Raises Broken when the deadline (of the loop's clock) passes."""
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        raise Broken(phase(), "timeout") from None


class Session:
    """One connection that is let in."""

    def __init__(self, wire: Wire, extensions: dict[str, str]) -> None:
        self.wire = wire
        self.transactions = 0
        self._extensions = extensions

    @property
    def reused(self) -> bool:
        """Whether a transaction has been on it already."""
        return self.transactions > 1

    def phase(self) -> Phase:
        """The step that is under way."""
        return self.wire.phase

    def unfit(self, mail: Mail) -> tuple[str, str] | None:
        """Why the server says that it can't carry the message, as a fault's code and a detail; None when it can."""
        if mail.smtputf8 and "smtputf8" not in self._extensions:
            return "no_smtputf8", ""
        limit = self._extensions.get("size", "").strip()
        if limit.isdecimal() and 0 < int(limit) < mail.size:
            return "too_large", f"{mail.size} bytes, at most {limit}"
        return None

    async def transmit(self, mail: Mail, deadline: float, content_s: float, final_s: float) -> Transmitted:
        """One transaction: up to the leave to send the content by `deadline`, then each part on its own timer.

        Raises Refused and Broken.
        """
        now = asyncio.get_running_loop().time
        async with within(deadline, self.phase):
            await self._begin(mail)
            refused = await self._recipients(mail)
            if len(refused) == len(mail.recipients):
                return Transmitted(None, refused)
            await self.wire.ask(Phase.DATA, b"DATA", expected=(354,))
        async with within(now() + content_s, self.phase):
            await self.wire.send_content(mail.content)
        async with within(now() + final_s, self.phase):
            final = await self.wire.send_dot()
        if final.code not in SUCCESS:
            raise Refused(replace(final, alone=len(mail.recipients) == 1))
        return Transmitted(final, refused)

    async def _begin(self, mail: Mail) -> None:
        """The envelope's sender; on a connection in use again a RSET before it, which shows whether it still works."""
        self.transactions += 1
        if self.reused:
            await self.wire.ask(Phase.RSET, b"RSET", expected=(250,))
        await self.wire.ask(Phase.MAIL, b"MAIL", *self._sender(mail), expected=(250,))

    async def _recipients(self, mail: Mail) -> tuple[tuple[str, Reply], ...]:
        """The refused recipients, each with its reply. A reply that ends the session is about all of them."""
        refused = []
        for recipient in mail.recipients:
            try:
                await self.wire.ask(Phase.RCPT, b"RCPT", b"TO:<" + recipient.encode() + b">", expected=SUCCESS)
            except Refused as refusal:
                if refusal.reply.code == SESSION_ENDS or refusal.reply.code < 400:
                    raise
                refused.append((recipient, refusal.reply))
        return tuple(refused)

    def _sender(self, mail: Mail) -> list[bytes]:
        parts = [b"FROM:<" + mail.sender.encode() + b">"]
        if "size" in self._extensions:
            parts.append(b"SIZE=%d" % mail.size)
        if mail.smtputf8:
            parts.append(b"SMTPUTF8")
            if "8bitmime" in self._extensions:
                parts.append(b"BODY=8BITMIME")
        return parts

    async def still_there(self, deadline: float) -> Reply:
        """Asks for nothing but an answer. Raises Refused and Broken."""
        async with within(deadline, self.phase):
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

        await authenticate(ask, method, login)


def _own_address(wire: Wire) -> str:
    """Our end's address as RFC 5321 section 4.1.3 writes it: a name that we can't prove helps nobody."""
    transport = wire.transport
    name = transport.get_extra_info("sockname") if transport is not None else None
    host = str(name[0]).partition("%")[0] if name else "127.0.0.1"
    return f"[IPv6:{host}]" if ":" in host else f"[{host}]"
