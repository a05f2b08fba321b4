"""Two real transactions at once on a server: each order of each pair ends in a state that is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import update

from posthouse.core import intervention
from posthouse.core.lifecycle import Status
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.routing import RouteHealth, RouteState, health_after
from posthouse.core.sends import SendState
from posthouse.errors import NotPossible
from posthouse.store.database import Database
from posthouse.store.queue import Report
from posthouse.store.retention import Limits
from posthouse.store.rows import lock
from posthouse.store.schema import sends
from posthouse.store.store import Store
from tests.contract.store_support import (
    DAY_S,
    LONG_S,
    Bench,
    Pause,
    accepted,
    lost,
    race,
    report,
    transient,
    wait_until_blocked,
)

pytestmark = pytest.mark.parametrize("database_url", ["postgresql", "mysql"], indirect=True)


@pytest.fixture
def other(open_another: Callable[[], Database]) -> Store:
    """The same database, as another process sees it."""
    return Store(open_another())


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """One thread for whatever has to wait."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_the_reaper_passes_by_a_send_that_is_being_settled(bench: Bench, other: Store) -> None:
    bench.enqueue("k")
    result = report(bench.claim_one(), accepted(), bench.now)
    pause = Pause(other.database)

    with pause.running(lambda: other.queue.settle([result], bench.worker, bench.now)) as settling:
        assert bench.store.sweeps.reap_all(bench.now, worker=0) == 0
        pause.go()
        settling.result(LONG_S)

    assert bench.store.sweeps.reap_all(bench.now, worker=0) == 0
    row = bench.row("k")
    assert (row["status"], row["attempts"], row["maybe_duplicate"]) == ("accepted", 1, False)


@pytest.mark.parametrize(
    ("verdict", "ends_as"),
    [(accepted(), Status.ACCEPTED), (transient(), Status.PENDING), (lost(), Status.UNKNOWN)],
    ids=["accepted", "transient", "lost"],
)
def test_a_result_that_meets_the_reaper_waits_for_it_and_is_applied_to_what_it_left(
    bench: Bench, other: Store, thread: ThreadPoolExecutor, verdict: Verdict, ends_as: Status
) -> None:
    bench.enqueue("k")
    result = report(bench.claim_one(), verdict, bench.now)
    pause = Pause(other.database)

    with pause.running(lambda: other.sweeps.reap_all(bench.now, 0)) as reaping:
        settling = thread.submit(bench.settle, result)
        wait_until_blocked(bench.store.database.engine)
        assert bench.status("k") is Status.SENDING
        pause.go()
        assert reaping.result(LONG_S) == 1
        settling.result(LONG_S)

    assert bench.status("k") is ends_as
    assert [attempt["via"] for attempt in bench.attempts("k")] == ["reaper", "send"]


def test_a_send_that_is_being_claimed_cannot_be_cancelled(
    bench: Bench, other: Store, thread: ThreadPoolExecutor
) -> None:
    bench.enqueue("k")

    with other.database.write() as connection:  # a claim is one statement: this is one that takes its time
        connection.execute(update(sends).values(status="sending", fence=1, claimed_by=7))
        cancelling = thread.submit(bench.intervene, "k", intervention.cancel)
        wait_until_blocked(bench.store.database.engine)
    with pytest.raises(NotPossible, match="under way"):
        cancelling.result(LONG_S)

    assert bench.status("k") is Status.SENDING
    assert bench.store.ledger.story("k").audit == []


def test_a_send_that_is_being_cancelled_is_not_claimed_and_its_neighbours_are(bench: Bench, other: Store) -> None:
    bench.put(3)
    pause = Pause(other.database)
    cancel = partial(
        other.operations.intervene,
        bench.row("bulk-0")["id"],
        intervention.cancel,
        action="cancel",
        who="grace",
        detail="",
        now=bench.now,
        max_age_s=DAY_S,
        new_key=str,
    )

    with pause.running(cancel) as cancelling:
        assert [send.key for send in bench.claim(10)] == ["bulk-1", "bulk-2"]
        pause.go()
        assert cancelling.result(LONG_S) is Status.CANCELLED

    assert bench.claim(10) == []


def test_a_claim_passes_by_rows_that_another_transaction_holds(bench: Bench, other: Store) -> None:
    ids = bench.put(30)
    with other.database.write() as connection:
        lock(connection, other.database, ids[:10])

        # A claim that waited would run into the lock timeout: the rows stay locked until this block ends.
        assert [send.state.id for send in bench.claim(15)] == ids[10:25]

    assert [send.state.id for send in bench.claim(30)] == [*ids[:10], *ids[25:]]


