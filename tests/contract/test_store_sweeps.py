"""The sweeps: whatever no claim would find is found by exactly one of them, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import delete

from posthouse.core import intervention
from posthouse.core.lifecycle import OPEN, Status
from posthouse.core.reconcile import waited
from posthouse.store.queue import Report
from posthouse.store.schema import workers
from tests.contract.store_support import Bench, accepted, at, lost, rejected, report


def die(bench: Bench, worker: int) -> None:
    """The worker's row goes, as after `forget_dead`."""
    with bench.store.database.write() as connection:
        connection.execute(delete(workers).where(workers.c.id == worker))


# Every state has one owner.


def _claim(bench: Bench) -> int:
    return len(bench.claim(10, "receipt/k"))


def _reap(bench: Bench) -> int:
    return bench.store.sweeps.reap(alive_since=bench.now, now=bench.now, worker=0)


def _take_unknown(bench: Bench) -> int:
    return len(bench.store.queue.take_unknown(10, bench.worker, bench.now + 600, lease_s=30))


def _sweep_dependencies(bench: Bench) -> int:
    bench.put(1, "never", status="cancelled", dedupe_key="never")
    return bench.store.sweeps.sweep_dependencies(bench.now)


OWNERS: dict[str, Callable[[Bench], int]] = {
    "claim": _claim,
    "reap": _reap,
    "take_unknown": _take_unknown,
    "sweep_dependencies": _sweep_dependencies,
}
OWNER_OF = {
    Status.WAITING: "sweep_dependencies",
    Status.PENDING: "claim",
    Status.SENDING: "reap",
    Status.UNKNOWN: "take_unknown",
}


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("status", Status)
def test_every_open_state_is_found_by_exactly_one_owner_and_an_ended_one_by_none(
    bench: Bench, status: Status, owner: str
) -> None:
    bench.bring_to(status, "k")

    found = OWNERS[owner](bench)

    expected = OWNER_OF[status] if status in OPEN else None
    assert found == (1 if owner == expected else 0)


@pytest.mark.parametrize("owner", OWNERS)
def test_an_unknown_send_that_is_held_belongs_to_a_person_alone(bench: Bench, owner: str) -> None:
    state = bench.bring_to(Status.UNKNOWN, "k")
    bench.settle(Report(state.id, state.fence, lambda send: waited(send, None, "nobody could say")))

    assert OWNERS[owner](bench) == 0
    assert bench.store.ledger.held_unknown() == 1
    assert bench.row("k")["last_error"] == "nobody could say"


# The reaper.


def test_the_sends_of_a_worker_without_heartbeat_become_unknown(bench: Bench) -> None:
    bench.enqueue("k")
    state = bench.claim_one()

    assert bench.store.sweeps.reap(alive_since=bench.beat_at - 1, now=bench.now, worker=0) == 0
    assert bench.status("k") is Status.SENDING
    assert bench.store.sweeps.reap(alive_since=bench.beat_at + 1, now=bench.now + 5, worker=99) == 1

    row = bench.row("k")
    assert (row["status"], row["fence"], row["claimed_by"], row["attempts"]) == ("unknown", 1, None, 1)
    assert (row["unknown_since"], row["next_try_at"]) == at((bench.now, bench.now + 5))
    assert row["unknown_fence"] == 1
    (attempt,) = bench.attempts("k")
    assert (attempt["via"], attempt["outcome"], attempt["maybe_accepted"]) == ("reaper", "unknown", True)
    assert (row["route"], attempt["route"]) == ("main", "main")  # so that the right provider can be asked
    assert f"worker {state.claimed_by} (here:1) died" in attempt["text"]
    assert attempt["worker"] == 99


def test_who_knows_that_nobody_else_lives_names_the_dead_all_the_same(bench: Bench) -> None:
    bench.enqueue("k")
    state = bench.claim_one()
    assert bench.store.sweeps.reap_all(bench.now, worker=bench.worker) == 0
    assert bench.store.sweeps.reap_all(bench.now, worker=99) == 1
    (attempt,) = bench.attempts("k")
    assert f"worker {state.claimed_by} (here:1) died" in attempt["text"]


