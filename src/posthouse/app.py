"""The composition root: builds the clock, chance, the store, the providers and the services. Nobody else does.

What an application doesn't need to enqueue (the worker, the sandbox) is imported only where it is built.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from posthouse import outbox
from posthouse.config import Config, load_config
from posthouse.core.policy import TypePolicy, type_policies
from posthouse.errors import ConfigError
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.providers.transport import AiohttpTransport
from posthouse.store.database import Database, open_database
from posthouse.store.migrate import check
from posthouse.store.retention import Limits
from posthouse.store.store import Store
from posthouse.store.worker_lock import WorkerLock

if TYPE_CHECKING:
    from posthouse.store.threads import StoreThreads
    from posthouse.worker.supervisor import Worker

LOCK_POLL_S: Final = 0.5

log = logging.getLogger("posthouse.app")


def new_idempotency_key() -> str:
    """A key that no other send has, in this or any other database."""
    return uuid.uuid4().hex


class Outbox(outbox.Outbox):
    """The outbox of a configuration: a Config, the path of a `posthouse.toml`, or None for the usual place."""

    def __init__(self, config: Config | str | Path | None = None) -> None:
        app = App(config if isinstance(config, Config) else load_config(config))
        super().__init__(
            app.policies,
            app.providers(),
            sender_known=app.config.sender is not None,
            clock=app.clock,
            new_key=new_idempotency_key,
        )


class App:
    """Everything that one process needs, built on first use."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clock: Callable[[], float] = time.time
        self.chance = random.Random()  # noqa: S311  # spreads waits, keeps no secrets
        self.new_key = new_idempotency_key

    @cached_property
    def policies(self) -> dict[str, TypePolicy]:
        """The configured types."""
        return type_policies(self.config)

    @cached_property
    def database(self) -> Database:
        """The database; connects at the first use. Raises ConfigError."""
        return open_database(self.config.database_url, self.clock)

    @cached_property
    def store(self) -> Store:
        """The store over it."""
        return Store(self.database)

    def providers(self) -> dict[str, Provider]:
        """Every configured route's provider, new. Raises ConfigError."""
        return {
            name: build_provider(name, settings, transport_factory=AiohttpTransport, now=self.clock)
            for name, settings in self.config.routes.items()
        }

    def run_worker(self) -> None:
        """One worker process, until SIGTERM or SIGINT. Raises ConfigError, SchemaError, DatabaseUnavailable."""
        providers = self.providers()
        if not providers:
            raise ConfigError("routes", "there is none, so nothing can be sent; configure one as [routes.main]")
        check(self.database)
        run_until_signal(lambda stop: self._work(providers, stop))

    def run_worker_processes(self, count: int, command: Sequence[str]) -> None:
        """`count` worker processes, each running `command`, until SIGTERM or SIGINT. Raises ConfigError."""
        from posthouse.worker.processes import Processes

        if self.database.is_sqlite and count > 1:
            raise ConfigError("database", "a SQLite file has one worker process; use PostgreSQL for more")
        processes = Processes(command, count, self.config.worker.shutdown_grace, self.chance)

        async def work(stop: asyncio.Event) -> None:
            await _until(processes.run(), stop, processes.stop)

        run_until_signal(work)

    async def _work(self, providers: dict[str, Provider], stop: asyncio.Event) -> None:
        from posthouse.store.threads import StoreThreads

        lock = await self._lock_sqlite(stop)
        if stop.is_set():
            return
        executor = StoreThreads(single=self.database.is_sqlite)
        worker = self._worker(providers, executor, alone=lock is not None)
        try:
            await _until(worker.run(), stop, worker.stop)
        finally:
            executor.close()
            if lock is not None:
                lock.release()

    async def _lock_sqlite(self, stop: asyncio.Event) -> WorkerLock | None:
        """The lock of a SQLite file's only worker, as soon as it is free; None for other databases."""
        if self.database.sqlite_file is None:
            return None
        lock, said = WorkerLock(self.database.sqlite_file), False
        while not stop.is_set() and not lock.acquire():
            if not said:
                log.warning("another worker has %s; this one waits for it to end", self.database.sqlite_file)
                said = True
            await asyncio.sleep(LOCK_POLL_S)
        return lock

    def _worker(self, providers: dict[str, Provider], executor: StoreThreads, *, alone: bool) -> Worker:
        from posthouse.worker.rendering import Renderer
        from posthouse.worker.supervisor import Identity, Worker, WorkerParts

        return Worker(
            WorkerParts(
                store=self.store,
                executor=executor,
                providers=providers,
                policies=self.policies,
                renderer=Renderer(self.config.templates, self.config.sender),
                settings=self.config.worker,
                retention=retention_limits(self.config),
                identity=Identity(socket.gethostname(), os.getpid(), version("posthouse")),
                chance=self.chance,
                alone=alone,
            )
        )


def retention_limits(config: Config) -> Limits:
    """The configured ages."""
    kept = config.retention
    return Limits(
        contents_s=kept.contents, attempts_s=kept.attempts, raw_answers_s=kept.raw_answers, sends_s=kept.sends
    )


def run_until_signal(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Runs `main` on an event loop (uvloop where it is installed); SIGTERM and SIGINT set the event it is given."""

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await main(stop)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
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
