"""Suppressions: obeyed within a second on every path, for nobody but those whom they are about."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from posthouse.core.events import Event, EventKind
from posthouse.core.outcome import Found, LookUp, Outcome, Verdict
from posthouse.core.policy import type_policies
from posthouse.core.suppression import Suppress, SuppressionCause
from posthouse.errors import DatabaseUnavailable
from posthouse.providers.port import OutgoingMessage
from posthouse.worker.pace import Pace
from tests.worker.stage import EPOCH, Stage, email, emails, play

TYPES = {
    "newsletter": {"category": "marketing"},
    "receipt": {"category": "transactional"},
    "code": {"category": "security"},
}


def suppress(stage: Stage, *addresses: str, cause: str = "manual", scope: str = "", **fields: Any) -> float:
    """Suppresses now; when that was."""
    wishes = [Suppress(each, SuppressionCause(cause), scope, who="grace", **fields) for each in addresses]
    stage.store.suppressions.add(wishes, stage.now())
    return stage.at()


def status(stage: Stage, key: str) -> str:
    return str(stage.row(key)["status"])


@pytest.mark.parametrize(
    ("cause", "goes_out"),
    [
        ("hard_bounce", set()),
        ("complaint", {"code"}),
        ("unsubscribe", {"code", "receipt"}),
        ("manual", set()),
    ],
)
def test_what_was_suppressed_after_it_was_asked_for_is_never_called(cause: str, goes_out: set[str]) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, TYPES)
        stage.enqueue(*(email(type_, type=type_, to="Ada@example.com") for type_ in TYPES), email("other"))
        suppress(stage, "ada@example.com", cause=cause)
        stage.worker()
        await stage.until(lambda: "pending" not in stage.statuses(), within_s=10)
        assert {type_ for type_ in TYPES if status(stage, f"k-{type_}") == "accepted"} == goes_out
        assert stage.statuses().get("suppressed", 0) == 3 - len(goes_out)
        assert stage.copies()["ada@example.com"] == len(goes_out)
        assert stage.copies()["person-other@example.com"] == 1

    play(scene)


def test_it_says_why_in_one_sentence_and_costs_nothing() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, TYPES)
        stage.enqueue(email(1))
        suppress(stage, "person-1@example.com", reason="asked by phone")
        stage.worker()
        await stage.until_status(suppressed=1)
        row = stage.row("k-1")
        assert row["last_error"] == (
            "not sent: person-1@example.com was suppressed on 2027-01-15 by grace (asked by phone); "
            "unsuppress with: posthouse unsuppress person-1@example.com"
        )
        assert (row["attempts"], row["next_try_at"]) == (0, None)
        assert stage.attempts("k-1") == []

    play(scene)


def test_eight_busy_workers_obey_within_a_second() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main", "slow=300ms")
        stage.configure({"main": {"concurrency": 8}}, TYPES)
        stage.enqueue(*(email(n, to=f"person-{n % 2}@example.com") for n in range(1500)))
        for _ in range(8):
            stage.worker()
        await asyncio.sleep(2)
        suppressed_at = suppress(stage, "person-1@example.com")
        await stage.until(lambda: "pending" not in stage.statuses(), within_s=120)
        accepted = stage.apis["main"].ledger.acceptances
        last = max(one.at for one in accepted if one.recipients[0] == "person-1@example.com")
        assert 0 < stage.copies()["person-1@example.com"] < 750
        assert last < EPOCH + suppressed_at + 1.0 + 0.3 + 0.1, "a second, and what the call itself took"
        assert stage.copies()["person-0@example.com"] == 750

    play(scene)


@pytest.mark.parametrize(("cc", "queries"), [([], []), (["carol@example.com"], [17, 17])])
def test_a_claim_says_whom_to_ask_about_and_one_query_serves_all_that_it_begins(
    monkeypatch: pytest.MonkeyPatch, cc: list[str], queries: list[int]
) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"concurrency": 32}}, TYPES)
        stage.enqueue(*emails(32, cc=cc))
        asked: list[int] = []
        active = stage.store.suppressions.active

        def noted(addresses: Any, now: float) -> Any:
            asked.append(len(addresses))
            return active(addresses, now)

        monkeypatch.setattr(stage.store.suppressions, "active", noted)
        stage.worker()
        await stage.until_status(accepted=32)
        assert asked == queries  # a claim fills half of a route

    play(scene)


@pytest.mark.parametrize("to", [["ada@example.com"], ["ada@example.com", "bob@example.com"]])
def test_whoever_is_suppressed_while_a_claimed_send_waits_gets_nothing(
    monkeypatch: pytest.MonkeyPatch, to: list[str]
) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, TYPES)
        stage.enqueue(email(1, to=to))
        wait = Pace.wait

        async def long_wait(self: Pace, slot: Any, recipients: int) -> float | None:
            if not stage.store.suppressions.count():
                suppress(stage, "ada@example.com")
                await asyncio.sleep(0.8)
            return await wait(self, slot, recipients)

        monkeypatch.setattr(Pace, "wait", long_wait)
        stage.worker()
        await stage.until(lambda: stage.statuses().get("suppressed") == 1, within_s=10)
        await stage.until(lambda: "pending" not in stage.statuses(), within_s=10)
        got = [recipient for one in stage.apis["main"].ledger.acceptances for recipient in one.recipients]
        assert got == to[1:]

    play(scene)


def test_of_several_only_the_suppressed_one_is_left_out_and_nobody_gets_it_twice() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, TYPES)
        suppress(stage, "bob@example.com", cause="hard_bounce", reason="550 5.1.1")
        to = ["ada@example.com", "Bob@example.com"]
        stage.enqueue(email(1, to=to, cc="cleo@example.com", bcc="dan@example.com"), email(2))
        stage.worker()
        await stage.until_status(accepted=2, suppressed=1)
        (copy,) = [one for one in stage.apis["main"].ledger.acceptances if "ada@example.com" in one.recipients]
        assert sorted(copy.recipients) == ["ada@example.com", "cleo@example.com", "dan@example.com"]
        (left,) = stage.store.ledger.story("k-1").splits
        assert json.loads(left["recipients"]) == ["Bob@example.com"]
        assert left["last_error"].startswith("not sent: Bob@example.com bounced for good on ")
        assert json.loads(stage.row("k-1")["recipients"]) == sorted(copy.recipients)

    play(scene)


def test_an_email_whose_recipients_are_all_suppressed_ends_as_one() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, TYPES)
        suppress(stage, "ada@example.com", "bob@example.com")
        stage.enqueue(email("a"), email(1, to=["ada@example.com", "bob@example.com"]), email("b"))
        stage.worker()
        await stage.until_status(accepted=2, suppressed=1)
        assert "and so for 1 more" in stage.row("k-1")["last_error"]

    play(scene)


def test_after_a_refused_call_the_rest_goes_out_under_another_key() -> None:
    """A provider that keeps a refusal under its key would repeat it, or complain about another message."""

    async def scene(stage: Stage) -> None:
        seen: list[OutgoingMessage] = []

        async def answer(message: OutgoingMessage) -> Verdict:
            seen.append(message)
            if len(seen) == 1:
                suppress(stage, "bob@example.com")
                return Verdict(Outcome.TRANSIENT, code="503", text="later")
            return Verdict(Outcome.ACCEPTED, code="202", message_id="m-1")

        stage.script("main", answer)
        stage.configure({"main": {}}, TYPES)
        stage.enqueue(email(1, to=["ada@example.com", "bob@example.com"]))
        stage.worker()
        await stage.until_status(accepted=1, suppressed=1)
        first, second = seen
        assert [each.email for each in second.recipients] == ["ada@example.com"]
        assert first.idempotency_key != second.idempotency_key == stage.row("k-1")["idempotency_key"]

    play(scene)


def unknown_first(stage: Stage, **facts: Any) -> list[OutgoingMessage]:
    """The first call's answer is lost, each later one accepts; what was called."""
    seen: list[OutgoingMessage] = []

    async def answer(message: OutgoingMessage) -> Verdict:
        seen.append(message)
        if len(seen) == 1:
            return Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="read_timeout")
        return Verdict(Outcome.ACCEPTED, code="202", message_id="m-1")

    stage.script("main", answer, **facts)
    return seen


