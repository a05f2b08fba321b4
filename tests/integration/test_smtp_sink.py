"""The `smtp` provider, and a worker with it, against Postfix's smtp-sink and the faults that it can play."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import pytest

import posthouse
from posthouse.providers.mime import message_bytes
from tests.acceptance.installation import Installation, Table, until
from tests.integration.hard_messages import HARD, assert_says, parts_of, read
from tests.integration.smtp_sink import SmtpSink, smtp_sink
from tests.providers.messages import full_message, message
from tests.providers.smtp_routes import (
    ACCEPTED,
    LATER,
    MISCONFIGURED,
    OUTAGE,
    REJECTED,
    SHORT,
    THROTTLED,
    UNKNOWN,
    Meaning,
    meaning,
    route,
)

SOFT, HARD_REFUSAL, CUT, GOODBYE = "-r", "-f", "-q", "-Q"
"""Refuses a command with 450 4.3.0 or 500 5.3.0, cuts the connection at it, says 421 4.0.0 to it and closes."""

# What becomes of two messages to a server with one fault, by the command that it hits.
OUTCOMES: Final[list[tuple[str, str, Meaning, Meaning]]] = [
    (SOFT, "CONNECT", OUTAGE, OUTAGE),
    (SOFT, "EHLO", OUTAGE, OUTAGE),
    (SOFT, "MAIL", OUTAGE, OUTAGE),
    (SOFT, "RCPT", LATER, LATER),
    (SOFT, "DATA", OUTAGE, OUTAGE),
    (SOFT, ".", LATER, LATER),
    (HARD_REFUSAL, "CONNECT", MISCONFIGURED, MISCONFIGURED),
    (HARD_REFUSAL, "EHLO", MISCONFIGURED, MISCONFIGURED),
    (HARD_REFUSAL, "MAIL", REJECTED, REJECTED),
    (HARD_REFUSAL, "RCPT", REJECTED, REJECTED),
    (HARD_REFUSAL, "DATA", REJECTED, REJECTED),
    (HARD_REFUSAL, ".", REJECTED, REJECTED),
    *((CUT, step, OUTAGE, OUTAGE) for step in ("CONNECT", "EHLO", "MAIL", "RCPT", "DATA")),
    (CUT, ".", UNKNOWN, UNKNOWN),
    *((GOODBYE, step, THROTTLED, THROTTLED) for step in ("CONNECT", "EHLO", "MAIL", "RCPT", "DATA", ".")),
    # Between two messages, and after the last.
    *((fault, step, ACCEPTED, ACCEPTED) for fault in (SOFT, HARD_REFUSAL, CUT, GOODBYE) for step in ("RSET", "QUIT")),
]


@pytest.mark.parametrize(("fault", "step", "first", "second"), OUTCOMES)
async def test_what_a_fault_at_a_step_means(fault: str, step: str, first: Meaning, second: Meaning) -> None:
    with smtp_sink(fault, step) as sink:
        provider = route("smtp", sink.port, concurrency=1)
        assert [meaning(await provider.send(message())) for _ in range(2)] == [first, second]
        await provider.close()


@pytest.mark.parametrize("fault", [SOFT, HARD_REFUSAL, CUT, GOODBYE])
async def test_only_an_answer_to_the_final_dot_tells_a_message_that_was_taken_from_one_that_was_not(fault: str) -> None:
    with smtp_sink(fault, ".") as sink:
        provider = route("smtp", sink.port)
        verdict = await provider.send(message())
        await provider.close()
        until(lambda: sink.taken == 1, "smtp-sink counts what it has read to its end, whatever it says")
    assert verdict.maybe_accepted is (fault == CUT)


async def test_a_refusal_that_does_not_wait_for_the_content_is_heard() -> None:
    with smtp_sink("-A", "0") as sink:
        provider = route("smtp", sink.port)
        verdicts = [await provider.send(message()) for _ in range(20)]
        await provider.close()
        assert sink.taken == 0
    assert "This violates SMTP" in " ".join(verdict.text for verdict in verdicts if meaning(verdict) == REJECTED)
    # It closes at once: where that cuts off its words, whatever we had written by then decides.
    assert {meaning(verdict) for verdict in verdicts} <= {REJECTED, UNKNOWN, OUTAGE}


async def test_an_answer_that_comes_too_late_leaves_it_unknown() -> None:
    with smtp_sink("-W", ".:60") as sink:
        verdict = await route("smtp", sink.port, final_timeout=SHORT).send(message())
        assert (meaning(verdict), verdict.code) == (UNKNOWN, "timeout")
        until(lambda: sink.taken == 1, "smtp-sink has read it to its end")


async def test_a_server_that_ends_for_good_after_a_message_took_it() -> None:
    with smtp_sink("-M", "1") as sink:
        provider = route("smtp", sink.port)
        assert meaning(await provider.send(message())) == UNKNOWN
        assert meaning(await provider.send(message())) == OUTAGE
        await provider.close()
        until(lambda: sink.taken == 1, "smtp-sink has counted it")


async def test_a_server_with_room_for_one_connection_gets_everything_one_after_the_other() -> None:
    with smtp_sink("-m", "1") as sink:
        provider = route("smtp", sink.port, concurrency=4, idle_close="0s")
        verdicts = await asyncio.gather(*(provider.send(message()) for _ in range(8)))
        assert {meaning(verdict) for verdict in verdicts} == {ACCEPTED}
        await provider.close()
        until(lambda: (sink.taken, sink.opened, sink.goodbyes) == (8, 8, 8), "each message had a connection of its own")


# The fewer extensions a server has, the less there is to get wrong.
MODEST: Final = {"modern": [], "old": ["-8", "-E", "-p", "-N", "-a", "-C", "-F"]}


@pytest.mark.parametrize("flags", MODEST.values(), ids=MODEST)
@pytest.mark.parametrize("changes", HARD.values(), ids=HARD)
async def test_every_byte_arrives(changes: dict[str, object], flags: list[str]) -> None:
    sent = message(**changes)
    with smtp_sink(*flags) as sink:
        provider = route("smtp", sink.port)
        assert meaning(await provider.send(sent)) == ACCEPTED
        await provider.close()
        (arrived,) = sink.contents()
    assert arrived == message_bytes(sent)
    assert_says(arrived, sent)


async def test_bcc_is_in_the_envelope_and_nowhere_else() -> None:
    with smtp_sink() as sink:
        provider = route("smtp", sink.port)
        assert meaning(await provider.send(full_message())) == ACCEPTED
        await provider.close()
        assert sink.heard.count("RCPT") == 4
        (arrived,) = sink.contents()
    assert b"bcc" not in arrived.lower()


# A worker.

EMAILS = 60
CONNECTIONS = 4


def sink_route(sink: SmtpSink, **more: object) -> Table:
    return {"provider": "smtp", "url": f"smtp://127.0.0.1:{sink.port}", "concurrency": CONNECTIONS, **more}


def email(number: int | str, **fields: object) -> posthouse.Email:
    given = {"key": f"k-{number}", "to": f"person-{number}@example.com", "subject": f"Number {number}"}
    return posthouse.Email(**given, text=f"Text {number}", html=f"<p>HTML {number}</p>", **fields)  # type: ignore[arg-type]


def test_a_worker_hands_everything_over_once_on_few_connections_and_says_goodbye(on_sqlite: Installation) -> None:
    with smtp_sink() as sink:
        on_sqlite.configure({"main": sink_route(sink)})
        on_sqlite.enqueue([email(number) for number in range(EMAILS)])
        worker = on_sqlite.worker()
        on_sqlite.until_status({"accepted": EMAILS})
        assert worker.stopped() == 0
        until(lambda: sink.closed == sink.opened, "smtp-sink has closed its connections")

        assert sink.taken == EMAILS
        assert sink.opened <= CONNECTIONS
        assert sink.goodbyes == sink.opened
        assert sink.heard.count("RSET") == EMAILS - sink.opened, "there is one between two messages of a connection"
        arrived = [parts_of(read(raw)) for raw in sink.contents()]
    assert Counter(arrived) == Counter((f"Text {number}", f"<p>HTML {number}</p>") for number in range(EMAILS))


def test_a_worker_does_with_each_outcome_what_is_promised(on_sqlite: Installation) -> None:
    faults = {"soft": (SOFT, "RCPT"), "hard": (HARD_REFUSAL, "RCPT"), "data": (CUT, "DATA"), "dot": (CUT, ".")}
    with (
        smtp_sink(*faults["soft"]) as soft,
        smtp_sink(*faults["hard"]) as hard,
        smtp_sink(*faults["data"]) as data,
        smtp_sink(*faults["dot"]) as dot,
    ):
        sinks = {"soft": soft, "hard": hard, "data": data, "dot": dot}
        on_sqlite.configure(
            {name: sink_route(sink) for name, sink in sinks.items()},
            {name: {"routes": [name], "retry_first": "100ms", "unknown_wait": "0s"} for name in sinks},
        )
        on_sqlite.enqueue([email(name, type=name) for name in sinks])
        worker = on_sqlite.worker()
        until(lambda: min(on_sqlite.row(f"k-{name}")["attempts"] for name in ("soft", "data")) >= 2, "both are retried")
        until(lambda: on_sqlite.store.ledger.held_unknown() == 1, "what nobody can say is held")
        assert worker.stopped() == 0
        rows = {name: on_sqlite.row(f"k-{name}") for name in sinks}
        assert {name: sink.taken for name, sink in sinks.items()} == {"soft": 0, "hard": 0, "data": 0, "dot": 1}

    assert (rows["hard"]["status"], rows["hard"]["attempts"]) == ("failed", 1)
    assert (rows["dot"]["status"], rows["dot"]["attempts"]) == ("unknown", 1)
    assert rows["soft"]["failures"] == rows["soft"]["attempts"], "the recipient spends attempts"
    assert rows["data"]["failures"] == 0, "an outage spends none"
