"""The machines of the simulated world: processes that can be killed and suspended, their database and network.

A handle belongs to one process. When the process is killed its handles are revoked first (whatever was on its way
to or from it is lost, and nothing it still tries reaches the world) and only then its tasks are cancelled, as after
kill -9 no clean-up code runs.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar
from urllib.parse import urlsplit

from posthouse.errors import DatabaseUnavailable
from posthouse.providers.transport import FailurePhase, HttpAnswer, HttpFailure, HttpRequest
from posthouse.sandbox.api import Exchange, SandboxApi
from posthouse.sandbox.replies import ReplyKind

P = ParamSpec("P")
T = TypeVar("T")

Act = Callable[[], None]

_process: ContextVar[Process | None] = ContextVar("process", default=None)


class Handle(Protocol):
    """Something that the system closes when the process ends."""

    @property
    def is_open(self) -> bool: ...

    def cut(self) -> None:
        """The process has ended. May be called for what is closed already."""


class Process:
    """One worker process: its tasks, and whether it is alive and running."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.left_open = 0  # handles, when it ended by itself
        self._handles: list[Handle] = []
        self._postponed: deque[Act] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running = asyncio.Event()
        self._running.set()

    def start(self, main: Callable[[], Any], terminate: Callable[[], None]) -> None:
        """Starts the process's main coroutine; every task it creates belongs to it. `terminate` is its SIGTERM."""
        self.terminate = terminate
        token = _process.set(self)
        try:
            asyncio.get_running_loop().create_task(self._run(main))
        finally:
            _process.reset(token)

    async def _run(self, main: Callable[[], Any]) -> None:
        await main()
        self.left_open = sum(handle.is_open for handle in self._handles)
        self._close_handles()

    def owns(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def kill(self) -> None:
        """kill -9: first nothing reaches the world any more, then nothing runs any more."""
        self.alive = False
        self._close_handles()
        for task in list(self._tasks):
            task.cancel()

    def holds(self, handle: Handle) -> None:
        self._handles = [*(known for known in self._handles if known.is_open), handle]

    def _close_handles(self) -> None:
        for handle in self._handles:
            handle.cut()

    def suspend(self) -> None:
        """SIGSTOP, or a machine that is moved: time goes on, the process doesn't."""
        self._running.clear()

    def resume(self) -> None:
        self._running.set()
        asyncio.get_running_loop().call_soon(self._act_on_postponed)

    def _act_on_postponed(self) -> None:
        while self._postponed and self._running.is_set() and self.alive:
            self._postponed.popleft()()

    def cross(self, act: Act) -> None:
        """`border` for what happens at once: in order, when the process runs, never once it is dead."""
        if self.alive:
            self._postponed.append(act)
            if len(self._postponed) == 1:
                self._act_on_postponed()

    async def border(self) -> None:
        """Between the process and the world: passed only while it runs, never once it is dead."""
        await self._running.wait()
        if not self.alive:
            await asyncio.get_running_loop().create_future()


def install_task_factory() -> None:
    """Every task is entered with the process in whose context it was created."""

    def create(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        process = _process.get()
        if process is not None:
            process.owns(task)
        return task

    asyncio.get_running_loop().set_task_factory(create)


class SimulatedDatabase:
    """When the database is away, for everybody alike."""

    def __init__(self) -> None:
        self.away = False
        self.lost_answers_share = 0.0  # of the calls whose effect stays while their answer is lost


class SimulatedExecutor:
    """The store, called inline in virtual time through one process's handle."""

    def __init__(self, process: Process, database: SimulatedDatabase, chance: random.Random) -> None:
        self._process = process
        self._database = database
        self._chance = chance

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(self._chance.uniform(0.0001, 0.003))
        await self._process.border()
        if self._database.away:
            raise DatabaseUnavailable("the simulated database is away")
        result = call(*args, **kwargs)
        await asyncio.sleep(self._chance.uniform(0.0001, 0.003))
        await self._process.border()
        if self._chance.random() < self._database.lost_answers_share:
            raise DatabaseUnavailable("the simulated database's answer was lost")
        return result


class SimulatedTransport:
    """HTTP to a sandbox through one process's handle: latency, the client's own timeout, the sandbox's faults."""

    def __init__(
        self, process: Process, api: SandboxApi, chance: random.Random, now: Callable[[], float], latency_max_s: float
    ) -> None:
        self._process = process
        self._api = api
        self._chance = chance
        self._now = now
        self._latency_max_s = latency_max_s

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        await self._process.border()
        loop = asyncio.get_running_loop()
        # The provider goes on with a call whatever becomes of its caller.
        answering: asyncio.Future[HttpAnswer | HttpFailure] = loop.create_future()
        caller = _Connection()
        token = _process.set(None)
        try:
            serving = loop.create_task(self._serve(request, answering, caller))
        finally:
            _process.reset(token)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await answering
        except TimeoutError:
            answer = HttpFailure(FailurePhase.EXCHANGE, "read_timeout", "no answer within the timeout")
        finally:
            caller.gone = not answering.done()
        del serving
        await self._process.border()
        return answer

    async def _serve(
        self,
        request: HttpRequest,
        answering: asyncio.Future[HttpAnswer | HttpFailure],
        caller: _Connection,
    ) -> None:
        if self._api.refuses(self._now()):
            _give(answering, HttpFailure(FailurePhase.CONNECT, "connect_refused", "connection refused"))
            return
        await asyncio.sleep(self._chance.uniform(0.001, self._latency_max_s))
        headers = {name.lower(): value for name, value in request.headers.items()}
        url = urlsplit(request.url)
        path = f"{url.path}?{url.query}" if url.query else url.path
        exchange = self._api.begin(request.method, path, headers, request.body, self._now())
        answer = await self._answer(exchange)
        self._api.finish(exchange, self._now(), client_gone=caller.gone)
        await asyncio.sleep(self._chance.uniform(0.001, self._latency_max_s))
        if answer is not None:
            _give(answering, answer)

    async def _answer(self, exchange: Exchange) -> HttpAnswer | HttpFailure | None:
        reply = exchange.reply
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        if reply.kind in (ReplyKind.DROP, ReplyKind.REFUSE):
            return HttpFailure(FailurePhase.EXCHANGE, "reset", "connection reset")
        if reply.kind is ReplyKind.STALL:
            return None
        headers = {name.lower(): value for name, value in reply.headers.items()}
        return HttpAnswer(reply.status, headers, reply.body, complete=reply.kind is not ReplyKind.TRUNCATE)

    async def close(self) -> None:
        """Nothing is open between calls."""


class _Connection:
    """Whether the caller still waits for an answer."""

    gone = False


def _give(answering: asyncio.Future[HttpAnswer | HttpFailure], answer: HttpAnswer | HttpFailure) -> None:
    if not answering.done():
        answering.set_result(answer)
