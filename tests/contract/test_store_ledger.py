"""Looking: every email is found again, by whatever a person knows of it."""

from __future__ import annotations

import pytest
from sqlalchemy import delete

from posthouse.core.lifecycle import Status
from posthouse.core.sends import SendState, Via
from posthouse.errors import UnknownSend
from posthouse.store.ledger import Traffic
from posthouse.store.schema import contents
from tests.contract.store_support import Bench, accepted, at, lost, report, transient


@pytest.fixture
def filled(bench: Bench) -> Bench:
    """Three emails: two for Ada, one for Grace and Bob."""
    bench.enqueue("order-1-receipt", to="Ada <Ada@Example.com>", tags=["spring", "shoes"])
    bench.enqueue("order-2-receipt", to=["grace@example.org", "bob@example.net"], tags=["spring"])
    bench.enqueue("news-100%", to="ada@example.com", type="newsletter", metadata={"a": "b"})
    return bench


def found(bench: Bench, *words: str, status: Status | None = None, limit: int = 50) -> list[str]:
    return [row["dedupe_key"] for row in bench.store.ledger.find(words, status, limit)]


def test_a_send_is_found_by_its_key_and_by_its_id(filled: Bench) -> None:
    id_ = filled.row("order-2-receipt")["id"]

    assert found(filled, "order-2-receipt") == ["order-2-receipt"]
    assert found(filled, str(id_)) == ["order-2-receipt"]
    assert filled.store.ledger.story(str(id_)).send == filled.row("order-2-receipt")


@pytest.mark.parametrize("word", ["ada@example.com", "ADA@EXAMPLE.COM", "Ada@Example.com"])
def test_sends_are_found_by_address_in_any_case_the_newest_first(filled: Bench, word: str) -> None:
    assert found(filled, word) == ["news-100%", "order-1-receipt"]


@pytest.mark.parametrize("word", ["ada@example.com", "Ada@Example.COM"])
def test_a_whole_address_does_not_find_those_that_only_contain_it(filled: Bench, word: str) -> None:
    filled.enqueue("other", to="nada@example.com")

    assert found(filled, word) == ["news-100%", "order-1-receipt"]


def test_a_send_is_found_by_the_address_of_any_of_its_recipients(filled: Bench) -> None:
    assert found(filled, "bob@example.net") == ["order-2-receipt"]
    assert found(filled, "BOB@") == ["order-2-receipt"]


def test_a_send_is_found_by_the_providers_message_id(filled: Bench) -> None:
    filled.settle(report(filled.claim_one(), accepted("prov-77@mail"), filled.now))

    assert found(filled, "prov-77@mail") == ["order-1-receipt"]
    assert found(filled, "prov-77") == ["order-1-receipt"]


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["receipt"], ["order-2-receipt", "order-1-receipt"]),
        (["ORDER-1"], ["order-1-receipt"]),
        (["shoes"], ["order-1-receipt"]),
        (["newslett"], ["news-100%"]),
        (["spring", "ada"], ["order-1-receipt"]),
        (["order", "grace@example.org"], ["order-2-receipt"]),
        (["spring", "nobody"], []),
        (["0%"], ["news-100%"]),
        (["1%r"], []),
        (["order_1"], []),
        (["\\"], []),
        ([], ["news-100%", "order-2-receipt", "order-1-receipt"]),
    ],
    ids=str,
)
def test_parts_of_words_are_found_and_every_word_counts(filled: Bench, words: list[str], keys: list[str]) -> None:
    assert found(filled, *words) == keys


def test_only_sends_of_the_asked_status_are_found(filled: Bench) -> None:
    filled.settle(report(filled.claim_one(), accepted(), filled.now))

    assert found(filled, "spring", status=Status.ACCEPTED) == ["order-1-receipt"]
    assert found(filled, "spring", status=Status.PENDING) == ["order-2-receipt"]
    assert found(filled, "ada@example.com", status=Status.PENDING) == ["news-100%"]
    assert found(filled, status=Status.FAILED) == []


def test_no_more_are_found_than_were_asked_for(filled: Bench) -> None:
    assert found(filled, limit=2) == ["news-100%", "order-2-receipt"]
    assert found(filled, "spring", limit=1) == ["order-2-receipt"]


def test_a_key_of_digits_is_looked_for_before_an_id(bench: Bench) -> None:
    first = bench.enqueue("first", to="a@example.com")
    bench.enqueue(str(first), to="b@example.com")

    assert bench.store.ledger.story(str(first)).send["to_address"] == "b@example.com"


@pytest.mark.parametrize("asked", ["nothing", "4711", "9" * 18, "9" * 40, "²", "-#", "ü 📬", "\\"])
def test_what_is_not_there_is_said_to_be_unknown(filled: Bench, asked: str) -> None:
    with pytest.raises(UnknownSend, match="posthouse find"):
        filled.store.ledger.story(asked)
    assert found(filled, asked) == []


