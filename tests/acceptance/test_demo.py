"""`posthouse demo` as it is typed: what it counts, what it prints, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ran, Ran]]:
    """One run for programs and another for people, at the same time; they differ in all that can be chosen."""
    folder = tmp_path_factory.mktemp("demo")
    first = Demo(folder / "one", "--orders", "300", "--timeouts", "10", "--seed", "1", "--json")
    second = Demo(folder / "two", "--orders", "200", "--timeouts", "5", "--seed", "2", "--keep")
    yield first.result(), second.result()
    first.end()
    second.end()


@pytest.fixture
def for_programs(runs: tuple[Ran, Ran]) -> Ran:
    return runs[0]


@pytest.fixture
def for_people(runs: tuple[Ran, Ran]) -> Ran:
    return runs[1]


def test_with_json_standard_output_is_one_document_with_these_keys(for_programs: Ran) -> None:
    document = json.loads(for_programs.out)
    both = {"orders", "duplicates", "lost", "slow_checkouts"}
    assert set(document) == {"naive", "posthouse"}
    assert set(document["naive"]) == both
    assert set(document["posthouse"]) == both | {"backlog_peak", "drain_s"}
    assert for_programs.err == ""


def test_the_outbox_side_doubles_and_loses_nothing_where_the_naive_one_does(for_programs: Ran) -> None:
    document = json.loads(for_programs.out)
    assert for_programs.code == 0
    assert (document["posthouse"]["duplicates"], document["posthouse"]["lost"]) == (0, 0)
    assert document["naive"]["orders"] == document["posthouse"]["orders"] == 300
    assert 0 < document["naive"]["duplicates"] <= 2 * 10
    assert document["naive"]["slow_checkouts"] > document["posthouse"]["slow_checkouts"]
    assert document["posthouse"]["backlog_peak"] > 0


def test_nothing_is_left_behind(for_programs: Ran) -> None:
    assert list(for_programs.folder.iterdir()) == []


def test_the_table_says_what_the_kept_ledgers_say(for_people: Ran) -> None:
    naive, posthouse = for_people.times_accepted("naive"), for_people.times_accepted("posthouse")
    counts = (naive.total() - len(naive), posthouse.total() - len(posthouse))
    assert for_people.figures("orders") == ("200", "200")
    assert for_people.figures("duplicates") == tuple(map(str, counts))
    assert for_people.figures("lost") == (str(200 - len(naive)), str(200 - len(posthouse)))
    assert set(posthouse) == set(range(1, 201))
    assert set(posthouse.values()) == {1}


def test_other_numbers_come_out_of_other_numbers(for_people: Ran) -> None:
    late = {int(figure) for figure in for_people.figures("late answers")}
    assert max(late) <= 5
    assert "seed 2" in for_people.out


def test_people_are_told_how_it_goes_what_it_means_and_what_to_do_next(for_people: Ran) -> None:
    assert for_people.code == 0
    assert "the provider is ill" in for_people.err
    assert f"kept: {for_people.folder}" in for_people.err
    assert "posthouse init" in for_people.out
    assert max(map(len, for_people.out.splitlines())) <= 80


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