def test_an_old_owners_acceptance_and_the_new_owners_failure_agree_in_either_order(
    bench: Bench, other: Store, thread: ThreadPoolExecutor
) -> None:
    for n, first_is_late in enumerate([True, False]):
        key = f"k{n}"
        bench.enqueue(key)
        late = report(bench.claim_one(), accepted("m-late"), bench.now)
        bench.store.sweeps.reap_all(bench.now, worker=0)
        bench.edit(key, status="pending", next_try_at=bench.now)
        own = report(bench.claim_one(), transient(), bench.now)
        first, second = (late, own) if first_is_late else (own, late)
        pause = Pause(other.database)

        with pause.running(partial(other.queue.settle, [first], 7, bench.now)) as running:
            waiting = thread.submit(bench.settle, second)
            wait_until_blocked(bench.store.database.engine)
            pause.go()
            running.result(LONG_S)
            waiting.result(LONG_S)

        row = bench.row(key)
        assert (row["status"], row["message_id"]) == ("accepted", "m-late")
        assert len(bench.attempts(key)) == 3
        # Where the late news came first, the other worker may have been calling.
        assert row["maybe_duplicate"] is first_is_late


def test_a_batch_that_is_settled_by_two_at_once_applies_once(
    bench: Bench, other: Store, thread: ThreadPoolExecutor
) -> None:
    bench.put(3)
    asked: list[int] = []

    def counting(result: Report) -> Report:
        def decide(send: SendState) -> object:
            asked.append(send.id)
            return result.decide(send)

        return replace(result, decide=decide)  # type: ignore[arg-type]

    batch = [counting(report(send.state, lost(), bench.now)) for send in bench.claim(3)]
    pause = Pause(other.database)

    with pause.running(lambda: other.queue.settle(batch, bench.worker, bench.now)) as running:
        again = thread.submit(bench.settle, *batch)
        wait_until_blocked(bench.store.database.engine)
        pause.go()
        assert None not in running.result(LONG_S)
        assert again.result(LONG_S) == [None, None, None]

    assert len(asked) == 3
    assert [bench.row(f"bulk-{n}")["attempts"] for n in range(3)] == [1, 1, 1]


def test_batches_that_overlap_in_any_order_never_deadlock(bench: Bench, open_another: Callable[[], Database]) -> None:
    bench.put(100)
    states = [send.state for send in bench.claim(100)]
    orders = [states, states[::-1], states[50:] + states[:50], states[::2] + states[1::2]]
    stores = [Store(open_another()) for _ in orders]

    def settle(store: Store, order: list[SendState]) -> int:
        batch = [report(state, accepted(), bench.now) for state in order]
        return sum(change is not None for change in store.queue.settle(batch, bench.worker, bench.now))

    applied = race([partial(settle, store, order) for store, order in zip(stores, orders, strict=True)])

    assert sum(applied) == 100
    assert bench.store.ledger.recent_outcomes(0.0) == {"accepted": 100}


def test_a_taker_of_unknown_sends_passes_by_rows_that_another_transaction_holds(bench: Bench, other: Store) -> None:
    ids = bench.put(6, status="unknown", unknown_since=bench.now, unknown_fence=1)
    with other.database.write() as connection:
        lock(connection, other.database, ids[:3])

        taken = bench.store.queue.take_unknown(6, bench.worker, bench.now, lease_s=30)

    assert [send.state.id for send in taken] == ids[3:]


def test_a_send_that_is_being_brought_back_is_not_deleted_by_retention(bench: Bench, other: Store) -> None:
    id_ = bench.bring_to(Status.FAILED, "k").id
    pause = Pause(other.database)
    retry = partial(
        other.operations.intervene,
        id_,
        partial(intervention.retry, now=bench.now),
        action="retry",
        who="grace",
        detail="",
        now=bench.now,
        max_age_s=DAY_S,
        new_key=lambda: "new",
    )

    with pause.running(retry) as retrying:
        bench.store.retention.purge(Limits(0.0, 0.0, 0.0, 0.0), bench.now + 1)
        pause.go()
        retrying.result(LONG_S)

    story = bench.store.ledger.story("k")
    assert story.send["status"] == "pending"
    assert story.body is not None


# Routes.


def throttled(wait_s: float) -> Verdict:
    return Verdict(Outcome.THROTTLED, spends_attempt=False, code="429", retry_after_s=wait_s)


@pytest.mark.parametrize("known", [True, False], ids=["a known route", "a route without a row"])
@pytest.mark.parametrize("waits", [(60.0, 5.0), (5.0, 60.0)], ids=str)
def test_of_two_throttles_at_once_the_longer_hold_stands(
    bench: Bench, other: Store, thread: ThreadPoolExecutor, known: bool, waits: tuple[float, float]
) -> None:
    if known:
        stopped = RouteHealth("main", RouteState.OPEN, bench.now - 100, "", 0)
        bench.store.control.change_route("main", lambda _: stopped, bench.now)

    def throttle(store: Store, wait_s: float) -> RouteHealth:
        decide = partial(health_after, verdict=throttled(wait_s), now=bench.now, chance=0.0)
        return store.control.change_route("main", decide, bench.now)

    pause = Pause(other.database)
    with pause.running(lambda: throttle(other, waits[0])) as running:
        waiting = thread.submit(throttle, bench.store, waits[1])
        wait_until_blocked(bench.store.database.engine)
        pause.go()
        running.result(LONG_S)
        last = waiting.result(LONG_S)

    health = bench.store.control.route_health()["main"]
    assert health == last
    assert health.held_until >= bench.now + waits[0]
