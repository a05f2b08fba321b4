"""The `smtp` provider: any submission server or relay that speaks SMTP (RFC 5321, RFC 6409)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from posthouse.config import RouteSettings
from posthouse.content import Content
from posthouse.core.outcome import Found, LookUp, Outcome, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.core.smtp_replies import Phase
from posthouse.core.smtp_rules import all_refused, decide_reply, judge_fault, judge_reply, partly_accepted
from posthouse.core.smtp_table import TOO_FAST
from posthouse.providers.port import OutgoingMessage
from posthouse.providers.smtp_auth import SmtpCredential
from posthouse.providers.smtp_message import ascii_domain, message_bytes, message_id_of, needs_smtputf8
from posthouse.providers.smtp_pool import PoolLimits, SessionPool
from posthouse.providers.smtp_session import SESSION_ENDS, Mail, Session, SessionOpener, Transmitted
from posthouse.providers.smtp_settings import SmtpSettings
from posthouse.providers.smtp_wire import Broken, Connect, Refused

_BETWEEN: Final = frozenset({Phase.RSET, Phase.MAIL})
"""The steps between two messages: the server knows nothing yet of the next one but its sender."""


class SmtpProvider:
    """One `smtp` route."""

    def __init__(self, name: str, route: RouteSettings, settings: SmtpSettings, connect: Connect) -> None:
        self._settings = settings
        self._dialogue_s = route.timeout
        self._credential = SmtpCredential(f"routes.{name}", settings)
        opener = SessionOpener(settings, self._credential, connect, route.connect_timeout)
        limits = PoolLimits(route.concurrency, settings.max_messages, settings.idle_close)
        self._pool = SessionPool(opener, limits)
        self._facts = RouteFacts(
            name=name,
            timeout_s=route.timeout + settings.content_timeout + settings.final_timeout,
            concurrency=route.concurrency,
        )

    @property
    def facts(self) -> RouteFacts:
        """What the deciding functions need to know of the route."""
        return self._facts

    def refusals(self, content: Content) -> list[str]:
        """None: tags and metadata stay in the ledger, and all else has its place in a message."""
        return []

    async def send(self, message: OutgoingMessage) -> Verdict:
        """Makes one call.

        A connection that turns out to be closed before the message began is replaced, once: the server has seen
        nothing of the message but its sender.
        """
        mail = self._mail(message)
        deadline = asyncio.get_running_loop().time() + self._dialogue_s
        try:
            try:
                return await self._attempt(mail, deadline, fresh=False)
            except _FoundClosed:
                return await self._attempt(mail, deadline, fresh=True)
        except (Refused, Broken) as stop:
            return self._verdict(stop)

    async def look_up(self, message: OutgoingMessage) -> LookUp:
        """SMTP has no way to ask."""
        return LookUp(Found.UNSURE, text="an SMTP server can't be asked")

    async def health(self) -> Verdict | None:
        """Connects, is let in, and asks for nothing; accepted means that the server is well."""
        deadline = asyncio.get_running_loop().time() + self._dialogue_s
        try:
            async with self._lent(deadline, fresh=True) as session:
                reply = await session.still_there(deadline)
        except (Refused, Broken) as stop:
            return self._verdict(stop)
        return Verdict(Outcome.ACCEPTED, code=str(reply.code), rule="the server lets us in")

    async def close(self) -> None:
        """Closes its connections."""
        await self._pool.close()

    def _mail(self, message: OutgoingMessage) -> Mail:
        sender = self._settings.envelope_sender or message.sender
        recipients = [*message.to, *message.cc, *message.bcc]
        content = message_bytes(message, message_id_of(message), message.asked_at)
        return Mail(
            sender=ascii_domain(sender),
            recipients=tuple(dict.fromkeys(map(ascii_domain, recipients))),
            content=_dot_stuffed(content),
            size=len(content),
            smtputf8=needs_smtputf8([sender, message.sender, *recipients, *message.reply_to]),
        )

    async def _attempt(self, mail: Mail, deadline: float, *, fresh: bool) -> Verdict:
        """One transaction, judged where it came to its end. Raises Refused, Broken, and _FoundClosed."""
        async with self._lent(deadline, fresh=fresh) as session:
            if (unfit := session.unfit(mail)) is not None:
                return self._verdict(Broken(Phase.MAIL, *unfit))
            settings = self._settings
            try:
                transmitted = await session.transmit(mail, deadline, settings.content_timeout, settings.final_timeout)
            except (Refused, Broken) as stop:
                if session.reused and _closed_before_it_began(stop):
                    raise _FoundClosed from stop
                raise
        return self._outcome(transmitted)

    @asynccontextmanager
    async def _lent(self, deadline: float, *, fresh: bool) -> AsyncIterator[Session]:
        """A session, which afterwards is kept only where both sides are surely in step."""
        session = await self._pool.take(deadline, fresh=fresh)
        try:
            yield session
        except Refused as refusal:
            self._after(session, refusal)
            raise
        except _FoundClosed as found:
            self._pool.end(session, politely=isinstance(found.__cause__, Refused))
            raise
        except BaseException:  # broken, cancelled, or a fault of ours: what comes next may belong to this message
            self._pool.end(session, politely=False)
            raise
        self._pool.give_back(session)

    def _after(self, session: Session, refusal: Refused) -> None:
        reply = refusal.reply
        if reply.code == SESSION_ENDS:
            self._pool.end(session, politely=True)
        elif reply.code < 400 or reply.phase is Phase.CONTENT:  # out of step, or in the middle of the content
            self._pool.end(session, politely=False)
        else:
            self._pool.give_back(session)

    def _outcome(self, transmitted: Transmitted) -> Verdict:
        secrets = self._credential.secrets
        refused = [(who, judge_reply(reply, secrets=secrets)) for who, reply in transmitted.refused]
        if transmitted.final is None:
            return all_refused(refused)
        accepted = judge_reply(transmitted.final, secrets=secrets)
        return partly_accepted(accepted, refused) if refused else accepted

    def _verdict(self, stop: Refused | Broken) -> Verdict:
        secrets = self._credential.secrets
        if isinstance(stop, Refused):
            return judge_reply(stop.reply, secrets=secrets)
        return judge_fault(stop.fault, str(stop), secrets=secrets)


class _FoundClosed(Exception):
    """A connection in use again was closed by the server before the message began."""


def _closed_before_it_began(stop: Refused | Broken) -> bool:
    """Whether the server had closed, or then closed, the session between two messages, for no limit of ours."""
    if isinstance(stop, Refused):
        reply = stop.reply
        at_rest = reply.code == SESSION_ENDS and decide_reply(reply) is not TOO_FAST
        return at_rest and reply.phase in _BETWEEN
    return stop.fault.code in ("lost", "out_of_step") and stop.fault.phase in _BETWEEN


def _dot_stuffed(content: bytes) -> bytes:
    """RFC 5321 section 4.5.2: a line that begins with a dot gets another one."""
    stuffed = content.replace(b"\r\n.", b"\r\n..")
    return b"." + stuffed if stuffed.startswith(b".") else stuffed
