"""The `smtp` provider against a server that says whatever a test tells it to."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.providers.port import Provider
from tests.providers.messages import ADA, BOB, full_message, message
from tests.providers.smtp_routes import (
    ACCEPTED,
    LATER,
    LONG,
    MISCONFIGURED,
    OUTAGE,
    REJECTED,
    SHORT,
    THROTTLED,
    UNKNOWN,
    Meaning,
    meaning,
    route,
    sent,
    talking,
)
from tests.providers.smtp_server import (
    CLOSE,
    CUT,
    HELLO,
    PIPELINING,
    SILENCE,
    USUAL,
    Script,
    cram_md5_challenge,
    scripted_server,
)
from tests.providers.wire import free_port


@pytest.fixture(autouse=True, params=["a command after each reply", "all commands at once"])
def _offer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a server says means the same with PIPELINING and without."""
    if request.param == "all commands at once":
        monkeypatch.setitem(USUAL, "ehlo", PIPELINING)


# Every step, and whatever can go wrong at it.

STEPS = ["banner", "ehlo", "mail", "rcpt", "data", "dot"]
BEFORE_THE_DOT = STEPS[:-1]

FAULTS: list[tuple[str, bytes, Meaning]] = [
    ("banner", b"421 4.7.0 not now\r\n", THROTTLED),
    ("banner", b"450 later\r\n", OUTAGE),
    ("banner", b"554 5.7.1 go away\r\n", MISCONFIGURED),
    ("ehlo", b"451 4.3.0 local error\r\n", OUTAGE),
    ("ehlo", b"502 5.5.1 what?\r\n", MISCONFIGURED),
    ("mail", b"451 4.7.1 rate limit exceeded\r\n", THROTTLED),
    ("mail", b"452 4.3.1 Insufficient system storage\r\n", OUTAGE),
    ("mail", b"530 5.7.0 Authentication required\r\n", MISCONFIGURED),
    ("mail", b"550 5.7.1 not you\r\n", MISCONFIGURED),
    ("mail", b"501 5.1.7 bad syntax\r\n", REJECTED),
    ("rcpt", b"450 4.2.0 Greylisted\r\n", LATER),
    ("rcpt", b"552 5.2.2 mailbox full\r\n", LATER),
    ("rcpt", b"550 5.1.1 no such user\r\n", REJECTED),
    ("rcpt", b"554 5.7.1 Relay access denied\r\n", MISCONFIGURED),
    ("data", b"451 4.3.0 queue file write error\r\n", OUTAGE),
    ("data", b"554 5.5.1 no valid recipients\r\n", REJECTED),
    ("dot", b"250 2.0.0 Ok\r\n", ACCEPTED),
    ("dot", b"299 fine\r\n", ACCEPTED),
    ("dot", b"451 4.3.0 local error\r\n", LATER),
    ("dot", b"454 Throttling failure: Maximum sending rate exceeded\r\n", THROTTLED),
    ("dot", b"421 4.3.2 shutting down\r\n", OUTAGE),
    ("dot", b"554 5.7.1 spam\r\n", REJECTED),
    ("dot", b"554 Message rejected: Email address is not verified.\r\n", MISCONFIGURED),
    # What is no answer to the command: out of step, and the content was not sent; after the dot nobody knows.
    ("banner", b"250 hello\r\n", OUTAGE),
    ("rcpt", b"354 go ahead\r\n", OUTAGE),
    ("data", b"250 2.0.0 Ok\r\n", OUTAGE),
    ("dot", b"354 go ahead\r\n", UNKNOWN),
    *((step, b"what is this\r\n", OUTAGE) for step in BEFORE_THE_DOT),
    *((step, b"-12 below zero\r\n", OUTAGE) for step in BEFORE_THE_DOT),
    ("dot", b"what is this\r\n", UNKNOWN),
    # Cut, closed, and cut in the middle of a reply.
    *((step, CUT, OUTAGE) for step in BEFORE_THE_DOT),
    *((step, CLOSE, OUTAGE) for step in BEFORE_THE_DOT),
    *((step, b"25" + CLOSE, OUTAGE) for step in BEFORE_THE_DOT),
    ("dot", CUT, UNKNOWN),
    ("dot", CLOSE, UNKNOWN),
    ("dot", b"25" + CLOSE, UNKNOWN),
    ("dot", b"250-2.0.0 Ok\r\n250 que" + CLOSE, ACCEPTED),
    ("dot", b"451-4.3.0 no\r\n45" + CLOSE, LATER),
    ("dot", b"250 2.0.0 Ok\r\n" + CLOSE, ACCEPTED),
]


