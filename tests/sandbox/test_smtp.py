"""What real SMTP clients see over real connections: the standard library's, and a bare one where that is too polite."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import smtplib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from posthouse.errors import ConfigError
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import FaultPlan
from posthouse.sandbox.ledger import CallResult
from posthouse.sandbox.smtp import SmtpServer, serve_smtp
from tests.sandbox.conftest import Bench, letter, make_bench

SENDER, ADA, BOB = "shop@shop.example", "ada@example.com", "bob@example.com"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A fault on purpose is no error of the server."""
    with caplog.at_level(logging.WARNING):
        yield
    assert not caplog.records


@contextlib.asynccontextmanager
async def serving(
    *faults: str, tls: ssl.SSLContext | None = None, implicit_tls: bool = False, idle_s: float = 30.0, **settings: Any
) -> AsyncIterator[tuple[Bench, SmtpServer]]:
    bench = make_bench(*faults, **settings)
    server = await serve_smtp(bench.api, clock=bench.clock, tls=tls, implicit_tls=implicit_tls, idle_s=idle_s)
    try:
        yield bench, server
    finally:
        await server.close()


async def client_of(server: SmtpServer) -> smtplib.SMTP:
    return await asyncio.to_thread(smtplib.SMTP, "127.0.0.1", server.port, "shop.example", 5.0)


async def deliver(server: SmtpServer, *recipients: str, content: bytes | None = None) -> dict[str, Any]:
    """One connection, one message; the recipients that were refused."""
    client = await client_of(server)
    try:
        return await asyncio.to_thread(client.sendmail, SENDER, recipients or [ADA], content or letter())
    finally:
        client.close()


async def soon(condition: Callable[[], Any], limit_s: float = 5.0) -> None:
    """Waits until `condition` holds; fails after `limit_s`."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in a socket
            await asyncio.sleep(0.005)


class Wire:
    """A client that says exactly what it is told, and reads whole replies."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, octets: bytes) -> bytes:
        """The reply to `octets`."""
        self.writer.write(octets)
        return await self.reply()

    async def reply(self) -> bytes:
        async with asyncio.timeout(5):
            lines = [await self.reader.readline()]
            while lines[-1][3:4] == b"-":
                lines.append(await self.reader.readline())
        return b"".join(lines)

    async def hand_over(self) -> None:
        """A whole message, up to the final dot; its answer is not read."""
        await self.reply()
        await self.say(b"EHLO x\r\n")
        self.writer.write(b"MAIL FROM:<shop@shop.example>\r\nRCPT TO:<ada@example.com>\r\nDATA\r\n")
        for _ in range(3):
            await self.reply()
        self.writer.write(letter() + b".\r\n")

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        async with asyncio.timeout(5):
            return await self.reader.read()


@contextlib.asynccontextmanager
async def wire_to(server: SmtpServer) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_message_arrives_octet_by_octet() -> None:
    content = letter(text=".\r\n..\r\n.Hi\r\n" + "x" * 998 + "\r\n\r\n")
    async with serving() as (bench, server):
        assert await deliver(server, ADA, BOB, content=content) == {}
        [accepted] = bench.ledger.acceptances
        assert (accepted.raw, accepted.recipients, accepted.key) == (content, (ADA, BOB), "order-1")
        assert server.url == f"smtp://127.0.0.1:{server.port}"


async def test_a_large_message_is_taken() -> None:
    content = letter(text="\r\n".join(["x" * 70] * 150_000))
    async with serving() as (bench, server):
        await deliver(server, content=content)
        assert bench.ledger.acceptances[0].raw == content


async def test_many_messages_go_over_one_connection() -> None:
    async with serving() as (bench, server):
        client = await client_of(server)
        for number in range(5):
            message = letter(message_id=f"order-{number}@shop.example")
            await asyncio.to_thread(client.sendmail, SENDER, [ADA], message)
        await asyncio.to_thread(client.quit)
        assert bench.ledger.distinct_keys == 5


