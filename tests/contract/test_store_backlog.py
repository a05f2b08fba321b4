"""Counting what is pending, and shedding: one worker at a time, no further than needed, and nothing with a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from posthouse.core.cap_policy import Backlog, CapPolicy
from posthouse.core.caps import Cap
from posthouse.core.lifecycle import Status
from posthouse.core.policy import Priority
from posthouse.store import backlog as backlog_module
from posthouse.store.backlog import TURN_S, count_backlog, read_backlog
from posthouse.store.database import Database
from posthouse.store.runners import write_through
from posthouse.store.store import Store
from tests.contract.store_support import Bench, race, report, transient

BULK, NORMAL, URGENT = Priority.BULK, Priority.NORMAL, Priority.URGENT
CAPS = CapPolicy(
    Cap(100, sheds=True),
    {"digest": Cap(5, shared=False)},
    {"newsletter": BULK, "digest": BULK, "receipt": NORMAL, "code": URGENT},
)


def fill(bench: Bench) -> None:
    """Of every kind a few, in several lanes, and some that are not pending."""
    for lane, count in {"newsletter": 4, "newsletter/shop/spring": 3, "digest": 7, "receipt": 2, "code": 1}.items():
        bench.put(count, lane.replace("/", "-"), lane=lane, type=lane.partition("/")[0])
    bench.put(5, "gone", lane="unheard-of", type="unheard-of")
    bench.put(9, "done", status="accepted", next_try_at=None)


def counted(bench: Bench) -> tuple[Backlog, float] | None:
    """What whoever enqueues reads."""
    clock = bench.store.database.clock
    with bench.store.database.write() as connection:
        return write_through(connection, lambda dialect: read_backlog(dialect, CAPS, clock()))


def test_what_is_pending_is_counted_by_priority_and_capped_type(bench: Bench) -> None:
    fill(bench)
    assert bench.store.backlog.count(CAPS) == Backlog({BULK: 14, NORMAL: 7, URGENT: 1}, {"digest": 5})
    with bench.store.database.write() as connection:
        assert write_through(connection, partial(count_backlog, caps=CAPS)) == bench.store.backlog.count(CAPS)


def test_an_empty_outbox_is_counted_too(bench: Bench) -> None:
    assert bench.store.backlog.count(CAPS) == Backlog({BULK: 0, NORMAL: 0, URGENT: 0}, {"digest": 0})


def test_nothing_is_counted_much_further_than_the_caps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "SHED_MAX", 3)
    monkeypatch.setattr(backlog_module, "LANES_A_STATEMENT", 1)
    fill(bench)
    small = CapPolicy(Cap(5), {}, CAPS.priorities)
    assert bench.store.backlog.count(small).priorities == {BULK: 8, NORMAL: 0, URGENT: 0}


def test_of_many_workers_one_has_the_turn_and_whoever_enqueues_reads_what_it_wrote(
    bench: Bench, open_another: Callable[[], Database]
) -> None:
    fill(bench)
    assert counted(bench) is None
    now = bench.beat_at
    others = [Store(open_another()) for _ in range(4)]

    assert sorted(race([partial(other.backlog.take_turn, now) for other in others])) == [False] * 3 + [True]

    table = bench.store.backlog
    assert table.write(CAPS, table.count(CAPS), now)
    found = counted(bench)
    assert found is not None
    assert found[0] == table.count(CAPS)
    assert 0 <= found[1] < 60
    assert not table.take_turn(now + TURN_S / 2)
    assert table.take_turn(now + TURN_S)
    assert not table.write(CAPS, Backlog(), now), "the turn is somebody else's now"
    assert counted(bench) is not None


def test_a_turn_that_a_wrong_clock_took_in_the_future_is_taken_over(bench: Bench) -> None:
    assert bench.store.backlog.take_turn(bench.now + 9999)
    assert bench.store.backlog.take_turn(bench.now)


def test_the_last_in_the_line_go_first_and_never_one_with_a_call(bench: Bench) -> None:
    table = bench.store.backlog
    old = bench.put(3, "old", lane="newsletter", type="newsletter", next_try_at=bench.now - 50)
    new = bench.put(3, "new", lane="newsletter//spring", type="newsletter", next_try_at=bench.now - 10)
    tried = bench.put(1, "tried", lane="newsletter", type="newsletter", attempts=1)
    bench.put(1, "open", lane="newsletter", type="newsletter", unknown_since=bench.now, unknown_fence=1)
    bench.put(2, "other", lane="gone", type="gone")

    assert table.newest(CAPS, BULK, 4) == [*reversed(new), old[-1]]
    assert set(table.newest(CAPS, BULK, 100)) == {*old, *new}

    assert table.take_turn(bench.now)
    assert table.shed([*new, *tried], "the outbox was full", bench.now, bench.now) == 3
    row = bench.row("new-0")
    assert (row["status"], row["last_error"], row["next_try_at"]) == ("cancelled", "the outbox was full", None)
    assert bench.status("tried-0") is Status.PENDING


def test_what_was_claimed_meanwhile_is_not_shed(bench: Bench) -> None:
    table = bench.store.backlog
    bench.put(4, "news", lane="newsletter", type="newsletter")
    ids = table.newest(CAPS, BULK, 4)
    assert table.take_turn(bench.now)
    claimed = [send.key for send in bench.claim(2, "newsletter")]

    assert table.shed(ids, "full", bench.now, bench.now) == 2

    assert [bench.status(key) for key in claimed] == [Status.SENDING] * 2
    state = bench.state(claimed[0])
    bench.settle(report(state, transient(), bench.now))
    assert table.shed(ids, "full", bench.now, bench.now) == 0, "a call was made"


def test_shedding_and_claiming_at_once_share_no_send(bench: Bench, open_another: Callable[[], Database]) -> None:
    bench.put(200, "news", lane="newsletter", type="newsletter")
    table, other = bench.store.backlog, Store(open_another())
    assert table.take_turn(bench.now)
    ids = table.newest(CAPS, BULK, 200)

    def claim() -> int:
        bench_ = Bench(other)
        return sum(len(bench_.claim(20, "newsletter", now=bench.now)) for _ in range(5))

    def shed() -> int:
        parts = [table.shed(ids[at : at + 20], "full", bench.now, bench.now) or 0 for at in range(0, 100, 20)]
        return sum(parts)

    claimed, gone = race([claim, shed])

    rows = bench.store.ledger.find([], None, 500)
    assert [row["status"] for row in rows].count("sending") == claimed
    assert [row["status"] for row in rows].count("cancelled") == gone
    assert all(row["fence"] == 0 for row in rows if row["status"] == "cancelled")


def test_whoever_lost_the_turn_sheds_nothing(bench: Bench) -> None:
    table = bench.store.backlog
    ids = bench.put(2, "news", lane="newsletter", type="newsletter")
    assert table.take_turn(bench.now)
    assert table.take_turn(bench.now + TURN_S)

    assert table.shed(ids, "full", bench.now, bench.now) is None

    assert bench.status("news-0") is Status.PENDING
