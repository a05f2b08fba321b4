"""Workers on virtual time: the production worker, the real SQLite store, and sandbox providers without a network.

An hour's outage takes no time, and nothing happens by chance: a test says what happens when, and looks at the
provider's own ledger.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from posthouse.address import Address
from posthouse.config import Config, parse_config
from posthouse.content import Content
from posthouse.core.canary import canaries, canary_policies
from posthouse.core.cap_policy import cap_policy
from posthouse.core.group_health import health_policy
from posthouse.core.outcome import LookUp, Verdict
from posthouse.core.pace_policy import pace_policy
from posthouse.core.policy import RouteFacts, type_policies
from posthouse.email import Email
from posthouse.outbox import Outbox
from posthouse.providers.logs import OpenLog
from posthouse.providers.port import OutgoingMessage, Provider
from posthouse.providers.registry import build_provider
from posthouse.providers.suppression_lists import OpenLists
from posthouse.providers.transport import Transport
from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import CallKind, FaultPlan
from posthouse.sandbox.ledger import Ledger
from posthouse.store.retention import Limits
from posthouse.store.schema import sends
from posthouse.store.store import Store
from posthouse.unsubscribe import UnsubscribeLinks, unsubscribe_links
from posthouse.worker.alarm import AlarmSettings
from posthouse.worker.backfill import backfill_every
from posthouse.worker.canaries import CanarySettings
from posthouse.worker.crew import Identity, WorkerParts
from posthouse.worker.rendering import Renderer
from posthouse.worker.supervisor import Worker
from tests.migrated import in_memory
from tests.simulation.machines import (
    Process,
    SimulatedDatabase,
    SimulatedExecutor,
    SimulatedTransport,
    install_task_factory,
)
from tests.simulation.virtual_time import run

EPOCH = 1_800_000_000.0
"""The virtual clock's zero, in seconds since 1970."""

LOOK_EVERY_S = 0.1
ENDING_MAX_S = 120.0
FOR_EVER = Limits(contents_s=1e9, attempts_s=1e9, raw_answers_s=1e9, sends_s=1e9)

Play = Callable[["Stage"], Coroutine[Any, Any, None]]


class Scripted:
    """A provider whose answers a test writes: `answer` gives a Verdict, or raises."""

    def __init__(self, answer: Callable[[OutgoingMessage], Coroutine[Any, Any, Verdict]], facts: RouteFacts) -> None:
        self._answer = answer
        self.facts = facts
        self.called: list[str] = []

    def refusals(self, content: Content) -> list[str]:
        return []

    async def send(self, message: OutgoingMessage) -> Verdict:
        self.called.append(message.to[0].email)
        return await self._answer(message)

    async def send_together(self, messages: Sequence[OutgoingMessage]) -> Sequence[Verdict | None]:
        raise NotImplementedError

    async def look_up(self, message: OutgoingMessage) -> LookUp:
        raise NotImplementedError

    async def health(self) -> Verdict | None:
        return None

    log: OpenLog | None = None
    lists: OpenLists | None = None

    def credential_changed(self) -> bool:
        return False

    async def limit_connections(self, count: int) -> int:
        return 0

    async def close(self) -> None:
        """Nothing is open."""


class RunningWorker:
    """One worker, as a process that can be killed and told to stop."""

    def __init__(self, worker: Worker, process: Process) -> None:
        self.process = process
        self._ended = asyncio.Event()
        self._fault: Exception | None = None

        async def main() -> None:
            try:
                await worker.run()
            except Exception as error:
                self._fault = error
            self._ended.set()

        process.start(main, worker.stop)

    @property
    def lives(self) -> bool:
        return not self._ended.is_set()

    async def stopped(self) -> float:
        """SIGTERM; how long it took to leave. Raises what ended it, if a fault did."""
        asked_at = asyncio.get_running_loop().time()
        self.process.terminate()
        await self.ended()
        return asyncio.get_running_loop().time() - asked_at

    async def ended(self) -> None:
        """Waits for its end. Raises what ended it, if a fault did."""
        async with asyncio.timeout(ENDING_MAX_S):
            await self._ended.wait()
        if self._fault is not None:
            raise self._fault


