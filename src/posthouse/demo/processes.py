"""The processes that a demo runs beside itself: started in its folder, watched, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from posthouse.errors import PosthouseError

END_GRACE_S: Final = 5.0
LOG_LINES_SHOWN: Final = 5
CONNECTIONS: Final = 4096


class DemoFailed(PosthouseError):
    """The demo could not be played to its end; the text says why."""


class Child:
    """One command of ours, running. `name` is also that of its log."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    async def first_answer(self) -> Any:
        """The JSON document on its first line. Raises DemoFailed."""
        line = await self._process.stdout.readline() if self._process.stdout is not None else b""
        if not line:
            raise self._failure()
        return json.loads(line)

    async def fails(self) -> None:
        """Waits, and raises DemoFailed if it ends by itself."""
        await self._process.wait()
        raise self._failure()

    async def end(self) -> None:
        """Asks it to leave, and makes it. May be called when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
            try:
                async with asyncio.timeout(END_GRACE_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        await self._process.wait()

    def _failure(self) -> DemoFailed:
        last = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return DemoFailed("\n  ".join([f"the demo's {self.name} ended by itself; it said last:", *last]))


@asynccontextmanager
async def running(folder: Path, name: str, *arguments: str) -> AsyncIterator[Child]:
    """A `posthouse` command, until the block ends. It knows nothing of a configuration outside `folder`."""
    log = folder / f"{name}.log"
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "posthouse", *arguments, cwd=folder, env=own_environment(), stdout=PIPE, stderr=said
        )
    child = Child(name, process, log)
    try:
        yield child
    finally:
        # A second Ctrl-C must not leave it behind.
        await asyncio.shield(child.end())


def own_environment() -> dict[str, str]:
    """The environment without what points to an installation of Posthouse: a demo must never touch one."""
    return {name: value for name, value in os.environ.items() if not name.startswith("POSTHOUSE_")}


def allow_connections() -> None:
    """Raises this process's limit of open files, and so its children's, where the usual one is low."""
    try:
        import resource
    except ImportError:  # not on this system, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS if hard == resource.RLIM_INFINITY else min(CONNECTIONS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