def test_the_sends_of_a_worker_that_is_not_known_at_all_become_unknown(bench: Bench) -> None:
    bench.enqueue("k")
    bench.claim_one()
    die(bench, bench.worker)

    assert bench.store.sweeps.reap(alive_since=0.0, now=bench.now, worker=0) == 1

    assert bench.status("k") is Status.UNKNOWN


def test_a_fresh_claim_of_an_old_backlog_is_not_reaped(bench: Bench) -> None:
    bench.put(1, next_try_at=bench.now - 7200, created_at=bench.now - 7200, updated_at=bench.now - 7200)
    state = bench.claim_one()
    bench.store.control.heartbeat(bench.worker)

    assert bench.store.sweeps.reap(alive_since=bench.now - 120, now=bench.now, worker=0) == 0

    assert bench.state("bulk-0") == state


def test_only_the_dead_workers_sends_are_reaped(bench: Bench) -> None:
    dead = bench.another_worker()
    bench.put(4)
    bench.claim(2)
    bench.claim(2, worker=dead)
    die(bench, dead)

    assert bench.store.sweeps.reap(alive_since=0.0, now=bench.now, worker=0) == 2

    assert [bench.status(f"bulk-{n}") for n in range(4)] == [Status.SENDING] * 2 + [Status.UNKNOWN] * 2


@pytest.mark.parametrize("by_everybody", [True, False], ids=["reap_all", "reap"])
def test_more_sends_than_one_batch_are_reaped_in_one_sweep(bench: Bench, by_everybody: bool) -> None:
    bench.put(1100, status="sending", claimed_by=bench.worker, fence=1)

    sweeps = bench.store.sweeps
    reaped = sweeps.reap_all(bench.now, 0) if by_everybody else sweeps.reap(bench.now, bench.now, 0)

    assert reaped == 1100
    assert bench.store.ledger.open_counts()["unknown"] == 1100
    assert bench.store.ledger.recent_outcomes(0.0) == {"unknown": 1100}


def test_whoever_knows_that_no_other_worker_lives_reaps_all_but_its_own(bench: Bench) -> None:
    other = bench.another_worker()
    bench.put(2)
    bench.claim_one(worker=other)
    mine = bench.claim_one()

    assert bench.store.sweeps.reap_all(bench.now, bench.worker) == 1

    assert (bench.status("bulk-0"), bench.state("bulk-1")) == (Status.UNKNOWN, mine)


def test_a_send_that_was_unknown_before_stays_with_the_first_open_call(bench: Bench) -> None:
    state = bench.bring_to(Status.UNKNOWN, "k")
    bench.intervene("k", lambda send: intervention.resolve(send, intervention.Verdict.RESEND, bench.now))
    bench.claim_one("receipt/k", now=bench.now + 10)

    bench.store.sweeps.reap_all(bench.now + 20, worker=0)

    row = bench.row("k")
    assert (row["status"], row["fence"], row["unknown_fence"], row["route"]) == ("unknown", 2, 1, "main")
    assert row["unknown_since"] == at(bench.now + 10)
    assert state.unknown_fence == 1


# The end of a life.


def test_a_waiting_and_a_pending_send_end_when_their_time_is_over(bench: Bench) -> None:
    bench.enqueue("pending")
    bench.enqueue("waiting", after="never")
    ends_at = bench.row("pending")["expires_at"]

    assert bench.store.sweeps.end_lives(ends_at - 1) == 0
    assert bench.store.sweeps.end_lives(ends_at + 60) == 2

    for key in ("pending", "waiting"):
        assert (bench.status(key), bench.row(key)["next_try_at"]) == (Status.EXPIRED, None)


def test_a_life_ends_during_a_wait_for_the_next_try_and_in_a_closed_lane(bench: Bench) -> None:
    bench.put(1, "backoff", next_try_at=bench.now + 900, expires_at=bench.now)

    assert bench.store.sweeps.end_lives(bench.now) == 1

    assert bench.claim(10, now=bench.now + 9000) == []


