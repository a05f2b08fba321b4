"""The composition root: builds the clock, chance, the store, the providers and the services. Nobody else does.

What an application doesn't need to enqueue (the worker, the sandbox) is imported only where it is built.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cached_property, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from posthouse import outbox
from posthouse.config import Config, parse_config, read_document
from posthouse.core.canary import canaries, canary_policies
from posthouse.core.cap_policy import CapPolicy, cap_policy
from posthouse.core.group_health import health_policy
from posthouse.core.lanes import lane_name, type_of
from posthouse.core.outcome import Verdict
from posthouse.core.outlook import Outlook, outlook
from posthouse.core.pace_policy import PacePolicy, pace_policy
from posthouse.core.policy import TypePolicy, type_policies
from posthouse.core.suppression import suppression_policy
from posthouse.core.switches import Switches
from posthouse.errors import ConfigError, InvalidEmail
from posthouse.providers.port import Provider
from posthouse.providers.registry import SMTP, build_provider, build_webhook, of_each_route, own_faults
from posthouse.providers.transport import Transport, TransportOptions
from posthouse.store.database import Database, open_database
from posthouse.store.migrate import check
from posthouse.store.retention import retention_limits
from posthouse.store.store import Store

if TYPE_CHECKING:
    from posthouse.inlet.messages import Inlet, Taken
    from posthouse.providers.suppression_lists import OpenLists
    from posthouse.providers.webhook_keys import WebhookKeys
    from posthouse.sandbox.running import SandboxSettings, StartedSandbox
    from posthouse.store.threads import StoreThreads
    from posthouse.store.worker_lock import WorkerLock
    from posthouse.unsubscribe import UnsubscribeLinks
    from posthouse.worker.backfill import Filled
    from posthouse.worker.crew import WorkerParts
    from posthouse.worker.supervisor import Worker

T = TypeVar("T")

LOCK_POLL_S: Final = 0.5
GC_THRESHOLD: Final = 50_000
SWITCH_INTERVAL_S: Final = 0.0005
SEEDS: Final = 1_000_000

log = logging.getLogger("posthouse.app")


def new_idempotency_key() -> str:
    """A key that no other send has, in this or any other database."""
    return uuid.uuid4().hex


def open_transport(options: TransportOptions) -> Transport:
    """The HTTP client; imported by who makes a call."""
    from posthouse.providers.http_client import AiohttpTransport

    return AiohttpTransport(options)


def new_seed() -> int:
    """A seed where nobody has named one: short enough to be typed again."""
    return random.randrange(SEEDS)  # noqa: S311  # draws faults, keeps no secrets


def read_config(path: str | Path | None = None) -> Config:
    """As `load_config`. What providers refuse of their own settings is told with what is wrong elsewhere."""
    document, folder = read_document(path)
    try:
        return parse_config(document, folder=folder)
    except ConfigError as error:
        raise ConfigError.together([*error.faults, *own_faults(document)]) from None


class Outbox(outbox.Outbox):
    """The outbox of a configuration: a Config, the path of a `posthouse.toml`, or None for the usual place."""

    def __init__(self, config: Config | str | Path | None = None) -> None:
        app = App(config if isinstance(config, Config) else read_config(config))
        super().__init__(
            type_policies(app.config),
            app.providers(),
            sender=app.config.sender,
            clock=app.clock,
            new_key=app.new_key,
            caps=app.caps,
            suppression=suppression_policy(app.config),
        )
        self._app = app

    def outlook(self, type_: str, service: str = "") -> Outlook:
        """Whether an email of this type would leave in a moment, else when, and when to offer another one.

        For the words on a page: an estimate from what all workers know, read on a connection of its own in a few
        milliseconds. Raises InvalidEmail for a type that is not configured, DatabaseUnavailable.
        """
        policy = self._app.policies.get(type_)
        if policy is None:
            raise InvalidEmail("type", f"{type_!r} is not configured (there are: {', '.join(self._app.policies)})")
        store = self._app.store
        now = store.ledger.now()
        switches = Switches(row.switch for row in store.switches.rows() if row.resumed_at is None)
        closing = switches.closing(lane_name(type_, service), now)
        lanes = [lane.lane for lane in store.queue.due_lanes() if type_of(lane.lane) == type_]
        return outlook(policy, store.control.route_health(), closing, store.ledger.waiting(lanes, now), now)


class App:
    """Everything that one process needs, built on first use."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clock: Callable[[], float] = time.time
        self.chance = random.Random()  # noqa: S311  # spreads waits, keeps no secrets
        self.new_key = new_idempotency_key

    @cached_property
    def policies(self) -> dict[str, TypePolicy]:
        """The configured types, and those of canaries."""
        return type_policies(self.config) | canary_policies(self.config)

    @cached_property
    def caps(self) -> CapPolicy:
        """The configured caps on what waits."""
        return cap_policy(self.config)

    @cached_property
    def pace(self) -> PacePolicy:
        """The configured rates and quotas."""
        return pace_policy(self.config)

    @cached_property
    def database(self) -> Database:
        """The database; connects at the first use. Raises ConfigError."""
        return open_database(self.config.database_url, self.clock)

    @cached_property
    def store(self) -> Store:
        """The store over it."""
        return Store(self.database, suppression_policy(self.config))

    @property
    def smtp_routes(self) -> list[str]:
        """The routes on which a mail server answers each call."""
        return [name for name, route in self.config.routes.items() if route.provider == SMTP]

    def close(self) -> None:
        """Closes the database's connections, where there are any."""
        if "database" in vars(self):
            self.database.close()

    def providers(self) -> dict[str, Provider]:
        """Every configured route's provider, new. Raises ConfigError."""
        return of_each_route(self.config.routes, self.provider)

    def provider(self, route: str) -> Provider:
        """The provider of one of them, new. Raises ConfigError."""
        return build_provider(route, self.config.routes[route], transport_factory=open_transport, now=self.clock)

    def run_worker(self) -> None:
        """One worker process, until SIGTERM or SIGINT. Raises ConfigError, SchemaError, DatabaseUnavailable."""
        providers = self._ready_to_send()
        run_until_signal(lambda stop: self._work(providers, stop))

    def _ready_to_send(self) -> dict[str, Provider]:
        """The providers, after a look at what no worker can do without."""
        providers = self.providers()
        if not providers:
            raise ConfigError("routes", "there is none, so nothing can be sent; configure one as [routes.main]")
        self.links()
        check(self.database)
        return providers

    def run_worker_processes(self, count: int, command: Sequence[str]) -> None:
        """`count` worker processes, each running `command`, until SIGTERM or SIGINT. Raises as `run_worker`."""
        from posthouse.worker.processes import Processes

        if self.database.is_sqlite and count > 1:
            raise ConfigError(
                "database", "a SQLite file has one worker process; use PostgreSQL, MariaDB or MySQL for more"
            )
        self._ready_to_send()  # what would end each of them, again and again, is said once and by us
        self.database.close()
        processes = Processes(command, count, self.config.worker.shutdown_grace, self.chance)

        async def work(stop: asyncio.Event) -> None:
            await _until(processes.run(), stop, processes.stop)

        run_until_signal(work)

    def inlet(self) -> Inlet:
        """Where messages that came back are kept. Raises ConfigError, SchemaError, DatabaseUnavailable."""
        from posthouse.inlet.messages import Inlet

        check(self.database)
        addresses = {name: provider.facts.bounce_address for name, provider in self.providers().items()}
        return Inlet(self.store, self.policies, {name: it for name, it in addresses.items() if it})

    def read_mailbox(self, name: str) -> Iterator[Taken]:
        """What is unread in a mailbox, one by one, each written down and then marked.

        Raises ConfigError, MailboxUnavailable, and as `inlet` does; what came before then is done.
        """
        from posthouse.inlet.mailbox import read_mailbox

        settings = self.config.mailboxes.get(name)
        if settings is None:
            known = ", ".join(self.config.mailboxes) or "none"
            raise ConfigError(f"mailboxes.{name}", f"is not configured (there are: {known})")
        return read_mailbox(f"mailboxes.{name}", settings, self.inlet())

    def reconcile(self) -> int | None:
        """One pass over the unknown sends that are due; how many were looked after.

        None where a worker has the SQLite file: it does this itself, every few seconds. Raises as `run_worker`.
        """
        from posthouse.store.threads import StoreThreads
        from posthouse.store.worker_lock import WorkerLock
        from posthouse.worker.one_pass import reconcile_once

        check(self.database)
        file = self.database.sqlite_file
        lock = None if file is None else WorkerLock(file)
        if lock is not None and not lock.acquire():
            return None
        executor = StoreThreads(single=self.database.is_sqlite)
        try:
            return _run(reconcile_once(self._worker_parts(self.providers(), executor)))
        finally:
            executor.close()
            if lock is not None:
                lock.release()

    def read_log(self, route: str, since: float | None, tell: Callable[[Filled], None]) -> None:
        """Reads the log of the route's provider now, from where it was read to, or from `since` at the latest.

        `tell` hears of each stretch when it is written down. Raises ConfigError where there is no log to read,
        SchemaError, DatabaseUnavailable, LogFailed where it tells no more, and TurnTaken; what it told is kept.
        """
        from posthouse.store.threads import StoreThreads
        from posthouse.worker.backfill import read_now

        check(self.database)
        provider = self._provider_of(route)
        if provider.log is None:
            raise ConfigError(f"routes.{route}", f"{provider.facts.kind} has no log that could be read")
        ahead = self.store.ledger.now() - self.clock()
        executor = StoreThreads(single=self.database.is_sqlite)
        try:
            _run(
                read_now(
                    route, provider, self.policies, self.store, executor, lambda: self.clock() + ahead, since, tell
                )
            )
        finally:
            executor.close()

    def with_lists(self, route: str, work: Callable[[OpenLists], Coroutine[Any, Any, T]]) -> T:
        """What `work` makes of the suppression lists of the route's provider. Raises ConfigError where it has none."""
        check(self.database)
        from posthouse.worker.suppression_lists import closed_after

        provider = self._provider_of(route)
        if provider.lists is None:
            raise ConfigError(f"routes.{route}", f"{provider.facts.kind} has no suppression list that could be reached")
        return _run(closed_after(provider, work(provider.lists)))

    def _provider_of(self, route: str) -> Provider:
        if route not in self.config.routes:
            raise ConfigError(f"routes.{route}", f"is not configured (there are: {', '.join(self.config.routes)})")
        return self.providers()[route]

    def ask_health(self) -> dict[str, Verdict | None]:
        """What each route's health URL says now; None for a route that has none. Raises ConfigError."""

        async def ask(provider: Provider) -> Verdict | None:
            try:
                return await provider.health()
            finally:
                await provider.close()

        async def ask_all() -> list[Verdict | None]:
            return await asyncio.gather(*(ask(provider) for provider in providers.values()))

        providers = self.providers()
        return dict(zip(providers, _run(ask_all()), strict=True))

    def webhooks(self) -> dict[str, WebhookKeys]:
        """Every route whose webhooks can be verified, with what they are verified with. Raises ConfigError."""
        built = of_each_route(self.config.routes, self.webhook)
        return {name: keys for name, keys in built.items() if keys is not None}

    def webhook(self, route: str) -> WebhookKeys | None:
        """What the webhooks of one of them are verified with; None where there is nothing. Raises ConfigError."""
        from posthouse.providers.webhook_keys import WebhookKeys

        webhook = build_webhook(route, self.config.routes[route])
        return None if webhook is None else WebhookKeys(f"routes.{route}", webhook, self.clock)

    def links(self) -> UnsubscribeLinks | None:
        """The links by which people unsubscribe; None where no type has one. Raises ConfigError."""
        from posthouse.unsubscribe import unsubscribe_links

        linked = (policy.name for policy in self.policies.values() if policy.unsubscribe_link)
        return unsubscribe_links(self.config.web, linked)

    def run_web(self, host: str | None, port: int | None) -> None:
        """The web server, until SIGTERM or SIGINT. Raises ConfigError, SchemaError, DatabaseUnavailable."""
        from posthouse.store.threads import StoreThreads
        from posthouse.unsubscribe import unsubscribe_secrets
        from posthouse.web.server import WebParts, serve

        given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
        settings = self.config.web.model_copy(update=given)
        webhooks, secrets = self.webhooks(), unsubscribe_secrets(settings)
        for fault in (fault for keys in webhooks.values() for fault in keys.faults()):
            log.error("%s", fault)  # the other routes' webhooks come all the same
        check(self.database)

        async def run(stop: asyncio.Event) -> None:
            executor = StoreThreads(single=self.database.is_sqlite)
            try:
                server = await serve(
                    WebParts(
                        self.store,
                        executor,
                        self.policies,
                        webhooks,
                        secrets,
                        open_transport(TransportOptions()),
                        settings,
                        self.clock,
                    )
                )
                await stop.wait()
                await server.close()
            finally:
                executor.close()

        run_until_signal(run)

    async def _work(self, providers: dict[str, Provider], stop: asyncio.Event) -> None:
        from posthouse.store.threads import StoreThreads

        lock = await self._lock_sqlite(stop)
        if stop.is_set():
            return
        import_module("posthouse.providers.http_client")  # now: the first call should not wait for it
        executor = StoreThreads(single=self.database.is_sqlite)
        worker = self.worker(providers, executor, alone=lock is not None)
        _tune_interpreter()
        try:
            await _until(worker.run(), stop, worker.stop)
        finally:
            executor.close()
            if lock is not None:
                lock.release()

    async def _lock_sqlite(self, stop: asyncio.Event) -> WorkerLock | None:
        """The lock of a SQLite file's only worker, as soon as it is free; None for other databases."""
        from posthouse.store.worker_lock import WorkerLock

        if self.database.sqlite_file is None:
            return None
        lock, said = WorkerLock(self.database.sqlite_file), False
        while not stop.is_set() and not lock.acquire():
            if not said:
                log.warning("another worker has %s; this one waits for it to end", self.database.sqlite_file)
                said = True
            await asyncio.sleep(LOCK_POLL_S)
        return lock

    def worker(self, providers: dict[str, Provider], executor: StoreThreads, *, alone: bool = False) -> Worker:
        """One worker, not yet running. `alone`: no other can live (see `WorkerParts`)."""
        from posthouse.worker.supervisor import Worker

        return Worker(self._worker_parts(providers, executor, alone=alone))

    def _worker_parts(
        self, providers: dict[str, Provider], executor: StoreThreads, *, alone: bool = False
    ) -> WorkerParts:
        from posthouse.worker.alarm import AlarmSettings
        from posthouse.worker.backfill import backfill_every
        from posthouse.worker.canaries import CanarySettings
        from posthouse.worker.crew import Identity, WorkerParts
        from posthouse.worker.rendering import Renderer

        alerts = self.config.alerts
        way_in = outbox.Outbox(
            self.policies, providers, sender=self.config.sender, clock=self.clock, new_key=self.new_key
        )
        return WorkerParts(
            store=self.store,
            executor=executor,
            providers=providers,
            policies=self.policies,
            renderer=Renderer(self.config.templates, self.config.sender, self.links()),
            settings=self.config.worker,
            retention=retention_limits(self.config),
            identity=Identity(socket.gethostname(), os.getpid(), version("posthouse")),
            chance=self.chance,
            pace=self.pace,
            caps=self.caps,
            health=health_policy(self.config),
            alarm=AlarmSettings(
                quiet_s=alerts.quiet,
                transport=open_transport(TransportOptions()) if alerts.url else None,
                url=alerts.url.reveal if alerts.url else None,
            ),
            canaries=CanarySettings(canaries(self.config), way_in),
            backfill=backfill_every(self.config),
            alone=alone,
        )


def run_sandbox(settings: SandboxSettings, started: Callable[[StartedSandbox], None]) -> None:
    """A sandbox until SIGTERM or SIGINT. Raises ConfigError."""
    from posthouse.sandbox.running import run

    seed = new_seed() if settings.faults.seed is None else settings.faults.seed
    run_until_signal(partial(run, settings, seed, time.time, started))


def run_until_signal(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Runs `main` on an event loop (uvloop where it is installed); SIGTERM and SIGINT set the event it is given."""

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await main(stop)

    _run(run())


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)


def _tune_interpreter() -> None:
    """What a process that only works through a queue wants of Python.

    Reference counting frees nearly all of its many small objects at once: looking for cycles after every 700 of them
    takes a fifth of its time. And the threads that talk to the database do little but wait: they should not wait for
    the event loop's 5 ms as well when their answer is there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed; None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _until(work: Coroutine[Any, Any, None], stop: asyncio.Event, stop_work: Callable[[], None]) -> None:
    """Runs `work`; when `stop` is set, asks it to end, and waits for it."""
    running = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    stop_work()
    await running
