"""A parent and its processes: those that die are started anew, and all end with it."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from posthouse.worker import processes
from posthouse.worker.processes import Processes
from tests.acceptance.installation import pid_lives

PATIENCE_S = 10.0

WRITES_ITS_PID = """
import os, signal, sys, time
from pathlib import Path
{before}
(Path({folder!r}) / str(os.getpid())).touch()
{after}
"""


def command(folder: Path, before: str = "", after: str = "time.sleep(60)") -> Sequence[str]:
    """A process that leaves a file with its number as its name, and then does `after`."""
    return [sys.executable, "-c", WRITES_ITS_PID.format(folder=str(folder), before=before, after=after)]


@asynccontextmanager
async def running(given: Sequence[str], count: int, grace_s: float = 5.0) -> AsyncIterator[Processes]:
    parent = Processes(given, count, grace_s, random.Random(1))
    whole = asyncio.create_task(parent.run())
    yield parent
    parent.stop()
    await asyncio.wait_for(whole, PATIENCE_S)


def numbers(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir()]


async def started(folder: Path, count: int) -> list[int]:
    """The numbers of so many processes, once they run."""
    async with asyncio.timeout(PATIENCE_S):
        while len(found := numbers(folder)) < count:  # noqa: ASYNC110  # other processes set no event of ours
            await asyncio.sleep(0.02)
    return found


async def test_all_run_at_once_and_end_with_the_parent(tmp_path: Path) -> None:
    async with running(command(tmp_path), 3):
        pids = await started(tmp_path, 3)
    assert not [pid for pid in pids if pid_lives(pid)]


async def test_one_that_dies_is_started_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(command(tmp_path), 2):
        first = await started(tmp_path, 2)
        await asyncio.create_subprocess_exec("kill", "-9", str(first[0]))
        everyone = await started(tmp_path, 3)
        assert len(everyone) == 3
        assert pid_lives(first[1])
    assert "ended by itself (-9); it is started anew" in caplog.text


async def test_one_that_dies_again_and_again_is_started_at_growing_intervals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(command(tmp_path, after="sys.exit(3)"), 1):
        await started(tmp_path, 3)
    waits = [float(line.rpartition(" in ")[2].split()[0]) for line in caplog.text.splitlines() if "anew in" in line]
    assert waits[1] > waits[0] * 1.2
    assert "ended by itself (3)" in caplog.text


async def test_one_that_does_not_leave_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "KILL_MARGIN_S", 0.2)
    deaf = command(tmp_path, before="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    async with running(deaf, 1, grace_s=0.3):
        pids = await started(tmp_path, 1)
        asked_at = time.monotonic()
    assert time.monotonic() - asked_at >= 0.5
    assert not pid_lives(pids[0])
    assert "did not leave within its grace; it is killed" in caplog.text


async def test_a_signal_to_the_terminals_group_reaches_only_the_parent(tmp_path: Path) -> None:
    async with running(command(tmp_path), 1):
        (pid,) = await started(tmp_path, 1)
        assert os.getpgid(pid) == pid, "it leads a group of its own, so that Ctrl-C is passed on once and as SIGTERM"
