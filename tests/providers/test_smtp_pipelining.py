"""Commands that go out together, where the server offers it (RFC 2920), and replies that don't fit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from posthouse.core.outcome import Outcome
from posthouse.providers.port import Provider
from tests.providers.messages import ADA, BOB, message
from tests.providers.smtp_routes import (
    ACCEPTED,
    MISCONFIGURED,
    OUTAGE,
    REJECTED,
    SHORT,
    THROTTLED,
    meaning,
    route,
    talking,
)
from tests.providers.smtp_server import CLOSE, HELLO, PIPELINING, SILENCE, USUAL, Script

NOBODY = b"550 5.1.1 no such user\r\n"
REFUSED = b"554 5.5.1 no valid recipients\r\n"
ENVELOPE = (USUAL["mail"], USUAL["rcpt"], USUAL["data"])

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def _offer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(USUAL, "ehlo", PIPELINING)


@asynccontextmanager
async def served(talk: Talk) -> AsyncIterator[Provider]:
    """A route to a server that talks like this, and then closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        provider = route("smtp", server.sockets[0].getsockname()[1])
        yield provider
        await provider.close()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: bytes) -> None:
    writer.write(USUAL["banner"])
    await reader.readuntil(b"\r\n")
    writer.write(hello)


# What goes out together.


async def test_the_whole_envelope_goes_out_before_the_first_reply() -> None:
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, PIPELINING)
        for _ in range(2):
            heard.append(await reader.readuntil(b"DATA\r\n"))
            replies = heard[-1].count(b"\r\n") - len(ENVELOPE)
            writer.write(USUAL["rset"] * replies + b"".join(ENVELOPE))
            await reader.readuntil(b"\r\n.\r\n")
            writer.write(USUAL["dot"])

    async with served(talk) as provider:
        assert meaning(await provider.send(message())) == ACCEPTED
        assert meaning(await provider.send(message())) == ACCEPTED
    assert [[line.split()[0] for line in group.splitlines()] for group in heard] == [
        [b"MAIL", b"RCPT", b"DATA"],
        [b"RSET", b"MAIL", b"RCPT", b"DATA"],
    ]


async def test_without_the_offer_each_command_waits_for_the_reply_to_the_one_before() -> None:
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, HELLO + b"250 HELP\r\n")
        for reply in ENVELOPE:
            heard.append(await reader.read(65_536))
            writer.write(reply)
        await reader.readuntil(b"\r\n.\r\n")
        writer.write(USUAL["dot"])

    async with served(talk) as provider:
        assert meaning(await provider.send(message())) == ACCEPTED
    assert [line.count(b"\r\n") for line in heard] == [1, 1, 1]


@pytest.mark.parametrize("size", [1, 2, 7, 30, 1000])
async def test_replies_may_come_in_pieces_of_any_size(size: int) -> None:
    replies = b"250-2.1.0 Ok\r\n250 2.1.0 go on\r\n" + NOBODY + USUAL["rcpt"] + USUAL["data"]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, PIPELINING)
        await reader.readuntil(b"DATA\r\n")
        for place in range(0, len(replies), size):
            writer.write(replies[place : place + size])
            await writer.drain()
            await asyncio.sleep(0)
        await reader.readuntil(b"\r\n.\r\n")
        writer.write(USUAL["dot"])

    async with served(talk) as provider:
        verdict = await provider.send(message(to=(ADA, BOB)))
    assert (verdict.outcome, verdict.rule) == (Outcome.ACCEPTED, "partly accepted")
    assert "ada@example.com: rejected, 550" in verdict.text


async def test_a_content_that_is_larger_than_one_piece_arrives_whole() -> None:
    text = "0123456789 abcdef\n" * 20_000
    async with talking() as (server, provider):
        assert meaning(await provider.send(message(text=text))) == ACCEPTED
    assert server.contents[0].endswith(text.replace("\n", "\r\n").encode())


# A refusal in the middle of what went out together.


