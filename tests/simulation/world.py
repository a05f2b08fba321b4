"""One simulated run: everything in it, what happens and when, is drawn from one seed."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

from posthouse.address import Address
from posthouse.config import Config, parse_config
from posthouse.core.intervention import cancel
from posthouse.core.policy import TypePolicy, type_policies
from posthouse.email import Email
from posthouse.errors import NotPossible
from posthouse.outbox import Outbox
from posthouse.providers.registry import build_provider
from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import Fault, FaultPlan
from posthouse.sandbox.ledger import Ledger
from posthouse.store.database import open_database
from posthouse.store.migrate import migrate
from posthouse.store.retention import Limits
from posthouse.store.store import Store
from posthouse.worker.crew import Identity, WorkerParts
from posthouse.worker.rendering import Renderer
from posthouse.worker.supervisor import Worker
from tests.simulation.machines import (
    Process,
    SimulatedDatabase,
    SimulatedExecutor,
    SimulatedTransport,
    install_task_factory,
)

EPOCH = 1_800_000_000.0
"""The virtual clock's zero, in seconds since 1970."""

QUIET_AFTER_S = 4 * 3600.0
"""So long after the last fault everything has ended, or something is wrong."""

FOR_EVER = Limits(contents_s=1e9, attempts_s=1e9, raw_answers_s=1e9, sends_s=1e9)

FAULTS = (
    "503:share={share},from={start}s,until={end}s",
    "500:share={share},from={start}s,until={end}s",
    "500-accepted:share={share},from={start}s,until={end}s",
    "502-accepted:share={share},from={start}s,until={end}s",
    "504:share={share},from={start}s,until={end}s",
    "429:retry-after=7,share={share},from={start}s,until={end}s",
    "429:retry-after=date+20,share={share},from={start}s,until={end}s",
    "429:share={share},from={start}s,until={end}s",
    "401:share={share},from={start}s,until={end}s",
    "422:share={share},from={start}s,until={end}s",
    "slow=2s:share={share},from={start}s,until={end}s",
    "slow=9s:share={share},from={start}s,until={end}s",
    "slow-not-accepted=3s:share={share},from={start}s,until={end}s",
    "slow-not-accepted=9s:share={share},from={start}s,until={end}s",
    "drop:share={share},from={start}s,until={end}s",
    "drop-accepted:share={share},from={start}s,until={end}s",
    "stall:share={share},from={start}s,until={end}s",
    "stall-accepted:share={share},from={start}s,until={end}s",
    "malformed:share={share},from={start}s,until={end}s",
    "truncated:share={share},from={start}s,until={end}s",
    "html=502:share={share},from={start}s,until={end}s",
    "refuse:from={start}s,until={end}s",
)


@dataclass(frozen=True)
class RouteNature:
    """What a simulated provider offers, and what of it the route's configuration uses."""

    name: str
    key: bool
    look_up: bool
    lag_s: float


@dataclass
class Asked:
    """One email that the application asked for, and whether its transaction was committed."""

    email: Email
    committed: bool
    expires_at: float | None = None
    cancelled_at: float | None = None


@dataclass
class World:
    """The run, as the invariants look at it afterwards."""

    seed: int
    faults_until_s: float
    config: Config
    policies: dict[str, TypePolicy]
    natures: dict[str, RouteNature]
    store: Store
    apis: dict[str, SandboxApi]
    asked: dict[str, Asked] = field(default_factory=dict)
    suspended: bool = False  # some process was suspended in mid-run
    quiet_at_s: float | None = None
    enqueue_errors: list[BaseException] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


