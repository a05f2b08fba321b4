"""Each provider with an API of its own against the sandbox, which answers as that API does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from posthouse.address import Address
from posthouse.config import RouteSettings
from posthouse.core.outcome import Found, Outcome, Subject
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.sandbox.http import serve
from posthouse.sandbox.ledger import CallResult, Ledger
from posthouse.sandbox.received import shown
from tests.contract.message_parts import BILL, LOGO, PARTS, Part
from tests.contract.provider_suite import SECRET, stored_and_rendered, what_others_read
from tests.providers.messages import full_message, message
from tests.providers.ses_routes import OWN as SES
from tests.sandbox.conftest import Bench, make_bench


@dataclass(frozen=True)
class Emulated:
    """A provider whose API the sandbox has."""

    settings: Mapping[str, Any]
    refuses: frozenset[str]  # parts that it has no place for
    key: Mapping[str, Any] = field(default_factory=lambda: {"api_key": SECRET})
    can_be_asked: bool = True


_JSON: Final = frozenset({"part headers", "calendar", "raw", "envelope_sender"})

EMULATED: Final = {
    "postmark": Emulated({"look_up_lag": "0s"}, _JSON | {"amp", "message_id"}),
    "resend": Emulated({}, _JSON | {"amp", "message_id", "tags", "track_opens", "track_clicks"}, can_be_asked=False),
    "sendgrid": Emulated({"look_up_lag": "0s"}, _JSON | {"attachments"}),
    "mailgun": Emulated({"domain": "shop.example", "look_up_lag": "0s"}, frozenset({"envelope_sender"})),
    "ses": Emulated(SES, frozenset({"message_id"}), key={"access_key_id": SECRET}, can_be_asked=False),
}


@dataclass(frozen=True)
class Route:
    """A route to a sandbox."""

    provider: Provider
    bench: Bench

    @property
    def ledger(self) -> Ledger:
        return self.bench.ledger


@pytest.fixture(params=EMULATED)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def opened(kind: str, *faults: str, key: str = SECRET, **settings: Any) -> AsyncIterator[Route]:
    bench = make_bench(*faults, **settings)
    server = await serve(bench.api, clock=bench.clock)
    one = EMULATED[kind]
    given = {"provider": kind, "url": server.url, "timeout": "2s", "api_key": key, **one.settings}
    given |= dict.fromkeys(one.key, key)
    route = RouteSettings.model_validate({name: value for name, value in given.items() if value is not None})
    provider = build_provider("main", route, transport_factory=AiohttpTransport, now=bench.clock)
    try:
        yield Route(provider, bench)
    finally:
        await provider.close()
        await server.close()


# What is sent


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
async def test_every_part_of_an_email_arrives_or_is_refused_at_enqueue(kind: str, part: Part) -> None:
    async with opened(kind) as route:
        content, outgoing = stored_and_rendered(**part.given)
        refused = bool(route.provider.refusals(content))
        assert refused == (part.name in EMULATED[kind].refuses)
        if refused:
            return
        assert (await route.provider.send(outgoing)).outcome is Outcome.ACCEPTED
        [acceptance] = route.ledger.acceptances
        caught = shown(acceptance)
        assert caught is not None
        if (kind, part.name) == ("ses", "tags"):  # a tag of SES has a name and a value
            assert caught.body["metadata"]["tag"] == "receipt"
        else:
            assert part.seen(acceptance, caught), caught


async def test_an_acceptance_has_the_id_that_the_ledger_has_and_our_own(kind: str) -> None:
    async with opened(kind) as route:
        verdict = await route.provider.send(message(html="<p>Thank you.</p>", attachments=(BILL, LOGO)))
        [acceptance] = route.ledger.acceptances
        assert (acceptance.message_id, acceptance.key) == (verdict.message_id, "ph-7")
        assert (acceptance.subject, acceptance.recipients) == ("Your order", ("ada@example.com",))


async def test_everybody_gets_a_copy_and_nobody_reads_who_got_a_blind_one(kind: str) -> None:
    async with opened(kind) as route:
        _, outgoing = stored_and_rendered(cc=["cc@example.com"], bcc=["Bo <bcc@example.com>"])
        await route.provider.send(outgoing)
        [acceptance] = route.ledger.acceptances
        caught = shown(acceptance)
        assert caught is not None
        assert acceptance.recipients == ("ada@example.com", "cc@example.com", "bcc@example.com")
        assert "bcc@example.com" in str(caught.body["bcc"])
        assert "bcc@example.com" not in what_others_read(acceptance)


async def test_those_who_still_get_a_copy_are_all_who_get_one(kind: str) -> None:
    async with opened(kind) as route:
        _, outgoing = stored_and_rendered(cc=["cc@example.com"], bcc=["bcc@example.com"])
        await route.provider.send(replace(outgoing, envelope_to=("cc@example.com", "bcc@example.com")))
        assert route.ledger.acceptances[0].recipients == ("cc@example.com", "bcc@example.com")


async def test_messages_that_share_a_call_are_taken_or_refused_each_for_itself() -> None:
    async with opened("postmark") as route:
        several = [
            message(idempotency_key=f"ph-{number}", to=(Address(to),))
            for number, to in enumerate(["ada@example.com", "nobody", "bob@example.com"])
        ]
        ada, nobody, bob = await route.provider.send_together(several)
        assert (ada and ada.outcome, bob and bob.outcome) == (Outcome.ACCEPTED, Outcome.ACCEPTED)
        assert nobody is not None
        assert (nobody.outcome, nobody.subject) == (Outcome.REJECTED, Subject.RECIPIENT)
        assert [one.key for one in route.ledger.acceptances] == ["ph-0", "ph-2"]


# What it is told


FAULTS: Final = {
    "401": (Outcome.MISCONFIGURED, False),
    "403": (Outcome.MISCONFIGURED, False),
    "422": (Outcome.REJECTED, False),
    "429": (Outcome.THROTTLED, False),
    "500": (Outcome.TRANSIENT, True),
    "504-accepted": (Outcome.TRANSIENT, True),
    "drop": (Outcome.UNKNOWN, True),
    "drop-accepted": (Outcome.UNKNOWN, True),
    "malformed": (Outcome.ACCEPTED, False),
    "truncated": (Outcome.ACCEPTED, False),
    "html=502": (Outcome.TRANSIENT, True),
}
"""With whether the message may have been accepted."""

TAKEN: Final = {"504-accepted", "drop-accepted", "malformed", "truncated"}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_judged_as_it_is_meant(kind: str, fault: str) -> None:
    async with opened(kind, fault) as route:
        verdict = await route.provider.send(message())
        assert (verdict.outcome, verdict.maybe_accepted) == FAULTS[fault], verdict
        assert bool(route.ledger.acceptances) == (fault in TAKEN)


async def test_a_wait_that_is_asked_for_is_kept(kind: str) -> None:
    async with opened(kind, "429:retry-after=7") as route:
        assert (await route.provider.send(message())).retry_after_s == 7.0


async def test_out_of_service_is_certain_where_the_provider_says_so() -> None:
    for kind, certain in {"postmark": True, "resend": True, "sendgrid": False, "mailgun": False, "ses": False}.items():
        async with opened(kind, "503") as route:
            verdict = await route.provider.send(message())
            assert (verdict.outcome, verdict.maybe_accepted) == (Outcome.TRANSIENT, not certain), kind


async def test_only_the_right_credential_is_let_in(kind: str) -> None:
    async with opened(kind, api_key=SECRET) as route:
        assert (await route.provider.send(message())).outcome is Outcome.ACCEPTED
    async with opened(kind, api_key=SECRET, key="wrong") as route:
        verdict = await route.provider.send(message())
        assert (verdict.outcome, verdict.subject) == (Outcome.MISCONFIGURED, Subject.ROUTE)
        assert route.ledger.results == {CallResult.UNAUTHORISED: 1}


async def test_an_address_that_is_none_is_the_recipients_fault(kind: str) -> None:
    async with opened(kind) as route:
        verdict = await route.provider.send(message(to=(Address("nobody"),)))
        assert (verdict.outcome, verdict.subject) == (Outcome.REJECTED, Subject.RECIPIENT), verdict


# What was accepted is found


async def test_a_look_up_finds_a_message_whose_answer_was_lost(kind: str) -> None:
    async with opened(kind, "drop-accepted:first=1") as route:
        assert route.provider.facts.can_look_up == EMULATED[kind].can_be_asked
        if not route.provider.facts.can_look_up:
            return
        sent, other = (replace(full_message(), idempotency_key=key, date=route.bench.now) for key in ("ph-7", "ph-8"))
        assert (await route.provider.look_up(sent)).found is Found.MISSING
        assert (await route.provider.send(sent)).outcome is Outcome.UNKNOWN
        found = await route.provider.look_up(sent)
        assert (found.found, found.message_id) == (Found.ACCEPTED, route.ledger.acceptances[0].message_id)
        assert (await route.provider.look_up(other)).found is Found.MISSING


async def test_an_index_that_lies_behind_does_not_have_it_yet(kind: str) -> None:
    async with opened(kind, look_up_lag_s=60.0) as route:
        if not route.provider.facts.can_look_up:
            return
        sent = message(date=route.bench.now)
        await route.provider.send(sent)
        assert (await route.provider.look_up(sent)).found is Found.MISSING
        route.bench.now += 60.0
        assert (await route.provider.look_up(sent)).found is Found.ACCEPTED


async def test_a_replay_under_the_same_key_gets_the_first_answer_again() -> None:
    async with opened("resend", "drop-accepted:first=1") as route:
        assert (await route.provider.send(message())).outcome is Outcome.UNKNOWN
        replayed = await route.provider.send(message())
        assert (replayed.outcome, replayed.message_id) == (
            Outcome.ACCEPTED,
            route.ledger.acceptances[0].message_id,
        )
        assert len(route.ledger.acceptances) == 1


async def test_a_key_that_stands_for_another_message_is_said_to() -> None:
    async with opened("resend") as route:
        await route.provider.send(message())
        verdict = await route.provider.send(message(subject="Another"))
        assert verdict.outcome is not Outcome.ACCEPTED
        assert route.ledger.results[CallResult.KEY_REUSED] == 1
