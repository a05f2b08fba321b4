"""Several worker processes under one parent, which starts those anew that die and passes the signal to stop on."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Sequence
from typing import Final

from posthouse.core.retry import Backoff

RESTART_BACKOFF: Final = Backoff(first_s=0.5, max_s=30.0)
STEADY_S: Final = 60.0
"""A process that lived so long starts with the shortest wait again when it dies."""

KILL_MARGIN_S: Final = 5.0

log = logging.getLogger("posthouse.worker")


class Processes:
    """Runs `count` times the same command until it is stopped."""

    def __init__(self, command: Sequence[str], count: int, grace_s: float, chance: random.Random) -> None:
        self._command = command
        self._count = count
        self._grace_s = grace_s
        self._chance = chance
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Passes SIGTERM on and waits for the processes to leave. May be called twice."""
        self._stop.set()

    async def run(self) -> None:
        """Until it is stopped and every process has ended."""
        await asyncio.gather(*(self._keep_running(number) for number in range(1, self._count + 1)))

    async def _keep_running(self, number: int) -> None:
        deaths = 0
        while not self._stop.is_set():
            began = asyncio.get_running_loop().time()
            code = await self._run_once()
            if self._stop.is_set():
                return
            steady = asyncio.get_running_loop().time() - began > STEADY_S
            deaths = 1 if steady else deaths + 1
            wait_s = RESTART_BACKOFF.delay_s(deaths, self._chance.random())
            log.error("worker process %d ended by itself (%d); it is started anew in %.1f s", number, code, wait_s)
            try:
                async with asyncio.timeout(wait_s):
                    await self._stop.wait()
            except TimeoutError:
                continue

    async def _run_once(self) -> int:
        process = await asyncio.create_subprocess_exec(*self._command, start_new_session=True)
        ended = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            process.send_signal(signal.SIGTERM)
            await asyncio.wait([ended], timeout=self._grace_s + KILL_MARGIN_S)
            if not ended.done():
                log.error("worker process %d did not leave within its grace; it is killed", process.pid)
                process.kill()
        return await ended
