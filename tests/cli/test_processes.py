"""The command as processes: a sandbox, workers, signals; and the whole journey of an email through them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from posthouse.cli.init import STARTER
from posthouse.store.database import open_database
from posthouse.store.migrate import migrate
from tests.cli.conftest import DEADLINE_S, Shell, ended, until
from tests.conftest import OwnPostgres

HASTY = """
[worker]
poll_min = "20ms"
poll_max = "100ms"
heartbeat = "200ms"
dead_after = "2s"
sweep = "100ms"
shutdown_grace = "5s"
"""
"""A worker whose waits don't make a test wait."""

Put = Callable[..., None]


def start_sandbox(shell: Shell, *args: str) -> str:
    """Its URL."""
    process = shell.start("sandbox", "--port", "0", "--json", *args)
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["url"])


def point_to(shell: Shell, url: str, database: str = "sqlite:///posthouse.db") -> None:
    """Configures the sandbox as the route, and a worker in a hurry."""
    text = STARTER.replace("http://127.0.0.1:8025", url).replace("sqlite:///posthouse.db", database)
    shell.configure(text.replace('timeout = "15s"', 'timeout = "2s"') + HASTY)


def start_worker(shell: Shell, *args: str) -> subprocess.Popen[str]:
    """A worker that is at work."""
    before = shell.json("status")["workers"]
    process = shell.start("worker", *args)
    until(lambda: len(shell.json("status")["workers"]) > len(before), "the worker is at work")
    return process


def status_of(shell: Shell, key: str) -> Any:
    return shell.json("show", key)["status"]


def until_status(shell: Shell, key: str, status: str) -> Any:
    """The document of the send once it has this status."""
    until(lambda: status_of(shell, key) == status, f"{key} is {status}")
    return shell.json("show", key)


def truth(url: str) -> Any:
    """What the sandbox counts."""
    with urllib.request.urlopen(f"{url}/_sandbox/stats") as answer:  # noqa: S310  # our own sandbox
        return json.load(answer)


@pytest.fixture
def ready(empty_shell: Shell) -> Shell:
    """What `init` makes."""
    assert empty_shell.run("init").code == 0
    return empty_shell


def test_an_email_makes_its_whole_journey(ready: Shell) -> None:
    url = start_sandbox(ready)
    point_to(ready, url)
    assert ready.run("config", "check", "--live").code == 0
    worker = start_worker(ready)

    ready.send("order-1")
    ready.send("order-2", "rejected@example.com")
    ready.send("order-3", "unknown@example.com")  # accepted, and the connection is cut
    ready.send("order-4", "ada@example.com", "--send-at", "2h")

    accepted = until_status(ready, "order-1", "accepted")
    assert [call["outcome"] for call in accepted["timeline"]] == ["accepted"]
    assert accepted["message_id"] == accepted["timeline"][0]["message_id"]
    until_status(ready, "order-2", "failed")
    found_out = until_status(ready, "order-3", "accepted")
    assert [(call["via"], call["outcome"]) for call in found_out["timeline"]] == [
        ("send", "unknown"),
        ("replay", "accepted"),
    ]

    assert [send["key"] for send in ready.json("find", "--status", "failed")["sends"]] == ["order-2"]
    status = ready.json("status", "--check")
    assert (status["sends"]["failed"], status["sends"]["pending"], status["problems"]) == (1, 1, [])
    assert ready.run("cancel", "order-4").out == "order-4 is cancelled now.\n"
    ready.run("retry", "order-2")
    until(lambda: ready.json("show", "order-2")["attempts"] == 2, "order-2 is tried again")

    assert ended(worker) == 0
    assert ready.json("status")["workers"] == []
    assert (truth(url)["accepted"], truth(url)["duplicates"]) == (2, 0)


def test_a_send_that_nobody_can_know_of_is_held_and_resolved(ready: Shell) -> None:
    url = start_sandbox(ready, "--no-idempotency", "--no-look-up", "--fault", "stall-accepted:first=1,per=key")
    point_to(ready, url)
    text = ready.config.read_text().replace("[types.default]", '[types.default]\nunknown_wait = "0s"')
    ready.configure("\n".join(line for line in text.splitlines() if not line.startswith(("look_up", "idempotency"))))
    start_worker(ready)

    ready.send("order-1")
    until(lambda: ready.json("show", "order-1")["held"], "order-1 is held")
    assert ready.run("status", "--check").code == 1
    ready.run("resolve", "order-1", "--resend", "--by", "ada")

    told = until_status(ready, "order-1", "accepted")
    assert told["maybe_duplicate"] is True
    assert [line["who"] for line in told["interventions"]] == ["ada"]
    assert truth(url)["accepted"] == 2


def test_sigterm_lets_the_call_under_way_end_and_its_result_be_written(ready: Shell) -> None:
    url = start_sandbox(ready, "--fault", "slow=1s")
    point_to(ready, url)
    worker = start_worker(ready, "--json")
    ready.send("k")
    until(lambda: truth(url)["accepted"], "the call is under way")

    assert ended(worker) == 0

    assert status_of(ready, "k") == "accepted"
    assert worker.stdout is not None
    assert json.loads(worker.stdout.read()) == {"worker": "left"}
    assert all(json.loads(line)["level"] == "INFO" for line in ready.said("worker").splitlines())


