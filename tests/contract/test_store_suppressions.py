"""Suppressions in the database: written once, found by address, brought by news, and never brought back by old news."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, insert, select, text

from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.outcome import Outcome, Remainder, Subject, Verdict
from posthouse.core.policy import Category, TypePolicy
from posthouse.core.sends import SendState
from posthouse.core.suppression import Suppress, SuppressionCause, SuppressionPolicy
from posthouse.store.schema import audit, events, suppressions
from posthouse.store.store import Store
from posthouse.store.suppressions import _active_sql
from tests.contract.store_support import DAY_S, POLICIES, Bench, accepted, at, race, report, transient

NEWS: dict[str, TypePolicy] = POLICIES | {
    "newsletter": TypePolicy("newsletter", routes=(), category=Category.MARKETING, max_age_s=3 * DAY_S)
}


@pytest.fixture
def statements(bench: Bench) -> list[str]:
    """Every statement that the bench's store runs from now on."""
    told: list[str] = []
    event.listen(
        bench.store.database.engine, "before_cursor_execute", lambda *given: told.append(given[2]), named=False
    )
    return told


def wish(address: str = "ada@example.com", **fields: Any) -> Suppress:
    return replace(Suppress(address, SuppressionCause.MANUAL, who="grace"), **fields)


def rows(bench: Bench) -> list[Any]:
    with bench.store.database.read() as connection:
        return list(connection.execute(select(suppressions).order_by(suppressions.c.address, suppressions.c.id)))


def known(bench: Bench, *addresses: str, now: float | None = None) -> dict[str, list[str]]:
    """The causes that hold for each of these."""
    found = bench.store.suppressions.active(addresses, now or bench.now)
    return {address: sorted(each.cause.value for each in mine) for address, mine in found.items()}


def audited(bench: Bench) -> list[tuple[str, str, str, str]]:
    with bench.store.database.read() as connection:
        query = select(audit.c.who, audit.c.action, audit.c.subject, audit.c.detail).order_by(audit.c.id)
        return [tuple(row) for row in connection.execute(query)]


def hear(bench: Bench, kind: EventKind = EventKind.BOUNCED, store: Store | None = None, **fields: Any) -> None:
    plain: dict[str, Any] = {"at": 1000.0, "recipient": "ada@example.com", "message_id": "m-1"}
    if kind is EventKind.BOUNCED:
        plain |= {"cause": Cause.NO_MAILBOX, "hard": True, "code": "550 5.1.1"}
    (store or bench.store).events.store("main", [Event(kind, **plain | fields)], NEWS, bench.now)


def sent(bench: Bench, **fields: Any) -> SendState:
    bench.enqueue("k", **fields)
    bench.settle(report(bench.claim_one(fields.get("type", "receipt")), accepted(), bench.now))
    return bench.state("k")


def test_what_is_added_is_found_by_its_address_and_audited(bench: Bench) -> None:
    assert bench.store.suppressions.add([wish(reason="by phone", scope="type newsletter")], bench.now) == 1

    (found,) = bench.store.suppressions.active({"ada@example.com", "bob@example.com"}, bench.now)["ada@example.com"]
    assert (found.cause, found.scope, found.until) == (SuppressionCause.MANUAL, "type newsletter", None)
    assert (found.reason, found.who, found.at) == ("by phone", "grace", at(bench.now))
    assert audited(bench) == [("grace", "suppress", "ada@example.com", "manual, type newsletter, by phone")]


def test_many_addresses_are_asked_for_in_one_go_whatever_they_are_made_of(bench: Bench) -> None:
    odd = [
        "o'brien@example.com",
        'a"b@example.com',
        "100%@example.com",
        "müller@xn--bcher-kva.example",
        "😀@example.com",
    ]
    plain = [f"person-{number}@example.com" for number in range(500)]
    bench.store.suppressions.add([wish(each) for each in odd + plain[::2]], bench.now)

    assert set(known(bench, *odd, *plain)) == {*odd, *plain[::2]}
    assert known(bench) == {}