def test_a_story_tells_everything_in_order(bench: Bench) -> None:
    bench.enqueue("k", text="Hi there")
    bench.settle(report(bench.claim_one(), transient(), bench.now))
    bench.settle(report(bench.claim_one(now=bench.now + 900), lost(), bench.now + 901), now=bench.now + 901)
    bench.store.operations.audit("grace", "looked", "k", "why so slow?", bench.now)
    bench.store.operations.audit("grace", "looked", "another", "", bench.now)

    story = bench.store.ledger.story("k")

    assert [attempt["outcome"] for attempt in story.attempts] == ["transient", "unknown"]
    assert [(line["who"], line["action"], line["detail"]) for line in story.audit] == [
        ("grace", "looked", "why so slow?")
    ]
    assert story.audit[0]["at"] == at(bench.now)
    assert "Hi there" in (story.body or "")
    assert isinstance(story.state, SendState)
    assert (story.state.status, story.state.fence, story.state.attempts) == (Status.UNKNOWN, 2, 2)


def test_a_story_is_told_after_its_content_is_gone(bench: Bench) -> None:
    bench.enqueue("k")
    with bench.store.database.write() as connection:
        connection.execute(delete(contents))

    assert bench.store.ledger.story("k").body is None


def test_what_is_open_is_counted_by_state(bench: Bench) -> None:
    statuses = [Status.WAITING, Status.PENDING, Status.SENDING, Status.UNKNOWN, Status.FAILED]
    for place, status in enumerate(statuses):
        bench.put(place + 1, str(status), status=status.value)
    bench.put(9, "done", status="accepted")

    assert bench.store.ledger.open_counts() == {
        "waiting": 1,
        "pending": 2,
        "sending": 3,
        "unknown": 4,
        "failed": 5,
    }


def test_each_lane_tells_how_much_waits_and_since_when(bench: Bench) -> None:
    bench.put(3, "due", lane="b", next_try_at=bench.now - 30)
    bench.put(2, "future", lane="b", next_try_at=bench.now + 30)
    bench.put(1, "later", lane="a", next_try_at=bench.now + 30)
    bench.put(1, "done", lane="c", status="accepted")

    first, second = bench.store.ledger.lanes(bench.now)

    assert (first.lane, first.pending, first.due, first.oldest_due_at) == ("a", 1, 0, None)
    assert (second.lane, second.pending, second.due) == ("b", 5, 3)
    assert second.oldest_due_at == at(bench.now - 30)


def test_outcomes_are_counted_from_a_moment_on(bench: Bench) -> None:
    bench.put(3)
    first, second, third = [send.state for send in bench.claim(3)]
    bench.settle(
        report(first, accepted(), bench.now - 100), report(second, lost(), bench.now), report(third, lost(), bench.now)
    )

    assert bench.store.ledger.recent_outcomes(bench.now - 50) == {"unknown": 2}
    assert bench.store.ledger.recent_outcomes(bench.now - 500) == {"unknown": 2, "accepted": 1}


def test_a_look_up_that_found_nothing_is_no_unknown_call(bench: Bench) -> None:
    bench.put(1)
    send = bench.claim(1)[0].state
    bench.settle(report(send, lost(), bench.now))
    bench.settle(
        report(send, lost(), bench.now + 1, via=Via.LOOK_UP), report(send, accepted(), bench.now + 2, via=Via.EVENT)
    )

    assert bench.store.ledger.recent_outcomes(0.0) == {"unknown": 1}


def test_the_sends_of_one_state_are_listed_page_by_page(bench: Bench) -> None:
    ids = bench.put(3, "f", status="failed")
    news = bench.put(2, "n", status="failed", type="newsletter")
    bench.put(2, "p")
    ledger = bench.store.ledger

    assert [state.id for state in ledger.ids(Status.FAILED, None, 2)] == ids[:2]
    assert [state.id for state in ledger.ids(Status.FAILED, None, 9, above=ids[1])] == [ids[2], *news]
    assert [state.id for state in ledger.ids(Status.FAILED, "newsletter", 9)] == news


def test_traffic_is_what_came_within_the_hour_and_was_accepted_in_the_busiest_minute_of_the_day(bench: Bench) -> None:
    bench.put(30, "ended", created_at=bench.now - 3700.0, status="accepted")
    bench.put(16, "older", created_at=bench.now - 3700.0)
    bench.put(7, "newer", created_at=bench.now - 3500.0)
    this_minute = bench.now // 60 * 60
    for minute, count in ((-1500, 6), (-120, 4), (-2, 2), (-1, 1)):
        for send in bench.claim(count):
            moment = this_minute + 60.0 * minute + 30.0
            bench.settle(report(send.state, accepted(), moment), now=moment)

    assert bench.store.ledger.traffic(bench.now) == Traffic(created=7, accepted=4, pending=16 + 7 - 13)


def test_there_is_no_traffic_on_an_empty_table(bench: Bench) -> None:
    assert bench.store.ledger.traffic(bench.now) == Traffic(created=0, accepted=0, pending=0)


@pytest.mark.parametrize("count", [1, 2, 7, 20])
def test_the_hour_is_found_wherever_it_begins_among_the_ids(bench: Bench, count: int) -> None:
    ids = bench.put(count, status="accepted")
    for place, id_ in enumerate([*ids, None]):
        if id_ is not None:
            bench.edit(f"bulk-{place}", created_at=bench.now - 4000.0)
        assert bench.store.ledger.traffic(bench.now).created == count - place - (id_ is not None)
