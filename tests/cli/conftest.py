"""A shell for the command's tests: a folder with a configuration, and the command run in it, in-process or apart."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update
from typer.testing import CliRunner

from posthouse.cli.init import STARTER
from posthouse.cli.main import app
from posthouse.store.database import Database, open_database
from posthouse.store.schema import contents, sends

DEADLINE_S = 30.0
"""No wait in these tests is meant to take this long; it only ends a test that would hang."""


@contextmanager
def own_logging() -> Iterator[None]:
    """What is set up meanwhile is gone afterwards: other tests look at what is logged."""
    root, ours = logging.getLogger(), logging.getLogger("posthouse")
    before = (root.handlers, root.level, ours.level)
    try:
        yield
    finally:
        root.handlers = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])


@dataclass(frozen=True)
class Ran:
    """What one run of the command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output; fails when there is anything else."""
        return json.loads(self.out)

    @property
    def flat(self) -> str:
        """What was said in words, whatever its line breaks."""
        return " ".join(self.out.split())


@dataclass
class Shell:
    """A folder with a posthouse.toml in which the command is run."""

    folder: Path
    environment: dict[str, str]
    _running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.folder / "posthouse.toml"

    def configure(self, text: str) -> None:
        """Writes the configuration."""
        self.config.write_text(text, encoding="utf-8")

    def run(self, *args: str, stdin: str | None = None) -> Ran:
        """The command, in this process, whose logging is afterwards as it was."""
        with own_logging():
            result = CliRunner().invoke(app, args, input=stdin, env=self.environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def json(self, *args: str, code: int = 0) -> Any:
        """The document that the command answers with --json."""
        ran = self.run(*args, "--json")
        assert ran.code == code, ran
        assert not ran.err, ran
        return ran.document

    def send(self, key: str, to: str = "ada@example.com", *options: str) -> None:
        """Asks for one email."""
        assert self.run("send", "--key", key, "--to", to, "--subject", "Hello", "--text", "Hi", *options).code == 0

    def start(self, *args: str) -> subprocess.Popen[str]:
        """The command as a process of its own; killed at the test's end if it still runs then."""
        process = subprocess.Popen(
            [sys.executable, "-m", "posthouse", *args],
            cwd=self.folder,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=(self.folder / f"{args[0]}.err").open("a"),
            text=True,
        )
        self._running.append(process)
        return process

    def said(self, command: str) -> str:
        """What the processes of one command wrote to standard error."""
        return (self.folder / f"{command}.err").read_text()

    def end(self) -> None:
        """Kills what still runs."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is the same on every machine."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def empty_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """An empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSTHOUSE_CONFIG", raising=False)
    monkeypatch.delenv("POSTHOUSE_DATABASE", raising=False)
    shell = Shell(tmp_path, {"COLUMNS": "80", "NO_COLOR": "1", "TZ": "Europe/Berlin"})
    yield shell
    shell.end()


@pytest.fixture
def shell(empty_shell: Shell, database_url: str) -> Shell:
    """The configuration that `init` writes, on a migrated database of each kind."""
    empty_shell.configure(STARTER.replace("sqlite:///posthouse.db", database_url))
    return empty_shell


@pytest.fixture
def opened(shell: Shell, database_url: str) -> Iterator[Database]:
    """The shell's database."""
    database = open_database(database_url, time.time)
    yield database
    database.close()


@pytest.fixture
def put(opened: Database) -> Callable[..., None]:
    """Puts a send into a state without the way that leads to it: `put("k", status="failed")`."""

    def put(key: str, **values: Any) -> None:
        with opened.write() as connection:
            assert connection.execute(update(sends).where(sends.c.dedupe_key == key).values(**values)).rowcount == 1

    return put


@pytest.fixture
def forget_content(opened: Database) -> Callable[[], None]:
    """Deletes every content, as retention does."""

    def forget() -> None:
        with opened.write() as connection:
            connection.execute(delete(contents))

    return forget


def until(what: Callable[[], Any], described: str) -> Any:
    """Waits for `what` to become true, and returns it."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := what()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {DEADLINE_S} s: {described}")
        time.sleep(0.05)
    return value


def ended(process: subprocess.Popen[str]) -> int:
    """Sends SIGTERM; the exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(DEADLINE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
