"""One installation for a test: a configuration, its database, the application's side of it, and its processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil  # type: ignore[import-untyped]
from sqlalchemy import func, select

import posthouse
from posthouse.store.database import open_database
from posthouse.store.schema import sends
from posthouse.store.store import Store
from tests.acceptance.sandbox_thread import SandboxThread

T = TypeVar("T")

DEADLINE_S = 30.0
"""Only ends a test that would hang."""

HASTY: Mapping[str, object] = {
    "poll_min": "20ms",
    "poll_max": "100ms",
    "heartbeat": "200ms",
    "dead_after": "2s",
    "sweep": "100ms",
    "shutdown_grace": "5s",
}
"""A worker whose waits don't make a test wait."""

POSTHOUSE = (sys.executable, "-m", "posthouse")

Table = Mapping[str, object]


def until(what: Callable[[], T], described: str, within_s: float = DEADLINE_S) -> T:
    """Waits for `what` to become true, and returns it."""
    deadline = time.monotonic() + within_s
    while not (value := what()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {described}"
        time.sleep(0.02)
    return value


def http_route(sandbox: SandboxThread, *, key: bool = True, look_up: bool = False, **more: object) -> Table:
    """A route to `sandbox`, with what the configuration says that its provider offers."""
    settings: dict[str, object] = {
        "provider": "http",
        "url": f"{sandbox.url}/v1/send",
        "auth": "none",
        "timeout": "4s",
    }
    if key:
        settings["idempotency_header"] = "Idempotency-Key"
    if look_up:
        settings["look_up_url"] = f"{sandbox.url}/v1/messages/by-key/{{id}}"
        settings["look_up_lag"] = "0s"
    return settings | more


def smtp_route(sandbox: SandboxThread, **more: object) -> Table:
    """A route to `sandbox` over SMTP."""
    return {"provider": "smtp", "url": sandbox.smtp_url, "timeout": "4s", **more}


def email(number: int | str, **fields: Any) -> posthouse.Email:
    """An email of its own recipient: `k-7` for `person-7@example.com`."""
    plain = {"key": f"k-{number}", "to": f"person-{number}@example.com", "subject": f"Number {number}", "text": "Hi"}
    return posthouse.Email(**(plain | fields))


def emails(count: int, first: int = 0, **fields: Any) -> list[posthouse.Email]:
    """So many emails, numbered from `first`."""
    return [email(number, **fields) for number in range(first, first + count)]


class Started:
    """A process of Posthouse, its log in a file."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path) -> None:
        self._log = log
        self._began = log.stat().st_size if log.exists() else 0
        with log.open("a") as stderr:
            self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=stderr, text=True)

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(encoding="utf-8")[self._began :]

    def times_said(self, words: str) -> int:
        """How many lines of the log have these words."""
        return sum(words in line for line in self.log.splitlines())

    def until_said(self, words: str, times: int = 1) -> None:
        """Waits for words in the log; fails at once when the process has ended without them."""
        ended: list[int | None] = []

        def said() -> bool:
            ended.append(self.process.poll())
            return self.times_said(words) >= times or ended[-1] is not None

        until(said, f"the log says {words!r} {times} times; it says: {self.log}")
        assert self.times_said(words) >= times, f"it ended ({ended[-1]}) without saying {words!r}: {self.log}"

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self, within_s: float = DEADLINE_S) -> int:
        """Waits for its end."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {within_s} s: {self.log}") from None

    def stopped(self, within_s: float = DEADLINE_S) -> int:
        """SIGTERM; its exit code."""
        self.terminate()
        return self.exit_code(within_s)

    def children(self) -> list[int]:
        """The processes under it that live."""
        return sorted(child.pid for child in psutil.Process(self.process.pid).children())

    def clear_away(self) -> None:
        """Nothing of it is left, whatever state it is in."""
        if self.process.poll() is None:
            under = psutil.Process(self.process.pid).children(recursive=True)
            for process in (self.process, *under):
                process.kill()
            psutil.wait_procs(under, DEADLINE_S)
        self.process.wait(DEADLINE_S)


