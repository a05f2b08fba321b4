"""What all workers obey: who lives, and how the routes are."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.places import Holding
from posthouse.core.routing import RouteHealth, RouteState, health_after
from posthouse.store.control import Control
from posthouse.store.database import Database, open_database
from tests.contract.store_support import Bench, accepted, at, race, report


def ids(bench: Bench) -> list[int]:
    return [worker.id for worker in bench.store.control.workers()]


def test_a_worker_is_known_from_its_registration_on(bench: Bench) -> None:
    (worker,) = bench.store.control.workers()

    assert (worker.id, worker.host, worker.pid, worker.version) == (bench.worker, "here", 1, "test")
    assert abs(worker.started_at - time.time()) < 60
    assert worker.heartbeat_at >= worker.started_at


def test_a_heartbeat_tells_the_databases_time_and_writes_it(bench: Bench) -> None:
    first = bench.store.control.heartbeat(bench.worker)
    second = bench.store.control.heartbeat(bench.worker)

    assert first is not None
    assert second is not None
    assert second >= first >= bench.beat_at
    assert bench.store.control.workers()[0].heartbeat_at == second


def test_a_heartbeat_without_a_row_says_so(bench: Bench) -> None:
    assert bench.store.control.heartbeat(bench.worker + 1) is None
    assert ids(bench) == [bench.worker]


def test_the_time_is_the_databases_where_it_has_a_clock(database: Database, database_url: str) -> None:
    hour_fast = open_database(database_url, lambda: time.time() + 3600)
    control = Control(hour_fast)

    at = control.heartbeat(control.register("here", 1, "test"))
    hour_fast.close()

    expected = time.time() + (3600 if database.is_sqlite else 0)  # SQLite has no clock but its caller's
    assert at == pytest.approx(expected, abs=60)


def test_a_worker_that_has_settled_everything_leaves(bench: Bench) -> None:
    other = bench.another_worker()
    bench.put(1)
    bench.settle(report(bench.claim_one(), accepted(), bench.now))

    bench.store.control.leave(bench.worker)

    assert ids(bench) == [other]


def test_a_worker_that_still_owns_a_send_stays_for_the_reaper(bench: Bench) -> None:
    bench.put(1)
    bench.claim_one()

    bench.store.control.leave(bench.worker)
    assert ids(bench) == [bench.worker]

    assert bench.store.sweeps.reap(bench.now, bench.now, worker=0) == 1
    bench.store.control.leave(bench.worker)
    assert ids(bench) == []


def test_an_id_is_never_given_to_a_second_worker(bench: Bench) -> None:
    bench.store.control.leave(bench.worker)

    assert bench.another_worker() > bench.worker


def test_workers_unheard_of_for_long_are_forgotten_and_their_sends_are_found_all_the_same(bench: Bench) -> None:
    bench.put(1)
    bench.claim_one()

    bench.store.control.forget_dead(bench.beat_at - 1)
    assert ids(bench) == [bench.worker]
    bench.store.control.forget_dead(bench.beat_at + 1)
    assert ids(bench) == []

    assert bench.store.sweeps.reap(0.0, bench.now, worker=0) == 1


def throttle(health: RouteHealth, now: float, wait_s: float) -> RouteHealth | None:
    verdict = Verdict(Outcome.THROTTLED, spends_attempt=False, code="429", text="slow down", retry_after_s=wait_s)
    return health_after(health, verdict, now, chance=0.0)


def test_a_routes_health_is_there_for_every_worker(bench: Bench, open_another: Callable[[], Database]) -> None:
    control = bench.store.control
    assert control.route_health() == {}

    held = control.change_route("main", partial(throttle, now=bench.now, wait_s=60.0), bench.now)

    assert held.held_until == at(bench.now + 60)
    assert (held.state, held.strikes, held.reason) == (RouteState.OPEN, 1, "429 slow down")
    (seen,) = Control(open_another()).route_health().values()
    assert seen.held_until == at(held.held_until)
    assert (seen.name, seen.state, seen.strikes, seen.reason) == ("main", RouteState.OPEN, 1, "429 slow down")


def test_when_a_route_last_accepted_mail_is_written_at_most_so_often_and_survives_every_decision(
    bench: Bench, open_another: Callable[[], Database]
) -> None:
    control, other = bench.store.control, Control(open_another())
    control.note_accepted("main", bench.now, 60.0)
    other.note_accepted("main", bench.now + 59.0, 60.0)
    assert control.route_health()["main"].last_accepted_at == at(bench.now)
    assert control.route_health()["main"].takes(bench.now)
    other.note_accepted("main", bench.now + 61.0, 60.0)
    control.change_route("main", partial(throttle, now=bench.now, wait_s=60.0), bench.now)
    control.change_route("main", lambda health: RouteHealth(health.name, held_since=bench.now), bench.now)
    seen = other.route_health()["main"]
    assert (seen.last_accepted_at, seen.held_since) == (at(bench.now + 61), at(bench.now))


def test_a_decision_sees_the_health_as_it_stands(bench: Bench) -> None:
    control = bench.store.control
    control.change_route("main", partial(throttle, now=bench.now, wait_s=60.0), bench.now)
    seen: list[RouteHealth] = []

    unchanged = control.change_route("main", seen.append, bench.now)

    assert seen == [unchanged]
    assert unchanged == control.route_health()["main"]
    control.change_route("main", lambda health: RouteHealth(health.name), bench.now)
    assert control.route_health()["main"] == RouteHealth("main")


def test_one_routes_trouble_is_not_anothers(bench: Bench) -> None:
    control = bench.store.control
    control.change_route("main", partial(throttle, now=bench.now, wait_s=60.0), bench.now)
    control.change_route("standby", partial(throttle, now=bench.now, wait_s=5.0), bench.now)

    health = control.route_health()
    assert health["main"].held_until == at(bench.now + 60)
    assert health["standby"].held_until == at(bench.now + 5)


def test_of_many_decisions_at_once_none_is_lost(bench: Bench, open_another: Callable[[], Database]) -> None:
    controls = [Control(open_another()) for _ in range(8)]

    def strike(control: Control) -> None:
        for _ in range(5):
            control.change_route("main", lambda health: RouteHealth("main", strikes=health.strikes + 1), bench.now)

    race([partial(strike, control) for control in controls])

    assert bench.store.control.route_health()["main"].strikes == 40


def hold(bench: Bench, worker: int, places: int, wanted: int, *, alive_since: float | None = None) -> int:
    """What a worker holds after it said what it has and could use; the route allows 4 calls at once."""
    since = bench.beat_at - 30.0 if alive_since is None else alive_since
    return bench.store.control.hold_places("main", Holding(worker, places, wanted), 4, since, bench.now).places


def test_workers_that_ask_at_once_never_get_more_places_than_there_are(bench: Bench) -> None:
    others = [bench.another_worker() for _ in range(5)]
    granted = race([partial(hold, bench, worker, 0, 3) for worker in others])
    assert sum(granted) == 4


def test_places_that_are_given_back_are_free_at_once(bench: Bench) -> None:
    other = bench.another_worker()
    assert hold(bench, bench.worker, 0, 9) == 4
    assert hold(bench, other, 0, 9) == 0
    assert hold(bench, bench.worker, 2, 9) == 2
    assert hold(bench, other, 0, 9) == 2
    assert hold(bench, bench.worker, 0, 0) == 0
    assert hold(bench, other, 2, 9) == 4


def test_a_worker_that_left_or_is_dead_holds_nothing(bench: Bench) -> None:
    gone, dead = bench.another_worker(), bench.another_worker()
    hold(bench, gone, 0, 2)
    bench.store.control.leave(gone)
    assert hold(bench, dead, 0, 4) == 4
    assert hold(bench, bench.worker, 0, 4) == 0
    late = bench.beat_at + 1000.0
    assert hold(bench, bench.worker, 0, 4, alive_since=late) == 4
