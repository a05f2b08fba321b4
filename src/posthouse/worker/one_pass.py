"""The reconciler alone, once, on a person's demand: a worker for the time of one pass."""

from __future__ import annotations

import asyncio

from posthouse.errors import DatabaseUnavailable
from posthouse.worker.access import StoreAccess
from posthouse.worker.caller import Caller
from posthouse.worker.claims import Claims
from posthouse.worker.clock import DatabaseClock
from posthouse.worker.housekeeping import Heartbeat
from posthouse.worker.pulse import Pulse
from posthouse.worker.reconciler import Reconciler
from posthouse.worker.routes import Routes
from posthouse.worker.settler import Settler
from posthouse.worker.supervisor import WorkerParts


async def reconcile_once(parts: WorkerParts) -> int:
    """One step for every unknown send that is due; how many steps. Raises DatabaseUnavailable.

    Safe beside any number of workers: it is registered and beats as they do, what it takes they leave alone, and
    its results count only under its own fences.
    """
    access = StoreAccess(parts.executor, asyncio.get_running_loop().time)
    clock = DatabaseClock(asyncio.get_running_loop().time)
    worker = await _registered(parts, access, clock)
    pulse = Pulse(parts.settings.dead_after, clock.monotonic)
    settler = Settler(parts.store.queue, access, worker, clock.now, parts.chance)
    heartbeat = Heartbeat(parts.store, access, worker, pulse, clock, parts.settings.heartbeat)
    settling, beating = asyncio.create_task(settler.run()), asyncio.create_task(heartbeat.run())
    try:
        return await _pass(parts, access, worker, settler, pulse, clock)
    finally:
        settler.close()
        await asyncio.wait({settling}, timeout=parts.settings.shutdown_grace)
        beating.cancel()
        for provider in parts.providers.values():
            await provider.close()
        await access.run(parts.store.control.leave, worker)
        if not settling.done():
            settling.cancel()
            raise DatabaseUnavailable(f"{settler.backlog} results could not be written; their sends stay unknown")


async def _registered(parts: WorkerParts, access: StoreAccess, clock: DatabaseClock) -> int:
    who, control = parts.identity, parts.store.control
    worker = await access.run(control.register, who.host, who.pid, who.version)
    asked_at = clock.monotonic()
    database_now = await access.run(control.heartbeat, worker)
    if database_now is None or not clock.correct(asked_at, clock.monotonic(), database_now):
        raise DatabaseUnavailable("the database is too slow to tell the time")
    return worker


async def _pass(
    parts: WorkerParts, access: StoreAccess, worker: int, settler: Settler, pulse: Pulse, clock: DatabaseClock
) -> int:
    now = clock.now
    routes = Routes({name: p.facts for name, p in parts.providers.items()}, parts.store.control, access, now)
    await routes.refresh(0.0)
    caller = Caller(parts.providers, parts.policies, routes, settler, now, parts.chance)
    claims = Claims(parts.store.queue, access, worker, now)
    return await Reconciler(claims, caller, routes, settler, parts.renderer, pulse, now, parts.chance).sweep()