class Simulation:
    """Draws and runs one world."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._seed = seed
        self._database = SimulatedDatabase()
        self._processes: list[Process] = []
        self._names = (f"worker-{number}" for number in itertools.count(1))

    async def run(self) -> World:
        """Faults on, then off until everything has ended."""
        install_task_factory()
        self.world = self._draw_world()
        for _ in range(self._chance.randint(1, 3)):
            self._start_worker()
        happenings = [asyncio.create_task(self._applications()), asyncio.create_task(self._people())]
        happenings += [asyncio.create_task(self._troubles()), asyncio.create_task(self._database_troubles())]
        await asyncio.sleep(self.world.faults_until_s)
        for task in happenings:
            await task
        await self._heal()
        await self._until_quiet()
        for process in self._processes:
            process.kill()
        return self.world

    # -- what exists ---------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    def _draw_world(self) -> World:
        chance = self._chance
        natures = {
            name: RouteNature(name, chance.random() < 0.5, chance.random() < 0.5, chance.choice([0.0, 5.0, 20.0]))
            for name in ["main", "standby"][: chance.randint(1, 2)]
        }
        config = parse_config(self._document(natures), environment={})
        faults_until_s = chance.uniform(60, 200)
        database = open_database("sqlite://", self._now)
        migrate(database)
        apis = {name: self._draw_api(nature, faults_until_s) for name, nature in natures.items()}
        return World(self._seed, faults_until_s, config, type_policies(config), natures, Store(database), apis)

    def _document(self, natures: dict[str, RouteNature]) -> dict[str, object]:
        chance = self._chance
        names = list(natures)
        types = {
            name: {
                "category": chance.choice(["security", "transactional"]),
                "priority": chance.choice(["urgent", "normal", "bulk"]),
                "max_age": chance.choice(["2m", "10m", "30m"]),
                "routes": chance.sample(names, chance.randint(1, len(names))),
                "max_attempts": chance.choice([3, 10]),
                "retry_first": "1s",
                "retry_max": "30s",
                "on_unknown": chance.choice(["resend", "hold"]),
                "unknown_wait": chance.choice(["0s", "20s", "2m"]),
            }
            for name in ("default", "code", "news")
        }
        return {
            "database": "sqlite://",
            "sender": "Shop <shop@example.com>",
            "routes": {name: self._route(nature) for name, nature in natures.items()},
            "types": types,
        }

    def _route(self, nature: RouteNature) -> dict[str, object]:
        settings: dict[str, object] = {
            "provider": "http",
            "url": f"http://{nature.name}.example/v1/send",
            "auth": "none",
            "message_id": "id",
            "timeout": self._chance.choice(["3s", "6s"]),
            "connect_timeout": "1s",
            "concurrency": self._chance.choice([1, 3, 10]),
        }
        if nature.key:
            settings["idempotency_header"] = "Idempotency-Key"
        if nature.look_up:
            settings["look_up_url"] = f"http://{nature.name}.example/v1/messages/by-key/{{id}}"
            settings["look_up_lag"] = f"{nature.lag_s + 8}s"
        return settings

    def _draw_api(self, nature: RouteNature, faults_until_s: float) -> SandboxApi:
        chance = self._chance
        faults = [self._draw_fault(faults_until_s) for _ in range(chance.randint(1, 6))]
        return SandboxApi(
            Ledger(),
            FaultPlan(faults),
            chance=random.Random(chance.random()),
            started_at=self._now(),
            idempotency=nature.key,
            look_up=nature.look_up,
            look_up_lag_s=nature.lag_s,
        )

    def _draw_fault(self, faults_until_s: float) -> Fault:
        start = self._chance.uniform(0, faults_until_s * 0.8)
        end = min(faults_until_s, start + self._chance.uniform(5, 60))
        share = self._chance.choice([0.05, 0.3, 0.8])
        return parse_fault(self._chance.choice(FAULTS).format(share=share, start=round(start, 1), end=round(end, 1)))

    def _start_worker(self) -> None:
        process = Process(next(self._names))
        self._processes.append(process)
        self.world.log.append(f"{self._now() - EPOCH:8.2f} {process.name} starts")
        chance = random.Random(self._chance.random())
        latency_max_s = chance.choice([0.01, 0.3])
        clock = partial(self._skewed, self._chance.choice([0.0, 0.0, 3600.0, -3600.0, 7.0]))

        def transport_to(api: SandboxApi) -> Callable[..., SimulatedTransport]:
            return lambda *_: SimulatedTransport(process, api, chance, self._now, latency_max_s)

        providers = {
            name: build_provider(name, settings, transport_factory=transport_to(self.world.apis[name]), now=clock)
            for name, settings in self.world.config.routes.items()
        }
        parts = WorkerParts(
            store=self.world.store,
            executor=SimulatedExecutor(process, self._database, chance),
            providers=providers,
            policies=self.world.policies,
            renderer=Renderer(Path("nowhere"), self.world.config.sender),
            settings=self.world.config.worker,
            retention=FOR_EVER,
            identity=Identity(process.name, 1, "0"),
            chance=chance,
        )
        worker = Worker(parts)
        process.start(worker.run, worker.stop)

    def _skewed(self, skew_s: float) -> float:
        return self._now() + skew_s

    # -- what happens --------------------------------------------------------------------------------------------

    async def _applications(self) -> None:
        """The application commits emails, some of them twice, and rolls some back; nothing may hold it up."""
        world, chance = self.world, self._chance
        providers = {
            name: build_provider(name, settings, transport_factory=_NoNetwork, now=self._now)
            for name, settings in world.config.routes.items()
        }
        outbox = Outbox(
            world.policies,
            providers,
            sender=Address("shop@example.com", "Shop"),
            clock=self._now,
            new_key=lambda: uuid.UUID(int=chance.getrandbits(128)).hex,
        )
        for number in range(chance.randint(10, 50)):
            await asyncio.sleep(chance.uniform(0, world.faults_until_s / 40))
            self._enqueue(outbox, self._draw_email(number), commit=chance.random() > 0.1)

    def _draw_email(self, number: int) -> Email:
        chance = self._chance
        earlier = [key for key, asked in self.world.asked.items() if asked.committed]
        if earlier and chance.random() < 0.1:
            return self.world.asked[chance.choice(earlier)].email
        now = self._now()
        send_at = now + chance.uniform(1, 60) if chance.random() < 0.15 else None
        expires = (send_at or now) + chance.uniform(5, 120) if chance.random() < 0.2 else None
        return Email(
            key=f"email-{number}",
            to=f"person-{number}@example.com",
            type=chance.choice(["default", "code", "news"]),
            subject=f"Number {number}",
            text="Hello" * chance.randint(1, 5),
            send_at=None if send_at is None else datetime.fromtimestamp(send_at, UTC),
            expires=None if expires is None else datetime.fromtimestamp(expires, UTC),
            after=chance.choice(earlier) if earlier and chance.random() < 0.15 else None,
        )

    def _enqueue(self, outbox: Outbox, email: Email, *, commit: bool) -> None:
        connection = self.world.store.database.engine.connect()
        try:
            outbox.enqueue(connection, email)
            connection.commit() if commit else connection.rollback()
        except Exception as error:
            self.world.enqueue_errors.append(error)
            connection.rollback()
            return
        finally:
            connection.close()
        known = self.world.asked.get(email.key)
        self.world.asked[email.key] = Asked(email, commit or (known is not None and known.committed))

    async def _people(self) -> None:
        """Somebody cancels some of the emails."""
        for _ in range(self._chance.randint(0, 4)):
            await asyncio.sleep(self._chance.uniform(1, self.world.faults_until_s / 5))
            keys = [key for key, asked in self.world.asked.items() if asked.committed]
            if keys:
                self._cancel(self._chance.choice(keys))

    def _cancel(self, key: str) -> None:
        state = self.world.store.ledger.story(key).state
        try:
            status = self.world.store.operations.intervene(
                state.id,
                cancel,
                action="cancel",
                who="somebody",
                detail="",
                now=self._now(),
                max_age_s=0.0,
                new_key=lambda: "unused",
            )
        except NotPossible:
            return
        self.world.log.append(f"{self._now() - EPOCH:8.2f} {key} is cancelled: {status}")
        self.world.asked[key].cancelled_at = self._now()

    async def _troubles(self) -> None:
        """Workers are killed, suspended, stopped politely, and started anew."""
        chance = self._chance
        for _ in range(chance.randint(0, 5)):
            await asyncio.sleep(chance.uniform(1, self.world.faults_until_s / 6))
            living = [process for process in self._processes if process.alive]
            if living:
                await self._trouble(chance.choice(living), chance.choice(["kill", "kill", "suspend", "stop"]))
            if chance.random() < 0.7:
                self._start_worker()

    async def _trouble(self, process: Process, kind: str) -> None:
        self.world.log.append(f"{self._now() - EPOCH:8.2f} {process.name}: {kind}")
        if kind == "kill":
            process.kill()
        elif kind == "stop":
            process.terminate()
        else:
            self.world.suspended = True
            process.suspend()
            await asyncio.sleep(self._chance.uniform(1, 30))
            process.resume()

    async def _database_troubles(self) -> None:
        for _ in range(self._chance.randint(0, 2)):
            await asyncio.sleep(self._chance.uniform(1, self.world.faults_until_s / 3))
            with self._database_trouble():
                await asyncio.sleep(self._chance.uniform(1, 60))

    @contextmanager
    def _database_trouble(self) -> Iterator[None]:
        self.world.log.append(f"{self._now() - EPOCH:8.2f} the database is in trouble")
        if self._chance.random() < 0.5:
            self._database.away = True
        else:
            self._database.lost_answers_share = 0.2
        yield
        self._database.away = False
        self._database.lost_answers_share = 0.0

    async def _heal(self) -> None:
        for process in self._processes:
            process.resume()
        if not any(process.alive for process in self._processes):
            self._start_worker()
        self._start_worker()

    async def _until_quiet(self) -> None:
        """Until nothing is left that would move by itself."""
        began = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - began < QUIET_AFTER_S:
            await asyncio.sleep(10)
            if self._is_quiet():
                self.world.quiet_at_s = asyncio.get_running_loop().time()
                return

    def _is_quiet(self) -> bool:
        ledger = self.world.store.ledger
        counts = ledger.open_counts()
        moving = counts["waiting"] + counts["pending"] + counts["sending"] + counts["unknown"] - ledger.held_unknown()
        return moving == 0


class _NoNetwork:
    """What the application's side has instead of a network: enqueue asks no provider."""

    def __init__(self, *_: object) -> None:
        pass

    async def request(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("the application's side called a provider")

    async def close(self) -> None:
        """Nothing is open."""


def simulate(seed: int) -> World:
    """The whole run of one seed."""
    from tests.simulation.virtual_time import run

    return run(Simulation(seed).run())