def test_the_same_again_changes_nothing_but_the_reason(bench: Bench) -> None:
    table = bench.store.suppressions
    assert table.add([wish(reason="first"), wish(reason="second")], bench.now) == 1
    assert table.add([wish(reason="third")], bench.now + 5) == 0
    (row,) = rows(bench)
    assert (row.reason, row.created_at, row.updated_at) == ("third", at(bench.now), at(bench.now + 5))


def test_a_persons_word_on_its_end_counts_and_news_and_lists_only_ever_make_it_longer(bench: Bench) -> None:
    table, soon = bench.store.suppressions, bench.now + DAY_S
    table.add([wish()], bench.now)
    table.add([wish(until=soon)], bench.now)
    assert [row.until for row in rows(bench)] == [at(soon)]
    table.import_([wish(until=soon - 10)], bench.now)
    assert [row.until for row in rows(bench)] == [at(soon)]
    table.import_([wish(until=soon + 10)], bench.now)
    assert [row.until for row in rows(bench)] == [at(soon + 10)]
    table.import_([wish()], bench.now)
    table.import_([wish(until=soon)], bench.now)
    assert [row.until for row in rows(bench)] == [None]


def test_a_list_leaves_alone_what_is_known_and_says_why_where_nobody_has(bench: Bench) -> None:
    table, soon = bench.store.suppressions, bench.now + DAY_S
    table.add([wish(reason="by phone"), wish("bob@example.com"), wish("cem@example.com", until=soon)], bench.now)
    before = rows(bench)

    listed = [
        replace(each, who="list") for each in (wish(), wish("bob@example.com"), wish("cem@example.com", until=soon))
    ]
    assert table.import_(listed, bench.now + 5) == 0
    assert rows(bench) == before

    said = [replace(each, reason="from the old system", until=None) for each in listed]
    assert table.import_(said, bench.now + 5) == 0
    ada, bob, cem = rows(bench)
    assert [each.reason for each in (ada, bob, cem)] == ["by phone", "from the old system", "from the old system"]
    assert (ada.until, bob.until, cem.until) == (None, None, None)
    assert [(each.who, each.updated_at) for each in (ada, bob, cem)] == [(each.who, each.updated_at) for each in before]


def test_a_list_makes_anew_what_has_run_out_unless_it_has_run_out_there_too(bench: Bench) -> None:
    table = bench.store.suppressions
    table.add([wish(reason="by phone", until=bench.now + 5)], bench.now)
    before = rows(bench)

    table.import_([wish(reason="again", who="list", until=bench.now + 5)], bench.now + 10)
    assert rows(bench) == before

    table.import_([wish(reason="again", who="list")], bench.now + 10)
    (row,) = rows(bench)
    assert (row.until, row.reason, row.who, row.updated_at) == (None, "again", "list", at(bench.now + 10))
    assert row.created_at == at(bench.now)


def test_one_that_has_run_out_is_not_found_and_stays_as_history(bench: Bench) -> None:
    bench.store.suppressions.add([wish(until=bench.now + 10)], bench.now)
    assert known(bench, "ada@example.com", now=bench.now + 9) == {"ada@example.com": ["manual"]}
    assert known(bench, "ada@example.com", now=bench.now + 11) == {}
    assert len(rows(bench)) == 1


def test_removing_takes_all_causes_or_the_one_that_is_named(bench: Bench) -> None:
    table = bench.store.suppressions
    table.add([wish(), wish(cause=SuppressionCause.COMPLAINT), wish("bob@example.com")], bench.now)

    (gone,) = table.remove("Ada@Example.com", who="grace", now=bench.now, cause=SuppressionCause.COMPLAINT)
    assert gone.cause is SuppressionCause.COMPLAINT
    assert known(bench, "ada@example.com") == {"ada@example.com": ["manual"]}
    assert len(table.remove("ada@example.com", who="grace", now=bench.now)) == 1
    assert table.remove("ada@example.com", who="grace", now=bench.now) == []
    assert [row.address for row in rows(bench)] == ["bob@example.com"]
    assert audited(bench)[-1] == ("grace", "unsuppress", "ada@example.com", "manual")


