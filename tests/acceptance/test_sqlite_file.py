"""One worker process a SQLite file: the next one waits, and takes over at once when the first is gone."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from contextlib import closing

from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import DEADLINE_S, HASTY, POSTHOUSE, Installation, emails, http_route, until

UNDER_WAY = 10


def test_a_second_worker_waits_and_takes_over_when_the_first_is_killed(
    on_sqlite: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox("slow=1s:share=0.5", "slow-not-accepted=1s:share=0.5")
    patient = {**HASTY, "dead_after": "1h", "heartbeat": "1s"}  # nobody is declared dead for his silence here
    on_sqlite.configure({"main": http_route(sandbox, concurrency=UNDER_WAY)}, worker=patient)
    first = on_sqlite.worker()
    second = on_sqlite.worker(at_work=0)
    second.until_said("another worker has")
    assert second.times_said("this one waits for it to end") == 1
    on_sqlite.enqueue(emails(2 * UNDER_WAY))
    until(lambda: sandbox.running == UNDER_WAY, "the first has calls under way")
    assert sandbox.arrived == UNDER_WAY, "the second does nothing"

    first.kill()
    killed_at = time.monotonic()
    second.until_said("is at work")
    took_s = time.monotonic() - killed_at
    until(lambda: sandbox.running == 0 or sandbox.arrived > UNDER_WAY, "the calls of the dead worker end")
    sandbox.set_faults()
    on_sqlite.until_status({"accepted": 2 * UNDER_WAY})

    assert took_s < 3
    assert set(sandbox.copies().values()) == {1}
    died = [key for key in on_sqlite.rows() if on_sqlite.attempts(key)[0]["code"] == "worker_died"]
    assert len(died) == UNDER_WAY, "its open calls became unknown at once, and were found out"
    assert second.times_said("another worker has") == 1


def test_several_processes_are_refused(on_sqlite: Installation, make_sandbox: MakeSandbox) -> None:
    on_sqlite.configure({"main": http_route(make_sandbox())})

    ran = subprocess.run(
        [*POSTHOUSE, "worker", "--processes", "2", "--config", str(on_sqlite.config)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )

    assert ran.returncode == 2
    assert "a SQLite file has one worker process; use PostgreSQL, MariaDB or MySQL for more" in ran.stderr
    assert "Traceback" not in ran.stderr


SHORT_OF_PATIENCE = (
    POSTHOUSE[0],
    "-c",
    "import posthouse.store.database as d; d.LOCK_TIMEOUT_S = 0.3\nfrom posthouse.cli.main import main\nmain()",
)
"""The command, but that it waits no longer than this for the file's lock (it is 5 s, and no setting)."""


def test_a_long_transaction_of_the_application_delays_and_loses_nothing(
    on_sqlite: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox("slow=500ms")
    on_sqlite.configure({"main": http_route(sandbox, key=False, concurrency=UNDER_WAY)})
    on_sqlite.enqueue(emails(3 * UNDER_WAY))
    worker = on_sqlite.worker(command=SHORT_OF_PATIENCE)
    until(lambda: sandbox.running == UNDER_WAY, "calls are under way")

    with closing(sqlite3.connect(on_sqlite.folder / "posthouse.db", isolation_level=None)) as application:
        application.execute("BEGIN IMMEDIATE")
        worker.until_said("the database is not available: database is locked")
        time.sleep(2.0)  # what must not happen can't be waited for
        assert sandbox.arrived == UNDER_WAY, "calls were started that nobody could have recorded"
        application.execute("ROLLBACK")
    on_sqlite.until_status({"accepted": 3 * UNDER_WAY})

    assert (len(sandbox.copies()), sandbox.arrived) == (3 * UNDER_WAY, 3 * UNDER_WAY), "one call for each"
    assert "Traceback" not in worker.log