@pytest.mark.parametrize(("step", "said", "means"), FAULTS, ids=lambda value: str(value)[:40])
async def test_what_a_server_says_at_a_step_means(step: str, said: bytes, means: Meaning) -> None:
    verdict, server = await sent({step: said})
    assert meaning(verdict) == means, verdict
    assert verdict.code
    assert verdict.rule
    assert len(server.contents) == (step == "dot"), "content goes out after 354, and then only"
    assert server.opened == 1


@pytest.mark.parametrize("step", STEPS)
async def test_silence_ends_the_call_by_the_steps_own_timer(step: str) -> None:
    verdict, server = await sent({step: SILENCE}, timeout=SHORT, connect_timeout=SHORT, final_timeout=SHORT)
    assert meaning(verdict) == (UNKNOWN if step == "dot" else OUTAGE), verdict
    assert verdict.code == "timeout"
    assert "QUIT" not in server.steps(), "a connection that fell silent is cut"


async def test_the_wait_after_the_final_dot_has_its_own_timer() -> None:
    verdict, _ = await sent({"dot": SILENCE}, timeout=LONG, content_timeout=LONG, final_timeout=SHORT)
    assert verdict.outcome is Outcome.UNKNOWN
    assert (
        route("smtp", 1, timeout="5s", connect_timeout="1s", content_timeout="7s", final_timeout="600s").facts.timeout_s
        == 612
    )


@pytest.mark.parametrize("step", ["banner", "ehlo", "mail", "rcpt", "data"])
async def test_two_replies_in_one_packet_end_the_conversation_before_the_content(step: str) -> None:
    verdict, server = await sent({step: USUAL[step] + b"250 2.0.0 and this\r\n"})
    assert meaning(verdict) == OUTAGE, verdict
    assert verdict.code in ("out_of_step", "250"), "among several replies the one too many is the one that doesn't fit"
    assert server.contents == []


@pytest.mark.parametrize(
    ("said", "means"),
    [(b"550 5.7.1 not from you\r\n", REJECTED), (b"451 4.7.1 rate limit exceeded\r\n", THROTTLED)],
)
async def test_a_refusal_in_one_packet_with_the_leave_to_send_is_heard(said: bytes, means: Meaning) -> None:
    verdict, server = await sent({"data": USUAL["data"] + said})
    assert meaning(verdict) == means, verdict
    assert server.contents == []


async def test_two_replies_after_the_final_dot_are_an_acceptance_on_a_connection_that_is_not_used_again() -> None:
    async with talking({"dot": USUAL["dot"] + b"451 no\r\n"}) as (server, provider):
        assert (await provider.send(message())).outcome is Outcome.ACCEPTED
        assert (await provider.send(message())).outcome is Outcome.ACCEPTED
        assert server.opened == 2
        assert len(server.contents) == 2


async def test_a_long_reply_of_many_lines_is_one_reply_and_kept_within_bounds() -> None:
    lines = b"".join(b"550-5.7.1 line %03d of a long story about a policy\r\n" % number for number in range(80))
    verdict, _ = await sent({"dot": lines + b"550 5.7.1 that is all\r\n"})
    assert meaning(verdict) == REJECTED
    assert "line 000" in verdict.text
    assert len(lines) > 4000
    assert verdict.raw is not None
    assert len(verdict.raw) <= 2000


async def test_a_reply_without_end_is_no_reply() -> None:
    verdict, _ = await sent({"mail": b"250-" + b"x" * 40_000 + b"\r\n"})
    assert meaning(verdict) == OUTAGE
    assert verdict.code == "bad_reply"


async def test_a_server_that_refuses_in_the_middle_of_the_content_is_heard() -> None:
    arrived: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(USUAL["banner"])
        for reply in (b"250 hi\r\n", USUAL["mail"], USUAL["rcpt"], USUAL["data"]):
            await reader.readuntil(b"\r\n")
            writer.write(reply)
        await reader.readexactly(100_000)
        writer.write(b"552 5.3.4 message too large\r\n")
        arrived.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    provider = route("smtp", server.sockets[0].getsockname()[1])
    verdict = await provider.send(message(text="0123456789\n" * 2_000_000))
    await provider.close()
    server.close()
    assert meaning(verdict) == REJECTED, verdict
    assert "message too large" in verdict.text
    assert not arrived or not arrived[0].endswith(b"\r\n.\r\n"), "the final dot would make it a message"


