"""Events: each counts once, in any order, whenever it comes; one that carries our id says what became of a send."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from sqlalchemy import func, select

from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.lifecycle import Status
from posthouse.core.outcome import Remainder
from posthouse.core.sends import SendState
from posthouse.store.events import JOIN_FIRST_S, JOIN_FOR_S, Stored
from posthouse.store.schema import contents, events, quarantine
from tests.contract.store_support import POLICIES, Bench, accepted, at, lost, race, report, transient


def news(kind: EventKind = EventKind.DELIVERED, **fields: Any) -> Event:
    told: dict[str, Any] = {"at": 1000.0, "recipient": "ada@example.com", "message_id": "m-1"}
    return Event(kind, **told | fields)


def hear(bench: Bench, *told: Event, route: str = "main", now: float | None = None) -> Stored:
    return bench.store.events.store(route, told, POLICIES, now or bench.now)


def rows(bench: Bench) -> list[Any]:
    with bench.store.database.read() as connection:
        return list(connection.execute(select(events).order_by(events.c.id)))


def sent(bench: Bench, key: str = "k", message_id: str = "m-1", **fields: Any) -> SendState:
    """A new send that is accepted under this message id."""
    bench.enqueue(key, **fields)
    bench.settle(report(bench.claim_one(), accepted(message_id), bench.now))
    return bench.state(key)


def key_of(bench: Bench, key: str) -> str:
    return str(bench.row(key)["idempotency_key"])


def test_an_event_says_what_the_receiver_did(bench: Bench) -> None:
    send = sent(bench)

    assert hear(bench, news(code="250", text="2.0.0 Ok", provider_event_id="e-1")) == Stored(1, 1, 0)

    row = bench.row("k")
    assert (row["status"], row["delivery"], row["last_event_at"]) == ("accepted", "delivered", at(1000.0))
    (kept,) = rows(bench)
    assert (kept.send_id, kept.route, kept.kind, kept.recipient) == (send.id, "main", "delivered", "ada@example.com")
    assert (kept.code, kept.text, kept.provider_event_id, kept.join_at) == ("250", "2.0.0 Ok", "e-1", None)
    assert (kept.at, kept.received_at) == at((1000.0, bench.now))


STORY = (
    news(EventKind.DEFERRED, at=1001.0, provider_event_id="e-1"),
    news(EventKind.DELIVERED, at=1002.0),
    news(EventKind.BOUNCED, at=1003.0, provider_event_id="e-3"),
)


@pytest.mark.parametrize("order", list(permutations(STORY)))
def test_events_count_once_in_any_order(bench: Bench, order: tuple[Event, ...]) -> None:
    sent(bench)
    told = [hear(bench, event) for event in order + order]

    assert [one.new for one in told] == [1, 1, 1, 0, 0, 0]
    assert (bench.row("k")["delivery"], bench.row("k")["last_event_at"]) == ("bounced", at(1003.0))
    assert len(rows(bench)) == 3


def test_the_same_news_under_another_event_id_counts_once_and_another_news_under_the_same_does_not_count(
    bench: Bench,
) -> None:
    sent(bench)
    for number in range(46):
        hear(bench, news(provider_event_id=f"e-{number % 3}"))
    assert len(rows(bench)) == 1

    assert hear(bench, news(at=1000.5, provider_event_id="e-0")).new == 0
    assert hear(bench, news(at=1000.5, provider_event_id="e-0"), route="other").new == 1


def test_several_clicks_are_told_apart_by_what_was_clicked(bench: Bench) -> None:
    sent(bench)
    first, second = (news(EventKind.CLICKED, url=f"https://shop.example/{n}") for n in range(2))
    assert hear(bench, first, second, first).new == 2


def test_a_batch_that_many_hand_in_at_once_is_kept_once(bench: Bench) -> None:
    sent(bench)
    batch = [news(at=1000.0 + n, provider_event_id=f"e-{n}") for n in range(20)]

    race([lambda: hear(bench, *batch), lambda: hear(bench, *reversed(batch)), lambda: hear(bench, *batch)])

    assert len(rows(bench)) == 20
    assert bench.row("k")["last_event_at"] == at(1019.0)


RESOLVED = [Status.PENDING, Status.UNKNOWN, Status.FAILED, Status.EXPIRED, Status.CANCELLED]


@pytest.mark.parametrize("status", RESOLVED)
def test_an_event_with_our_id_says_that_a_send_was_accepted_however_it_stands(bench: Bench, status: Status) -> None:
    bench.bring_to(status, "k")

    told = hear(bench, news(key=key_of(bench, "k"), message_id="m-9"))

    row = bench.row("k")
    assert told.resolved == 1
    assert (row["status"], row["delivery"], row["message_id"]) == ("accepted", "delivered", "m-9")
    assert (row["next_try_at"], row["claimed_by"], row["unknown_since"]) == (None, None, None)
    assert [a["via"] for a in bench.attempts("k")][-1] == "event"


def test_a_send_that_waits_for_another_was_never_called_for(bench: Bench) -> None:
    bench.bring_to(Status.WAITING, "k")
    assert hear(bench, news(key=key_of(bench, "k"))).resolved == 0
    assert bench.status("k") is Status.WAITING


def test_the_answer_to_a_call_says_more_than_an_event_that_comes_before_it(bench: Bench) -> None:
    bench.enqueue("k", to=["ada@example.com", "bob@example.com"])
    state = bench.claim_one()
    assert hear(bench, news(key=key_of(bench, "k"))) == Stored(1, 1, 0)
    later = Remainder(("bob@example.com",), transient(), "<k@shop.example>")

    bench.settle(report(state, replace(accepted("m-1"), remainders=(later,)), bench.now))

    row = bench.row("k")
    assert (row["status"], row["delivery"], row["maybe_duplicate"]) == ("accepted", "delivered", False)
    (rest,) = bench.store.ledger.story("k").splits
    assert (rest["to_address"], rest["status"]) == ("bob@example.com", "pending")


@pytest.mark.parametrize("ends", ["its answer is lost", "its worker dies"])
def test_where_that_answer_never_comes_what_was_heard_resolves_the_send(bench: Bench, ends: str) -> None:
    bench.enqueue("k")
    state = bench.claim_one()
    hear(bench, news(key=key_of(bench, "k"), message_id="m-9"))
    assert bench.store.events.resolve_told(POLICIES, bench.now) == 0

    if ends == "its worker dies":
        bench.store.sweeps.reap(bench.now, bench.now, bench.another_worker())
    else:
        bench.settle(report(state, lost(), bench.now))
    assert bench.status("k") is Status.UNKNOWN
    assert bench.store.events.wait_for_a_sweep(bench.now)
    assert bench.store.events.resolve_told(POLICIES, bench.now) == 1
    assert not bench.store.events.wait_for_a_sweep(bench.now)

    row = bench.row("k")
    assert (row["status"], row["delivery"], row["message_id"]) == ("accepted", "delivered", "m-9")
    assert bench.store.events.resolve_told(POLICIES, bench.now) == 0


def test_an_event_that_resolves_a_code_deletes_its_content(bench: Bench) -> None:
    bench.enqueue("k", type="one-time-code")
    bench.settle(report(bench.claim_one("one-time-code"), lost(), bench.now))
    hear(bench, news(key=key_of(bench, "k")))
    with bench.store.database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(contents)) == 0


def test_an_event_that_comes_before_its_message_id_is_joined_later(bench: Bench) -> None:
    bench.enqueue("k")
    state = bench.claim_one()
    assert hear(bench, news(EventKind.BOUNCED, cause=Cause.NO_MAILBOX, hard=True)) == Stored(1, 0, 0)
    bench.settle(report(state, accepted("m-1"), bench.now))

    assert bench.store.events.join(POLICIES, bench.now + JOIN_FIRST_S - 0.1) == 0
    assert not bench.store.events.wait_for_a_sweep(bench.now + JOIN_FIRST_S - 0.1)
    assert bench.store.events.wait_for_a_sweep(bench.now + JOIN_FIRST_S)
    assert bench.store.events.join(POLICIES, bench.now + JOIN_FIRST_S) == 1
    assert bench.store.events.join(POLICIES, bench.now + JOIN_FOR_S) == 0

    assert bench.row("k")["delivery"] == "bounced"
    assert rows(bench)[0].send_id == bench.row("k")["id"]


def test_what_is_about_no_send_of_ours_is_kept_and_looked_for_ever_more_seldom_and_then_no_more(bench: Bench) -> None:
    hear(bench, news(message_id="of somebody else"))
    now, looks = bench.now, 0
    while (again := rows(bench)[0].join_at) is not None:
        now, looks = again, looks + 1
        assert bench.store.events.join(POLICIES, now) == 0

    assert JOIN_FOR_S < now - bench.now < 4 * JOIN_FOR_S
    assert looks < 25


def test_what_names_no_message_at_all_is_kept_and_not_looked_for(bench: Bench) -> None:
    hear(bench, news(message_id=None))
    assert rows(bench)[0].join_at is None


def test_a_message_id_of_several_sends_is_decided_by_the_recipient(bench: Bench) -> None:
    sent(bench, "ada", to="ada@example.com")
    sent(bench, "bob", to="bob@example.com")

    assert hear(bench, news(EventKind.BOUNCED, recipient="Bob@Example.com")).joined == 1
    assert hear(bench, news(EventKind.BOUNCED, recipient="eve@example.com")).joined == 0

    assert (bench.row("ada")["delivery"], bench.row("bob")["delivery"]) == ("none", "bounced")


def test_an_id_that_two_providers_gave_is_that_of_the_route_where_the_news_came_in(bench: Bench) -> None:
    sent(bench, "by main")
    sent(bench, "by standby")
    bench.edit("by standby", route="standby")

    assert hear(bench, news(EventKind.BOUNCED), route="standby").joined == 1
    assert hear(bench, news(EventKind.DEFERRED), route="main").joined == 1

    assert (bench.row("by main")["delivery"], bench.row("by standby")["delivery"]) == ("deferred", "bounced")


def test_news_that_came_before_its_id_is_not_that_of_another_routes_send_with_the_same_id(bench: Bench) -> None:
    sent(bench, "by standby", to="bob@example.com")
    bench.edit("by standby", route="standby")
    bench.enqueue("by main")
    state = bench.claim_one()

    assert hear(bench, news(EventKind.BOUNCED), route="main").joined == 0
    bench.settle(report(state, accepted("m-1"), bench.now))
    assert bench.store.events.join(POLICIES, bench.now + JOIN_FIRST_S) == 1

    assert (bench.row("by main")["delivery"], bench.row("by standby")["delivery"]) == ("bounced", "none")


@pytest.mark.parametrize("recipient", ["ada@example.com", ""])
def test_routes_that_share_an_account_may_hear_by_one_of_them(bench: Bench, recipient: str) -> None:
    sent(bench)

    assert hear(bench, news(recipient=recipient), route="standby").joined == 1

    assert bench.row("k")["delivery"] == "delivered"


def test_the_fate_of_a_copy_is_not_the_sends_own(bench: Bench) -> None:
    sent(bench, to="ada@example.com", bcc="boss@example.com")

    hear(bench, news(EventKind.BOUNCED, recipient="boss@example.com"), news(recipient="ada@example.com"))

    assert bench.row("k")["delivery"] == "delivered"
    assert {row.recipient: row.kind for row in rows(bench)} == {
        "boss@example.com": "bounced",
        "ada@example.com": "delivered",
    }


@pytest.mark.parametrize("kind", [EventKind.BOUNCED, EventKind.COMPLAINED, EventKind.DELIVERED])
@pytest.mark.parametrize("verified", [True, False])
def test_news_of_somebody_whom_the_email_was_not_for_is_kept_and_not_the_sends_fate(
    bench: Bench, kind: EventKind, verified: bool
) -> None:
    send = sent(bench)
    about = news(kind, recipient="mallory@elsewhere.example", key=key_of(bench, "k"), hard=kind is EventKind.BOUNCED)

    assert bench.store.events.store("main", [about], POLICIES, bench.now, verified=verified) == Stored(1, 1, 0)

    assert bench.row("k")["delivery"] == "none"
    (kept,) = rows(bench)
    assert (kept.send_id, kept.kind, kept.recipient) == (send.id, kind.value, "mallory@elsewhere.example")
    assert bench.store.suppressions.count() == 0


@pytest.mark.parametrize("named", ["", "ADA@Example.com", "unknown"])
def test_news_that_names_the_recipient_or_nobody_is_the_sends_fate(bench: Bench, named: str) -> None:
    sent(bench)

    hear(bench, news(EventKind.BOUNCED, recipient=named))

    assert bench.row("k")["delivery"] == "bounced"


def test_an_event_with_the_id_of_another_life_is_joined_to_nothing(bench: Bench) -> None:
    sent(bench)
    assert hear(bench, news(key="another key", message_id=None)).joined == 0


def test_whatever_a_provider_says_can_be_stored(bench: Bench) -> None:
    sent(bench)
    odd = news(
        text="\x00 \ud800 " + "x" * 5000, code="5" * 200, url="https://" + "u" * 5000, recipient="ADA@example.com" * 40
    )
    hear(bench, odd, replace(odd, at=2000.0, provider_event_id="e" * 500))
    assert len(rows(bench)) == 2


def test_what_could_not_be_read_is_kept_once_with_its_reason(bench: Bench) -> None:
    for _ in range(2):
        bench.store.events.quarantine("main", {"d-1": '{"a":1}', "d-2": "\x00"}, "it has no event", bench.now)
    with bench.store.database.read() as connection:
        kept = list(connection.execute(select(quarantine).order_by(quarantine.c.digest)))
    assert [(row.route, row.item, row.reason) for row in kept] == [
        ("main", '{"a":1}', "it has no event"),
        ("main", "", "it has no event"),
    ]