async def test_eight_bits_and_international_addresses_go_through() -> None:
    async with serving() as (bench, server):
        client = await client_of(server)
        content = letter(text="Grüße")
        options = ["SMTPUTF8", "BODY=8BITMIME"]
        await asyncio.to_thread(client.sendmail, SENDER, ["müller@bücher.example"], content, options)
        client.close()
        assert bench.ledger.acceptances[0].recipients == ("müller@bücher.example",)
        assert bench.ledger.acceptances[0].raw == content


async def test_commands_that_come_together_are_answered_in_order() -> None:
    async with serving("550:at=rcpt,to=gone@example.com") as (bench, server), wire_to(server) as wire:
        await wire.reply()
        assert b"250-PIPELINING\r\n" in await wire.say(b"EHLO x\r\n")
        wire.writer.write(
            b"MAIL FROM:<shop@shop.example>\r\nRCPT TO:<gone@example.com>\r\nRCPT TO:<ada@example.com>\r\nDATA\r\n"
        )
        assert [(await wire.reply())[:3] for _ in range(4)] == [b"250", b"550", b"250", b"354"]
        # The next message's first command and the goodbye come with the content.
        wire.writer.write(letter() + b".\r\nRSET\r\nQUIT\r\n")
        assert [line[:3] for line in (await wire.rest()).splitlines()] == [b"250", b"250", b"221"]
        assert bench.ledger.acceptances[0].recipients == (ADA,)


async def test_what_was_said_is_answered_to_a_client_that_has_nothing_more_to_say() -> None:
    async with serving() as (_, server), wire_to(server) as wire:
        wire.writer.write(b"EHLO x\r\nNOOP\r\n")
        wire.writer.write_eof()
        assert (await wire.rest()).endswith(b"250 2.0.0 Ok\r\n")


