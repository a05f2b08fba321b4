"""One worker process a SQLite file: the next one waits, and takes over at once when the first is gone."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from posthouse.store.database import open_database
from posthouse.store.migrate import migrate
from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import DEADLINE_S, HASTY, POSTHOUSE, Installation, emails, http_route, until

UNDER_WAY = 10


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """A SQLite file."""
    url = f"sqlite:///{tmp_path / 'posthouse.db'}"
    database = open_database(url, time.time)
    migrate(database)
    database.close()
    return url


def test_a_second_worker_waits_and_takes_over_when_the_first_is_killed(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox("slow=1s:share=0.5", "slow-not-accepted=1s:share=0.5")
    patient = {**HASTY, "dead_after": "1h", "heartbeat": "1s"}  # nobody is declared dead for his silence here
    installation.configure({"main": http_route(sandbox, concurrency=UNDER_WAY)}, worker=patient)
    installation.enqueue(emails(2 * UNDER_WAY))
    first = installation.worker()
    second = installation.worker(at_work=0)
    second.until_said("another worker has")
    assert second.times_said("this one waits for it to end") == 1
    until(lambda: sandbox.running == UNDER_WAY, "the first has calls under way")
    assert sandbox.arrived == UNDER_WAY, "the second does nothing"

    first.kill()
    killed_at = time.monotonic()
    second.until_said("is at work")
    took_s = time.monotonic() - killed_at
    until(lambda: sandbox.running == 0 or sandbox.arrived > UNDER_WAY, "the calls of the dead worker end")
    sandbox.set_faults()
    installation.until_status({"accepted": 2 * UNDER_WAY})

    assert took_s < 3
    assert set(sandbox.copies().values()) == {1}
    died = [key for key in installation.rows() if installation.attempts(key)[0]["code"] == "worker_died"]
    assert len(died) == UNDER_WAY, "its open calls became unknown at once, and were found out"
    assert second.times_said("another worker has") == 1


def test_several_processes_are_refused(installation: Installation, make_sandbox: MakeSandbox) -> None:
    installation.configure({"main": http_route(make_sandbox())})

    ran = subprocess.run(
        [*POSTHOUSE, "worker", "--processes", "2", "--config", str(installation.config)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )

    assert ran.returncode == 2
    assert "a SQLite file has one worker process; use PostgreSQL for more" in ran.stderr
    assert "Traceback" not in ran.stderr
