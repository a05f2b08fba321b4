"""Every call that a worker begins, noted where it leaves the worker: before any latency, and whether it ends or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from posthouse.address import fold
from posthouse.content import Content
from posthouse.core.outcome import LookUp, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.providers.logs import OpenLog
from posthouse.providers.port import OutgoingMessage, Provider
from posthouse.providers.suppression_lists import OpenLists


@dataclass
class Call:
    """One call to a provider for one send. Times are the world's own, whatever a worker's clock says."""

    at: float
    route: str
    send_id: int
    recipients: int
    key: str
    to: tuple[str, ...] = ()  # folded
    together: int = 1  # so many sends shared it
    ended_at: float = float("inf")
    bad: tuple[str, ...] = ()  # folded; of whom its answer said that nothing ever arrives there


class Noting:
    """A provider as it is, and the note of each of its calls. A process that is killed ends its calls."""

    def __init__(self, provider: Provider, calls: list[Call], now: Callable[[], float]) -> None:
        self._provider = provider
        self._calls = calls
        self._now = now

    @property
    def facts(self) -> RouteFacts:
        return self._provider.facts

    def refusals(self, content: Content) -> list[str]:
        return self._provider.refusals(content)

    async def send(self, message: OutgoingMessage) -> Verdict:
        with self._noted([message]) as (call,):
            verdict = await self._provider.send(message)
            call.bad = tuple(map(fold, verdict.bad_addresses))
            return verdict

    async def send_together(self, messages: Sequence[OutgoingMessage]) -> Sequence[Verdict | None]:
        """Counts as a call for each: that is what limits are about."""
        with self._noted(messages):
            return await self._provider.send_together(messages)

    @contextmanager
    def _noted(self, messages: Sequence[OutgoingMessage]) -> Iterator[list[Call]]:
        route, now = self.facts.name, self._now()
        calls = [
            Call(now, route, m.send_id, len(to), m.idempotency_key, to, len(messages))
            for m in messages
            for to in [tuple(each.folded for each in m.recipients)]
        ]
        self._calls += calls
        try:
            yield calls
        finally:
            for call in calls:
                call.ended_at = self._now()

    async def look_up(self, message: OutgoingMessage) -> LookUp:
        return await self._provider.look_up(message)

    async def health(self) -> Verdict | None:
        return await self._provider.health()

    @property
    def log(self) -> OpenLog | None:
        return self._provider.log

    @property
    def lists(self) -> OpenLists | None:
        return self._provider.lists

    def credential_changed(self) -> bool:
        return self._provider.credential_changed()

    async def limit_connections(self, count: int) -> int:
        return await self._provider.limit_connections(count)

    async def close(self) -> None:
        await self._provider.close()