def test_they_are_listed_page_by_page_the_newest_first(bench: Bench) -> None:
    table = bench.store.suppressions
    for number in range(7):
        table.add([wish(f"p{number}@example.com")], bench.now)
    first = table.find([], None, 3)
    second = table.find([], None, 3, before=first[-1].id)
    assert [each.address[1] for each in [*first, *second]] == ["6", "5", "4", "3", "2", "1"]
    assert [each.address for each in table.find(["P3@"], None, 10)] == ["p3@example.com"]
    assert table.find(["p3@example.com"], SuppressionCause.COMPLAINT, 10) == []
    assert table.find(["%"], None, 10) == []
    assert [each.address[1] for each in table.page(first[-1].id, 10)] == ["5", "6"]
    assert table.count() == 7


def test_many_at_once_write_the_same_addresses_and_nobody_fails(bench: Bench) -> None:
    wishes = [wish(f"p{number}@example.com") for number in range(50)]
    orders: list[Sequence[Suppress]] = [wishes, wishes[::-1], wishes[25:] + wishes[:25], wishes]
    race([lambda order=order: bench.store.suppressions.import_(order, bench.now) for order in orders])  # type: ignore[misc]
    assert len(rows(bench)) == 50


# What news brings.


def test_a_hard_bounce_suppresses_its_recipient_and_nobody_else(bench: Bench) -> None:
    sent(bench, to=["ada@example.com", "bob@example.com"])
    hear(bench, recipient="Bob@Example.com", text="no such user")

    (row,) = rows(bench)
    assert (row.address, row.cause, row.scope, row.until) == ("bob@example.com", "hard_bounce", "", None)
    assert (row.reason, row.who) == ("550 5.1.1 no such user", "main")
    with bench.store.database.read() as connection:
        assert row.event_id == connection.scalar(select(events.c.id))


def test_old_news_never_brings_back_what_a_person_has_taken_away_and_new_news_does(bench: Bench) -> None:
    sent(bench)
    hear(bench)
    bench.store.suppressions.remove("ada@example.com", who="grace", now=bench.now)
    hear(bench)
    hear(bench, provider_event_id="told again under another id")
    assert rows(bench) == []
    hear(bench, at=2000.0)  # it is heard only now, and happened before
    assert rows(bench) == []
    hear(bench, at=bench.now + 1.0)
    assert [row.address for row in rows(bench)] == ["ada@example.com"]


def test_news_that_came_early_counts_at_once_and_not_again_when_its_send_is_found(bench: Bench) -> None:
    hear(bench, message_id="m-9")
    assert [row.address for row in rows(bench)] == ["ada@example.com"]
    bench.store.suppressions.remove("ada@example.com", who="grace", now=bench.now)
    bench.enqueue("k")
    bench.settle(report(bench.claim_one(), accepted("m-9"), bench.now))
    assert bench.store.events.join(NEWS, bench.now + 60) == 1
    assert rows(bench) == []


@pytest.mark.parametrize("recipient", ["a\x00da@example.com", "\ud800@example.com", "x" * 400 + "@example.com"])
def test_news_of_an_address_that_no_database_stores_holds_up_no_other(bench: Bench, recipient: str) -> None:
    told = [
        Event(EventKind.BOUNCED, 1000.0, address, cause=Cause.NO_MAILBOX, hard=True)
        for address in (recipient, "bob@example.com")
    ]
    assert bench.store.events.store("main", told, POLICIES, bench.now).new == 2
    assert [each.address for each in bench.store.suppressions.find([], None, 10)] == ["bob@example.com"]


def test_news_about_somebody_whom_the_email_was_not_for_suppresses_nobody(bench: Bench) -> None:
    bench.enqueue("k")
    bench.settle(report(bench.claim_one(), accepted("m-1"), bench.now))
    hear(bench, cause=Cause.NO_MAILBOX, hard=True, recipient="victim@example.com")
    assert rows(bench) == []


def test_mail_that_anybody_can_write_suppresses_nobody_unless_it_knows_the_send(bench: Bench) -> None:
    bench.enqueue("k")
    bench.settle(report(bench.claim_one(), accepted("m-1"), bench.now))
    said = Event(EventKind.BOUNCED, 1000.0, "ada@example.com", cause=Cause.NO_MAILBOX, hard=True)
    key = bench.row("k")["idempotency_key"]

    for number, name in enumerate(["made up", key]):
        assert rows(bench) == []
        bench.store.events.store("main", [replace(said, key=name, at=number)], POLICIES, bench.now, verified=False)

    assert [row.address for row in rows(bench)] == ["ada@example.com"]


