"""The `smtp` provider: any submission server or relay that speaks SMTP (RFC 5321, RFC 6409)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from posthouse.address import Address
from posthouse.config import RouteSettings
from posthouse.content import Content
from posthouse.core.bounce_address import bounce_address
from posthouse.core.outcome import Found, LookUp, Outcome, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.core.smtp_replies import Phase, Reply
from posthouse.core.smtp_rules import all_refused, decide_reply, judge_fault, judge_reply, partly_accepted
from posthouse.core.smtp_table import TOO_FAST
from posthouse.errors import ConfigError
from posthouse.providers.carrying import not_carried, refused_by_settings
from posthouse.providers.dkim import DkimSigner
from posthouse.providers.mime import message_bytes, message_id_of
from posthouse.providers.mime_headers import ascii_domain
from posthouse.providers.options import own_options
from posthouse.providers.port import OutgoingMessage
from posthouse.providers.smtp_auth import SmtpCredential
from posthouse.providers.smtp_envelope import Mail
from posthouse.providers.smtp_options import NO_OPTIONS, SmtpOptions, refused_options
from posthouse.providers.smtp_pool import PoolLimits, SessionPool
from posthouse.providers.smtp_session import SESSION_ENDS, Session, SessionOpener, Transmitted
from posthouse.providers.smtp_settings import Security, SmtpSettings
from posthouse.providers.smtp_wire import Broken, Connect, Refused

_BETWEEN: Final = frozenset({Phase.RSET, Phase.MAIL})
"""The steps between two messages: the server has answered nothing yet about the next one."""


class SmtpProvider:
    """One `smtp` route."""

    def __init__(self, name: str, route: RouteSettings, settings: SmtpSettings, connect: Connect) -> None:
        self._settings = settings
        self._route = route
        self._signer = _signer(f"routes.{name}", settings)
        self._dialogue_s = route.timeout
        self._credential = SmtpCredential(f"routes.{name}", settings)
        opener = SessionOpener(settings, self._credential, connect, route.connect_timeout)
        limits = PoolLimits(route.concurrency, settings.max_messages, settings.idle_close)
        self._pool = SessionPool(opener, limits)
        self._facts = RouteFacts(
            name=name,
            timeout_s=route.timeout + settings.content_timeout + settings.final_timeout,
            concurrency=route.concurrency,
            total_concurrency=route.total_concurrency,
            kind="smtp",
            bounce_address=settings.bounce_address or "",
        )

    @property
    def facts(self) -> RouteFacts:
        """What the deciding functions need to know of the route."""
        return self._facts

    def refusals(self, content: Content) -> list[str]:
        """Why this route can't carry `content`. Tags and metadata stay in the ledger; all else has its place."""
        return [*self._lost(content), *refused_by_settings(content, self._route)]

    async def send(self, message: OutgoingMessage) -> Verdict:
        """Makes one call.

        A connection that turns out to be at its end before the message began is replaced, once: the server has seen
        nothing of the message but its envelope.
        """
        if lost := self._lost(message):
            return not_carried(lost)
        deadline = asyncio.get_running_loop().time() + self._dialogue_s
        try:
            mail = self._mail(message)
            try:
                return await self._attempt(message, mail, deadline, fresh=False)
            except _FoundClosed:
                return await self._attempt(message, mail, deadline, fresh=True)
        except Refused as stop:
            verdict = self._verdict(stop, message)
            if stop.reply.phase is Phase.AUTH and verdict.outcome is Outcome.MISCONFIGURED:
                self._pool.retire()  # whoever was let in under it is not to be relied on either
            return verdict
        except Broken as stop:
            return self._verdict(stop)

    async def send_together(self, messages: Sequence[OutgoingMessage]) -> Sequence[Verdict | None]:
        """One after the other: over SMTP each message is handed over by itself, and its session is kept anyway."""
        return [await self.send(message) for message in messages]

    async def look_up(self, message: OutgoingMessage) -> LookUp:
        """SMTP has no way to ask."""
        return LookUp(Found.UNSURE, text="an SMTP server can't be asked")

    async def health(self) -> Verdict | None:
        """Connects, is let in, and asks for nothing; accepted means that the server is well."""
        deadline = asyncio.get_running_loop().time() + self._dialogue_s
        try:
            with _able_to_sign():
                if self._signer is not None:
                    self._signer.check()
            async with self._lent(deadline, fresh=True) as session:
                reply = await session.still_there(deadline)
        except (Refused, Broken) as stop:
            return self._verdict(stop)
        return Verdict(Outcome.ACCEPTED, code=str(reply.code), rule="the server lets us in")

    @property
    def log(self) -> None:
        """A mail server has none that we could read."""
        return None

    @property
    def lists(self) -> None:
        """Nor suppression lists."""
        return None

    def credential_changed(self) -> bool:
        """Whether the password reads otherwise than what was refused last; then every connection is made anew."""
        changed = self._credential.changed()
        if changed:
            self._pool.retire()
        return changed

    async def limit_connections(self, count: int) -> int:
        """Idle connections beyond are closed at once, those in use when their message is through."""
        return await self._pool.limit(count)

    async def close(self) -> None:
        """Closes its connections."""
        await self._pool.close()

    def _mail(self, message: OutgoingMessage) -> Mail:
        """Raises Broken where it can't be signed."""
        sender = message.envelope_sender or self._bounce_address(message) or message.sender
        options = NO_OPTIONS
        if message.options:
            options = SmtpOptions.model_validate(own_options(message.options, self._facts))
        return Mail.of(sender, message.recipients, self._signed(message), options)

    def _bounce_address(self, message: OutgoingMessage) -> Address | None:
        template = self._settings.bounce_address
        return (
            Address(bounce_address(template, message.idempotency_key)) if template else self._settings.envelope_sender
        )

    def _signed(self, message: OutgoingMessage) -> bytes:
        content = message_bytes(message)
        if self._signer is None:
            return content
        with _able_to_sign():
            return self._signer.signed(content, message.date)

    def _lost(self, mail: Content | OutgoingMessage) -> list[str]:
        options = own_options(mail.options, self._facts) if mail.options else {}
        lost = [f"{name}: this route can't track" for name in ("track_opens", "track_clicks") if getattr(mail, name)]
        if options.get("require_tls") and self._settings.url.security is Security.NONE:
            lost.append("options.require_tls: this route itself has no TLS")
        if self._signer is not None and mail.sender is not None and not self._signer.covers(mail.sender):
            lost.append(f"sender: this route signs for {self._settings.dkim_domain}, not for {mail.sender.email}")
        return [*lost, *refused_options(options)] if options else lost

    async def _attempt(self, message: OutgoingMessage, mail: Mail, deadline: float, *, fresh: bool) -> Verdict:
        """One transaction, judged where it came to its end. Raises Refused, Broken, and _FoundClosed."""
        async with self._lent(deadline, fresh=fresh) as session:
            if (unfit := mail.unfit(session.extensions)) is not None:
                return self._verdict(Broken(Phase.MAIL, *unfit))
            settings = self._settings
            try:
                transmitted = await session.transmit(mail, deadline, settings.content_timeout, settings.final_timeout)
            except (Refused, Broken) as stop:
                if session.reused and _closed_before_it_began(stop):
                    raise _FoundClosed from stop
                raise
        return self._outcome(transmitted, message)

    def _lent(self, deadline: float, *, fresh: bool) -> _Lent:
        return _Lent(self._pool, deadline, fresh)

    def _outcome(self, transmitted: Transmitted, message: OutgoingMessage) -> Verdict:
        secrets = self._credential.secrets
        if transmitted.final is not None and not transmitted.refused:
            return judge_reply(transmitted.final, secrets=secrets)
        given = {ascii_domain(address): address.email for address in message.recipients}
        refused = [
            (given[who], judge_reply(reply, secrets=secrets, recipient=given[who]))
            for who, reply in transmitted.refused
        ]
        if transmitted.final is None:
            return all_refused(refused)
        accepted = judge_reply(transmitted.final, secrets=secrets)
        return partly_accepted(accepted, refused, message_id_of(message))

    def _verdict(self, stop: Refused | Broken, message: OutgoingMessage | None = None) -> Verdict:
        secrets = self._credential.secrets
        if isinstance(stop, Refused):
            alone = message is not None and len(message.recipients) == 1
            return judge_reply(
                stop.reply, secrets=secrets, recipient=message.recipients[0].email if message and alone else None
            )
        return judge_fault(stop.fault, str(stop), secrets=secrets)


