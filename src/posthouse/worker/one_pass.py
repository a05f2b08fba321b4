"""The reconciler alone, once, on a person's demand: a worker for the time of one pass."""

from __future__ import annotations

import asyncio

from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.worker.clock import DatabaseClock
from posthouse.worker.crew import MEANWHILE, Crew, WorkerParts, assemble, enlist


async def reconcile_once(parts: WorkerParts) -> int:
    """One step for every unknown send that is due; how many steps. Raises DatabaseUnavailable.

    Safe beside any number of workers: it is registered and beats as they do, what it takes they leave alone, and
    its results count only under its own fences.
    """
    access = StoreAccess(parts.executor, asyncio.get_running_loop().time, MEANWHILE)
    clock = DatabaseClock(asyncio.get_running_loop().time)
    worker = await enlist(parts, access, clock)
    crew = assemble(parts, worker, access, clock)
    settling = asyncio.create_task(crew.settler.run())
    beside = [
        asyncio.create_task(work)
        for work in (crew.heartbeat.run(), crew.places.run(crew.routes.slots.used_on, crew.routes.slots.freed.set))
    ]
    try:
        await crew.routes.refresh(0.0)
        for route in parts.providers:
            crew.places.miss(route)
        await crew.places.look(crew.routes.slots.used_on)
        return await crew.reconciler.sweep()
    finally:
        await _end(parts, worker, crew, settling)
        for task in beside:
            task.cancel()


async def _end(parts: WorkerParts, worker: int, crew: Crew, settling: asyncio.Task[None]) -> None:
    """Writes the last results and signs off."""
    crew.settler.close()
    await asyncio.wait({settling}, timeout=parts.settings.shutdown_grace)
    await crew.alarm.close()
    for provider in parts.providers.values():
        await provider.close()
    await crew.access.run(parts.store.control.leave, worker)
    if not settling.done():
        settling.cancel()
        raise DatabaseUnavailable(f"{crew.settler.backlog} results could not be written; their sends stay unknown")