def test_a_send_with_an_open_call_is_held_when_its_time_is_over(bench: Bench) -> None:
    bench.put(1, expires_at=bench.now, fence=1, attempts=1, route="main", unknown_since=bench.now - 9, unknown_fence=1)

    assert bench.store.sweeps.end_lives(bench.now) == 1

    row = bench.row("bulk-0")
    assert (row["status"], row["next_try_at"], row["unknown_fence"]) == ("unknown", None, 1)
    assert "expired before anybody could say" in row["last_error"]
    assert bench.store.ledger.held_unknown() == 1


@pytest.mark.parametrize(
    "status", [status for status in Status if status not in (Status.PENDING, Status.WAITING, Status.EXPIRED)]
)
def test_no_other_state_ends_with_its_time(bench: Bench, status: Status) -> None:
    state = bench.bring_to(status, "k")

    assert bench.store.sweeps.end_lives(state.expires_at + 1) == 0

    assert bench.state("k") == state


def test_more_lives_than_one_batch_end_in_one_sweep(bench: Bench) -> None:
    bench.put(1100, expires_at=bench.now - 1)
    bench.put(1, "alive")

    assert bench.store.sweeps.end_lives(bench.now) == 1100

    counts = bench.store.ledger.open_counts()
    assert (counts["pending"], bench.status("alive-0")) == (1, Status.PENDING)


# Dependencies.


def test_a_waiting_send_moves_on_when_the_first_one_is_accepted_and_keeps_its_own_time(bench: Bench) -> None:
    bench.enqueue("first")
    bench.enqueue("second", after="first")
    bench.enqueue("later", after="first")
    bench.edit("later", next_try_at=bench.now + 500)
    assert bench.store.sweeps.sweep_dependencies(bench.now) == 0
    assert len(bench.claim(10)) == 1

    bench.settle(report(bench.state("first"), accepted(), bench.now))

    assert bench.store.sweeps.sweep_dependencies(bench.now) == 2
    assert [send.key for send in bench.claim(10)] == ["second"]
    assert [send.key for send in bench.claim(10, now=bench.now + 500)] == ["later"]


@pytest.mark.parametrize("ended", [Status.FAILED, Status.EXPIRED, Status.CANCELLED, Status.SUPPRESSED])
def test_a_waiting_send_is_cancelled_when_the_first_one_ends_without_acceptance(bench: Bench, ended: Status) -> None:
    bench.bring_to(ended, "first")
    bench.enqueue("second", after="first")

    assert bench.store.sweeps.sweep_dependencies(bench.now) == 1

    row = bench.row("second")
    assert (row["status"], row["next_try_at"]) == ("cancelled", None)
    assert row["last_error"] == f"the email it waits for, first, ended as {ended}"


@pytest.mark.parametrize("standing", [Status.WAITING, Status.PENDING, Status.SENDING, Status.UNKNOWN])
def test_a_waiting_send_waits_while_the_first_one_is_open(bench: Bench, standing: Status) -> None:
    bench.bring_to(standing, "first")
    bench.enqueue("second", after="first")

    assert bench.store.sweeps.sweep_dependencies(bench.now) == 0

    assert bench.status("second") is Status.WAITING


def test_a_send_that_waits_for_an_email_that_never_comes_ends_with_its_time(bench: Bench) -> None:
    bench.enqueue("second", after="missing")

    assert bench.store.sweeps.sweep_dependencies(bench.now) == 0
    assert bench.store.sweeps.end_lives(bench.row("second")["expires_at"]) == 1

    assert bench.status("second") is Status.EXPIRED


def test_the_first_email_may_be_written_after_the_one_that_waits_for_it(bench: Bench) -> None:
    bench.enqueue("second", after="first")
    bench.store.sweeps.sweep_dependencies(bench.now)
    bench.enqueue("first")
    bench.settle(report(bench.claim_one(), accepted(), bench.now))

    assert bench.store.sweeps.sweep_dependencies(bench.now) == 1

    assert bench.status("second") is Status.PENDING


