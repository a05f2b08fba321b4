"""The `smtp` provider against the sandbox, which offers PIPELINING: every fault at every step, and the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from posthouse.address import Address
from posthouse.core.outcome import Outcome
from posthouse.providers.port import Provider
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import FaultPlan
from posthouse.sandbox.smtp import serve_smtp
from tests.providers.messages import ADA, BOB, message
from tests.providers.smtp_routes import LONG, route
from tests.sandbox.conftest import Bench, make_bench

STEPS = ("mail", "rcpt", "data", "dot")
EFFECTS = (
    "421",
    "451",
    "550",
    "354",
    "malformed",
    "truncated",
    "html",
    "drop",
    "stall",
    "slow=10ms",
    "drip=10ms",
    "swapped",
)
ACCEPTED_ALL_THE_SAME = ("drop-accepted", "stall-accepted", "451-accepted", "slow-not-accepted=10ms")
FAULTS = [f"{effect}:at={step}" for step in STEPS for effect in EFFECTS] + [
    f"{effect}:at=dot" for effect in ACCEPTED_ALL_THE_SAME
]


@asynccontextmanager
async def sandbox(timeout: str = LONG) -> AsyncIterator[tuple[Bench, Provider]]:
    bench = make_bench()
    server = await serve_smtp(bench.api, clock=bench.clock, idle_s=30.0)
    provider = route("smtp", server.port, timeout=timeout, connect_timeout=timeout, final_timeout=timeout)
    yield bench, provider
    await provider.close()
    await server.close()


def beset(bench: Bench, *faults: str) -> None:
    bench.api.set_faults(FaultPlan([parse_fault(text) for text in faults]), bench.now)


def accepted(bench: Bench, key: str) -> int:
    return sum(acceptance.key == key for acceptance in bench.ledger.acceptances)


@pytest.mark.parametrize("before", [0, 1], ids=["a new connection", "a connection in use again"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_verdict_never_says_more_than_the_ledger(fault: str, before: int) -> None:
    async with sandbox("300ms" if "stall" in fault else LONG) as (bench, provider):
        for number in range(before):
            await provider.send(message(idempotency_key=f"before-{number}"))
        beset(bench, f"{fault},first=1,per=all")
        verdict = await provider.send(message(idempotency_key="hit", to=(ADA, BOB)))
        count = accepted(bench, "hit")
        assert count <= 1
        if verdict.outcome is Outcome.ACCEPTED:
            assert count == 1
        elif not verdict.maybe_accepted and fault != "451-accepted:at=dot":  # a lie that no client can see through
            assert count == 0
        beset(bench)
        assert (await provider.send(message(idempotency_key="after"))).outcome is Outcome.ACCEPTED
        assert accepted(bench, "after") == 1
        assert all(acceptance.raw for acceptance in bench.ledger.acceptances), "no lone dot ever makes a message"


async def test_of_recipients_in_one_group_those_that_are_refused_get_nothing() -> None:
    async with sandbox() as (bench, provider):
        beset(bench, "550:at=rcpt,to=bob@example.com")
        assert (await provider.send(message(to=(ADA, BOB)))).rule == "partly accepted"
        assert (await provider.send(message(to=(BOB,)))).outcome is Outcome.REJECTED
        assert (await provider.send(message(to=(BOB, Address("eve@example.com"))))).rule == "partly accepted"
        assert [one.recipients for one in bench.ledger.acceptances] == [("ada@example.com",), ("eve@example.com",)]
