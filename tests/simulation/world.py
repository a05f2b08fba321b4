"""One simulated run: everything in it, what happens and when, is drawn from one seed."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn

from posthouse.address import Address
from posthouse.config import Config, parse_config
from posthouse.core.lanes import lane_name
from posthouse.core.lifecycle import Status
from posthouse.core.mailbox_groups import OTHER, mailbox_group
from posthouse.core.pace_policy import pace_policy
from posthouse.core.policy import Priority, TypePolicy, type_policies
from posthouse.core.switches import Scope
from posthouse.email import Email
from posthouse.outbox import Outbox
from posthouse.providers.registry import build_provider
from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.smtp import SmtpConnections
from posthouse.store.retention import Limits
from posthouse.store.store import Store
from posthouse.worker.crew import Identity, WorkerParts
from posthouse.worker.rendering import Renderer
from posthouse.worker.supervisor import Worker
from tests.migrated import in_memory
from tests.simulation.calls import Call, Noting
from tests.simulation.gates import (
    DOMAINS,
    SERVICES,
    draw_kind,
    draw_other_limits,
    draw_route_limits,
    draw_type,
)
from tests.simulation.machines import (
    Process,
    SimulatedDatabase,
    SimulatedExecutor,
    SimulatedTransport,
    install_task_factory,
)
from tests.simulation.network import Network, Server, Weather
from tests.simulation.news import News
from tests.simulation.notices import TEMPLATES, Notices
from tests.simulation.people import People
from tests.simulation.routes import RouteNature, draw_api, draw_natures, draw_settings, recipient

EPOCH = 1_800_000_000.0
"""The virtual clock's zero, in seconds since 1970."""

QUIET_AFTER_S = 4 * 3600.0
"""So long after the last fault everything has ended, or something is wrong."""

CROWD_S = 20.0
"""So long after the last fault one worker is enough for the rest."""

CROWDED_PRIORITIES = {"default": Priority.NORMAL, "code": Priority.URGENT, "news": Priority.BULK}
"""Of each type, in crowded worlds; in the others they are drawn."""

FIRST_NEWS, FIRST_CODE, LAST_CODE, FIRST_OF_BURST = 1000, 2000, 2999, 3000
"""The numbers of a crowd's emails, and of those that are asked for together."""

RUSH = 1000
"""Calls at once, more than any route allows."""

FOR_EVER = Limits(contents_s=1e9, attempts_s=1e9, raw_answers_s=1e9, sends_s=1e9)


@dataclass
class Asked:
    """One email that the application asked for, and whether its transaction was committed."""

    email: Email
    committed: bool


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
    network: Network
    people: People
    news: News
    gated: bool  # limits are on, and people close and open
    crowded: bool  # bulk mail waits while codes are asked for
    calls: list[Call] = field(default_factory=list)
    call_max_s: dict[str, float] = field(default_factory=dict)  # by route
    workers: list[Process] = field(default_factory=list)
    asked: dict[str, Asked] = field(default_factory=dict)
    suspended: bool = False  # some process was suspended in mid-run
    database_troubles: list[tuple[float, float]] = field(default_factory=list)
    last_code: str | None = None  # asked for when all was well again
    quiet_at_s: float | None = None
    enqueue_errors: list[BaseException] = field(default_factory=list)
    unhandled: list[str] = field(default_factory=list)  # what went wrong where nobody could handle it
    log: list[str] = field(default_factory=list)