async def test_starttls_then_a_password(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    async with serving(tls=server_tls, api_key="s3cret") as (bench, server):
        client = await client_of(server)
        await asyncio.to_thread(client.starttls, context=client_tls)
        await asyncio.to_thread(client.login, "apikey", "s3cret")
        await asyncio.to_thread(client.sendmail, SENDER, [ADA], letter())
        await asyncio.to_thread(client.quit)
        assert len(bench.ledger.acceptances) == 1


@pytest.mark.parametrize("mechanism", ["auth_plain", "auth_login", "auth_cram_md5"])
async def test_every_mechanism_of_a_real_client_works(
    mechanism: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with serving(tls=server_tls, implicit_tls=True, api_key="s3cret") as (bench, server):
        assert server.url.startswith("smtps://")
        client = await asyncio.to_thread(
            smtplib.SMTP_SSL, "127.0.0.1", server.port, "shop.example", timeout=5, context=client_tls
        )
        await asyncio.to_thread(client.ehlo)
        client.user, client.password = "apikey", "s3cret"
        name = mechanism.removeprefix("auth_").replace("_", "-").upper()
        assert (await asyncio.to_thread(client.auth, name, getattr(client, mechanism)))[0] == 235
        await asyncio.to_thread(client.sendmail, SENDER, [ADA], letter())
        await asyncio.to_thread(client.quit)
        assert len(bench.ledger.acceptances) == 1


async def test_a_wrong_password_is_refused() -> None:
    async with serving(api_key="s3cret") as (_, server):
        client = await client_of(server)
        with pytest.raises(smtplib.SMTPAuthenticationError):
            await asyncio.to_thread(client.login, "apikey", "guessed")
        with pytest.raises(smtplib.SMTPSenderRefused):
            await asyncio.to_thread(client.sendmail, SENDER, [ADA], letter())
        client.close()


async def test_a_client_that_does_not_trust_the_certificate_leaves_no_trace(server_tls: ssl.SSLContext) -> None:
    async with serving(tls=server_tls) as (_, server):
        client = await client_of(server)
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(client.starttls, context=ssl.create_default_context())
        assert len(await _greeting(server)) > 3


async def _greeting(server: SmtpServer) -> bytes:
    async with wire_to(server) as wire:
        return await wire.reply()


async def test_what_is_slipped_in_before_the_handshake_is_not_obeyed(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with serving(tls=server_tls) as (_, server), wire_to(server) as wire:
        await wire.reply()
        await wire.say(b"EHLO x\r\n")
        assert (await wire.say(b"STARTTLS\r\nEHLO evil\r\nMAIL FROM:<evil@example.com>\r\n"))[:3] == b"220"
        await wire.writer.start_tls(client_tls, server_hostname="127.0.0.1")
        assert await wire.say(b"RCPT TO:<ada@example.com>\r\n") == b"503 5.5.1 Not now\r\n"
        assert (await wire.say(b"EHLO x\r\n"))[:3] == b"250"


async def test_an_encrypted_connection_ends_without_an_answer_too(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with serving("drop-accepted:at=dot", tls=server_tls) as (bench, server):
        client = await client_of(server)
        await asyncio.to_thread(client.starttls, context=client_tls)
        with pytest.raises(smtplib.SMTPServerDisconnected, match="closed"):
            await asyncio.to_thread(client.sendmail, SENDER, [ADA], letter())
        assert len(bench.ledger.acceptances) == 1


async def test_a_starttls_that_fails_can_be_seen(server_tls: ssl.SSLContext) -> None:
    async with serving("454:at=starttls", tls=server_tls) as (_, server):
        client = await client_of(server)
        with pytest.raises(smtplib.SMTPResponseException, match="454"):
            await asyncio.to_thread(client.starttls)
        client.close()


async def test_refused_recipients_are_told_apart() -> None:
    async with serving("451:at=rcpt,to=ada@example.com,first=2") as (bench, server):
        refused = [await deliver(server, ADA, BOB) for _ in range(3)]
        assert [{address: code for address, (code, _) in one.items()} for one in refused] == [
            {ADA: 451},
            {ADA: 451},
            {},
        ]
        assert [one.recipients for one in bench.ledger.acceptances] == [(BOB,), (BOB,), (ADA, BOB)]


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        ("421:at=banner", smtplib.SMTPConnectError, 421),
        ("521:at=ehlo", smtplib.SMTPHeloError, 521),
        ("452:at=mail", smtplib.SMTPSenderRefused, 452),
        ("550:at=rcpt", smtplib.SMTPRecipientsRefused, None),
        ("451:at=data", smtplib.SMTPDataError, 451),
        ("554:at=dot", smtplib.SMTPDataError, 554),
        ("swapped:at=dot", smtplib.SMTPDataError, 221),
    ],
)
async def test_an_error_code_arrives(fault: str, error: type[smtplib.SMTPException], said: int | None) -> None:
    async with serving(fault) as (bench, server):
        with pytest.raises(error) as caught:
            await deliver(server)
        assert getattr(caught.value, "smtp_code", None) == said
        assert len(bench.ledger.acceptances) == fault.startswith("swapped")


@pytest.mark.parametrize(("fault", "accepted"), [("drop", 0), ("drop-accepted", 1)])
async def test_a_connection_is_reset_after_the_dot(fault: str, accepted: int) -> None:
    async with serving(f"{fault}:at=dot") as (bench, server):
        with pytest.raises(smtplib.SMTPServerDisconnected, match="reset"):
            await deliver(server)
        assert len(bench.ledger.acceptances) == accepted


@pytest.mark.parametrize(("fault", "accepted"), [("stall", 0), ("stall-accepted", 1)])
async def test_silence_after_the_dot_lasts_until_the_client_leaves(fault: str, accepted: int) -> None:
    async with serving(f"{fault}:at=dot,first=1") as (bench, server):
        async with wire_to(server) as wire:
            await wire.hand_over()
            await soon(lambda: bench.ledger.calls)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wire.reader.read(1), 0.1)
        assert len(bench.ledger.acceptances) == accepted
        await deliver(server)
        assert bench.ledger.results[CallResult.ACCEPTED] == accepted + 1


async def test_a_reply_can_be_late_and_holds_up_nobody_else() -> None:
    async with serving("slow=500ms:at=dot,to=ada@example.com") as (bench, server):
        began = time.monotonic()
        slow = asyncio.create_task(deliver(server, ADA))
        await soon(lambda: bench.ledger.acceptances)
        await deliver(server, BOB)
        assert not slow.done()
        await slow
        assert time.monotonic() - began >= 0.5


async def test_a_late_acceptance_is_dropped_when_the_client_leaves() -> None:
    async with serving("slow-not-accepted=300ms:at=dot") as (bench, server):
        async with wire_to(server) as wire:
            await wire.hand_over()
        await soon(lambda: bench.ledger.results.get(CallResult.ABANDONED))
        assert not bench.ledger.acceptances


async def test_a_late_acceptance_counts_when_the_client_waits() -> None:
    async with serving("slow-not-accepted=50ms:at=dot") as (bench, server):
        await deliver(server)
        assert len(bench.ledger.acceptances) == 1


async def test_a_reply_can_trickle_in() -> None:
    async with serving("drip=300ms:at=banner") as (_, server), wire_to(server) as wire:
        began = time.monotonic()
        assert await wire.reader.readexactly(1) == b"2"
        assert (await wire.reply()).startswith(b"20 sandbox")
        assert 0.2 < time.monotonic() - began < 4


async def test_a_reply_can_break_off() -> None:
    async with serving("truncated:at=ehlo") as (_, server), wire_to(server) as wire:
        await wire.reply()
        wire.writer.write(b"EHLO x\r\n")
        assert await wire.rest() == b"25"


async def test_replies_to_commands_that_came_together_can_change_places() -> None:
    async with serving("swapped:at=rcpt,first=1,per=all") as (_, server), wire_to(server) as wire:
        await wire.reply()
        await wire.say(b"EHLO x\r\n")
        wire.writer.write(b"MAIL FROM:<a@b.example>\r\nRCPT TO:<ada@example.com>\r\nDATA\r\n")
        assert [(await wire.reply())[:3] for _ in range(3)] == [b"250", b"354", b"250"]


async def test_a_client_that_waits_gets_the_wrong_reply_first() -> None:
    async with serving("swapped:at=rcpt,first=1,per=all") as (_, server), wire_to(server) as wire:
        await wire.reply()
        await wire.say(b"EHLO x\r\n")
        await wire.say(b"MAIL FROM:<a@b.example>\r\n")
        said = [await wire.say(line) for line in (b"RCPT TO:<ada@example.com>\r\n", b"DATA\r\n")]
        assert [one[:3] for one in said] == [b"354", b"250"]


async def test_an_idle_connection_is_told_421_and_closed() -> None:
    async with serving("421:at=idle", idle_s=0.3) as (bench, server):
        client = await client_of(server)
        await asyncio.to_thread(client.sendmail, SENDER, [ADA], letter())
        await soon(lambda: bench.ledger.results.get(CallResult.NOT_ACCEPTED))
        assert (await asyncio.to_thread(client.mail, SENDER))[0] == 421
        client.close()


async def test_an_idle_connection_is_bothered_once_a_pause() -> None:
    async with serving("451:at=idle", idle_s=0.01) as (bench, server), wire_to(server) as wire:
        await wire.reply()
        await wire.say(b"EHLO x\r\n")
        assert (await wire.reply())[:3] == b"451"
        await asyncio.sleep(0.1)
        assert bench.ledger.results == {CallResult.NOT_ACCEPTED: 1}
        assert (await wire.say(b"NOOP\r\n"))[:3] == b"250"


async def test_refused_connections_are_really_refused_and_the_port_opens_again() -> None:
    async with serving() as (bench, server), wire_to(server) as wire:
        await wire.reply()
        bench.api.set_faults(FaultPlan([parse_fault("refuse:until=1m")]), bench.now)
        assert await wire.rest() == b""
        await soon(lambda: _refused(server.port))
        bench.now += 60
        await soon(lambda: not _refused(server.port))
        await deliver(server)
        assert len(bench.ledger.acceptances) == 1


def _refused(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return False
    except ConnectionRefusedError:
        return True


async def test_a_port_in_use_is_named() -> None:
    async with serving() as (bench, server):
        with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1:{server.port}"):
            await serve_smtp(bench.api, clock=bench.clock, port=server.port)


async def test_closing_cuts_stalled_connections_at_once() -> None:
    async with serving("stall-accepted:at=dot") as (bench, server):
        stalled = asyncio.create_task(deliver(server))
        await soon(lambda: bench.ledger.acceptances)
        began = time.monotonic()
        await server.close()
        assert time.monotonic() - began < 1
        with pytest.raises(smtplib.SMTPServerDisconnected):
            await stalled
        assert _refused(urlsplit(server.url).port or 0)
