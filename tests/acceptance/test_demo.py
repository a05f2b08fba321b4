"""`posthouse demo` as it is typed: what it counts, what it prints, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.acceptance.installation import POSTHOUSE, until

DEADLINE_S = 120.0
"""Only ends a test that would hang."""

SMALL = ("--hour", "5", "--outage", "6")


class Demo:
    """One run, with a temporary folder of its own to look into."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        folder.mkdir()
        # Whatever leads to an installation must lead a demo nowhere.
        astray = {"POSTHOUSE_CONFIG": "/nowhere/posthouse.toml", "POSTHOUSE_DATABASE": "postgresql://nowhere.invalid/x"}
        self.process = subprocess.Popen(
            [*POSTHOUSE, "demo", *SMALL, *options],
            env=os.environ | astray | {"TMPDIR": str(folder), "COLUMNS": "80"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self) -> Ran:
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return Ran(self.process.returncode, out, err, self.folder)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate(timeout=DEADLINE_S)


@dataclass(frozen=True)
class Ran:
    """What one run said."""

    code: int
    out: str
    err: str
    folder: Path

    def figures(self, row: str) -> tuple[str, str]:
        """Both sides' figures in one row of the table."""
        found = re.search(rf"^ +{row} +([\d,-]+) +([\d,]+)\b", self.out, re.MULTILINE)
        assert found, self.out
        return found[1], found[2]

    def times_accepted(self, side: str) -> Counter[int]:
        """How often each order's email was accepted, from the ledger that was kept."""
        (ledger,) = self.folder.glob(f"posthouse-demo-*/ledger-{side}.json")
        return Counter(entry["order"] for entry in json.loads(ledger.read_text()))


def played(folder: Path, *options: str) -> Ran:
    """A whole run."""
    demo = Demo(folder, *options)
    try:
        return demo.result()
    finally:
        demo.end()


def test_the_outbox_side_doubles_and_loses_nothing_where_the_naive_one_does_says_one_document(tmp_path: Path) -> None:
    ran = played(tmp_path / "run", "--orders", "300", "--timeouts", "10", "--seed", "1", "--json")

    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    both = {"orders", "duplicates", "lost", "slow_checkouts"}
    assert set(document) == {"naive", "posthouse"}
    assert set(document["naive"]) == both
    assert set(document["posthouse"]) == both | {"backlog_peak", "drain_s"}
    assert (document["posthouse"]["duplicates"], document["posthouse"]["lost"]) == (0, 0)
    assert document["naive"]["orders"] == document["posthouse"]["orders"] == 300
    assert 0 < document["naive"]["duplicates"] <= 2 * 10
    assert document["naive"]["slow_checkouts"] > document["posthouse"]["slow_checkouts"]
    assert document["posthouse"]["backlog_peak"] > 0
    assert list(ran.folder.iterdir()) == [], "nothing is left behind"


def test_people_are_told_what_the_kept_ledgers_say_what_it_means_and_what_to_do_next(tmp_path: Path) -> None:
    ran = played(tmp_path / "run", "--orders", "200", "--timeouts", "5", "--seed", "2", "--keep")

    assert ran.code == 0
    naive, posthouse = ran.times_accepted("naive"), ran.times_accepted("posthouse")
    assert ran.figures("orders") == ("200", "200")
    assert ran.figures("duplicates") == (str(naive.total() - len(naive)), str(posthouse.total() - len(posthouse)))
    assert ran.figures("lost") == (str(200 - len(naive)), str(200 - len(posthouse)))
    assert set(posthouse) == set(range(1, 201))
    assert set(posthouse.values()) == {1}
    assert max(int(figure) for figure in ran.figures("late answers")) <= 5
    assert "seed 2" in ran.out
    assert "the provider is ill" in ran.err
    assert f"kept: {ran.folder}" in ran.err
    assert "posthouse init" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_interrupted_takes_everything_with_it(tmp_path: Path, number: signal.Signals) -> None:
    demo = Demo(tmp_path / "run", "--orders", "300")
    try:
        children = until(lambda: _three_at_work(demo), "two sandboxes and a worker run", DEADLINE_S)
        demo.process.send_signal(number)
        ran = demo.result()
    finally:
        demo.end()
    assert ran.code == 130
    assert "Traceback" not in ran.err
    assert not [child for child in children if child.is_running()]
    assert list(ran.folder.iterdir()) == []


def _three_at_work(demo: Demo) -> list[psutil.Process]:
    assert demo.process.poll() is None, demo.result()
    children = list(psutil.Process(demo.process.pid).children(recursive=True))
    logs = [log.read_text() for log in demo.folder.glob("*/worker.log")]
    return children if len(children) == 3 and any("is at work" in log for log in logs) else []


def test_a_demo_whose_worker_dies_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "run", "--orders", "300")
    try:
        children = until(lambda: _three_at_work(demo), "two sandboxes and a worker run", DEADLINE_S)
        next(child for child in children if "worker" in child.cmdline()).kill()
        ran = demo.result()
    finally:
        demo.end()
    assert ran.code == 1
    assert "the demo's worker ended by itself" in ran.err
    assert "Traceback" not in ran.err
    assert not [child for child in children if child.is_running()]
    assert list(ran.folder.iterdir()) == []