def test_ctrl_c_ends_a_sandbox_and_a_worker_quietly(ready: Shell) -> None:
    sandbox = ready.start("sandbox", "--port", "0")
    assert sandbox.stdout is not None
    assert sandbox.stdout.readline().startswith("Sandbox at http://127.0.0.1:")
    worker = start_worker(ready)

    for process in (sandbox, worker):
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0

    assert "Traceback" not in ready.said("worker") + ready.said("sandbox")


def test_a_second_worker_on_a_sqlite_file_says_so_and_takes_over(ready: Shell) -> None:
    point_to(ready, start_sandbox(ready))
    first = start_worker(ready)
    second = ready.start("worker")
    until(lambda: "this one waits for it to end" in ready.said("worker"), "the second worker says that it waits")

    ended(first)
    ready.send("k")

    until_status(ready, "k", "accepted")
    assert ended(second) == 0


def test_a_sqlite_file_takes_one_worker_process(ready: Shell) -> None:
    ran = ready.run("worker", "--processes", "2")

    assert (ran.code, "use PostgreSQL, MariaDB or MySQL for more" in ran.err) == (2, True)


def test_a_worker_without_a_route_says_so(empty_shell: Shell) -> None:
    empty_shell.configure('database = "sqlite:///posthouse.db"\n')

    ran = empty_shell.run("worker")

    assert (ran.code, "configure one as [routes.main]" in ran.err) == (2, True)


def on_postgresql(shell: Shell, url: str, database_url: str) -> None:
    """A database of its own, as other processes see it."""
    point_to(shell, url, database_url)
    database = open_database(database_url, time.time)
    migrate(database)
    database.close()


def test_several_processes_share_the_work_and_leave_together(empty_shell: Shell, postgres: OwnPostgres) -> None:
    url = start_sandbox(empty_shell)
    on_postgresql(empty_shell, url, postgres.create())
    parent = empty_shell.start("worker", "--processes", "2")
    until(lambda: len(empty_shell.json("status")["workers"]) == 2, "both processes are at work")

    for number in range(10):
        empty_shell.send(f"k-{number}")
    until(lambda: truth(url)["accepted"] == 10, "all are accepted")

    assert ended(parent) == 0
    assert empty_shell.json("status")["workers"] == []
    assert truth(url)["duplicates"] == 0


def make_unknown(put: Put, key: str, *, due_in_s: float) -> None:
    """A call whose answer was lost just now."""
    now = time.time()
    put(
        key,
        status="unknown",
        route="main",
        unknown_since=now,
        unknown_fence=1,
        fence=1,
        attempts=1,
        next_try_at=now + due_in_s,
    )


def test_reconcile_finds_out_without_a_worker(shell: Shell, put: Put, database_url: str) -> None:
    url = start_sandbox(shell)
    point_to(shell, url, database_url)
    shell.send("due")
    shell.send("later")
    make_unknown(put, "due", due_in_s=-1)
    make_unknown(put, "later", due_in_s=3600)

    whole = shell.json("reconcile")
    assert (whole["ran_here"], whole["steps"], whole["unknown"]) == (True, 1, 1)
    named = shell.json("reconcile", "later", "--by", "ada")
    assert named["sends"] == [{"key": "later", "status": "accepted", "held": False, "standing": "accepted by main"}]

    assert status_of(shell, "due") == "accepted"
    assert [line["action"] for line in shell.json("show", "later")["interventions"]] == ["reconcile"]
    assert truth(url)["accepted"] == 2
    assert shell.json("status")["workers"] == []


def test_reconcile_beside_a_worker_makes_no_second_copy(shell: Shell, put: Put, database_url: str) -> None:
    url = start_sandbox(shell)
    point_to(shell, url, database_url)
    keys = [f"k-{number}" for number in range(5)]
    for key in keys:
        shell.send(key)
        make_unknown(put, key, due_in_s=3600)
    worker = start_worker(shell)

    named = shell.json("reconcile", *keys)
    for key in keys:
        until_status(shell, key, "accepted")

    alone = database_url.startswith("sqlite")  # the worker has the file, and finds out itself
    assert named["ran_here"] is not alone
    assert shell.json("reconcile", code=1 if alone else 0)["ran_here"] is not alone
    assert (truth(url)["accepted"], truth(url)["duplicates"]) == (5, 0)
    assert ended(worker) == 0


HANGS = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from posthouse.cli.invocation import Everywhere, Invocation
from posthouse.cli.logs import log_to_stderr
from posthouse.cli.long_run import run_to_the_end

def run():
    ThreadPoolExecutor().submit(threading.Event().wait)
    {then}

log_to_stderr(as_json=False)
run_to_the_end(Invocation(Everywhere(as_json=True)), run, "worker")
"""


@pytest.mark.parametrize(("then", "code"), [("pass", 0), ("raise RuntimeError('boom')", 70)])
def test_a_database_thread_that_hangs_keeps_no_worker_from_ending(then: str, code: int) -> None:
    script = HANGS.format(then=then)

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)

    assert ran.returncode == code
    assert ("boom" in ran.stderr, '"left"' in ran.stdout) == (code != 0, code == 0)