@pytest.mark.parametrize(
    ("script", "means"),
    [
        ({"mail": b"550 5.7.1 not you\r\n"}, MISCONFIGURED),
        ({"mail": b"451 4.7.1 rate limit exceeded\r\n"}, THROTTLED),
        ({"rcpt": NOBODY}, REJECTED),
        ({"data": b"451 4.3.0 queue file write error\r\n"}, OUTAGE),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_the_first_refusal_decides_and_both_sides_stay_in_step(
    script: Script, means: tuple[Outcome, bool, bool]
) -> None:
    async with talking(script) as (server, provider):
        assert meaning(await provider.send(message())) == means
        server.script.clear()
        assert meaning(await provider.send(message())) == ACCEPTED
        assert server.opened == 1
    assert len(server.contents) == 1


@pytest.mark.parametrize("step", ["mail", "rcpt", "data"])
async def test_a_session_that_ends_in_the_middle_was_refused_by_the_words_that_ended_it(step: str) -> None:
    async with talking({step: b"421 4.7.0 enough\r\n" + CLOSE}) as (server, provider):
        verdict = await provider.send(message())
    assert (meaning(verdict), verdict.code) == (THROTTLED, "421")
    assert server.contents == []


@pytest.mark.parametrize("rest", [SILENCE, CLOSE, b"what is this\r\n"])
async def test_a_refusal_stands_when_what_follows_never_comes(rest: bytes) -> None:
    async with talking({"rcpt": NOBODY, "data": rest}, timeout=SHORT, connect_timeout=SHORT) as (server, provider):
        assert meaning(await provider.send(message())) == REJECTED
        server.script.clear()
        assert meaning(await provider.send(message())) == ACCEPTED
        assert server.opened == 2, "a connection that owes a reply is not used again"


@pytest.mark.parametrize("step", ["rset", "mail", "rcpt", "data"])
async def test_a_call_cancelled_in_the_middle_frees_its_place_and_its_connection_is_not_used_again(step: str) -> None:
    usual = [] if step == "rset" else [USUAL[step]]
    async with talking({step: [*usual, SILENCE]}, concurrency=1) as (server, provider):
        assert meaning(await provider.send(message())) == ACCEPTED
        server.event(step).clear()
        task = asyncio.create_task(provider.send(message()))
        await server.event(step).wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert meaning(await provider.send(message())) == ACCEPTED
        assert server.opened == 2
    assert len(server.contents) == 2


# Leave to send the content, although everybody was refused.


async def test_leave_to_send_to_nobody_is_taken_back_with_a_lone_dot() -> None:
    script: Script = {"rcpt": [NOBODY], "data": [USUAL["data"]], "dot": [REFUSED]}
    async with talking(script) as (server, provider):
        assert meaning(await provider.send(message())) == REJECTED
        assert server.contents == [b""]
        assert meaning(await provider.send(message())) == ACCEPTED
        assert server.opened == 1


@pytest.mark.parametrize("said", [USUAL["dot"], USUAL["data"], b"what is this\r\n", CLOSE])
async def test_an_empty_message_to_nobody_never_counts_as_accepted(said: bytes) -> None:
    async with talking({"rcpt": [NOBODY], "data": [USUAL["data"]], "dot": [said]}) as (server, provider):
        assert meaning(await provider.send(message())) == REJECTED
        assert meaning(await provider.send(message())) == ACCEPTED
        assert server.opened == 2


async def test_leave_to_send_after_a_refused_sender_is_answered_with_the_end_of_the_connection() -> None:
    script: Script = {"mail": [b"550 5.7.1 not you\r\n"], "rcpt": [USUAL["rcpt"]], "data": [USUAL["data"]]}
    async with talking(script) as (server, provider):
        assert meaning(await provider.send(message())) == MISCONFIGURED
        assert server.contents == [], "a lone dot might be an empty message to somebody"
        assert meaning(await provider.send(message())) == ACCEPTED
        assert server.opened == 2


# Replies that don't fit.


@pytest.mark.parametrize(
    "replies",
    [
        USUAL["mail"] + NOBODY + USUAL["rcpt"] + USUAL["data"],
        USUAL["mail"] + NOBODY + USUAL["rcpt"],
        USUAL["mail"] + NOBODY + REFUSED + b"250 2.0.0 and this\r\n",
    ],
)
async def test_a_refusal_among_replies_that_do_not_fit_is_about_nobody(replies: bytes) -> None:
    rest: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, PIPELINING)
        await reader.readuntil(b"DATA\r\n")
        writer.write(replies)
        rest.append(await reader.read())

    async with served(talk) as provider:
        verdict = await provider.send(message())
    assert (meaning(verdict), verdict.code) == (OUTAGE, "out_of_step")
    assert not any(rest), "nothing more is said"


async def test_the_content_never_follows_replies_of_which_there_are_too_many() -> None:
    async with talking({"data": USUAL["data"] + USUAL["dot"]}) as (server, provider):
        verdict = await provider.send(message())
    assert (meaning(verdict), verdict.code) == (OUTAGE, "out_of_step")
    assert server.contents == []


@pytest.mark.parametrize(
    ("step", "said"), [("rset", b"250 2.0.0 Ok\r\n"), ("mail", USUAL["mail"]), ("rcpt", USUAL["data"])]
)
async def test_a_reply_too_many_on_a_connection_in_use_again_sends_no_content(step: str, said: bytes) -> None:
    usual = [] if step == "rset" else [USUAL[step]]
    async with talking({step: [*usual, USUAL[step] + said]}) as (server, provider):
        assert meaning(await provider.send(message())) == ACCEPTED
        assert meaning(await provider.send(message())) == OUTAGE
        assert len(server.contents) == 1
        assert meaning(await provider.send(message())) == ACCEPTED
        assert server.opened == 2