class Stage:
    """A database, an application, providers, and any number of workers; `configure` before anything else."""

    def __init__(self) -> None:
        self.store = Store(in_memory(self.now))
        self.database = SimulatedDatabase()
        self.apis: dict[str, SandboxApi] = {}
        self.scripted: dict[str, Scripted] = {}
        self.transports: dict[str, Transport] = {}  # to a server that a test plays, where it is not the sandbox
        self._chance = random.Random(1)
        self._keys = (f"ik-{number}" for number in itertools.count(1))
        self._names = (f"worker-{number}" for number in itertools.count(1))
        self.alarm = AlarmSettings()
        self._config: Config | None = None
        self.running: list[RunningWorker] = []
        self._counted: tuple[int, dict[str, int]] | None = None

    def now(self) -> float:
        """The time of everything on the stage."""
        return EPOCH + self.at()

    def at(self) -> float:
        """The same, in seconds since the play began."""
        return asyncio.get_running_loop().time()

    @property
    def config(self) -> Config:
        assert self._config is not None, "configure first"
        return self._config

    def configure(
        self,
        routes: Mapping[str, Mapping[str, object]],
        types: Mapping[str, Mapping[str, object]] | None = None,
        worker: Mapping[str, object] | None = None,
        templates: Path = Path("nowhere"),
        **more: object,
    ) -> None:
        """Settings on top of sound ones; every route leads to the sandbox of its name."""
        plain = {"provider": "http", "auth": "none", "timeout": "10s", "idempotency_header": "Idempotency-Key"}
        tables = {
            name: {**plain, "url": f"https://{name}.example/v1/send", **settings} for name, settings in routes.items()
        }
        tables = {name: {k: v for k, v in table.items() if v is not None} for name, table in tables.items()}
        document = {
            "database": "sqlite://",
            "sender": "Shop <shop@example.com>",
            "templates": str(templates),
            "routes": tables,
            "types": types or {},
            "worker": {"poll_max": "1s", **(worker or {})},
            **more,
        }
        self._config = parse_config(document, environment={})

    def sandbox(self, route: str, *faults: str, kind: type[SandboxApi] = SandboxApi, **settings: Any) -> SandboxApi:
        """The provider behind a route; its faults' schedule begins now."""
        plan = FaultPlan([parse_fault(text) for text in faults])
        api = kind(Ledger(), plan, chance=random.Random(1), started_at=self.now(), **settings)
        self.apis[route] = api
        return api

    def script(
        self, route: str, answer: Callable[[OutgoingMessage], Coroutine[Any, Any, Verdict]], **facts: Any
    ) -> Scripted:
        """A provider behind a route that answers as the test says."""
        self.scripted[route] = Scripted(answer, RouteFacts(route, **facts))
        return self.scripted[route]

    def outbox(self) -> Outbox:
        """As an application's process has it."""
        return self._outbox(self.config, Process("application"))

    def enqueue(self, *wanted: Email, into: Outbox | None = None) -> None:
        """As the application does it."""
        outbox = into or self.outbox()
        with self.store.database.write() as connection:
            outbox.enqueue_many(connection, wanted)

    def worker(self, config: Config | None = None) -> RunningWorker:
        """Starts a worker."""
        config = config or self.config
        process = Process(next(self._names))
        parts = WorkerParts(
            store=self.store,
            executor=SimulatedExecutor(process, self.database, self._chance),
            providers=self._providers(process, config),
            policies=type_policies(config) | canary_policies(config),
            renderer=Renderer(config.templates, config.sender, _links(config)),
            settings=config.worker,
            retention=FOR_EVER,
            identity=Identity(process.name, 1, "0"),
            chance=self._chance,
            pace=pace_policy(config),
            caps=cap_policy(config),
            health=health_policy(config),
            alarm=self.alarm,
            canaries=CanarySettings(canaries(config), self._outbox(config, process)),
            backfill=backfill_every(config),
        )
        self.running.append(RunningWorker(Worker(parts), process))
        return self.running[-1]

    def _outbox(self, config: Config, process: Process) -> Outbox:
        return Outbox(
            type_policies(config) | canary_policies(config),
            self._providers(process, config),
            sender=Address("shop@example.com", "Shop"),
            clock=self.now,
            new_key=lambda: next(self._keys),
            caps=cap_policy(config),
        )

    def _providers(self, process: Process, config: Config) -> dict[str, Provider]:
        def transport_to(name: str) -> Callable[..., Transport]:
            def factory(*_: object) -> Transport:
                played = self.transports.get(name)
                return played or SimulatedTransport(
                    process, self.apis[name], self._chance, self.now, latency_max_s=0.01
                )

            return factory

        return {
            name: self.scripted.get(name)
            or build_provider(name, settings, transport_factory=transport_to(name), now=self.now)
            for name, settings in config.routes.items()
        }

    async def until(self, what: Callable[[], object], within_s: float) -> float:
        """Lets the play go on until `what` is true; how long that took."""
        began_at = self.at()
        while not what():
            assert self.at() - began_at < within_s, f"not within {within_s} s: {self.statuses()}"
            await asyncio.sleep(LOOK_EVERY_S)
        return self.at() - began_at

    async def until_status(self, within_s: float = 60.0, **wanted: int) -> float:
        """Until the sends stand exactly so; how long that took."""
        return await self.until(lambda: self.statuses() == wanted, within_s)

    async def close(self) -> None:
        """Kills whatever still runs."""
        for running in self.running:
            running.process.kill()
        await asyncio.sleep(1)  # then every task of a dead process stands still for good
        self.store.database.close()

    def row(self, key: str) -> dict[str, Any]:
        """One send."""
        return self.store.ledger.story(key).send

    def attempts(self, key: str) -> list[dict[str, Any]]:
        """Its attempts, oldest first."""
        return self.store.ledger.story(key).attempts

    def rows(self) -> list[dict[str, Any]]:
        """Every send."""
        return self.store.ledger.find([], None, 10_000)

    def statuses(self) -> dict[str, int]:
        """How many sends there are of each status. Asked ten times a second, and counted anew after a write."""
        changes = self._changes()
        if self._counted is None or self._counted[0] != changes:
            query = select(sends.c.status, func.count()).group_by(sends.c.status)
            with self.store.database.read() as connection:
                self._counted = changes, {row[0]: row[1] for row in connection.execute(query)}
        return self._counted[1]

    def _changes(self) -> int:
        """How many rows were ever written; all of the stage shares one connection."""
        with closing(self.store.database.engine.raw_connection()) as connection:
            changes: int = connection.driver_connection.total_changes  # type: ignore[union-attr]
        return changes

    def copies(self, route: str = "main") -> Counter[str]:
        """How often each recipient's message was accepted."""
        return Counter(one.recipients[0] for one in self.apis[route].ledger.acceptances)

    def calls_at(self, route: str = "main", kind: CallKind = CallKind.SEND) -> list[float]:
        """When each call arrived, in seconds since the play began."""
        return [call.at - EPOCH for call in self.apis[route].ledger.calls if call.kind is kind]


def play(scene: Play) -> None:
    """Runs a scene on a stage of its own, in virtual time; whatever still runs at its end is killed."""

    async def main() -> None:
        install_task_factory()
        stage = Stage()
        try:
            await scene(stage)
        finally:
            await stage.close()

    run(main())


def _links(config: Config) -> UnsubscribeLinks | None:
    linked = [policy.name for policy in type_policies(config).values() if policy.unsubscribe_link]
    return unsubscribe_links(config.web, linked)


def email(number: int | str, **fields: Any) -> Email:
    """An email of its own recipient: `k-7` for `person-7@example.com`."""
    plain = {"key": f"k-{number}", "to": f"person-{number}@example.com", "subject": f"Number {number}", "text": "Hi"}
    return Email(**(plain | fields))


def emails(count: int, **fields: Any) -> Sequence[Email]:
    """So many emails."""
    return [email(number, **fields) for number in range(count)]
