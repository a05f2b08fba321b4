"""A sandbox that listens in a thread of the test's own process, so that a test reads the ledger itself."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from posthouse.sandbox.api import Exchange, SandboxApi
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import CallKind, FaultPlan
from posthouse.sandbox.http import SandboxServer, serve
from posthouse.sandbox.ledger import Acceptance, CallResult, Ledger
from posthouse.sandbox.smtp import SmtpServer, serve_smtp

T = TypeVar("T")

ANSWER_MAX_S = 10.0


class _WatchedApi(SandboxApi):
    """Knows how many calls have arrived, and how many at once there were at most."""

    arrived = 0
    running = 0
    running_max = 0

    def begin(self, method: str, path: str, headers: Mapping[str, str], body: bytes, now: float) -> Exchange:
        self.arrived += 1
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        return super().begin(method, path, headers, body, now)

    def finish(self, exchange: Exchange, now: float, *, client_gone: bool = False) -> None:
        self.running -= 1
        super().finish(exchange, now, client_gone=client_gone)


class SandboxThread:
    """One provider account; `settings` are those of SandboxApi. Close it when done."""

    def __init__(self, *faults: str, seed: int = 1, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox")
        self._thread.start()
        self._api = _WatchedApi(
            Ledger(),
            FaultPlan([parse_fault(text) for text in faults]),
            chance=random.Random(seed),
            started_at=time.time(),
            **settings,
        )
        self._server: SandboxServer = self._run(serve(self._api, clock=time.time))
        self._smtp: SmtpServer = self._run(serve_smtp(self._api, clock=time.time))
        self.url = self._server.url
        self.smtp_url = self._smtp.url

    @property
    def arrived(self) -> int:
        """How many calls have arrived."""
        return self._api.arrived

    @property
    def running(self) -> int:
        """How many calls are under way."""
        return self._api.running

    @property
    def running_max(self) -> int:
        """How many calls at once there were at most since `set_faults`."""
        return self._api.running_max

    def set_faults(self, *faults: str) -> None:
        """Other faults from now on; calls under way end as they began."""
        plan = FaultPlan([parse_fault(text) for text in faults])

        def change() -> None:
            self._api.set_faults(plan, time.time())
            self._api.running_max = self._api.running

        self._ask(change)

    def set_api_key(self, key: str) -> None:
        """The only key that is taken from now on."""

        def change() -> None:
            self._api.api_key = key

        self._ask(change)

    def acceptances(self) -> list[Acceptance]:
        """Everything accepted, oldest first."""
        return self._ask(lambda: list(self._api.ledger.acceptances))

    def copies(self) -> Counter[str]:
        """How often each recipient's message was accepted."""
        return Counter(one.recipients[0] for one in self.acceptances())

    def accepted_at(self, recipient: str) -> float:
        """When the only message for a recipient was accepted."""
        (one,) = self._ask(lambda: self._api.ledger.by_recipient(recipient))
        return one.at

    def send_times(self) -> list[float]:
        """When each send arrived whose result is known."""
        return self._ask(lambda: [call.at for call in self._api.ledger.calls if call.kind is CallKind.SEND])

    def results(self) -> dict[CallResult, int]:
        """How many calls ended in which way."""
        return self._ask(lambda: dict(self._api.ledger.results))

    def close(self) -> None:
        """Stops listening and ends the thread."""
        self._run(self._smtp.close())
        self._run(self._server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_MAX_S)
        self._loop.close()

    def _ask(self, question: Callable[[], T]) -> T:
        """Asks in the thread that owns the ledger."""

        async def ask() -> T:
            return question()

        return self._run(ask())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_MAX_S)
