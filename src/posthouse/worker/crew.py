"""The parts of a running worker, and how they are put together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from posthouse.config import WorkerSettings
from posthouse.core.cap_policy import CapPolicy
from posthouse.core.group_health import HealthPolicy
from posthouse.core.pace_policy import PacePolicy
from posthouse.core.policy import TypePolicy
from posthouse.errors import DatabaseUnavailable
from posthouse.providers.port import Provider
from posthouse.store.access import StoreAccess
from posthouse.store.retention import Limits
from posthouse.store.store import Store
from posthouse.store.threads import StoreExecutor
from posthouse.worker.alarm import Alarm, AlarmSettings
from posthouse.worker.backfill import Backfill, BackfillWatch
from posthouse.worker.backlog import BacklogWatch
from posthouse.worker.batches import Batches
from posthouse.worker.caller import Caller
from posthouse.worker.canaries import Canaries, CanarySettings
from posthouse.worker.claims import Claims
from posthouse.worker.clock import DatabaseClock
from posthouse.worker.credentials import CredentialWatch
from posthouse.worker.dispatcher import Dispatcher
from posthouse.worker.files import Files
from posthouse.worker.gates import Gates
from posthouse.worker.group_watch import GroupWatch
from posthouse.worker.housekeeping import Heartbeat, Housekeeping
from posthouse.worker.pace import Pace
from posthouse.worker.places import Places
from posthouse.worker.pulse import Pulse
from posthouse.worker.reconciler import Reconciler
from posthouse.worker.rendering import Renderer
from posthouse.worker.routes import Routes
from posthouse.worker.settler import Settler
from posthouse.worker.starter import Starter
from posthouse.worker.suppressed import SuppressionCheck

TELLING_TIME_TRIES: Final = 10

MEANWHILE: Final = "no call is started and every result is kept"
"""What it means to a worker that the database is away."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which process this is, as `email_workers` shows it."""

    host: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """All that a worker is given; nothing in it is built by the worker itself."""

    store: Store
    executor: StoreExecutor
    providers: Mapping[str, Provider]
    policies: Mapping[str, TypePolicy]
    renderer: Renderer
    settings: WorkerSettings
    retention: Limits
    identity: Identity
    chance: random.Random
    pace: PacePolicy = field(default_factory=PacePolicy)
    caps: CapPolicy = field(default_factory=CapPolicy)
    health: HealthPolicy = field(default_factory=HealthPolicy)
    alarm: AlarmSettings = field(default_factory=AlarmSettings)
    canaries: CanarySettings | None = None
    backfill: Mapping[str, float] = field(default_factory=dict)  # every so many seconds, by route
    alone: bool = False  # no other worker can live: every open call is a dead worker's


@dataclass(frozen=True, slots=True)
class Crew:
    """The parts of a running worker."""

    access: StoreAccess
    alarm: Alarm
    places: Places
    routes: Routes
    settler: Settler
    dispatcher: Dispatcher
    reconciler: Reconciler
    heartbeat: Heartbeat
    housekeeping: Housekeeping
    credentials: CredentialWatch
    canaries: Canaries
    backfill: BackfillWatch


def assemble(parts: WorkerParts, worker: int, access: StoreAccess, clock: DatabaseClock) -> Crew:
    """The crew of the registered worker `worker`. Nothing runs yet."""
    now = clock.now
    pulse = Pulse(parts.settings.dead_after, asyncio.get_running_loop().time)
    facts = {name: provider.facts for name, provider in parts.providers.items()}
    settler = Settler(parts.store.queue, access, worker, now, parts.chance)
    dead_after_s = parts.settings.dead_after
    places = Places(facts, parts.providers, parts.store.control, access, worker, pulse, dead_after_s, now)
    alarm = Alarm(parts.store.alerts, access, parts.alarm, now)
    routes = Routes(facts, places, parts.store.control, access, alarm, worker, now, parts.chance.random())
    groups = GroupWatch(parts.health, parts.store.group_health, access, alarm, now)
    caller = Caller(parts.providers, parts.policies, routes, settler, groups, now, parts.chance)
    claims = Claims(parts.store.queue, access, worker, now)
    files = Files(parts.store.blobs, access)
    gates = Gates(parts.store.switches, access, now)
    pace = Pace(parts.pace, gates, parts.store.pacing, access, alarm, now)
    check = SuppressionCheck(parts.store.suppressions, access, parts.policies, now)
    batches = Batches(caller, parts.policies, facts)
    starter = Starter(claims, caller, batches, routes, pace, gates, settler, parts.renderer, files, check, pulse, now)
    reconciler = Reconciler(
        claims, caller, routes, pace, gates, settler, parts.renderer, files, check, pulse, now, parts.chance
    )
    backfill = Backfill(parts.providers, parts.policies, parts.store, access, now)
    return Crew(
        access=access,
        alarm=alarm,
        places=places,
        routes=routes,
        settler=settler,
        reconciler=reconciler,
        dispatcher=Dispatcher(
            claims, starter, parts.policies, routes, pace, gates, settler, pulse, parts.settings, now, parts.chance
        ),
        heartbeat=Heartbeat(parts.store, access, worker, pulse, clock, parts.settings.heartbeat),
        housekeeping=Housekeeping(
            store=parts.store,
            access=access,
            worker=worker,
            claims=claims,
            reconciler=reconciler,
            policies=parts.policies,
            settler=settler,
            backlog=BacklogWatch(parts.caps, parts.store.backlog, access, alarm, now),
            groups=groups,
            pulse=pulse,
            settings=parts.settings,
            retention=parts.retention,
            now=now,
            chance=parts.chance,
        ),
        credentials=CredentialWatch(parts.providers, routes),
        canaries=Canaries(parts.canaries, parts.store, access, routes, gates, alarm, pulse, now),
        backfill=BackfillWatch(parts.backfill, backfill, parts.store, access, alarm, pulse, now),
    )


async def enlist(parts: WorkerParts, access: StoreAccess, clock: DatabaseClock) -> int:
    """Writes the worker's row before its first claim, and learns the database's time. Raises DatabaseUnavailable."""
    who, control = parts.identity, parts.store.control
    worker = await access.run(control.register, who.host, who.pid, who.version)
    for _ in range(TELLING_TIME_TRIES):
        asked_at = clock.monotonic()
        database_now = await access.run(control.heartbeat, worker)
        if database_now is not None and clock.correct(asked_at, clock.monotonic(), database_now):
            return worker
    raise DatabaseUnavailable("the database is too slow to tell the time")