def test_a_chain_moves_on_link_by_link(bench: Bench) -> None:
    bench.enqueue("a")
    bench.enqueue("b", after="a")
    bench.enqueue("c", after="b")
    for _ in range(3):
        bench.settle(report(bench.claim_one(), accepted(), bench.now))
        bench.store.sweeps.sweep_dependencies(bench.now)

    assert [bench.status(key) for key in "abc"] == [Status.ACCEPTED] * 3


def test_a_chain_ends_link_by_link(bench: Bench) -> None:
    bench.enqueue("a")
    bench.enqueue("b", after="a")
    bench.enqueue("c", after="b")
    bench.settle(report(bench.claim_one(), rejected(), bench.now))

    for _ in range(2):
        bench.store.sweeps.sweep_dependencies(bench.now)

    assert [bench.status(key) for key in "abc"] == [Status.FAILED, Status.CANCELLED, Status.CANCELLED]
    assert "b, ended as cancelled" in bench.row("c")["last_error"]


def test_more_dependents_than_one_batch_move_on_in_one_sweep(bench: Bench) -> None:
    bench.bring_to(Status.ACCEPTED, "first")
    bench.put(1100, status="waiting", after_key="first")

    assert bench.store.sweeps.sweep_dependencies(bench.now) == 1100

    assert bench.store.ledger.open_counts()["pending"] == 1100


# Unknown sends, taken for one step of finding out.


def test_an_unknown_send_is_taken_when_its_time_has_come_and_stays_unknown(bench: Bench) -> None:
    state = bench.bring_to(Status.UNKNOWN, "k")
    due_at = bench.row("k")["next_try_at"]
    queue = bench.store.queue

    assert queue.take_unknown(10, bench.worker, due_at - 0.001, lease_s=30) == []
    (taken,) = queue.take_unknown(10, bench.worker, due_at, lease_s=30)

    assert (taken.state.status, taken.state.fence) == (Status.UNKNOWN, state.fence + 1)
    assert (taken.state.unknown_since, taken.state.unknown_fence) == (state.unknown_since, state.unknown_fence)
    assert taken.body is not None
    assert bench.row("k")["next_try_at"] == at(due_at + 30)


def test_nobody_else_takes_an_unknown_send_during_the_lease(bench: Bench) -> None:
    bench.bring_to(Status.UNKNOWN, "k")
    queue = bench.store.queue
    (taken,) = queue.take_unknown(10, bench.worker, bench.now + 60, lease_s=30)

    assert queue.take_unknown(10, 99, bench.now + 89.9, lease_s=30) == []
    (again,) = queue.take_unknown(10, 99, bench.now + 90, lease_s=30)

    assert again.state.fence == taken.state.fence + 1


def test_a_taker_whose_lease_ran_out_comes_too_late_with_a_doubt(bench: Bench) -> None:
    bench.bring_to(Status.UNKNOWN, "k")
    queue = bench.store.queue
    (old,) = queue.take_unknown(1, bench.worker, bench.now + 60, lease_s=30)
    (new,) = queue.take_unknown(1, 99, bench.now + 90, lease_s=30)

    late = Report(old.state.id, old.state.fence, lambda send: waited(send, bench.now + 9999, "late"))
    assert bench.settle(late) == [None]
    assert bench.settle(report(old.state, lost(), bench.now + 91)) == [None]

    assert bench.state("k") == new.state


def test_unknown_sends_are_taken_in_the_order_of_their_time(bench: Bench) -> None:
    for n, wait in enumerate((5, 9, 7)):
        columns = {"status": "unknown", "unknown_fence": 1, "unknown_since": bench.now - 50}
        bench.put(1, f"u{n}", **columns, next_try_at=bench.now - wait)

    taken = [bench.store.queue.take_unknown(1, 1, bench.now, lease_s=30)[0].key for _ in range(3)]

    assert taken == ["u1-0", "u2-0", "u0-0"]