async def test_a_refusal_that_cuts_the_connection_before_the_content_is_heard() -> None:
    """Whoever writes before he has read what is there loses it: the connection is reset."""
    loop = asyncio.get_running_loop()

    async def talk(listener: socket.socket) -> None:
        connection, _ = await loop.sock_accept(listener)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for said in (USUAL["banner"], b"250 hi\r\n", USUAL["mail"], USUAL["rcpt"], USUAL["data"]):
            if said != USUAL["banner"]:
                await loop.sock_recv(connection, 1000)
            connection.send(said)
        for _ in range(2):  # the leave is read by then, and nothing is written yet
            await asyncio.sleep(0)
        connection.send(b"550 5.7.1 not from you\r\n")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        provider = route("smtp", listener.getsockname()[1])
        verdict, _ = await asyncio.gather(provider.send(message()), talk(listener))
        await provider.close()
    assert meaning(verdict) == REJECTED, verdict
    assert "not from you" in verdict.text


async def test_a_server_that_refuses_in_the_middle_of_the_content_and_reads_no_more_is_heard() -> None:
    heard = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(USUAL["banner"])
        for reply in (b"250 hi\r\n", USUAL["mail"], USUAL["rcpt"], USUAL["data"]):
            await reader.readuntil(b"\r\n")
            writer.write(reply)
        await reader.readexactly(100_000)
        writer.write(b"552 5.3.4 message too large\r\n")
        await heard.wait()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    provider = route("smtp", server.sockets[0].getsockname()[1])
    verdict = await provider.send(message(text="0123456789\n" * 2_000_000))
    heard.set()
    await provider.close()
    server.close()
    assert meaning(verdict) == REJECTED, verdict


# Recipients.


async def test_what_some_recipients_got_is_accepted_and_the_others_are_named() -> None:
    script: Script = {
        "rcpt bob@example.com": b"550 5.1.1 no such user\r\n",
        "rcpt eve@example.com": b"451 4.3.0 later\r\n",
    }
    async with talking(script) as (server, provider):
        verdict = await provider.send(message(to=(ADA, BOB, Address("eve@example.com"))))
    assert (verdict.outcome, verdict.rule, verdict.message_id) == (Outcome.ACCEPTED, "partly accepted", "m-1")
    assert "bob@example.com: rejected, 550" in verdict.text
    assert "eve@example.com: transient, 451" in verdict.text
    assert "ada@example.com" not in verdict.text
    assert len(server.contents) == 1


@pytest.mark.parametrize(
    ("bob", "outcome"),
    [
        (b"550 5.1.1 no such user\r\n", Outcome.REJECTED),
        (b"450 4.2.1 busy\r\n", Outcome.TRANSIENT),
        (b"451 4.7.1 rate limit\r\n", Outcome.THROTTLED),
        (b"554 5.7.1 Relay access denied\r\n", Outcome.MISCONFIGURED),
    ],
)
async def test_when_all_are_refused_no_content_goes_out_and_one_who_may_get_it_later_keeps_the_send_alive(
    bob: bytes, outcome: Outcome
) -> None:
    async with talking({"rcpt": b"550 5.1.1 no\r\n", "rcpt bob@example.com": bob}) as (server, provider):
        verdict = await provider.send(message(to=(ADA, BOB)))
        assert verdict.outcome is outcome
        assert "ada@example.com" in verdict.text
        assert server.contents == []
        server.script.clear()
        assert (await provider.send(message())).outcome is Outcome.ACCEPTED
        assert server.opened == 1, "a refusal leaves the connection in step"


async def test_a_session_that_ends_among_the_recipients_was_accepted_by_nobody() -> None:
    async with talking({"rcpt bob@example.com": b"421 4.7.0 enough\r\n" + CLOSE}) as (server, provider):
        verdict = await provider.send(message(to=(ADA, BOB)))
    assert meaning(verdict) == THROTTLED
    assert server.contents == []


async def test_everybody_is_in_the_envelope_once_and_bcc_is_nowhere_else() -> None:
    async with talking() as (server, provider):
        verdict = await provider.send(full_message(to=(ADA, BOB, ADA)))
    assert verdict.outcome is Outcome.ACCEPTED
    assert [line for line in server.heard if line.startswith("RCPT")] == [
        f"RCPT TO:<{who}@example.com>" for who in ("ada", "bob", "cc", "bcc")
    ]
    assert b"bcc" not in server.contents[0].lower()


async def test_a_mailbox_that_is_not_there_says_nothing_about_the_route() -> None:
    verdict, _ = await sent({"rcpt": b"550 5.1.1 no such user\r\n"})
    assert verdict.subject is Subject.RECIPIENT


