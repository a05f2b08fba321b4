"""Retention: contents go first, then answers and attempts, then the ledger; an open send loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from sqlalchemy import delete, event, func, insert, select, update

from posthouse.attachment import Attachment
from posthouse.core.events import Event, EventKind
from posthouse.core.lifecycle import OPEN, TERMINAL, Status
from posthouse.core.outcome import Outcome, Verdict
from posthouse.store import retention as retention_module
from posthouse.store.blobs import PURGE_AFTER_S, REUSE_S
from posthouse.store.database import Database
from posthouse.store.retention import BATCH_ROWS, BLOBS_EVERY_S, Limits, Retention
from posthouse.store.schema import attempts, blob_parts, blob_uses, blobs, contents, events, quarantine, sends
from tests.contract.store_support import CODE, DAY_S, RECEIPT, Bench, accepted, at, email, outbox, report

LIMITS = Limits(contents_s=DAY_S, attempts_s=20 * DAY_S, raw_answers_s=2 * DAY_S, sends_s=60 * DAY_S)


TABLES = {
    "sends": sends,
    "contents": contents,
    "attempts": attempts,
    "uses": blob_uses,
    "blobs": blobs,
    "parts": blob_parts,
}


def count(bench: Bench, table: str) -> int:
    with bench.store.database.read() as connection:
        return connection.scalar(select(func.count()).select_from(TABLES[table])) or 0


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


# Files.

LOGO = Attachment(b"a logo", "logo.png")
MAP = Attachment(b"a map", "map.png")


def files(bench: Bench) -> tuple[int, int, int]:
    """How many uses, blobs and parts there are."""
    return count(bench, "uses"), count(bench, "blobs"), count(bench, "parts")


def make_older(bench: Bench, seconds: float) -> None:
    """As if every blob had been written so much earlier."""
    with bench.store.database.write() as connection:
        for id_, created_at in connection.execute(select(blobs.c.id, blobs.c.created_at)).all():
            connection.execute(update(blobs).where(blobs.c.id == id_).values(created_at=created_at - seconds))


def body_of(bench: Bench, key: str, file: Attachment) -> bytes | None:
    """The file as a worker reads it for this send."""
    return bench.store.blobs.read(bench.row(key)["id"], [file.digest]).get(file.digest)


def test_a_file_goes_when_the_last_content_with_it_has_gone(bench: Bench) -> None:
    bench.enqueue("first", attachments=[LOGO, MAP])
    bench.settle(report(bench.claim_one(), accepted(), bench.now))
    bench.enqueue("second", attachments=[LOGO])
    purge(bench, 5 * DAY_S)

    assert files(bench) == (1, 1, 1)
    assert body_of(bench, "second", LOGO) == LOGO.content
    bench.settle(report(bench.claim_one(), accepted(), bench.now))
    purge(bench, 5 * DAY_S)
    assert files(bench) == (0, 0, 0)


def test_a_send_that_is_purged_before_its_content_takes_its_uses_along(bench: Bench) -> None:
    bench.enqueue("k", attachments=[LOGO])
    bench.settle(report(bench.claim_one(), accepted(), bench.now))
    ledger_first = Limits(contents_s=99 * DAY_S, attempts_s=DAY_S, raw_answers_s=DAY_S, sends_s=DAY_S)
    retention = Retention(bench.store.database)

    while retention.purge(ledger_first, bench.now + 5 * DAY_S):
        pass

    assert (kept(bench), files(bench)) == ({"contents": 0, "attempts": 0, "sends": 0}, (0, 0, 0))


def test_a_file_that_nobody_uses_any_more_stays_for_two_days(bench: Bench) -> None:
    id_ = bench.enqueue("k", attachments=[LOGO])
    with bench.store.database.write() as connection:
        connection.execute(delete(blob_uses).where(blob_uses.c.send_id == id_))
        created_at = connection.scalar(select(blobs.c.created_at)) or 0.0

    purge(bench, created_at + PURGE_AFTER_S - 1 - bench.now)
    assert files(bench) == (0, 1, 1)
    purge(bench, created_at + PURGE_AFTER_S + 1 - bench.now)
    assert files(bench) == (0, 0, 0)


@pytest.mark.parametrize("status", sorted(OPEN))
def test_the_files_of_an_open_send_stay_for_ever(bench: Bench, status: Status) -> None:
    bench.bring_to(status, "k")
    bench.enqueue("with", attachments=[LOGO])
    with bench.store.database.write() as connection:
        connection.execute(update(blob_uses).values(send_id=bench.row("k")["id"]))

    purge(bench, 999 * DAY_S)

    assert body_of(bench, "k", LOGO) == LOGO.content


def test_the_files_of_security_mail_lose_their_use_in_the_write_that_accepts_it(bench: Bench) -> None:
    bench.enqueue("code", type="one-time-code", attachments=[LOGO])
    bench.enqueue("receipt", attachments=[MAP])
    for lane, policy in (("one-time-code", CODE), ("receipt", RECEIPT)):
        bench.settle(report(bench.claim_one(lane), accepted(), bench.now, policy=policy))

    assert files(bench) == (1, 2, 2)
    purge(bench, PURGE_AFTER_S + 1)
    assert count(bench, "blobs") == 0, "the receipt's content is not kept for longer than a day here"


def test_files_go_in_batches_that_the_database_digests(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "BATCH_BYTES", 250)
    monkeypatch.setattr(retention_module, "STRETCH_BLOBS", 4)
    sizes = (100, 100, 100, 900, 100, 100, 100)
    for number, size in enumerate(sizes):
        bench.enqueue(f"k{number}", attachments=[Attachment(bytes([number]) * size, "file")])
    make_older(bench, 9 * DAY_S)
    with bench.store.database.write() as connection:
        connection.execute(delete(blob_uses).where(blob_uses.c.send_id != bench.row("k5")["id"]))

    left = []
    while bench.store.retention.purge(LIMITS, bench.now):
        left.append(count(bench, "blobs"))

    assert left == [5, 4, 3, 1]
    assert (files(bench), body_of(bench, "k5", Attachment(bytes([5]) * 100))) == ((1, 1, 1), bytes([5]) * 100)


def test_every_hour_all_files_are_looked_at_again(bench: Bench) -> None:
    bench.enqueue("k", attachments=[LOGO])
    make_older(bench, 9 * DAY_S)
    assert _rounds(bench, bench.now) == 1
    with bench.store.database.write() as connection:
        connection.execute(delete(blob_uses))

    assert _rounds(bench, bench.now + BLOBS_EVERY_S - 1) == 0
    assert count(bench, "blobs") == 1
    assert _rounds(bench, bench.now + BLOBS_EVERY_S) == 1
    assert count(bench, "blobs") == 0


def _rounds(bench: Bench, now: float) -> int:
    rounds = 0
    while bench.store.retention.purge(LIMITS, now):
        rounds += 1
    return rounds


def test_looking_for_unused_files_locks_nothing(bench: Bench) -> None:
    bench.enqueue("k", attachments=[LOGO])
    make_older(bench, 9 * DAY_S)
    begun: list[str] = []
    event.listen(bench.store.database.engine, "before_cursor_execute", lambda *args: begun.append(args[2]))

    assert bench.store.retention._purge_blobs(bench.now)

    assert begun
    assert all(statement.startswith("SELECT") and "FOR UPDATE" not in statement for statement in begun)


@pytest.mark.parametrize("database_url", ["postgresql", "mysql"], indirect=True)
def test_a_file_that_an_open_transaction_has_just_decided_to_use_is_still_there_when_it_commits(
    bench: Bench, open_another: Callable[[], Database]
) -> None:
    id_ = bench.enqueue("first", attachments=[LOGO])
    with bench.store.database.write() as connection:
        connection.execute(delete(blob_uses).where(blob_uses.c.send_id == id_))
    make_older(bench, REUSE_S - 600)

    with ExitStack() as open_transaction:
        application = open_transaction.enter_context(open_another().write())
        outbox().enqueue(application, email("second", attachments=[LOGO]))
        purge(bench, DAY_S / 2)  # as if it stayed open for half a day

    assert files(bench) == (1, 1, 1)
    purge(bench, 999 * DAY_S)
    assert body_of(bench, "second", LOGO) == LOGO.content


@pytest.mark.parametrize("database_url", ["postgresql", "mysql"], indirect=True)
def test_an_enqueue_waits_for_no_purge(bench: Bench, open_another: Callable[[], Database]) -> None:
    for number in range(3):
        bench.enqueue(f"k{number}", attachments=[Attachment(bytes([number]))])
    make_older(bench, 9 * DAY_S)
    with bench.store.database.write() as connection:
        connection.execute(delete(blob_uses))

    def enqueue(*_: object) -> None:  # its lock time-out is 5 s
        with other.write() as connection:
            outbox().enqueue(connection, email("new", attachments=[Attachment(bytes([n])) for n in range(4)]))

    other = open_another()
    event.listen(bench.store.database.engine, "commit", enqueue, once=True)
    bench.store.retention._purge_blobs(bench.now)

    assert files(bench) == (4, 4, 4)
    assert body_of(bench, "new", Attachment(bytes([2]))) == bytes([2])


def test_what_was_heard_long_ago_goes(bench: Bench) -> None:
    for now in (bench.now - 500 * DAY_S, bench.now):
        bench.store.events.store("main", [Event(EventKind.DELIVERED, now, "ada@example.com")], {}, now)
        bench.store.events.quarantine("main", {f"d-{now}": "{}"}, "it has no event", now)

    purge(bench, 0.0)

    with bench.store.database.read() as connection:
        assert list(connection.scalars(select(events.c.received_at))) == [at(bench.now)]
        assert list(connection.scalars(select(quarantine.c.received_at))) == [at(bench.now)]