class Installation:
    """A folder with `posthouse.toml`, and a migrated database."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.database_url = database_url
        self.database = open_database(database_url, time.time)
        self.store = Store(self.database)
        self._started: list[Started] = []

    @property
    def config(self) -> Path:
        return self.folder / "posthouse.toml"

    @property
    def is_sqlite(self) -> bool:
        return self.database.is_sqlite

    def configure(
        self,
        routes: Mapping[str, Table],
        types: Mapping[str, Table] | None = None,
        worker: Table = HASTY,
        web: Table | None = None,
        **top: object,
    ) -> None:
        """Writes the configuration; a running worker keeps the one it has read."""
        top = {"database": self.database_url, "sender": "Shop <shop@example.com>"} | top
        top = {name: value for name, value in top.items() if value is not None}
        tables = {"worker": worker, "web": web or {}}
        tables |= {f"routes.{name}": table for name, table in routes.items()}
        tables |= {f"types.{name}": table for name, table in (types or {}).items()}
        lines = _settings(top)
        for name, table in tables.items():
            lines += ["", f"[{name}]", *_settings(table)]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def enqueue(self, wanted: Sequence[posthouse.Email]) -> None:
        """As the application does it, in one transaction."""
        outbox = posthouse.Outbox(self.config)
        with self.database.engine.begin() as connection:
            outbox.enqueue_many(connection, wanted)

    def worker(self, *args: str, command: Sequence[str] = POSTHOUSE, at_work: int = 1) -> Started:
        """A worker that is at work (`at_work` processes of them; 0: don't wait for it)."""
        started = self._start("worker", args, command)
        if at_work:
            started.until_said("is at work", at_work)
        return started

    def server(self) -> tuple[Started, str]:
        """A web server that listens, and its URL."""
        started = self._start("serve", ["--port", "0"], POSTHOUSE)
        started.until_said("serves at")
        return started, re.findall(r"serves at (\S+)", started.log)[-1]

    def _start(self, name: str, args: Sequence[str], command: Sequence[str]) -> Started:
        log = self.folder / f"{name}-{len(self._started)}.log"
        started = Started([*command, name, "--config", str(self.config), *args], self.folder, log)
        self._started.append(started)
        return started

    def run(self, *args: str) -> Any:
        """Another command, to its end; the document it answers with."""
        command = [*POSTHOUSE, *args, "--config", str(self.config), "--json"]
        ran = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE_S)
        assert ran.returncode == 0, ran
        return json.loads(ran.stdout)

    def row(self, key: str) -> dict[str, Any]:
        """One send."""
        return self.store.ledger.story(key).send

    def attempts(self, key: str) -> list[dict[str, Any]]:
        """Its attempts, oldest first."""
        return self.store.ledger.story(key).attempts

    def rows(self) -> dict[str, Any]:
        """Every send by its key."""
        with self.database.read() as connection:
            return {row.dedupe_key: row for row in connection.execute(select(sends))}

    def statuses(self) -> Counter[str]:
        """How many sends there are of each status."""
        counted = select(sends.c.status, func.count().label("count")).group_by(sends.c.status)
        with self.database.read() as connection:
            return Counter({row.status: row.count for row in connection.execute(counted)})

    def until_status(self, wanted: Mapping[str, int], within_s: float = DEADLINE_S) -> None:
        """Waits until the sends stand exactly so."""
        until(lambda: self.statuses() == wanted, f"{wanted}; now {self.statuses()}", within_s)

    def reconnect(self) -> None:
        """Gives up connections that an outage has cut."""
        self.database.close()

    def close(self) -> None:
        """Ends whatever still runs."""
        for started in self._started:
            started.clear_away()
        self.database.close()


def _settings(table: Table) -> list[str]:
    """TOML; for texts, numbers and lists it is written like JSON."""
    return [f"{name} = {json.dumps(value)}" for name, value in table.items()]


def pid_lives(pid: int) -> bool:
    """Whether a process runs (a zombie doesn't)."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)
