"""Several worker processes: under one parent, and many on one queue."""

from __future__ import annotations

import subprocess
import time

from posthouse.core.switches import Scope, Switch
from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import (
    DEADLINE_S,
    HASTY,
    POSTHOUSE,
    Installation,
    emails,
    http_route,
    kill,
    pid_lives,
    until,
)
from tests.acceptance.sandbox_thread import SandboxThread


def test_a_parent_keeps_its_processes_running_and_ends_them_all(
    on_postgresql: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox("slow=500ms")
    on_postgresql.configure({"main": http_route(sandbox, concurrency=5)}, worker={**HASTY, "dead_after": "3s"})
    parent = on_postgresql.worker("--processes", "2", at_work=2)
    children = parent.children()
    assert len(children) == 2

    on_postgresql.enqueue(emails(10))
    until(lambda: sandbox.running == 10, "both work")
    killed = children[0]
    kill(killed)
    parent.until_said("is at work", times=3)
    assert parent.times_said("worker process") == 1
    assert parent.times_said("ended by itself (-9); it is started anew") == 1
    on_postgresql.until_status({"accepted": 10})
    on_postgresql.enqueue(emails(10, first=10))
    on_postgresql.until_status({"accepted": 20})
    assert set(sandbox.copies().values()) == {1}

    living = parent.children()
    assert (len(living), killed in living) == (2, False)
    assert parent.stopped() == 0
    assert not [pid for pid in living if pid_lives(pid)]
    assert [worker.pid for worker in on_postgresql.store.control.workers()] in ([], [killed]), "the living signed off"


def test_a_parent_finds_out_itself_what_would_end_every_process(
    on_postgresql: Installation, make_sandbox: MakeSandbox
) -> None:
    on_postgresql.configure({})

    ran = subprocess.run(
        [*POSTHOUSE, "worker", "--processes", "2", "--config", str(on_postgresql.config)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )

    assert (ran.returncode, "configure one as [routes.main]" in ran.stderr) == (2, True)


def test_eight_workers_accept_each_of_a_thousand_once_and_obey_a_pause_within_a_second(
    on_postgresql: Installation, sandbox: SandboxThread
) -> None:
    count, more = 1000, 1000
    on_postgresql.configure(
        {"main": http_route(sandbox, key=False, concurrency=8)}, worker={**HASTY, "heartbeat": "1s", "dead_after": "9s"}
    )
    parents = [on_postgresql.worker("--processes", "4", at_work=0) for _ in range(2)]
    for parent in parents:
        parent.until_said("is at work", times=4)

    on_postgresql.enqueue(emails(count))
    on_postgresql.until_status({"accepted": count}, within_s=60)

    assert len(sandbox.copies()) == sandbox.arrived == count
    rows = on_postgresql.rows().values()
    assert {(row.attempts, row.fence, row.maybe_duplicate) for row in rows} == {(1, 1, False)}
    workers = {on_postgresql.attempts(key)[0]["worker"] for key in list(on_postgresql.rows())[::20]}
    assert len(workers) > 4, "the work was shared"

    sandbox.set_faults("slow=500ms")
    on_postgresql.enqueue(emails(more, first=count))
    until(lambda: sandbox.arrived > count + 50, "all are busy again")
    on_postgresql.store.switches.pause(Switch(Scope.ALL, "", "a test", since=time.time()))
    time.sleep(1.0)  # the promise
    arrived = sandbox.arrived
    time.sleep(1.0)
    assert sandbox.arrived == arrived, "no call begins any more"
    settled = arrived - count
    on_postgresql.until_status({"accepted": count + settled, "pending": more - settled})
    assert 50 < settled < more
    assert {row.attempts for row in on_postgresql.rows().values() if row.status == "pending"} == {0}, "it costs nothing"

    for parent in parents:
        parent.terminate()
    assert [parent.exit_code() for parent in parents] == [0, 0]
    assert on_postgresql.store.control.workers() == []


def test_four_processes_keep_to_one_rate(on_postgresql: Installation, sandbox: SandboxThread) -> None:
    """As their calls began, on however busy a machine: each for itself they would begin 200."""
    count = 150
    on_postgresql.configure({"main": http_route(sandbox, rate="50/second")})
    on_postgresql.enqueue(emails(count))
    parent = on_postgresql.worker("--processes", "4", at_work=4)
    until(lambda: sandbox.arrived >= count, "all have arrived")  # to read the rows meanwhile would hold up the sandbox
    on_postgresql.until_status({"accepted": count})
    times = sorted(on_postgresql.attempts(key)[0]["started_at"] for key in on_postgresql.rows())
    most = max(sum(at <= other < at + 1.0 for other in times) for at in times)
    assert most <= 51
    assert parent.stopped() == 0
