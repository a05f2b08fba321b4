"""What every worker does beside sending: its heartbeat, the sweeps, retention. Nothing depends on a leader."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from posthouse.config import WorkerSettings
from posthouse.core.policy import TypePolicy
from posthouse.core.settlement import release
from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.store.limits import CALL_TIMEOUT_S
from posthouse.store.queue import Report
from posthouse.store.retention import Limits
from posthouse.store.store import Store
from posthouse.worker.backlog import BacklogWatch
from posthouse.worker.claims import Claims
from posthouse.worker.clock import DatabaseClock
from posthouse.worker.group_watch import GroupWatch
from posthouse.worker.pulse import Pulse
from posthouse.worker.reconciler import Reconciler
from posthouse.worker.settler import Settler, nobody_waits

RETENTION_EVERY_S: Final = 300.0
RETENTION_PAUSE_S: Final = 0.2
DEAD_WORKERS_KEPT_S: Final = 86400.0
STRAY_AGE_S: Final = 2 * CALL_TIMEOUT_S
"""A claim is ours for so long before we wonder why we never heard of it."""

log = logging.getLogger("posthouse.worker")


class Forgotten(Exception):
    """This worker's row is gone: whatever it had was a dead worker's to the others."""


class Heartbeat:
    """Says that this worker lives, and keeps its clock on the database's."""

    def __init__(
        self, store: Store, access: StoreAccess, worker: int, pulse: Pulse, clock: DatabaseClock, every_s: float
    ) -> None:
        self._store = store
        self._access = access
        self._worker = worker
        self._pulse = pulse
        self._clock = clock
        self._every_s = every_s

    async def run(self) -> None:
        """Beats until it is cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.beat()
            except DatabaseUnavailable:
                continue

    async def beat(self) -> None:
        """One heartbeat. Raises DatabaseUnavailable, Forgotten."""
        asked_at = self._clock.monotonic()
        database_now = await self._access.run(self._store.control.heartbeat, self._worker)
        if database_now is None:
            raise Forgotten("its row is gone from email_workers: start this worker anew")
        self._clock.correct(asked_at, self._clock.monotonic(), database_now)
        self._pulse.beat(asked_at)


class Housekeeping:
    """The sweeps of one worker."""

    def __init__(
        self,
        store: Store,
        access: StoreAccess,
        worker: int,
        claims: Claims,
        reconciler: Reconciler,
        policies: Mapping[str, TypePolicy],
        settler: Settler,
        backlog: BacklogWatch,
        groups: GroupWatch,
        pulse: Pulse,
        settings: WorkerSettings,
        retention: Limits,
        now: Callable[[], float],
        chance: random.Random,
    ) -> None:
        self._store = store
        self._access = access
        self._worker = worker
        self._claims = claims
        self._reconciler = reconciler
        self._policies = policies
        self._settler = settler
        self._backlog = backlog
        self._groups = groups
        self._pulse = pulse
        self._settings = settings
        self._retention = retention
        self._now = now
        self._chance = chance
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Takes nothing more in hand; what is under way ends."""
        self._stopping.set()
        self._reconciler.stop()

    async def run(self) -> None:
        """Sweeps until it is stopped, each time after a pause that is spread a little."""
        while not self._stopping.is_set():
            with suppress(DatabaseUnavailable):  # said once already; the next sweep finds everything still there
                await self.sweep()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.sweep * (0.8 + 0.4 * self._chance.random())):
                    await self._stopping.wait()

    async def sweep(self) -> None:
        """Everything once; what fails for a reason of its own holds up no other. Raises DatabaseUnavailable."""
        for step in (
            self._reap,
            self._end_lives,
            self._sweep_dependencies,
            self._release_strays,
            self._join_events,
            self._reconcile,
            self._backlog.look,
            self._groups.look,
        ):
            try:
                await step()
            except DatabaseUnavailable:
                raise
            except Exception:
                log.exception("a part of the sweep failed; the next sweep tries again")

    async def _reap(self) -> None:
        if not self._pulse.may_judge:
            return
        alive_since = self._now() - self._settings.dead_after
        if reaped := await self._access.run(self._store.sweeps.reap, alive_since, self._now(), self._worker):
            log.warning("%d sends of dead workers are unknown now", reaped)

    async def _end_lives(self) -> None:
        await self._access.run(self._store.sweeps.end_lives, self._now())

    async def _sweep_dependencies(self) -> None:
        await self._access.run(self._store.sweeps.sweep_dependencies, self._now())

    async def _release_strays(self) -> None:
        for state in await self._claims.strays(STRAY_AGE_S):
            self._settler.add(Report(state.id, state.fence, partial(release, again_at=self._now())), nobody_waits)

    async def _join_events(self) -> None:
        if await self._access.run(self._store.events.wait_for_a_sweep, self._now()):
            await self._access.run(self._store.events.join, self._policies, self._now())
            await self._access.run(self._store.events.resolve_told, self._policies, self._now())

    async def _reconcile(self) -> None:
        await self._reconciler.sweep()

    async def purge(self) -> None:
        """Deletes what need not be kept, batch by batch, until it is cancelled."""
        while True:
            await asyncio.sleep(RETENTION_EVERY_S * (0.8 + 0.4 * self._chance.random()))
            try:
                await self._purge_once()
            except DatabaseUnavailable:
                continue
            except Exception:
                log.exception("deleting old rows failed; the next round tries again")

    async def _purge_once(self) -> None:
        more = True
        while more:
            more = await self._access.run(self._store.retention.purge, self._retention, self._now())
            await asyncio.sleep(RETENTION_PAUSE_S)
        await self._access.run(self._store.control.forget_dead, self._now() - DEAD_WORKERS_KEPT_S)
