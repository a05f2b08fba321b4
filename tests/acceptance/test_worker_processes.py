"""Several worker processes: under one parent, and many on one queue."""

from __future__ import annotations

import subprocess

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


def test_eight_workers_accept_each_of_two_thousand_once(on_postgresql: Installation, sandbox: SandboxThread) -> None:
    count = 2000
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
    for parent in parents:
        parent.terminate()
    assert [parent.exit_code() for parent in parents] == [0, 0]
    assert on_postgresql.store.control.workers() == []
