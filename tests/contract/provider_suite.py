"""What every provider must do, whatever its protocol: one suite, run for each.

A provider joins with a `ProviderHarness`, which plays its server, and a subclass of `ProviderSuite` whose `harness`
fixture gives it. Servers are real ones on loopback: what is tested is the provider with its transport.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import pytest

from posthouse.address import Address
from posthouse.content import Content
from posthouse.core.outcome import Found, Outcome, Subject
from posthouse.email import Email
from posthouse.providers.port import OutgoingMessage, Provider
from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.faults import FaultPlan
from posthouse.sandbox.ledger import Acceptance, Ledger
from posthouse.sandbox.received import shown
from posthouse.worker.rendering import Renderer
from tests.contract.message_parts import PARTS, Part

SECRET = "swordfish-9f8e7d6c"
"""The credential of every provider in this suite. Servers echo it where they can."""

TIMEOUT_S = 1.0


class Behaviour(StrEnum):
    """What the server does with the next calls."""

    ACCEPT = "accept"  # with the id `m-1`
    ACCEPT_UNREADABLY = "accept unreadably"  # success, and then nothing that can be read
    THROTTLE = "throttle"  # too fast, come back in 30 seconds (where the protocol can say so)
    BE_OUT_OF_SERVICE = "be out of service"  # certainly not taken
    FAIL_MIDWAY = "fail midway"  # a fault that may come after the message was taken
    REFUSE_MESSAGE = "refuse the message"
    REFUSE_RECIPIENT = "refuse the recipient"
    REFUSE_CREDENTIAL = "refuse the credential"
    STALL = "stall"  # reads the message and never answers
    DROP = "drop"  # reads the message and cuts the connection


Meaning = tuple[Outcome, bool, bool]
"""Outcome, whether it may have been accepted, whether it spends an attempt."""


@dataclass(frozen=True)
class Call:
    """One message as the server got it."""

    payload: bytes  # whole, as it was on the wire
    key: str | None  # the idempotency key or our id in it, where the protocol has a place for one


class ProviderHarness(ABC):
    """Plays the server of one provider."""

    can_say_when = True  # whether its protocol can name the wait after a throttled call
    has_key = True  # whether its protocol has a place for a key or our id
    timeout_s = TIMEOUT_S  # of a whole call, where it has several parts with TIMEOUT_S each
    expected: ClassVar[
        Mapping[Behaviour, Meaning]
    ] = {}  # where its protocol is surer than others of what an answer means

    stays_here: ClassVar[frozenset[str]] = frozenset()  # parts that its protocol is not for, and the ledger keeps
    refuses: ClassVar[frozenset[str]] = frozenset()  # parts that it has no place for

    @abstractmethod
    def receiver(self) -> AbstractAsyncContextManager[tuple[Provider, Ledger]]:
        """A sandbox that speaks its protocol: a route to it named `main`, and what it accepted."""

    @abstractmethod
    def behave(self, behaviour: Behaviour) -> None:
        """From now on."""

    @abstractmethod
    def provider(self) -> Provider:
        """A route to this server, with SECRET as its credential and TIMEOUT_S as its timeout."""

    @abstractmethod
    def provider_of_a_dead_host(self) -> Provider:
        """A route to a port that nobody listens on."""

    @property
    @abstractmethod
    def calls(self) -> list[Call]:
        """Every message that reached the server."""

    @property
    @abstractmethod
    def arrived(self) -> asyncio.Event:
        """Set when a message has reached the server."""

    @abstractmethod
    def remember(self, key: str, message_id: str) -> None:
        """Makes a look-up for `key` find `message_id`. Called only where the provider can look up."""


def plain_message(number: int = 1) -> OutgoingMessage:
    """A message with text and HTML and one recipient."""
    return OutgoingMessage(
        send_id=number,
        idempotency_key=f"ph-{number}",
        sender=Address("orders@shop.example", "Shop"),
        to=(Address("ada@example.com", "Ada, Countess"),),
        cc=(),
        bcc=(),
        reply_to=(),
        subject="Grüße ✉",
        text="Thank you.\nBye.",
        html="<p>Thank you.</p>",
        metadata={"order": "42"},
        date=1_800_000_000.0,
    )


def sandbox() -> SandboxApi:
    """A provider without a fault."""
    return SandboxApi(Ledger(), FaultPlan([]), chance=random.Random(1), started_at=1_800_000_000.0)


def stored_and_rendered(**parts: Any) -> tuple[Content, OutgoingMessage]:
    """An email on its way, as it is stored and as it goes out."""
    words = {} if "raw" in parts else {"subject": "Your order", "text": "Thank you.", "html": "<p>Thank you.</p>"}
    email = Email(**({"key": "k", "to": "ada@example.com"} | words | parts)).checked()
    renderer = Renderer(Path("nowhere"), Address("orders@shop.example", "Shop"))
    content = Content.from_json(email.stored)
    return content, renderer.message(1, "ph-1", content, 1_800_000_000.0, email.files)


EXPECTED: dict[Behaviour, Meaning] = {
    Behaviour.ACCEPT: (Outcome.ACCEPTED, False, True),
    Behaviour.ACCEPT_UNREADABLY: (Outcome.ACCEPTED, False, True),
    Behaviour.THROTTLE: (Outcome.THROTTLED, False, False),
    Behaviour.BE_OUT_OF_SERVICE: (Outcome.TRANSIENT, False, False),
    Behaviour.FAIL_MIDWAY: (Outcome.TRANSIENT, True, True),
    Behaviour.REFUSE_MESSAGE: (Outcome.REJECTED, False, True),
    Behaviour.REFUSE_RECIPIENT: (Outcome.REJECTED, False, True),
    Behaviour.REFUSE_CREDENTIAL: (Outcome.MISCONFIGURED, False, False),
    Behaviour.STALL: (Outcome.UNKNOWN, True, True),
    Behaviour.DROP: (Outcome.UNKNOWN, True, True),
}


def what_others_read(acceptance: Acceptance) -> str:
    """The message, but for the list of its Bcc where a call has one."""
    if acceptance.raw is not None:
        return acceptance.raw.decode()
    assert acceptance.body is not None
    return str({name: value for name, value in acceptance.body.items() if name != "bcc"})


class ProviderSuite:
    """Subclass it, and give a `harness` fixture."""

    @pytest.fixture
    async def provider(self, harness: ProviderHarness) -> AsyncIterator[Provider]:
        """A route to the harness's server."""
        one = harness.provider()
        yield one
        await one.close()

    @pytest.mark.parametrize("behaviour", Behaviour)
    async def test_every_behaviour_has_its_outcome_after_one_call(
        self, harness: ProviderHarness, provider: Provider, behaviour: Behaviour
    ) -> None:
        harness.behave(behaviour)
        verdict = await provider.send(plain_message())
        found = (verdict.outcome, verdict.maybe_accepted, verdict.spends_attempt)
        assert found == {**EXPECTED, **harness.expected}[behaviour], verdict
        assert len(harness.calls) == 1, "a provider never repeats a call by itself"
        assert verdict.code
        assert verdict.rule

    async def test_an_accepted_message_comes_back_with_its_id(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        assert (await provider.send(plain_message())).message_id == "m-1"

    async def test_an_acceptance_that_can_not_be_read_has_no_id(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        harness.behave(Behaviour.ACCEPT_UNREADABLY)
        assert (await provider.send(plain_message())).message_id is None

    async def test_a_throttled_call_passes_on_the_wait(self, harness: ProviderHarness, provider: Provider) -> None:
        harness.behave(Behaviour.THROTTLE)
        wait_s = 30.0 if harness.can_say_when else None
        assert (await provider.send(plain_message())).retry_after_s == wait_s

    async def test_a_refused_recipient_says_nothing_about_the_route(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        harness.behave(Behaviour.REFUSE_RECIPIENT)
        assert (await provider.send(plain_message())).subject is Subject.RECIPIENT
        harness.behave(Behaviour.REFUSE_CREDENTIAL)
        assert (await provider.send(plain_message())).subject is Subject.ROUTE

    async def test_a_dead_host_has_certainly_accepted_nothing(self, harness: ProviderHarness) -> None:
        provider = harness.provider_of_a_dead_host()
        verdict = await provider.send(plain_message())
        found = (verdict.outcome, verdict.maybe_accepted, verdict.spends_attempt, verdict.code)
        assert found == (Outcome.TRANSIENT, False, False, "connect_refused"), verdict
        await provider.close()

    async def test_a_call_ends_within_its_timeout(self, harness: ProviderHarness, provider: Provider) -> None:
        harness.behave(Behaviour.STALL)
        async with asyncio.timeout(TIMEOUT_S * 10):
            assert (await provider.send(plain_message())).outcome is Outcome.UNKNOWN
        assert provider.facts.timeout_s == harness.timeout_s

    @pytest.mark.parametrize("behaviour", [Behaviour.STALL, Behaviour.DROP, Behaviour.FAIL_MIDWAY])
    async def test_a_replay_has_the_same_key_and_the_same_bytes(
        self, harness: ProviderHarness, provider: Provider, behaviour: Behaviour
    ) -> None:
        harness.behave(behaviour)
        await provider.send(plain_message())
        harness.behave(Behaviour.ACCEPT)
        another_worker = harness.provider()
        await another_worker.send(plain_message())
        await another_worker.close()
        first, second = harness.calls
        assert first == second

    async def test_two_messages_never_share_a_key(self, harness: ProviderHarness, provider: Provider) -> None:
        await provider.send(plain_message(1))
        await provider.send(plain_message(2))
        keys = ["ph-1", "ph-2"] if harness.has_key else [None, None]
        assert [call.key for call in harness.calls] == keys

    async def test_a_cancelled_call_stops_and_the_next_one_works(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        harness.behave(Behaviour.STALL)
        task = asyncio.create_task(provider.send(plain_message()))
        await harness.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        harness.behave(Behaviour.ACCEPT)
        assert (await provider.send(plain_message(2))).outcome is Outcome.ACCEPTED

    async def test_calls_at_the_same_time_do_not_mix(self, harness: ProviderHarness, provider: Provider) -> None:
        verdicts = await asyncio.gather(*(provider.send(plain_message(n)) for n in range(20)))
        assert {verdict.outcome for verdict in verdicts} == {Outcome.ACCEPTED}
        assert len({call.payload for call in harness.calls}) == 20

    @pytest.mark.parametrize("behaviour", Behaviour)
    async def test_the_credential_shows_nowhere(
        self, harness: ProviderHarness, behaviour: Behaviour, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        provider = harness.provider()
        harness.behave(behaviour)
        verdict = await provider.send(plain_message())
        await provider.close()
        assert SECRET not in repr(verdict)
        assert SECRET not in repr(provider)
        assert SECRET not in caplog.text

    async def test_an_ordinary_email_is_carried(self, provider: Provider) -> None:
        content = Content(to=(Address("ada@example.com"),), subject="s", text="t", html="<p>t</p>")
        assert provider.refusals(content) == []

    @pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
    async def test_every_part_of_an_email_arrives_or_is_refused_at_enqueue(
        self, harness: ProviderHarness, part: Part
    ) -> None:
        async with harness.receiver() as (provider, ledger):
            content, message = stored_and_rendered(**part.given)
            refused = provider.refusals(content)
            assert bool(refused) == (part.name in harness.refuses), refused
            assert all(part.refused_by(reason) for reason in refused), refused
            if refused:
                return
            assert (await provider.send(message)).outcome is Outcome.ACCEPTED
            [acceptance] = ledger.acceptances
            if part.name not in harness.stays_here:
                caught = shown(acceptance)
                assert caught is not None
                assert part.seen(acceptance, caught), caught

    async def test_bcc_stands_in_nothing_that_the_others_read(self, harness: ProviderHarness) -> None:
        async with harness.receiver() as (provider, ledger):
            _, message = stored_and_rendered(cc=["cc@example.com"], bcc=["Bo <bcc@example.com>"])
            await provider.send(message)
            [acceptance] = ledger.acceptances
            assert acceptance.recipients == ("ada@example.com", "cc@example.com", "bcc@example.com")
            assert "bcc@example.com" not in what_others_read(acceptance)

    async def test_only_those_who_still_get_a_copy_get_one(self, harness: ProviderHarness) -> None:
        async with harness.receiver() as (provider, ledger):
            _, message = stored_and_rendered(cc=["cc@example.com"], bcc=["bcc@example.com"])
            await provider.send(replace(message, envelope_to=("cc@example.com", "bcc@example.com")))
            [acceptance] = ledger.acceptances
            assert acceptance.recipients == ("cc@example.com", "bcc@example.com")
            assert "bcc@example.com" not in what_others_read(acceptance)

    async def test_a_look_up_finds_what_is_there_and_misses_what_is_not(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        if not provider.facts.can_look_up:
            pytest.skip("this provider can't be asked")
        harness.remember("ph-1", "m-7")
        found = await provider.look_up(plain_message(1))
        assert (found.found, found.message_id) == (Found.ACCEPTED, "m-7")
        assert (await provider.look_up(plain_message(2))).found is Found.MISSING

    async def test_closing_twice_is_fine(self, harness: ProviderHarness, provider: Provider) -> None:
        await provider.close()
        await provider.send(plain_message())
        await provider.close()
        await provider.close()
