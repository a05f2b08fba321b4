"""Sets the stage for the hour, in a folder of its own: two sandboxes, a configuration, a worker, the shops' files."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from posthouse.app import App, Outbox, run_until_signal
from posthouse.config import CONFIG_FILE, load_config
from posthouse.demo.designs import NaiveDesign, OutboxDesign, configuration
from posthouse.demo.hour import Hour, Moment, Played
from posthouse.demo.processes import Child, DemoFailed, allow_connections, own_environment, running
from posthouse.demo.provider import ProviderControl
from posthouse.demo.scenario import TIMEOUT_S, Scenario
from posthouse.demo.shop import OrderBook
from posthouse.sandbox.api import SEND_PATH
from posthouse.store.migrate import migrate

T = TypeVar("T")

DATABASE: Final = "posthouse.db"
NAIVE_DATABASE: Final = "naive.db"
WORKER_POLL_S: Final = 0.05
MARGIN_S: Final = 120.0
"""What a demo may take beyond its hour: to start, to drain, and to be slow on a busy computer."""


def play_until_signal(scenario: Scenario, folder: Path, show: Callable[[Moment], None]) -> Played | None:
    """`play`, or None where Ctrl-C or another signal to end came first. Raises DemoFailed."""
    played: Played | None = None

    async def main(stop: asyncio.Event) -> None:
        nonlocal played
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop.set)  # the terminal was closed
        playing = asyncio.ensure_future(play(scenario, folder, show))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([playing, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        playing.cancel()  # does nothing to what has ended
        with suppress(asyncio.CancelledError):
            played = await playing

    run_until_signal(main)
    return played


async def play(scenario: Scenario, folder: Path, show: Callable[[Moment], None]) -> Played:
    """The whole demo; everything that it starts ends with it. `show` is told how it stands. Raises DemoFailed."""
    allow_connections()
    limit_s = scenario.hour_s + 2 * scenario.real(scenario.outage_s) + MARGIN_S
    try:
        async with asyncio.timeout(limit_s), AsyncExitStack() as stack:
            return await _Stage(scenario, folder, stack).play(show)
    except TimeoutError:
        raise DemoFailed(
            f"the demo did not end within {limit_s:.0f} s. Either this computer is too busy (try fewer --orders or a "
            "longer --hour), or something is wrong: with --keep the logs of its processes stay"
        ) from None
    except aiohttp.ClientError as error:
        raise DemoFailed(f"a sandbox of the demo can't be reached: {error}") from None


class _Stage:
    """What is started for one hour; `stack` ends it."""

    def __init__(self, scenario: Scenario, folder: Path, stack: AsyncExitStack) -> None:
        self._scenario = scenario
        self._folder = folder
        self._stack = stack

    async def play(self, show: Callable[[Moment], None]) -> Played:
        sandboxes = [
            await self._start(f"sandbox-{side}", "sandbox", "--port", "0", "--json") for side in ("naive", "posthouse")
        ]
        naive_url, own_url = [str((await sandbox.first_answer())["url"]) for sandbox in sandboxes]
        app = self._app(own_url + SEND_PATH)
        naive_book, own_book = self._book(NAIVE_DATABASE), self._book(DATABASE)
        children = [*sandboxes, await self._start("worker", "worker", "--config", CONFIG_FILE)]
        await _unless_one_fails(_at_work(app), children)
        # However many calls are open at once, none waits for another's connection.
        session = await self._stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        timeout_s = self._scenario.real_wait(TIMEOUT_S)
        naive = NaiveDesign(naive_book, session, naive_url + SEND_PATH, timeout_s)
        outbox = OutboxDesign(own_book, Outbox(app.config))
        hour = Hour(
            self._scenario,
            app,
            (naive, ProviderControl(session, naive_url)),
            (outbox, ProviderControl(session, own_url)),
        )
        return await _unless_one_fails(hour.play(show), children)

    async def _start(self, name: str, *command: str) -> Child:
        return await self._stack.enter_async_context(running(self._folder, name, *command))

    def _app(self, url: str) -> App:
        """The outbox side's installation, with its tables."""
        place = self._folder / CONFIG_FILE
        place.write_text(configuration(self._scenario, f"sqlite:///{self._folder / DATABASE}", url), encoding="utf-8")
        app = App(load_config(place, environment=own_environment()))
        self._stack.callback(app.close)
        migrate(app.database)
        return app

    def _book(self, file: str) -> OrderBook:
        book = OrderBook(self._folder / file)
        self._stack.callback(book.close)
        return book


async def _at_work(app: App) -> None:
    """Until the worker has said that it lives."""
    while not app.store.control.workers():  # noqa: ASYNC110  # another process's doing
        await asyncio.sleep(WORKER_POLL_S)


async def _unless_one_fails(work: Coroutine[Any, Any, T], children: Sequence[Child]) -> T:
    """What `work` returns. Raises DemoFailed when one of the children ends before."""
    working = asyncio.ensure_future(work)
    failing = [asyncio.ensure_future(child.fails()) for child in children]
    try:
        done, _ = await asyncio.wait([working, *failing], return_when=asyncio.FIRST_COMPLETED)
        for failed in failing:
            if failed in done:
                await failed
        return await working
    finally:
        for task in (working, *failing):
            task.cancel()
        await asyncio.gather(working, *failing, return_exceptions=True)
