"""Claiming: who gets which sends, in which order, and never twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import delete, select

from posthouse.core.lifecycle import Status
from posthouse.core.reconcile import resent
from posthouse.core.routing import RoutePlan
from posthouse.core.settlement import release
from posthouse.core.suppression import FOR_GOOD
from posthouse.store.database import Database
from posthouse.store.queue import Queue, Report
from posthouse.store.schema import contents, sends
from tests.contract.store_support import DAY_S, ROUTES, Bench, accepted, at, race, report, transient


def test_due_sends_are_claimed_in_the_order_in_which_they_became_due(bench: Bench) -> None:
    bench.put(1, "late", next_try_at=bench.now - 1)
    bench.put(1, "early", next_try_at=bench.now - 30)
    bench.put(2, "middle", next_try_at=bench.now - 10)

    claimed = bench.claim(10)

    assert [send.key for send in claimed] == ["early-0", "middle-0", "middle-1", "late-0"]
    assert [send.due_at for send in claimed] == at([bench.now - wait for wait in (30, 10, 10, 1)])


def test_a_send_is_dated_by_its_first_call_and_not_by_its_writing(bench: Bench) -> None:
    bench.put(1, "later", next_try_at=bench.now + 30 * DAY_S)
    called_at = bench.now + 30 * DAY_S + 1

    (first,) = bench.claim(now=called_at)
    bench.settle(report(first.state, transient(), called_at), now=called_at)
    (second,) = bench.claim(now=called_at + 3600)

    assert [first.date, second.date] == at([called_at, called_at])
    assert bench.row("later-0")["first_attempt_at"] == at(called_at)


def test_a_send_keeps_its_date_when_its_worker_dies(bench: Bench) -> None:
    bench.put(1)
    (first,) = bench.claim()
    bench.store.sweeps.reap_all(bench.now + 100, worker=0)

    (unknown,) = bench.store.queue.take_unknown(1, bench.worker, bench.now + 200, lease_s=30)
    bench.settle(Report(unknown.state.id, unknown.state.fence, lambda send: resent(send, now=bench.now + 300)))
    (again,) = bench.claim(now=bench.now + 300)

    assert [first.date, unknown.date, again.date] == at([bench.now] * 3)


def test_a_send_that_was_given_back_before_any_call_is_dated_anew(bench: Bench) -> None:
    bench.put(1)
    state = bench.claim_one()
    bench.settle(Report(state.id, state.fence, lambda send: release(send, again_at=bench.now)))

    assert bench.row("bulk-0")["first_attempt_at"] is None
    (again,) = bench.claim(now=bench.now + 500)
    assert again.date == at(bench.now + 500)


def test_an_unknown_send_without_the_time_of_its_first_call_is_dated_by_its_writing(bench: Bench) -> None:
    bench.put(1, status="unknown", unknown_since=bench.now, unknown_fence=1)

    (taken,) = bench.store.queue.take_unknown(1, bench.worker, bench.now, lease_s=30)

    assert taken.date == at(bench.row("bulk-0")["created_at"])


def test_a_claim_that_cannot_take_all_takes_those_that_have_waited_longest(bench: Bench) -> None:
    for wait in (1, 30, 10):
        bench.put(1, f"waits-{wait}", next_try_at=bench.now - wait)

    assert [send.key for send in bench.claim(2)] == ["waits-30-0", "waits-10-0"]


def test_a_claim_takes_no_more_than_it_asks_for(bench: Bench) -> None:
    ids = bench.put(5)

    assert [send.state.id for send in bench.claim(3)] == ids[:3]
    assert [send.state.id for send in bench.claim(3)] == ids[3:]
    assert bench.claim(3) == []


def test_a_claim_asks_one_lane_only(bench: Bench) -> None:
    bench.put(2, "receipt")
    bench.put(2, "news", type="newsletter", lane="newsletter")
    bench.put(2, "shop", lane="receipt/shop")

    assert [send.key for send in bench.claim(10, "newsletter")] == ["news-0", "news-1"]
    assert {bench.status(key) for key in ("receipt-0", "receipt-1", "shop-0", "shop-1")} == {Status.PENDING}


def test_a_send_of_the_future_is_left_alone_until_its_time(bench: Bench) -> None:
    bench.put(1, "future", next_try_at=bench.now + 100)

    assert bench.claim(10) == []
    assert bench.claim(10, now=bench.now + 99.9) == []
    assert [send.key for send in bench.claim(10, now=bench.now + 100)] == ["future-0"]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PENDING])
def test_only_pending_sends_are_claimed(bench: Bench, status: Status) -> None:
    state = bench.bring_to(status, "k")

    assert bench.claim(10, "receipt/k", now=bench.now + 3600) == []
    assert bench.state("k") == state


def test_a_claimed_send_carries_all_that_a_call_needs(bench: Bench) -> None:
    id_ = bench.enqueue("order-1", text="Grüße 📬")

    (claimed,) = bench.claim()

    row = bench.row("order-1")
    assert claimed.state == bench.state("order-1")
    assert (claimed.state.id, claimed.state.status, claimed.state.claimed_by) == (id_, Status.SENDING, bench.worker)
    assert (claimed.key, claimed.idempotency_key) == ("order-1", row["idempotency_key"])
    assert claimed.body == bench.store.ledger.story("order-1").body
    assert "Grüße 📬" in (claimed.body or "")
    assert row["updated_at"] == at(bench.now)


def test_a_send_whose_content_is_gone_is_claimed_without_a_body(bench: Bench) -> None:
    id_ = bench.enqueue("gone", to="a@example.com")
    bench.enqueue("kept", to="b@example.com")
    with bench.store.database.write() as connection:
        connection.execute(delete(contents).where(contents.c.send_id == id_))

    bodies = {send.key: send.body for send in bench.claim(10)}

    assert bodies["gone"] is None
    assert bodies["kept"] is not None


def test_the_fence_grows_with_every_claim_and_never_shrinks(bench: Bench) -> None:
    bench.put(1)
    fences = []
    for turn in range(3):
        state = bench.claim_one(now=bench.now + turn)
        fences.append(state.fence)
        bench.settle(Report(state.id, state.fence, lambda send: release(send, again_at=bench.now)))
    assert bench.row("bulk-0")["fence"] == 3
    state = bench.claim_one(now=bench.now + 3)
    bench.settle(report(state, transient(), bench.now))

    assert fences == [1, 2, 3]
    assert bench.row("bulk-0")["fence"] == 4


def test_nothing_that_was_accepted_is_claimed_again(bench: Bench) -> None:
    bench.put(20)
    claimed = bench.claim(20)
    bench.settle(*[report(send.state, accepted(), bench.now) for send in claimed])

    assert len(claimed) == 20
    assert bench.claim(20, now=bench.now + 10_000) == []


def test_a_send_that_is_retried_is_claimed_when_its_wait_is_over_and_not_before(bench: Bench) -> None:
    bench.put(1)
    bench.settle(report(bench.claim_one(), transient(), bench.now))
    again_at = bench.row("bulk-0")["next_try_at"]

    assert again_at > bench.now
    assert bench.claim(now=again_at - 0.001) == []
    assert bench.claim_one(now=again_at).fence == 2


def test_the_due_lanes_are_told_with_their_earliest_time(bench: Bench) -> None:
    assert bench.store.queue.due_lanes() == []
    bench.put(2, "b", lane="b", next_try_at=bench.now + 50)
    bench.put(3, "a", lane="a", next_try_at=bench.now - 5)
    bench.put(1, "a-first", lane="a", next_try_at=bench.now - 9)
    bench.put(1, "done", lane="c", status="accepted", next_try_at=None)

    lanes = bench.store.queue.due_lanes()

    assert [lane.lane for lane in lanes] == ["a", "b"]
    assert [lane.at for lane in lanes] == at([bench.now - 9, bench.now + 50])


def test_a_worker_finds_what_it_owns_and_nothing_younger(bench: Bench) -> None:
    other = bench.another_worker()
    bench.put(3)
    old = bench.claim_one(now=bench.now)
    young = bench.claim_one(now=bench.now + 50)
    bench.claim_one(worker=other)

    owned = bench.store.queue.owned_by(bench.worker, before=bench.now + 49)

    assert owned == [old]
    assert {state.id for state in bench.store.queue.owned_by(bench.worker, bench.now + 50)} == {old.id, young.id}


@pytest.mark.parametrize("claimers", [2, 8])
def test_many_claimers_get_every_send_once(bench: Bench, open_another: Callable[[], Database], claimers: int) -> None:
    ids = bench.put(2000)
    queues = [Queue(open_another(), FOR_GOOD) for _ in range(claimers)]

    def claim_all(queue: Queue, worker: int) -> list[int]:
        got: list[int] = []
        while claimed := queue.claim("receipt", 50, worker, bench.now, ROUTES):
            got += [send.state.id for send in claimed]
        return got

    results = race([partial(claim_all, queue, worker) for worker, queue in enumerate(queues, 100)])

    # A claimer may find nothing while another one's claim holds the last rows; whatever it holds is claimed.
    assert sorted(id_ for got in results for id_ in got) == ids
    with bench.store.database.read() as connection:
        assert set(connection.scalars(select(sends.c.fence))) == {1}


@pytest.mark.parametrize("pins", [True, False])
def test_a_claim_writes_the_route_that_the_plan_says(bench: Bench, pins: bool) -> None:
    routes = RoutePlan("b", {"a": "c", "b": "c", "c": "b"}, pins, standby="c", standby_share=5000)
    cases = itertools.product((0, 1), (None, "a", "b", "c", "gone"), (None, bench.now))
    for number, (attempts, route, unknown_since) in enumerate(cases):
        bench.put(1, f"k{number}", attempts=attempts, route=route, unknown_since=unknown_since)
    states = [bench.store.ledger.story(f"k{number}-0").state for number in range(20)]
    before = {state.id: state for state in states}

    claimed = bench.store.queue.claim("receipt", 100, bench.worker, bench.now, routes)

    assert {send.state.id: send.state.route for send in claimed} == {
        id_: routes.next_route(state) for id_, state in before.items()
    }


def test_a_claimed_send_is_given_another_route_only_while_it_is_ours(bench: Bench) -> None:
    bench.enqueue("k")
    state = bench.claim_one()
    assert bench.store.queue.reroute(state, "standby")
    assert bench.row("k")["route"] == "standby"
    assert not bench.store.queue.reroute(replace(state, fence=state.fence - 1), "main")
    bench.settle(Report(state.id, state.fence, lambda send: release(send, again_at=bench.now)))
    assert not bench.store.queue.reroute(state, "main")
    assert bench.row("k")["route"] == "standby"