class Simulation:
    """Draws and runs one world. `forced` are settings of all its routes, whatever was drawn."""

    def __init__(self, seed: int, forced: dict[str, Any]) -> None:
        self._forced = forced
        self._chance = random.Random(seed)
        self._seed = seed
        self._notices = Notices(seed)
        self._database = SimulatedDatabase()
        self._names = (f"worker-{number}" for number in itertools.count(1))

    async def run(self) -> World:
        """Faults on, then off until everything has ended."""
        install_task_factory()
        self.world = self._draw_world()
        asyncio.get_running_loop().set_exception_handler(self._note_unhandled)
        for _ in range(self._chance.randint(1, 3)):
            self._start_worker()
        self._outbox = self._open_outbox()
        happenings = [
            asyncio.create_task(happening)
            for happening in (
                self._applications(),
                self._crowd(),
                self._bursts(),
                self._ask_for_notices(),
                self._people(),
                self._troubles(),
                self._database_troubles(),
            )
        ]
        telling = asyncio.create_task(self.world.news.tell(self.world.apis))
        await asyncio.sleep(self.world.faults_until_s)
        for task in happenings:
            await task
        await self._heal()
        await self._until_quiet()
        await self.world.news.until_told()
        telling.cancel()
        for process in self.world.workers:
            process.kill()
        return self.world

    def _note_unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "handle" in context:  # else it is a task that a killed process never asked for its result
            self.world.unhandled.append(f"{context['message']}: {context.get('exception')!r}")

    # -- what exists ---------------------------------------------------------------------------------------------

    def _tell(self, text: str) -> None:
        self.world.log.append(f"{self._now() - EPOCH:8.2f} {text}")

    def _now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    def _draw_world(self) -> World:
        chance = self._chance
        natures = draw_natures(chance)
        gated, crowded = draw_kind(chance)
        config = parse_config(self._document(natures, gated, crowded), environment={})
        faults_until_s = chance.uniform(60, 200)
        database = in_memory(self._now)
        apis = {name: draw_api(chance, nature, self._now(), faults_until_s) for name, nature in natures.items()}
        servers = {nature.host: self._server(apis[name]) for name, nature in natures.items()}
        network = Network(servers, random.Random(chance.random()))
        store = Store(database)
        return World(
            seed=self._seed,
            faults_until_s=faults_until_s,
            config=config,
            policies=type_policies(config),
            natures=natures,
            store=store,
            apis=apis,
            network=network,
            people=People(store, random.Random(chance.random()), self._now, self._tell),
            news=News(self._seed, store, type_policies(config), self._now, lambda: self._database.away),
            gated=gated,
            crowded=crowded,
        )

    def _server(self, api: SandboxApi) -> Server:
        return Server(SmtpConnections(api, self._now), lambda: api.refuses(self._now()))

    def _document(self, natures: dict[str, RouteNature], gated: bool, crowded: bool) -> dict[str, object]:
        chance = self._chance
        names = list(natures)
        types: dict[str, dict[str, Any]] = {
            name: {
                "category": chance.choice(["security", "transactional"]),
                "priority": crowded_priority if crowded else chance.choice(list(Priority)),
                "max_age": chance.choice(["2m", "5m"] if gated else ["2m", "5m", "15m"]),
                "routes": chance.sample(names, chance.randint(1, len(names))),
                "max_attempts": chance.choice([3, 10]),
                "retry_first": "1s",
                "retry_max": "30s",
                "on_unknown": chance.choice(["resend", "hold"]),
                "unknown_wait": chance.choice(["0s", "20s", "2m"]),
            }
            for name, crowded_priority in CROWDED_PRIORITIES.items()
        }
        routes = {name: draw_settings(chance, nature) for name, nature in natures.items()}
        document: dict[str, object] = {
            "database": "sqlite://",
            "sender": "Shop <shop@example.com>",
            "routes": routes,
            "types": types | self._notices.types(names),
        }
        if not gated:
            return document
        for settings in types.values():
            settings |= draw_type(chance)
        for settings in routes.values():
            settings |= draw_route_limits(chance) | self._forced
        return document | draw_other_limits(chance)

    def _start_worker(self) -> None:
        process = Process(next(self._names))
        self.world.workers.append(process)
        chance = random.Random(self._chance.random())
        weather = self._draw_weather()
        self._tell(f"{process.name} starts, {weather}")
        clock = partial(self._skewed, self._chance.choice([0.0, 0.0, 3600.0, -3600.0, 7.0]))

        def transport_to(api: SandboxApi) -> Callable[..., SimulatedTransport]:
            return lambda *_: SimulatedTransport(process, api, chance, self._now, weather.latency_max_s)

        providers = {
            name: Noting(
                build_provider(
                    name,
                    settings,
                    transport_factory=transport_to(self.world.apis[name]),
                    now=clock,
                    connect=partial(self.world.network.connect, process, weather),
                ),
                self.world.calls,
                self._now,
            )
            for name, settings in self.world.config.routes.items()
        }
        parts = WorkerParts(
            store=self.world.store,
            executor=SimulatedExecutor(process, self._database, chance),
            providers=providers,
            policies=self.world.policies,
            renderer=Renderer(TEMPLATES, self.world.config.sender),
            settings=self.world.config.worker,
            retention=FOR_EVER,
            identity=Identity(process.name, 1, "0"),
            chance=chance,
            pace=pace_policy(self.world.config),
        )
        worker = Worker(parts)
        process.start(worker.run, worker.stop)

    def _draw_weather(self) -> Weather:
        chance = self._chance
        roughness = chance.choice([0.0, 0.0, 1.0, 5.0])
        return Weather(
            until_s=self.world.faults_until_s,
            latency_max_s=chance.choice([0.01, 0.3]),
            window=chance.choice([65536, 65536, 200, 30]),
            no_way=0.03 * roughness,
            reset=0.003 * roughness,
            silence=0.002 * roughness,
            split=0.02 * roughness,
            babble=0.005 * roughness,
        )

    def _skewed(self, skew_s: float) -> float:
        return self._now() + skew_s

    # -- what happens --------------------------------------------------------------------------------------------

    def _open_outbox(self) -> Outbox:
        providers = {
            name: build_provider(name, settings, transport_factory=_NoNetwork, now=self._now, connect=_no_connection)
            for name, settings in self.world.config.routes.items()
        }
        self.world.call_max_s = {name: provider.facts.timeout_s for name, provider in providers.items()}
        return Outbox(
            self.world.policies,
            providers,
            sender=Address("shop@example.com", "Shop"),
            clock=self._now,
            new_key=lambda: uuid.UUID(int=self._chance.getrandbits(128)).hex,
        )

    async def _applications(self) -> None:
        """The application commits emails, some of them twice, and rolls some back; nothing may hold it up."""
        for number in range(self._chance.randint(5, 20) if self.world.crowded else self._chance.randint(10, 50)):
            await asyncio.sleep(self._chance.uniform(0, self.world.faults_until_s / 40))
            self._enqueue(self._draw_email(number), commit=self._chance.random() > 0.1)

    async def _crowd(self) -> None:
        """A newsletter all at once, and codes while it waits, in some worlds."""
        if not self.world.crowded:
            return
        chance = self._chance
        await asyncio.sleep(chance.uniform(0, self.world.faults_until_s / 2))
        if chance.random() < 0.3:
            self._holding = asyncio.create_task(self.world.people.hold_back("news", chance.uniform(5, 30)))
        for number in range(chance.randint(20, 60)):
            self._enqueue(self._plain_email(FIRST_NEWS + number, "news"), commit=True)
        for number in range(chance.randint(15, 70)):
            await asyncio.sleep(chance.choice([0.0, 0.0, chance.uniform(0, 2)]))
            self._enqueue(self._plain_email(FIRST_CODE + number, "code"), commit=True)

    async def _bursts(self) -> None:
        """Several emails at once, so that they may share a call where a route takes several by one: as a crowd does."""
        if self.world.crowded or not any(nature.batch > 1 for nature in self.world.natures.values()):
            return
        chance, numbers = random.Random(self._seed), itertools.count(FIRST_OF_BURST)
        for _ in range(chance.randint(1, 5)):
            await asyncio.sleep(chance.uniform(0, self.world.faults_until_s / 5))
            type_ = chance.choice(["default", "news"])
            for number in itertools.islice(numbers, chance.randint(2, 20)):
                to = recipient(chance, number)
                self._enqueue(
                    Email(key=f"email-{number}", to=to, type=type_, subject=f"Number {number}", text="Hi"), commit=True
                )

    def _plain_email(self, number: int, type_: str) -> Email:
        service = self._chance.choice([None, None, None, *SERVICES])
        to = f"person+{number}@{self._chance.choice(DOMAINS)}"
        return Email(
            key=f"email-{number}", to=to, type=type_, subject=f"Number {number}", text="Hello", service=service
        )

    async def _ask_for_notices(self) -> None:
        for wait_s, email in self._notices.emails(self.world.faults_until_s):
            await asyncio.sleep(wait_s)
            self._enqueue(email, commit=True)

    def _draw_email(self, number: int) -> Email:
        chance = self._chance
        earlier = self._committed()
        if earlier and chance.random() < 0.1:
            return self.world.asked[chance.choice(earlier)].email
        now = self._now()
        send_at = now + chance.uniform(1, 60) if chance.random() < 0.15 else None
        expires = (send_at or now) + chance.uniform(5, 120) if chance.random() < 0.2 else None
        others = [recipient(chance, number, place) for place in range(1, chance.choice([1, 1, 1, 2, 4]))]
        shown = chance.randint(0, len(others))
        return Email(
            key=f"email-{number}",
            to=recipient(chance, number),
            cc=others[:shown],
            bcc=others[shown:],
            type=chance.choice(["default", "code", "news"]),
            subject=f"Number {number}",
            text="Hello" * chance.randint(1, 5),
            send_at=None if send_at is None else datetime.fromtimestamp(send_at, UTC),
            expires=None if expires is None else datetime.fromtimestamp(expires, UTC),
            after=chance.choice(earlier) if earlier and chance.random() < 0.15 else None,
            service=chance.choice([None, None, *SERVICES]),
        )

    def _enqueue(self, email: Email, *, commit: bool) -> None:
        connection = self.world.store.database.engine.connect()
        try:
            self._outbox.enqueue(connection, email)
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
        """People cancel, and in gated worlds they close and open."""
        world = self.world
        groups = {mailbox_group(f"person@{domain}") for domain in DOMAINS} - {OTHER}
        things = [(Scope.ALL, ""), (Scope.LANE, lane_name("default")), *((Scope.TYPE, name) for name in world.policies)]
        things += [(Scope.SERVICE, name) for name in SERVICES] + [(Scope.GROUP, name) for name in sorted(groups)]
        things += [(Scope.ROUTE, name) for name in world.natures]
        async with asyncio.TaskGroup() as doing:
            doing.create_task(world.people.cancel_some(self._committed, world.faults_until_s / 5))
            whims = random.Random(
                f"suppressions {self._seed}"
            )  # of their own: all else is as it was drawn without them
            doing.create_task(
                world.people.suppress_some(self._about_to_get_it, self._getting_mail, world.faults_until_s / 6, whims)
            )
            if world.gated and not (world.crowded and self._chance.random() < 0.5):
                doing.create_task(world.people.close_some(things, world.faults_until_s / 8))

    def _about_to_get_it(self) -> list[str]:
        """Those of whom nobody knows whether they have got it, and to whom a replay may begin."""
        unknown = self.world.store.ledger.find([], Status.UNKNOWN, 1000)
        replayed = [row for row in unknown if row["next_try_at"] is not None and self.world.natures[row["route"]].key]
        return _recipients(replayed)

    def _getting_mail(self) -> list[str]:
        ledger = self.world.store.ledger
        return _recipients(ledger.find([], Status.PENDING, 1000) or ledger.find([], None, 1000))

    def _committed(self) -> list[str]:
        return [key for key, asked in self.world.asked.items() if asked.committed]

    async def _troubles(self) -> None:
        """Workers are killed, suspended, stopped politely, and started anew."""
        chance = self._chance
        kinds = ["kill", "kill", "stop"] if self.world.crowded else ["kill", "kill", "suspend", "stop"]
        for _ in range(chance.randint(0, 5)):
            await asyncio.sleep(chance.uniform(1, self.world.faults_until_s / 6))
            living = [process for process in self.world.workers if process.alive]
            if living:
                await self._trouble(chance.choice(living), chance.choice(kinds))
            if chance.random() < 0.7:
                self._start_worker()

    async def _trouble(self, process: Process, kind: str) -> None:
        self._tell(f"{process.name}: {kind}")
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
        for _ in range(self._chance.randint(0, 1 if self.world.crowded else 2)):
            await asyncio.sleep(self._chance.uniform(1, self.world.faults_until_s / 3))
            with self._database_trouble():
                await asyncio.sleep(self._chance.uniform(1, 60))

    @contextmanager
    def _database_trouble(self) -> Iterator[None]:
        self._tell("the database is in trouble")
        began = self._now()
        if self._chance.random() < 0.5:
            self._database.away = True
        else:
            self._database.lost_answers_share = 0.2
        yield
        self._database.away = False
        self._database.lost_answers_share = 0.0
        self.world.database_troubles.append((began, self._now()))

    async def _heal(self) -> None:
        self.world.people.open_all()
        for process in self.world.workers:
            process.resume()
        if not any(process.alive for process in self.world.workers):
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
            if self.world.crowded and self.world.last_code is None and self._is_well():
                self.world.last_code = f"email-{LAST_CODE}"
                self._enqueue(self._plain_email(LAST_CODE, "code"), commit=True)
            if asyncio.get_running_loop().time() - began > CROWD_S:
                for process in self.world.workers[:-1]:
                    process.terminate()

    def _is_well(self) -> bool:
        """Whether every route takes all the calls that it can."""
        now, health = self._now(), self.world.store.control.route_health()
        return all(each.slots(RUSH, now) == RUSH for each in health.values())

    def _is_quiet(self) -> bool:
        ledger = self.world.store.ledger
        counts = ledger.open_counts()
        moving = counts["waiting"] + counts["pending"] + counts["sending"] + counts["unknown"] - ledger.held_unknown()
        return moving == 0


def _recipients(found: Iterable[Mapping[str, Any]]) -> list[str]:
    return [to for row in found for to in json.loads(row["recipients"])]


async def _no_connection(*_: object, **__: object) -> NoReturn:
    """What the application's side has instead of a network: enqueue asks no provider."""
    raise AssertionError("the application's side called a provider")


class _NoNetwork:
    """The same for HTTP."""

    def __init__(self, *_: object) -> None:
        self.request = _no_connection

    async def close(self) -> None:
        """Nothing is open."""


def simulate(seed: int, **forced: Any) -> World:
    """The whole run of one seed."""
    from tests.simulation.virtual_time import run

    return run(Simulation(seed, forced).run())