async def test_an_address_is_bad_where_the_server_says_so_of_that_recipient() -> None:
    refusals: Script = {
        "rcpt bob@example.com": b"550 5.1.1 no such user\r\n",
        "rcpt eve@example.com": b"550 5.7.1 policy\r\n",
    }
    everybody = (ADA, BOB, Address("eve@example.com"))
    async with talking(refusals) as (_, provider):
        assert (await provider.send(message(to=everybody))).bad_addresses == ("bob@example.com",)
        assert (await provider.send(message(to=everybody[1:]))).bad_addresses == ("bob@example.com",)
        assert (await provider.send(message(to=(BOB,)))).bad_addresses == ("bob@example.com",)
        assert (await provider.send(message(to=(ADA,)))).bad_addresses == ()


async def test_after_the_final_dot_an_address_is_bad_only_where_it_is_the_only_one() -> None:
    async with talking({"dot": b"550 5.1.1 no such user\r\n"}) as (_, provider):
        assert (await provider.send(message(to=(BOB,)))).bad_addresses == ("bob@example.com",)
        assert (await provider.send(message(to=(ADA, BOB)))).bad_addresses == ()


async def test_a_greylisted_recipient_waits_as_long_as_the_server_says() -> None:
    verdict, _ = await sent({"rcpt": b"451 4.7.1 Greylisted, come back in 2 minutes\r\n"})
    assert verdict.retry_after_s == 120
    verdict, _ = await sent({"rcpt": b"451 4.7.1 Greylisted\r\n"})
    assert verdict.retry_after_s == 300


# Addresses and sizes.


async def test_domains_go_out_as_a_labels_and_the_envelope_sender_is_apart() -> None:
    async with talking(envelope_sender="bounces@bücher.example") as (server, provider):
        await provider.send(message(to=(Address("ada@müller.example"),)))
    assert any(line.startswith("MAIL FROM:<bounces@xn--bcher-kva.example>") for line in server.heard)
    assert "RCPT TO:<ada@xn--mller-kva.example>" in server.heard
    assert b"From: Shop <orders@shop.example>" in server.contents[0]
    assert server.contents[0].isascii()


async def test_each_send_has_an_envelope_sender_of_its_own_where_bounces_shall_say_which_send() -> None:
    async with talking(bounce_address="bounces+{id}@bücher.example") as (server, provider):
        for key in ("0" * 32, "1" * 32):
            await provider.send(message(idempotency_key=key))
        await provider.send(message(envelope_sender=Address("own@shop.example")))
    senders = [line.partition(" ")[2].partition(" ")[0] for line in server.heard if line.startswith("MAIL")]
    assert senders == [
        f"FROM:<bounces+{'0' * 32}@xn--bcher-kva.example>",
        f"FROM:<bounces+{'1' * 32}@xn--bcher-kva.example>",
        "FROM:<own@shop.example>",
    ]


async def test_a_non_ascii_local_part_needs_smtputf8_and_is_else_refused_before_anything_is_sent() -> None:
    async with talking() as (server, provider):
        verdict = await provider.send(message(to=(Address("müller@example.com"),)))
        assert (verdict.outcome, verdict.code) == (Outcome.REJECTED, "no_smtputf8")
        assert "SMTPUTF8" in verdict.text
        assert "MAIL" not in server.steps()
        assert (await provider.send(message())).outcome is Outcome.ACCEPTED
        assert server.opened == 1
    async with talking({"ehlo": HELLO + b"250 SMTPUTF8\r\n"}) as (server, provider):
        verdict = await provider.send(message(to=(Address("müller@bücher.example"),)))
    assert verdict.outcome is Outcome.ACCEPTED
    assert any(line.endswith("SMTPUTF8 BODY=8BITMIME") for line in server.heard)
    assert "RCPT TO:<müller@xn--bcher-kva.example>" in server.heard


async def test_a_message_larger_than_the_server_says_is_refused_before_it_is_sent() -> None:
    async with talking({"ehlo": b"250-hi\r\n250 SIZE 1000\r\n"}) as (server, provider):
        verdict = await provider.send(message(text="long " * 1000))
        assert (verdict.outcome, verdict.code) == (Outcome.REJECTED, "too_large")
        assert "MAIL" not in server.steps()
        await provider.send(message())
    size = len(server.contents[0])
    assert f"SIZE={size}" in next(line for line in server.heard if line.startswith("MAIL"))


@pytest.mark.parametrize("said", [b"250 SIZE\r\n", b"250 SIZE 0\r\n", b"250 SIZE soon\r\n"])
async def test_a_size_that_names_no_limit_is_none(said: bytes) -> None:
    verdict, _ = await sent({"ehlo": b"250-hi\r\n" + said})
    assert verdict.outcome is Outcome.ACCEPTED


