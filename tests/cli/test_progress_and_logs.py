"""What is written to standard error: a bar for long work on a terminal, and one line an event from a process."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from posthouse.cli.logs import log_to_stderr
from posthouse.cli.progress import tracked
from tests.cli.conftest import own_logging


@pytest.fixture
def _own_logging() -> Iterator[None]:
    with own_logging():
        yield


def test_a_bar_is_drawn_on_a_terminal_and_the_items_come_through(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")

    assert list(tracked(range(50), 50, "retry", quiet=False)) == list(range(50))

    written = capsys.readouterr()
    assert "50/50" in written.err
    assert not written.out


@pytest.mark.parametrize(("total", "quiet", "terminal"), [(50, True, True), (5, False, True), (50, False, False)])
def test_no_bar_is_drawn_where_nobody_would_see_it(
    total: int, quiet: bool, terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)

    assert list(tracked(range(total), total, "retry", quiet=quiet)) == list(range(total))

    assert not capsys.readouterr().err


@pytest.mark.usefixtures("_own_logging")
def test_an_event_is_one_line_with_time_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(as_json=False)

    logging.getLogger("posthouse.worker").info("worker %d\nis at work", 1)
    logging.getLogger("sqlalchemy").info("not ours")

    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("Z INFO posthouse.worker: worker 1 is at work")


@pytest.mark.usefixtures("_own_logging")
def test_with_json_an_event_is_one_object_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(as_json=True)
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("posthouse.worker").exception("a fault\nin two lines")

    (line,) = capsys.readouterr().err.splitlines()
    document = json.loads(line)
    assert (document["level"], document["message"]) == ("ERROR", "a fault\nin two lines")
    assert "ValueError: boom" in document["traceback"]
