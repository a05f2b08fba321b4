"""The provider suite, run for `smtp` against aiosmtpd with mandatory STARTTLS and AUTH."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes
from typing import Any, ClassVar

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from posthouse.config import RouteSettings
from posthouse.core.outcome import Outcome
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.sandbox.ledger import Ledger
from posthouse.sandbox.smtp import serve_smtp
from tests.providers.smtp_server import server_context
from tests.providers.wire import CERTIFICATE, free_port

pytest.register_assert_rewrite("tests.contract.provider_suite")

from tests.contract.provider_suite import (  # noqa: E402 - its assertions are rewritten first
    SECRET,
    TIMEOUT_S,
    Behaviour,
    Call,
    ProviderHarness,
    ProviderSuite,
    sandbox,
)

FINAL_ANSWERS = {
    Behaviour.ACCEPT: "250 2.0.0 Ok: queued as m-1",
    Behaviour.ACCEPT_UNREADABLY: "250 ??",
    Behaviour.THROTTLE: f"451 4.7.1 rate limit exceeded for {SECRET}, try again in 30 seconds",
    Behaviour.BE_OUT_OF_SERVICE: f"421 4.3.2 {SECRET} is shutting down",
    Behaviour.FAIL_MIDWAY: f"451 4.3.0 local error with {SECRET}",
    Behaviour.REFUSE_MESSAGE: f"554 5.6.0 no subject in {SECRET}",
}


class AiosmtpdHarness(ProviderHarness):
    """An aiosmtpd server. A call that ends before its content counts as one without a payload."""

    timeout_s = 3 * TIMEOUT_S
    stays_here = frozenset({"tags", "metadata", "track_opens"})  # the latter is a wish not to track: nothing does
    refuses = frozenset({"track_clicks", "options"})
    expected: ClassVar = {Behaviour.FAIL_MIDWAY: (Outcome.TRANSIENT, False, True)}  # after the dot a 4yz is a no

    def __init__(self) -> None:
        self._behaviour = Behaviour.ACCEPT
        self._calls: list[Call] = []
        self._arrived = asyncio.Event()
        self.port = 0

    def serve(self) -> SMTP:
        return SMTP(
            self,
            hostname="relay.example",
            tls_context=server_context(),
            require_starttls=True,
            auth_required=True,
            authenticator=self._authenticate,
            enable_SMTPUTF8=True,
        )

    def _authenticate(self, _: SMTP, __: Session, ___: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        known = (data.login, data.password) == (b"shop", SECRET.encode())
        if not known or self._behaviour is Behaviour.REFUSE_CREDENTIAL:
            self._calls.append(Call(b"", None))
            return AuthResult(success=False, handled=False, message=f"535 5.7.8 {SECRET} is not valid")
        return AuthResult(success=True)

    async def handle_MAIL(self, _: SMTP, __: Session, envelope: Envelope, address: str, ___: list[str]) -> str:  # noqa: N802 - aiosmtpd's name
        if self._behaviour is Behaviour.REFUSE_CREDENTIAL:  # on a connection that had been let in before
            self._calls.append(Call(b"", None))
            return f"530 5.7.0 Authentication required, {SECRET}"
        envelope.mail_from = address
        return "250 2.1.0 Ok"

    async def handle_RCPT(self, _: SMTP, __: Session, envelope: Envelope, address: str, ___: list[str]) -> str:  # noqa: N802 - aiosmtpd's name
        if self._behaviour is Behaviour.REFUSE_RECIPIENT:
            self._calls.append(Call(b"", None))
            return f"550 5.1.1 no such user, {SECRET}"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"

    async def handle_DATA(self, server: SMTP, __: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        assert isinstance(envelope.content, bytes)
        key = message_from_bytes(envelope.content)["Message-ID"].strip("<>").partition("@")[0]
        self._calls.append(Call(envelope.content, key))
        self._arrived.set()
        if self._behaviour is Behaviour.DROP:
            assert isinstance(server.transport, asyncio.WriteTransport)
            server.transport.abort()
        if self._behaviour in (Behaviour.STALL, Behaviour.DROP):
            await asyncio.Event().wait()
        return FINAL_ANSWERS[self._behaviour]

    def behave(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    def provider(self) -> Provider:
        return self._build(self.port)

    def provider_of_a_dead_host(self) -> Provider:
        return self._build(free_port())

    @asynccontextmanager
    async def receiver(self) -> AsyncIterator[tuple[Provider, Ledger]]:
        api = sandbox()
        server = await serve_smtp(api, clock=lambda: 1_800_000_000.0)
        provider = self._build_on(url=server.url)
        yield provider, api.ledger
        await provider.close()
        await server.close()

    def _build(self, port: int) -> Provider:
        return self._build_on(url=f"smtp+starttls://shop@127.0.0.1:{port}", password=SECRET, ca_file=str(CERTIFICATE))

    def _build_on(self, **server: str) -> Provider:
        settings = {
            "provider": "smtp",
            **server,
            **dict.fromkeys(("connect_timeout", "timeout", "content_timeout", "final_timeout"), f"{TIMEOUT_S}s"),
        }
        route = RouteSettings.model_validate(settings)
        return build_provider("main", route, transport_factory=AiohttpTransport, now=lambda: 1_800_000_000.0)

    @property
    def calls(self) -> list[Call]:
        return self._calls

    @property
    def arrived(self) -> asyncio.Event:
        return self._arrived

    def remember(self, key: str, message_id: str) -> None:
        raise AssertionError("SMTP can't be asked")


class TestSmtp(ProviderSuite):
    """The `smtp` provider."""

    @pytest.fixture
    async def harness(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProviderHarness]:
        monkeypatch.setattr(logging.getLogger("mail.log"), "disabled", True)  # the server's own, with what it says
        harness = AiosmtpdHarness()
        server = await asyncio.get_running_loop().create_server(harness.serve, "127.0.0.1", 0)
        harness.port = server.sockets[0].getsockname()[1]
        yield harness
        server.close()


async def test_a_refused_credential_is_read_again_for_the_next_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = AiosmtpdHarness()
    server = await asyncio.get_running_loop().create_server(harness.serve, "127.0.0.1", 0)
    settings = {
        "provider": "smtp",
        "url": f"smtp+starttls://shop@127.0.0.1:{server.sockets[0].getsockname()[1]}",
        "password": "env:STANDBY_PASSWORD",
        "ca_file": str(CERTIFICATE),
    }
    route = RouteSettings.model_validate(settings)
    provider = build_provider("standby", route, transport_factory=AiohttpTransport, now=lambda: 0.0)
    monkeypatch.setenv("STANDBY_PASSWORD", "yesterday's")
    first = await provider.health()
    monkeypatch.setenv("STANDBY_PASSWORD", SECRET)
    second = await provider.health()
    await provider.close()
    server.close()
    assert first is not None
    assert second is not None
    assert [first.outcome, second.outcome] == [Outcome.MISCONFIGURED, Outcome.ACCEPTED]