async def test_lines_that_begin_with_a_dot_get_another() -> None:
    async with talking() as (server, provider):
        await provider.send(message(text=".\n..\n.end\nx"))
    assert server.contents[0].endswith(b"\r\n..\r\n...\r\n..end\r\nx\r\n")


# Connections.


async def test_a_connection_is_used_again_with_a_reset_between() -> None:
    async with talking() as (server, provider):
        for _ in range(3):
            assert (await provider.send(message())).outcome is Outcome.ACCEPTED
    assert server.opened == 1
    assert server.steps() == ["EHLO", "MAIL", "RCPT", "DATA", *["RSET", "MAIL", "RCPT", "DATA"] * 2, "QUIT"]


async def test_a_connection_has_its_maximum_of_messages() -> None:
    async with talking(max_messages=2) as (server, provider):
        for _ in range(5):
            await provider.send(message())
        assert server.opened == 3
        assert server.steps().count("QUIT") >= 1


async def test_an_idle_connection_is_closed_politely() -> None:
    async with talking(idle_close="50ms") as (server, provider):
        await provider.send(message())
        async with asyncio.timeout(5):
            await server.event("quit").wait()
        await provider.send(message())
        assert server.opened == 2


async def test_there_are_never_more_connections_than_calls_at_once() -> None:
    async with talking(concurrency=3, max_messages=2) as (server, provider):
        verdicts = await asyncio.gather(*(provider.send(message(send_id=n)) for n in range(20)))
        assert {verdict.outcome for verdict in verdicts} == {Outcome.ACCEPTED}
        assert server.open_most <= 3
    assert len(server.contents) == 20


async def test_a_connection_that_is_being_closed_still_counts() -> None:
    async with talking({"quit": SILENCE}, concurrency=2, idle_close="30ms") as (server, provider):
        await asyncio.gather(provider.send(message(send_id=1)), provider.send(message(send_id=2)))
        async with asyncio.timeout(5):
            await server.event("quit").wait()  # the server has not let go of it, and won't for a while
        await asyncio.gather(*(provider.send(message(send_id=n)) for n in range(3, 9)))
        assert server.open_most == 2
    assert len(server.contents) == 8


async def test_a_lower_limit_closes_what_is_idle_beyond_it_and_holds_from_then_on() -> None:
    async with talking(concurrency=4) as (server, provider):
        await asyncio.gather(*(provider.send(message(send_id=n)) for n in range(4)))
        assert server.open_now == 4
        assert await provider.limit_connections(2) == 2
        assert server.open_now == 2
        server.open_most = 0
        await asyncio.gather(*(provider.send(message(send_id=n)) for n in range(8)))
        assert server.open_most <= 2
        await provider.limit_connections(0)
        waiting = asyncio.create_task(provider.send(message(send_id=9)))
        await asyncio.sleep(0)
        assert not waiting.done()
        await provider.limit_connections(1)
        assert (await waiting).outcome is Outcome.ACCEPTED


@pytest.mark.parametrize("how", [b"421 4.4.2 idle for too long\r\n" + CLOSE, CLOSE, CUT])
async def test_a_connection_closed_while_it_was_idle_is_replaced_without_a_word(how: bytes) -> None:
    async with talking() as (server, provider):
        await provider.send(message())
        writer = server.writers[0]
        if how == CUT:
            writer.transport.abort()
        else:
            writer.write(how.removesuffix(CLOSE))
            writer.close()
        await asyncio.sleep(0)
        assert (await provider.send(message())).outcome is Outcome.ACCEPTED
    assert server.opened == 2
    assert len(server.contents) == 2


async def test_words_on_an_idle_connection_are_never_taken_for_an_answer() -> None:
    async with talking() as (server, provider):
        await provider.send(message())
        server.writers[0].write(b"250 2.0.0 Ok\r\n")  # the connection stays open
        await server.writers[0].drain()
        async with asyncio.timeout(5):
            while server.opened == 1:
                await provider.send(message())
    assert len(server.contents) >= 2


@pytest.mark.parametrize("step", ["rset", "mail"])
@pytest.mark.parametrize("said", [b"421 4.4.2 this session is at its end\r\n" + CLOSE, CLOSE, CUT])
async def test_a_session_at_its_end_is_replaced_once_and_the_message_goes_out_once(step: str, said: bytes) -> None:
    usual = [] if step == "rset" else [USUAL[step]]
    async with talking({step: [*usual, said]}, concurrency=1) as (server, provider):
        await provider.send(message())
        assert (await provider.send(message())).outcome is Outcome.ACCEPTED
        assert server.open_most == 1
    assert server.opened == 2
    assert len(server.contents) == 2


