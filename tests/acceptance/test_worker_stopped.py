"""SIGTERM: the worker claims nothing more, lets its calls end, settles, and leaves within the grace."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import HASTY, Installation, emails, http_route, until
from tests.acceptance.postgres_outage import StoppablePostgres

UNDER_WAY = 30
WAITING = 20


@pytest.mark.parametrize("signals", [1, 2], ids=["once", "twice"])
def test_calls_under_way_end_and_are_settled(
    installation: Installation, make_sandbox: MakeSandbox, signals: int
) -> None:
    sandbox = make_sandbox("slow=1500ms")
    installation.configure({"main": http_route(sandbox, concurrency=UNDER_WAY)})
    installation.enqueue(emails(UNDER_WAY + WAITING))
    worker = installation.worker()
    until(lambda: sandbox.running == UNDER_WAY, "the calls are under way")

    asked_at = time.monotonic()
    worker.terminate()
    for _ in range(signals - 1):
        worker.until_said("calls that are under way")
        worker.terminate()

    assert worker.exit_code(within_s=5) == 0
    assert time.monotonic() - asked_at > 1, "it let the calls end"
    assert installation.statuses() == {"accepted": UNDER_WAY, "pending": WAITING}
    assert (len(sandbox.copies()), sandbox.arrived) == (UNDER_WAY, UNDER_WAY)
    assert installation.store.control.workers() == []


def test_a_call_that_outlives_the_grace_is_unknown_and_recorded(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox("slow=5s:to=person-0@example.com")
    installation.configure({"main": http_route(sandbox, timeout="10s")}, worker={**HASTY, "shutdown_grace": "2s"})
    installation.enqueue(emails(3))
    worker = installation.worker()
    installation.until_status({"accepted": 2, "sending": 1})

    asked_at = time.monotonic()
    assert worker.stopped() == 0

    assert time.monotonic() - asked_at < 3, "it left within the grace"
    assert installation.row("k-0")["status"] == "unknown"
    (attempt,) = installation.attempts("k-0")
    assert (attempt["outcome"], attempt["code"], attempt["via"]) == ("unknown", "cut_off", "send")
    assert "stopped in mid-call" in attempt["text"]
    assert installation.store.control.workers() == [], "whoever comes next has nobody to declare dead"


@pytest.mark.parametrize("away", [StoppablePostgres.stop, StoppablePostgres.freeze], ids=["stopped", "frozen"])
def test_a_worker_leaves_within_its_grace_while_the_database_is_away(
    on_own_postgresql: Installation,
    own_postgres: StoppablePostgres,
    make_sandbox: MakeSandbox,
    away: Callable[[StoppablePostgres], None],
) -> None:
    sandbox = make_sandbox("slow=1s")
    on_own_postgresql.configure(
        {"main": http_route(sandbox, concurrency=UNDER_WAY)}, worker={**HASTY, "shutdown_grace": "3s"}
    )
    on_own_postgresql.enqueue(emails(UNDER_WAY + WAITING))
    worker = on_own_postgresql.worker()
    until(lambda: sandbox.running == UNDER_WAY, "the calls are under way")

    away(own_postgres)
    asked_at = time.monotonic()
    code = worker.stopped()
    took_s = time.monotonic() - asked_at
    own_postgres.bring_back()
    on_own_postgresql.reconnect()

    assert code == 0
    assert 2 < took_s < 5, "it tried to write the results, but not for ever"
    assert worker.times_said(f"{UNDER_WAY} results could not be written; their sends become unknown") == 1
    on_own_postgresql.worker()
    on_own_postgresql.until_status({"accepted": UNDER_WAY + WAITING})
    assert set(sandbox.copies().values()) == {1}