def test_a_complaint_and_an_unsubscription_have_the_scope_of_what_they_are_about(bench: Bench) -> None:
    sent(bench, type="newsletter")
    hear(bench, EventKind.COMPLAINED)
    hear(bench, EventKind.UNSUBSCRIBED, at=1001.0)
    hear(bench, EventKind.COMPLAINED, message_id="nobody knows", recipient="bob@example.com")
    assert [(row.address, row.cause, row.scope, row.reason) for row in rows(bench)] == [
        ("ada@example.com", "complaint", "category marketing", "about newsletter mail"),
        ("ada@example.com", "unsubscribe", "type newsletter", "about newsletter mail"),
        ("bob@example.com", "complaint", "", ""),
    ]


def test_a_bounce_in_another_spelling_of_the_domain_is_the_same_address(bench: Bench) -> None:
    sent(bench, to="ada@bücher.example")
    hear(bench, recipient="Ada@xn--bcher-kva.example")
    assert list(known(bench, "ada@xn--bcher-kva.example")) == ["ada@xn--bcher-kva.example"]
    assert bench.row("k")["delivery"] == "bounced"
    assert [send["dedupe_key"] for send in bench.store.ledger.find(["ada@Bücher.example"], None, 5)] == ["k"]


def test_hard_bounces_end_when_the_configuration_says_so(bench: Bench) -> None:
    store = Store(bench.store.database, SuppressionPolicy(hard_bounce_for_s=DAY_S))
    hear(bench, store=store)
    assert [row.until for row in rows(bench)] == [at(bench.now + DAY_S)]


def test_soft_bounces_again_and_again_are_for_people_to_look_at_and_suppress_nobody(bench: Bench) -> None:
    def full(address: str, times: int, cause: Cause = Cause.MAILBOX_FULL, **fields: Any) -> None:
        for number in range(times):
            hear(bench, recipient=address, cause=cause, at=1000.0 + number * DAY_S, message_id=None, **fields)

    full("four@example.com", 4)
    full("five@example.com", 5, hard=False)
    full("six@example.com", 6, Cause.EXPIRED, hard=False)
    full("blocked@example.com", 9, Cause.BLOCKED)
    assert rows(bench) == []

    table = bench.store.suppressions
    assert [(each.address, each.bounces) for each in table.to_review(bench.now, 10)] == [
        ("six@example.com", 6),
        ("five@example.com", 5),
    ]
    assert table.to_review(bench.now + 15 * DAY_S, 10) == []
    table.add([wish("six@example.com", cause=SuppressionCause.HARD_BOUNCE)], bench.now)
    assert [each.address for each in table.to_review(bench.now, 10)] == ["five@example.com"]


# What a call says.


def no_mailbox(*addresses: str) -> Verdict:
    return Verdict(
        Outcome.REJECTED, subject=Subject.RECIPIENT, code="550", text="5.1.1 no such user", bad_addresses=addresses
    )


def test_a_refusal_at_the_call_counts_like_a_bounce_and_once(bench: Bench) -> None:
    bench.enqueue("k")
    told = report(bench.claim_one(), no_mailbox("Ada@example.com"), bench.now)
    bench.settle(told)
    (row,) = rows(bench)
    assert (row.address, row.cause, row.reason, row.who, row.event_id) == (
        "ada@example.com",
        "hard_bounce",
        "550 5.1.1 no such user",
        "main",
        None,
    )
    bench.store.suppressions.remove("ada@example.com", who="grace", now=bench.now)
    bench.settle(told)
    assert rows(bench) == [], "the same result written again after a lost answer"


def test_beside_others_who_get_it_only_the_refused_one_is_suppressed(bench: Bench) -> None:
    bench.enqueue("k", to=["ada@example.com", "bob@example.com"])
    remainder = Remainder(("bob@example.com",), no_mailbox("bob@example.com"), "<m@x>")
    verdict = replace(accepted(), remainders=(remainder,), bad_addresses=("bob@example.com",))
    bench.settle(report(bench.claim_one(), verdict, bench.now))
    assert [row.address for row in rows(bench)] == ["bob@example.com"]