@pytest.mark.parametrize("said", [b"500 5.5.1 what?\r\n", b"450 4.3.0 not now\r\n"])
async def test_a_session_that_refuses_the_reset_is_replaced_and_stops_no_route(said: bytes) -> None:
    async with talking({"rset": said}, concurrency=1) as (server, provider):
        for _ in range(3):
            assert (await provider.send(message())).outcome is Outcome.ACCEPTED
    assert server.opened == 3
    assert server.steps()[-2:] == ["DATA", "QUIT"]
    assert len(server.contents) == 3


async def test_a_limit_is_never_answered_with_another_connection() -> None:
    async with talking({"mail": [USUAL["mail"], b"421 4.7.0 too many messages, slow down\r\n" + CLOSE]}) as (
        server,
        provider,
    ):
        await provider.send(message())
        verdict = await provider.send(message())
        assert meaning(verdict) == THROTTLED
        assert server.opened == 1
        assert server.steps()[-1] in ("MAIL", "QUIT")


async def test_a_new_connection_that_is_refused_is_not_tried_again() -> None:
    async with talking({"banner": b"421 4.7.0 not now\r\n"}) as (server, provider):
        assert meaning(await provider.send(message())) == THROTTLED
        assert server.opened == 1


@pytest.mark.parametrize("step", ["rcpt", "data", "dot"])
async def test_after_a_timeout_the_connection_is_cut_and_never_used_again(step: str) -> None:
    async with talking({step: [SILENCE]}, timeout="300ms", connect_timeout="300ms", final_timeout="300ms") as (
        server,
        provider,
    ):
        assert (await provider.send(message())).code == "timeout"
        assert (await provider.send(message())).outcome is Outcome.ACCEPTED
        assert server.opened == 2


async def test_a_call_that_finds_no_free_connection_in_time_has_sent_nothing() -> None:
    async with talking({"dot": SILENCE}, concurrency=1, timeout="200ms", connect_timeout="200ms") as (server, provider):
        first = asyncio.create_task(provider.send(message()))
        await server.event("dot").wait()
        assert meaning(await provider.send(message(send_id=8))) == OUTAGE
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        server.script.clear()
        assert (await provider.send(message(send_id=9))).outcome is Outcome.ACCEPTED


@pytest.mark.parametrize("step", STEPS)
async def test_a_call_cancelled_at_any_step_leaves_nothing_open_and_frees_its_place(step: str) -> None:
    async with talking({step: [SILENCE]}, concurrency=1) as (server, provider):
        task = asyncio.create_task(provider.send(message()))
        await server.event(step).wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await provider.send(message(send_id=8))).outcome is Outcome.ACCEPTED
        assert server.opened == 2


async def test_a_closed_route_keeps_nothing_that_comes_back_later() -> None:
    async with talking({"dot": [SILENCE]}) as (server, provider):
        await provider.close()
        assert (await provider.health()) is not None
        await provider.close()
        assert server.steps()[-1] == "QUIT"


# TLS and credentials.


async def test_starttls_comes_before_anything_else_and_what_was_said_before_it_counts_for_nothing() -> None:
    hello: list[bytes] = [b"250-hi\r\n250-SIZE 1\r\n250 STARTTLS\r\n", HELLO + b"250 AUTH PLAIN\r\n"]
    async with scripted_server({"ehlo": hello}) as server:
        provider = route("smtp+starttls", server.port, "shop%40example.com@")
        assert (await provider.send(message())).outcome is Outcome.ACCEPTED
        await provider.close()
    assert server.steps()[:4] == ["EHLO", "STARTTLS", "EHLO", "AUTH"]
    assert base64.b64decode(server.heard[3].split()[2]) == b"\0shop@example.com\0swordfish"