@pytest.mark.parametrize("on_unknown", ["hold", "resend"])
def test_an_unknown_send_is_neither_replayed_nor_resent_nor_called_suppressed(on_unknown: str) -> None:
    async def scene(stage: Stage) -> None:
        seen = unknown_first(stage, key_lifetime_s=86_400.0)
        types = {"receipt": {"on_unknown": on_unknown, "unknown_wait": "20s"}}
        stage.configure({"main": {}}, types, worker={"sweep": "1s"})
        stage.enqueue(email(1, type="receipt"))
        stage.worker()
        await stage.until(lambda: len(seen) == 1, within_s=5)
        suppress(stage, "person-1@example.com")
        row = stage.row("k-1")
        await stage.until(lambda: stage.row("k-1")["next_try_at"] is None, within_s=120)
        row = stage.row("k-1")
        assert (row["status"], len(seen)) == ("unknown", 1)
        if on_unknown == "resend":
            assert row["last_error"].endswith("; and nobody knows whether an earlier attempt was accepted")
        await asyncio.sleep(60)
        assert (status(stage, "k-1"), len(seen)) == ("unknown", 1)

    play(scene)


def test_it_is_still_looked_up_where_the_provider_can_be_asked() -> None:
    async def scene(stage: Stage) -> None:
        seen = unknown_first(stage, key_lifetime_s=86_400.0, can_look_up=True)

        async def has_it(message: OutgoingMessage) -> LookUp:
            return LookUp(Found.ACCEPTED, message_id="m-7")

        stage.scripted["main"].look_up = has_it  # type: ignore[method-assign]
        stage.configure({"main": {}}, TYPES, worker={"sweep": "1s"})
        stage.enqueue(email(1))
        stage.worker()
        await stage.until(lambda: len(seen) == 1, within_s=5)
        suppress(stage, "person-1@example.com")
        await stage.until_status(accepted=1)
        assert (len(seen), stage.row("k-1")["message_id"]) == (1, "m-7")

    play(scene)


