"""Retention: contents go first, then answers and attempts, then the ledger; an open send loses nothing."""

from __future__ import annotations

import pytest
from sqlalchemy import func, insert, select

from posthouse.core.lifecycle import OPEN, TERMINAL, Status
from posthouse.core.outcome import Outcome, Verdict
from posthouse.store.retention import BATCH_ROWS, Limits, Retention
from posthouse.store.schema import attempts, contents, sends
from tests.contract.store_support import DAY_S, Bench, accepted, report

LIMITS = Limits(contents_s=DAY_S, attempts_s=20 * DAY_S, raw_answers_s=2 * DAY_S, sends_s=60 * DAY_S)


def count(bench: Bench, table: str) -> int:
    tables = {"sends": sends, "contents": contents, "attempts": attempts}
    with bench.store.database.read() as connection:
        return connection.scalar(select(func.count()).select_from(tables[table])) or 0


def kept(bench: Bench) -> dict[str, int]:
    return {name: count(bench, name) for name in ("contents", "attempts", "sends")}


def purge(bench: Bench, after_s: float) -> None:
    """Everything that is due by then, as a worker that has just started does it."""
    retention = Retention(bench.store.database)
    while retention.purge(LIMITS, bench.now + after_s):
        pass


def test_each_kind_goes_in_its_turn(bench: Bench) -> None:
    bench.enqueue("k")
    verdict = Verdict(Outcome.ACCEPTED, message_id="m-1", raw="<answer>")
    bench.settle(report(bench.claim_one(), verdict, bench.now))

    purge(bench, DAY_S - 1)
    assert kept(bench) == {"contents": 1, "attempts": 1, "sends": 1}
    purge(bench, DAY_S + 1)
    assert kept(bench) == {"contents": 0, "attempts": 1, "sends": 1}
    assert bench.attempts("k")[0]["raw"] == "<answer>"
    purge(bench, 2 * DAY_S + 1)
    assert bench.attempts("k")[0]["raw"] is None
    purge(bench, 20 * DAY_S + 1)
    assert kept(bench) == {"contents": 0, "attempts": 0, "sends": 1}
    purge(bench, 60 * DAY_S + 1)
    assert kept(bench) == {"contents": 0, "attempts": 0, "sends": 0}
    purge(bench, 99 * DAY_S)


@pytest.mark.parametrize("status", sorted(OPEN))
def test_an_open_send_keeps_everything_for_ever(bench: Bench, status: Status) -> None:
    state = bench.bring_to(status, "k")
    before, held = bench.row("k"), kept(bench)

    purge(bench, 999 * DAY_S)

    assert (bench.row("k"), kept(bench)) == (before, held)
    assert held["contents"] == 1
    assert held["attempts"] == state.attempts


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_every_ended_send_goes_with_all_that_is_its_own(bench: Bench, status: Status) -> None:
    bench.bring_to(status, "k")
    bench.bring_to(Status.PENDING, "open")

    purge(bench, 999 * DAY_S)

    assert kept(bench) == {"contents": 1, "attempts": 0, "sends": 1}
    assert bench.status("open") is Status.PENDING


def test_a_send_that_was_brought_back_keeps_its_content(bench: Bench) -> None:
    bench.bring_to(Status.FAILED, "k")
    bench.edit("k", status="pending", next_try_at=bench.now)

    purge(bench, 999 * DAY_S)

    assert bench.claim(1, "receipt/k")[0].body is not None


def test_what_is_old_goes_batch_by_batch(bench: Bench) -> None:
    ids = bench.put(2 * BATCH_ROWS + 10, status="accepted", updated_at=bench.now - 99 * DAY_S)
    with bench.store.database.write() as connection:
        connection.execute(insert(contents), [{"send_id": id_, "body": "{}"} for id_ in ids])
    bench.put(3, "young", status="accepted", updated_at=bench.now)

    left = []
    while bench.store.retention.purge(LIMITS, bench.now):
        left.append(count(bench, "sends"))
        assert count(bench, "contents") <= count(bench, "sends")

    assert left[:2] == [BATCH_ROWS + 13, 13]
    assert kept(bench) == {"contents": 0, "attempts": 0, "sends": 3}


def test_the_oldest_go_first(bench: Bench) -> None:
    bench.put(BATCH_ROWS, "newer", status="accepted", updated_at=bench.now - 70 * DAY_S)
    bench.put(1, "oldest", status="accepted", updated_at=bench.now - 99 * DAY_S)

    bench.store.retention.purge(LIMITS, bench.now)

    assert [row["dedupe_key"] for row in bench.store.ledger.find(["oldest"], None, 1)] == []
    assert count(bench, "sends") == 1


def test_a_key_can_be_used_again_when_its_send_is_gone(bench: Bench) -> None:
    first = bench.enqueue("k")
    bench.settle(report(bench.claim_one(), accepted(), bench.now))
    purge(bench, 999 * DAY_S)

    assert bench.enqueue("k", text="Another one") > first


def test_what_was_gone_through_is_not_walked_again_but_what_became_old_is(bench: Bench) -> None:
    retention = bench.store.retention
    for day in range(4):
        bench.put(1, f"day-{day}", status="accepted", updated_at=bench.now + day * DAY_S)
        with bench.store.database.write() as connection:
            send_id = bench.row(f"day-{day}-0")["id"]
            connection.execute(insert(contents), [{"send_id": send_id, "body": "{}"}])
    for day in range(1, 5):
        while retention.purge(LIMITS, bench.now + day * DAY_S + 1):
            pass
        assert count(bench, "contents") == 4 - day
