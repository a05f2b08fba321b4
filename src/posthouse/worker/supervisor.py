"""One worker process: started, and ended so that nothing is left in doubt."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from posthouse.core.retry import Backoff
from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.worker.clock import DatabaseClock
from posthouse.worker.crew import MEANWHILE, Crew, WorkerParts, assemble, enlist

START_BACKOFF: Final = Backoff(first_s=0.5, max_s=10.0)
SETTLE_GRACE_SHARE: Final = 0.2
"""The part of the grace that is kept for writing the last results."""

log = logging.getLogger("posthouse.worker")


class Worker:
    """Runs until `stop` is called, then lets its calls end, writes their results and leaves."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Claims nothing more and leaves within `shutdown_grace`. May be called twice."""
        self._stop.set()

    async def run(self) -> None:
        """The whole life of the worker."""
        access = StoreAccess(self._parts.executor, asyncio.get_running_loop().time, MEANWHILE)
        clock = DatabaseClock(asyncio.get_running_loop().time)
        worker = await self._register(access, clock)
        if worker is None:
            return
        crew = assemble(self._parts, worker, access, clock)
        settling, dispatching, sweeping, purging, placing, watching, proving, filling, beating = (
            asyncio.create_task(work)
            for work in (
                crew.settler.run(),
                crew.dispatcher.run(),
                crew.housekeeping.run(),
                crew.housekeeping.purge(),
                crew.places.run(crew.routes.slots.used_on, crew.routes.slots.freed.set),
                crew.credentials.run(),
                crew.canaries.run(),
                crew.backfill.run(),
                crew.heartbeat.run(),
            )
        )
        try:
            await self._until_stopped(
                [settling, dispatching, sweeping, purging, placing, watching, proving, filling, beating]
            )
        finally:
            purging.cancel()
            watching.cancel()
            proving.cancel()
            filling.cancel()
            await self._leave(worker, crew, settling, {dispatching, sweeping})
            placing.cancel()
            beating.cancel()

    async def _register(self, access: StoreAccess, clock: DatabaseClock) -> int | None:
        """Writes this worker's row before its first claim; None if it was stopped before the database answered."""
        tries = 0
        while not self._stop.is_set():
            try:
                return await self._registered(access, clock)
            except DatabaseUnavailable:
                tries += 1
                await asyncio.sleep(START_BACKOFF.delay_s(tries, self._parts.chance.random()))
        return None

    async def _registered(self, access: StoreAccess, clock: DatabaseClock) -> int:
        worker = await enlist(self._parts, access, clock)
        if self._parts.alone:
            await access.run(self._parts.store.sweeps.reap_all, clock.now(), worker)
        who = self._parts.identity
        log.info("worker %d (%s:%d) is at work", worker, who.host, who.pid)
        return worker

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> None:
        """Until `stop`, or until a part of the worker ends by itself, which only a fault can make it do."""
        stopped = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        for task in done:
            if task is not stopped:
                task.result()

    async def _leave(
        self, worker: int, crew: Crew, settling: asyncio.Task[None], starting: set[asyncio.Task[None]]
    ) -> None:
        """Starts nothing more, lets calls end, writes the last results, signs off: all within the grace."""
        grace_s = self._parts.settings.shutdown_grace
        now = asyncio.get_running_loop().time
        deadline = now() + grace_s
        calls_end = deadline - grace_s * SETTLE_GRACE_SHARE
        crew.dispatcher.stop()
        crew.housekeeping.stop()
        if calls := crew.routes.slots.used:
            log.info("waiting for %d calls that are under way", calls)
        await _wait(starting, calls_end - now())
        under_way = starting | crew.dispatcher.tasks
        await _wait(under_way, calls_end - now())
        for task in under_way:
            task.cancel()
        await _wait(under_way, deadline - now())
        crew.settler.close()
        await _wait({settling}, deadline - now())
        if settling.done():
            await self._sign_off(worker, crew.access)
        else:
            settling.cancel()
            log.error("%d results could not be written; their sends become unknown", crew.settler.backlog)
        await crew.alarm.close()
        await asyncio.gather(*(provider.close() for provider in self._parts.providers.values()), return_exceptions=True)

    async def _sign_off(self, worker: int, access: StoreAccess) -> None:
        try:
            await access.run(self._parts.store.control.leave, worker)
        except DatabaseUnavailable:
            return  # its row grows old, and that is all
        log.info("worker %d has left", worker)


async def _wait(tasks: set[asyncio.Task[None]], timeout_s: float) -> None:
    if tasks and timeout_s > 0:
        await asyncio.wait(tasks, timeout=timeout_s)