def test_news_heard_meanwhile_stops_the_next_mail() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, TYPES)
        stage.enqueue(email(1, type="newsletter", to="ada@example.com"))
        stage.worker()
        await stage.until_status(accepted=1)
        message_id = stage.row("k-1")["message_id"]
        heard = Event(EventKind.COMPLAINED, stage.now(), "ada@example.com", message_id=message_id)
        stage.store.events.store("main", [heard], type_policies(stage.config), stage.now())
        stage.enqueue(*(email(type_, type=type_, to="ada@example.com") for type_ in TYPES))
        await stage.until_status(accepted=3, suppressed=1)
        assert (
            "complained on 2027-01-15, for marketing mail (about newsletter mail)"
            in (stage.row("k-newsletter")["last_error"])
        )

    play(scene)


def test_a_refusal_of_the_address_stops_the_next_mail_to_it() -> None:
    async def scene(stage: Stage) -> None:
        async def answer(message: OutgoingMessage) -> Verdict:
            address = message.to[0].email
            return Verdict(Outcome.REJECTED, code="550", text="5.1.1 no such user", bad_addresses=(address,))

        called = stage.script("main", answer).called
        stage.configure({"main": {}}, TYPES)
        stage.enqueue(email(1, to="ada@example.com"))
        stage.worker()
        await stage.until_status(failed=1)
        stage.enqueue(email(2, to="ada@example.com", type="code"))
        await stage.until_status(failed=1, suppressed=1)
        assert called == ["ada@example.com"]

    play(scene)


def test_a_carrier_of_several_to_a_suppressed_recipient_goes_nowhere() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, {"notice": {"combine": "5s"}})
        suppress(stage, "ada@example.com")
        stage.enqueue(
            *(email(n, type="notice", to="ada@example.com", subject=None, text=None, template="t") for n in (1, 2))
        )
        stage.worker()
        await stage.until_status(combined=1, suppressed=1)
        assert stage.calls_at() == []

    play(scene)


def test_while_the_database_cannot_say_nothing_is_called_and_nothing_is_lost() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, TYPES)
        active = stage.store.suppressions.active

        def away(addresses: Any, now: float) -> Any:
            if stage.at() < 30:
                raise DatabaseUnavailable("the database is away")
            return active(addresses, now)

        stage.store.suppressions.active = away  # type: ignore[method-assign]
        stage.enqueue(*emails(3, cc=["carol@example.com"]))
        stage.worker()
        await stage.until_status(within_s=90, accepted=3)
        assert min(stage.calls_at()) >= 30
        assert {row["attempts"] for row in stage.rows()} == {1}

    play(scene)
