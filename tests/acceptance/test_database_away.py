"""PostgreSQL goes away under a working installation: no call starts, no result is lost, and nobody sends twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from sqlalchemy.exc import OperationalError

import posthouse
from posthouse.errors import DatabaseUnavailable
from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import HASTY, POSTHOUSE, Installation, Started, email, emails, http_route, until
from tests.acceptance.postgres_outage import StoppablePostgres
from tests.acceptance.sandbox_thread import SandboxThread

UNDER_WAY = 15
"""Calls at once in each of two workers."""

ALL = 80

PATIENT = {**HASTY, "dead_after": "6s"}
"""Neither of two workers on a busy machine takes the other for dead."""

IMPATIENT = (
    POSTHOUSE[0],
    "-c",
    "import posthouse.store.limits as d; d.CALL_TIMEOUT_S = 1.5\nfrom posthouse.cli.main import main\nmain()",
)
"""The command, but that it waits for no answer of the database longer than this (it is 20 s, and no setting)."""

Away = Callable[[StoppablePostgres], None]


def hold_out(workers: Sequence[Started], sandbox: SandboxThread, said: str, seconds: float) -> None:
    """Until every worker says that the database is away; then no call starts any more, and those under way end."""
    for worker in workers:
        worker.until_said(said)
    before = sandbox.arrived
    time.sleep(seconds)  # what must not happen can't be waited for
    assert sandbox.arrived == before, "calls were started while the database was away"
    assert sandbox.running == 0


@pytest.mark.parametrize(
    ("away", "said", "command"),
    [
        (StoppablePostgres.stop, "the database is not available", POSTHOUSE),
        (StoppablePostgres.freeze, "the database did not answer within 1.5 s", IMPATIENT),
        # Told by a statement that "cannot execute", or to a worker that connects right then, by its session.
        (StoppablePostgres.refuse_writes, "read-only", POSTHOUSE),
    ],
    ids=["stopped", "frozen", "read-only"],
)
def test_results_are_kept_and_settled_when_the_database_is_back(
    on_own_postgresql: Installation,
    own_postgres: StoppablePostgres,
    make_sandbox: MakeSandbox,
    away: Away,
    said: str,
    command: Sequence[str],
) -> None:
    sandbox = make_sandbox("slow=1500ms")
    on_own_postgresql.configure({"main": http_route(sandbox, key=False, concurrency=UNDER_WAY)}, worker=PATIENT)
    workers = [on_own_postgresql.worker(command=command) for _ in range(2)]
    on_own_postgresql.enqueue(emails(ALL))
    until(lambda: sandbox.running == 2 * UNDER_WAY, "the calls of both are under way")

    away(own_postgres)
    hold_out(workers, sandbox, said, seconds=2.0)
    own_postgres.bring_back()
    on_own_postgresql.reconnect()
    on_own_postgresql.until_status({"accepted": ALL})

    assert (len(sandbox.copies()), sandbox.arrived) == (ALL, ALL), "one call for each"
    assert {row.attempts for row in on_own_postgresql.rows().values()} == {1}
    for worker in workers:
        assert worker.times_said("no call is started and every result is kept") == 1
        assert worker.times_said("the database is back") == 1
        assert "Traceback" not in worker.log
        assert worker.stopped() == 0


def test_the_applications_enqueue_fails_cleanly_meanwhile(
    on_own_postgresql: Installation, own_postgres: StoppablePostgres, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox()
    on_own_postgresql.configure({"main": http_route(sandbox)})
    on_own_postgresql.enqueue([email(1)])
    outbox = posthouse.Outbox(on_own_postgresql.config)
    on_own_postgresql.worker()
    on_own_postgresql.until_status({"accepted": 1})

    with on_own_postgresql.database.engine.connect() as connection:
        outbox.enqueue(connection, email(2))
        own_postgres.stop()
        with pytest.raises((OperationalError, DatabaseUnavailable)):
            outbox.enqueue(connection, email(3))
    with pytest.raises((OperationalError, DatabaseUnavailable)):
        on_own_postgresql.enqueue([email(4)])

    own_postgres.bring_back()
    on_own_postgresql.reconnect()
    on_own_postgresql.enqueue([email(5)])
    on_own_postgresql.until_status({"accepted": 2})
    assert set(on_own_postgresql.rows()) == {"k-1", "k-5"}, "what was never committed was never there"


def test_an_outage_under_the_default_settings(
    on_own_postgresql: Installation, own_postgres: StoppablePostgres, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox("slow=3s")
    on_own_postgresql.configure({"main": http_route(sandbox, key=False, concurrency=UNDER_WAY)}, worker={})
    workers = [on_own_postgresql.worker() for _ in range(2)]
    on_own_postgresql.enqueue(emails(3 * UNDER_WAY))
    until(lambda: sandbox.running == 2 * UNDER_WAY, "the calls of both are under way")

    own_postgres.stop()
    # Longer than `dead_after`: each of the two could think that the other is dead.
    hold_out(workers, sandbox, "the database is not available", seconds=16.0)
    own_postgres.bring_back()
    on_own_postgresql.reconnect()
    on_own_postgresql.until_status({"accepted": 3 * UNDER_WAY})

    assert sandbox.arrived == 3 * UNDER_WAY
    for worker in workers:
        assert worker.times_said("no call is started and every result is kept") == 1
        assert worker.times_said("the database is back") == 1