class _Lent:
    """A session for one transaction, which afterwards is kept only where both sides are surely in step."""

    __slots__ = ("_deadline", "_fresh", "_pool", "_session")

    def __init__(self, pool: SessionPool, deadline: float, fresh: bool) -> None:
        self._pool = pool
        self._deadline = deadline
        self._fresh = fresh

    async def __aenter__(self) -> Session:
        self._session = await self._pool.take(self._deadline, fresh=self._fresh)
        return self._session

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _FoundClosed):
            self._pool.end(self._session, politely=isinstance(error.__cause__, Refused))
        elif isinstance(error, Refused):
            self._after(error.reply)
        elif error is not None:  # broken, cancelled, or a fault of ours: what comes next may belong to this message
            self._pool.end(self._session, politely=False)
        else:
            self._pool.give_back(self._session)

    def _after(self, refusal: Reply) -> None:
        if refusal.code == SESSION_ENDS:
            self._pool.end(self._session, politely=True)
        elif refusal.code < 400 or refusal.phase is Phase.CONTENT:  # out of step, or in the middle of the content
            self._pool.end(self._session, politely=False)
        else:
            self._pool.give_back(self._session)


class _FoundClosed(Exception):
    """A connection in use again was closed by the server, or refused to begin anew, before the message began."""


@contextmanager
def _able_to_sign() -> Iterator[None]:
    """Raises Broken where the key can't be read."""
    try:
        yield
    except ConfigError as error:
        raise Broken(Phase.MAIL, "no_dkim_key", str(error)) from None


def _signer(place: str, settings: SmtpSettings) -> DkimSigner | None:
    if settings.dkim_domain is None or settings.dkim_selector is None or settings.dkim_key is None:
        return None
    return DkimSigner(place, settings.dkim_domain, settings.dkim_selector, settings.dkim_key)


def _closed_before_it_began(stop: Refused | Broken) -> bool:
    """Whether the session was at its end between two messages, for no limit of ours.

    A RSET that is refused says nothing about a message or the route: nothing is known yet but the session.
    """
    if isinstance(stop, Refused):
        reply = stop.reply
        at_rest = reply.phase is Phase.RSET or (reply.phase is Phase.MAIL and reply.code == SESSION_ENDS)
        return at_rest and decide_reply(reply) is not TOO_FAST
    return stop.fault.code in ("lost", "out_of_step") and stop.fault.phase in _BETWEEN