@pytest.mark.parametrize(
    ("script", "means", "code"),
    [
        ({}, MISCONFIGURED, "no_starttls"),
        ({"ehlo": b"250-hi\r\n250 STARTTLS\r\n", "starttls": b"454 4.7.0 not now\r\n"}, OUTAGE, "454"),
        ({"ehlo": b"250-hi\r\n250 STARTTLS\r\n", "starttls": b"502 5.5.1 no\r\n"}, MISCONFIGURED, "502"),
        ({"ehlo": b"250-hi\r\n250 STARTTLS\r\n", "starttls": CUT}, OUTAGE, "lost"),
        ({"ehlo": b"250-hi\r\n250 STARTTLS\r\n", "starttls": b"what is this\r\n"}, OUTAGE, "bad_reply"),
        ({"ehlo": b"250-hi\r\n250 STARTTLS\r\n", "starttls": b"-12 below zero\r\n"}, OUTAGE, "bad_reply"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_without_tls_nothing_is_said(script: Script, means: Meaning, code: str) -> None:
    async with scripted_server(script) as server:
        provider = route("smtp+starttls", server.port, "shop@")
        verdict = await provider.send(message())
        await provider.close()
    assert (meaning(verdict), verdict.code) == (means, code)
    assert not {"AUTH", "MAIL"} & set(server.steps())


@asynccontextmanager
async def shaking_hands() -> AsyncIterator[tuple[asyncio.Queue[asyncio.StreamWriter], Provider]]:
    """A server that never gets further than the TLS handshake, each of its connections, and a route with one place."""
    begun: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for said in (USUAL["banner"], b"250-hi\r\n250 STARTTLS\r\n", USUAL["starttls"]):
            writer.write(said)
            await reader.read(1000)
        begun.put_nowait(writer)

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    provider = route("smtp+starttls", server.sockets[0].getsockname()[1], concurrency=1)
    yield begun, provider
    await provider.close()
    server.close()


async def test_a_handshake_that_is_cut_frees_its_place() -> None:
    async with shaking_hands() as (begun, provider):
        for _ in range(2):
            call = asyncio.create_task(provider.send(message()))
            (await begun.get()).transport.abort()
            assert (meaning(await call), call.result().code) == (OUTAGE, "lost")


async def test_a_call_cancelled_in_the_handshake_frees_its_place() -> None:
    async with shaking_hands() as (begun, provider):
        for _ in range(2):
            call = asyncio.create_task(provider.send(message()))
            await begun.get()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call


async def test_words_smuggled_in_before_the_handshake_end_the_conversation() -> None:
    script: Script = {"ehlo": b"250-hi\r\n250 STARTTLS\r\n", "starttls": b"220 go\r\n250-evil\r\n250 AUTH PLAIN\r\n"}
    async with scripted_server(script) as server:
        provider = route("smtp+starttls", server.port, "shop@")
        verdict = await provider.send(message())
        await provider.close()
    assert verdict.outcome in (Outcome.TRANSIENT, Outcome.MISCONFIGURED)
    assert "AUTH" not in server.steps()


async def test_a_certificate_that_can_not_be_verified_stops_the_route() -> None:
    async with scripted_server(tls=True) as server:
        provider = route("smtps", server.port, "shop@", ca_file=None)
        verdict = await provider.send(message())
        await provider.close()
    assert (meaning(verdict), verdict.code, verdict.subject) == (MISCONFIGURED, "tls_verify", Subject.ROUTE)
    assert server.heard == []


async def test_a_server_without_tls_behind_an_smtps_url_stops_the_route() -> None:
    async with scripted_server() as server:
        provider = route("smtps", server.port, "shop@")
        verdict = await provider.send(message())
        await provider.close()
    assert meaning(verdict) == MISCONFIGURED


AUTH: Script = {"ehlo": HELLO + b"250 AUTH PLAIN LOGIN CRAM-MD5 XOAUTH2\r\n"}


async def let_in(script: Script, **settings: Any) -> tuple[Verdict, list[str]]:
    """One message over TLS with a credential, and what the server heard from AUTH up to MAIL."""
    async with scripted_server(AUTH | script, tls=True) as server:
        provider = route("smtps", server.port, "shop@", **settings)
        verdict = await provider.send(message())
        await provider.close()
    until = next((place for place, line in enumerate(server.heard) if line.startswith("MAIL")), len(server.heard))
    return verdict, server.heard[1:until]


async def test_login_shows_the_user_and_the_password_in_turn() -> None:
    script: Script = {"auth": b"334 VXNlcm5hbWU6\r\n", "line": [b"334 UGFzc3dvcmQ6\r\n", USUAL["line"]]}
    verdict, heard = await let_in(script, auth_method="login")
    assert verdict.outcome is Outcome.ACCEPTED
    assert heard[0] == "AUTH LOGIN"
    assert [base64.b64decode(line) for line in heard[1:]] == [b"shop", b"swordfish"]


async def test_cram_md5_answers_the_challenge_without_the_password() -> None:
    verdict, heard = await let_in({"auth": cram_md5_challenge()}, auth_method="cram-md5")
    digest = hmac.new(b"swordfish", b"<1896.697170952@scripted>", hashlib.md5).hexdigest()
    assert verdict.outcome is Outcome.ACCEPTED
    assert base64.b64decode(heard[1]).decode() == f"shop {digest}"


async def test_xoauth2_shows_the_token_and_hears_the_reason_of_a_refusal() -> None:
    verdict, heard = await let_in({}, auth_method="xoauth2")
    assert verdict.outcome is Outcome.ACCEPTED
    assert base64.b64decode(heard[0].split()[2]) == b"user=shop\x01auth=Bearer swordfish\x01\x01"
    script: Script = {"auth": b"334 eyJzdGF0dXMiOiI0MDEifQ==\r\n", "line": b"535 5.7.8 token expired\r\n"}
    verdict, heard = await let_in(script, auth_method="xoauth2")
    assert (meaning(verdict), verdict.code) == (MISCONFIGURED, "535")
    assert heard[1] == ""


@pytest.mark.parametrize(
    ("script", "settings", "means", "code"),
    [
        ({"auth": b"535 5.7.8 no\r\n"}, {}, MISCONFIGURED, "535"),
        ({"auth": b"534 5.7.9 too weak\r\n"}, {}, MISCONFIGURED, "534"),
        ({"auth": b"454 4.7.0 later\r\n"}, {}, OUTAGE, "454"),
        ({"auth": b"535 5.7.8 Too many connections per account\r\n"}, {}, THROTTLED, "535"),
        ({"auth": b"334 abcde\r\n"}, {"auth_method": "cram-md5"}, MISCONFIGURED, "bad_challenge"),
        ({"ehlo": HELLO + b"250 HELP\r\n"}, {}, MISCONFIGURED, "no_auth"),
        ({"ehlo": HELLO + b"250 AUTH PLAIN\r\n"}, {"auth_method": "login"}, MISCONFIGURED, "no_auth"),
        ({}, {"password": "env:NO_SUCH_VARIABLE_IS_SET"}, MISCONFIGURED, "no_credential"),
        ({"auth": CUT}, {}, OUTAGE, "lost"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_not_being_let_in_means(script: Script, settings: dict[str, Any], means: Meaning, code: str) -> None:
    verdict, _ = await let_in(script, **settings)
    assert (meaning(verdict), verdict.code) == (means, code)
    assert "swordfish" not in repr(verdict)


async def test_a_refused_password_ends_the_idle_connections_and_its_replacement_is_noticed(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("yesterday's")
    accepted, no = USUAL["auth"], b"535 5.7.8 no\r\n"
    async with scripted_server(AUTH | {"auth": [accepted, no, accepted]}, tls=True) as server:
        provider = route("smtps", server.port, "shop@", password=f"file:{password}")
        verdicts = await asyncio.gather(provider.send(message(send_id=1)), provider.send(message(send_id=2)))
        assert {meaning(verdict) for verdict in verdicts} == {ACCEPTED, MISCONFIGURED}
        assert not provider.credential_changed()
        password.write_text("swordfish")
        assert [provider.credential_changed() for _ in range(2)] == [True, False]
        assert (await provider.send(message(send_id=3))).outcome is Outcome.ACCEPTED
        await provider.close()
    shown = [line for line in server.heard if line.startswith("AUTH")]
    assert [base64.b64decode(line.split()[2]) for line in shown] == [b"\0shop\0yesterday's"] * 2 + [
        b"\0shop\0swordfish"
    ]


async def test_no_form_of_the_credential_shows_in_a_verdict() -> None:
    encoded = base64.b64encode(b"\0shop\0swordfish")
    verdict, _ = await let_in({"auth": b"535 5.7.8 swordfish " + encoded + b" no\r\n"})
    assert "swordfish" not in repr(verdict)
    assert encoded.decode() not in repr(verdict)


# Health and the world around.


async def test_health_is_let_in_and_sends_nothing() -> None:
    async with talking() as (server, provider):
        verdict = await provider.health()
        assert verdict is not None
        assert verdict.outcome is Outcome.ACCEPTED
        assert "MAIL" not in server.steps()
        server.script["banner"] = b"554 no\r\n"
        verdict = await provider.health()
        assert verdict is not None
        assert verdict.outcome is Outcome.MISCONFIGURED


async def test_a_host_that_is_not_there_has_accepted_nothing() -> None:
    provider = route("smtp", free_port())
    verdict = await provider.send(message())
    assert (meaning(verdict), verdict.code) == (OUTAGE, "connect_refused")


async def test_the_greeting_is_our_address_or_the_configured_name() -> None:
    _, server = await sent({})
    assert server.heard[0] == "EHLO [127.0.0.1]"
    _, server = await sent({}, local_hostname="shop.example")
    assert server.heard[0] == "EHLO shop.example"


async def test_the_server_is_never_asked_for_a_message() -> None:
    provider = route("smtp", free_port())
    assert not provider.facts.can_look_up
    assert (await provider.look_up(message())).message_id is None