def test_a_batch_with_nothing_against_anybody_asks_nothing_of_the_table(bench: Bench, statements: list[str]) -> None:
    bench.enqueue("k")
    bench.enqueue("l")
    first, second = bench.claim(2)
    statements.clear()
    bench.settle(report(first.state, accepted(), bench.now), report(second.state, transient(), bench.now))
    assert not [each for each in statements if "email_suppressions" in each]


# Who is left out of several.


def left_out(bench: Bench, state: SendState, *addresses: str) -> Any:
    return bench.store.queue.leave_out(state, {each: f"not sent: {each}" for each in addresses}, bench.now)


def test_whoever_is_left_out_has_a_suppressed_send_and_the_others_keep_theirs(bench: Bench) -> None:
    bench.enqueue("k", to=["ada@example.com", "bob@example.com"], cc="cleo@example.com", bcc="dan@example.com")
    state = bench.claim_one()

    narrowed = left_out(bench, state, "ada@example.com", "dan@example.com")

    whole, *parts = bench.row("k"), *bench.store.ledger.story("k").splits
    assert (whole["status"], json.loads(whole["recipients"]), whole["to_address"]) == (
        "sending",
        ["bob@example.com", "cleo@example.com"],
        "bob@example.com",
    )
    assert json.loads(narrowed.body)["envelope_to"] == ["bob@example.com", "cleo@example.com"]
    assert bench.store.ledger.story("k").body == narrowed.body
    assert narrowed.idempotency_key == whole["idempotency_key"]
    assert [(part["status"], json.loads(part["recipients"]), part["last_error"]) for part in parts] == [
        ("suppressed", ["ada@example.com"], "not sent: ada@example.com"),
        ("suppressed", ["dan@example.com"], "not sent: dan@example.com"),
    ]
    assert {(part["attempts"], part["route"], part["next_try_at"]) for part in parts} == {(0, None, None)}


def test_after_an_earlier_call_the_rest_goes_out_under_a_new_key(bench: Bench) -> None:
    bench.enqueue("k", to=["ada@example.com", "bob@example.com"])
    bench.settle(report(bench.claim_one(), transient(), bench.now))
    before = bench.row("k")["idempotency_key"]
    again = bench.claim_one(now=bench.row("k")["next_try_at"])
    narrowed = left_out(bench, again, "ada@example.com")
    assert narrowed.idempotency_key == bench.row("k")["idempotency_key"] != before


def test_nobody_is_taken_out_of_a_send_that_is_somebody_elses_now(bench: Bench) -> None:
    bench.enqueue("k", to=["ada@example.com", "bob@example.com"])
    state = bench.claim_one()
    assert left_out(bench, replace(state, fence=state.fence - 1), "ada@example.com") is None
    assert left_out(bench, replace(state, id=state.id + 99), "ada@example.com") is None
    assert bench.store.ledger.story("k").splits == []
    assert len(json.loads(bench.row("k")["recipients"])) == 2


PLAN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN ", "mysql": "EXPLAIN "}
BY_INDEX = {
    "sqlite": "SEARCH email_suppressions USING INDEX",
    "postgresql": "Index Cond: ((address)::text = ANY",
    "mysql": "email_suppressions_once",
}


def test_addresses_are_found_by_the_index_among_very_many(bench: Bench) -> None:
    plain = {"cause": "manual", "who": "x", "created_at": bench.now, "updated_at": bench.now}
    dialect = bench.store.database.dialect
    with bench.store.database.write() as connection:
        connection.execute(insert(suppressions), [plain | {"address": f"p{n}@example.com"} for n in range(3000)])
    with bench.store.database.read() as connection:
        connection.execute(text("ANALYZE TABLE email_suppressions" if dialect == "mysql" else "ANALYZE"))
        wanted = {"addresses": '["p7@example.com", "p2999@example.com"]'}
        plan = connection.execute(text(PLAN[dialect] + str(_active_sql(dialect).element)), wanted).all()
    assert BY_INDEX[dialect] in str(plan), plan
    assert known(bench, "p2999@example.com") == {"p2999@example.com": ["manual"]}
