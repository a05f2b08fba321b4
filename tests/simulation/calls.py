"""Every call that a worker begins, noted where it leaves the worker: before any latency, and whether it ends or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from posthouse.content import Content
from posthouse.core.outcome import LookUp, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.providers.port import OutgoingMessage, Provider


@dataclass
class Call:
    """One call to a provider for one send. Times are the world's own, whatever a worker's clock says."""

    at: float
    route: str
    send_id: int
    recipients: int
    key: str
    to: tuple[str, ...] = ()  # folded
    ended_at: float = float("inf")


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
        to = tuple(each.folded for each in message.recipients)
        call = Call(self._now(), self.facts.name, message.send_id, len(to), message.idempotency_key, to)
        self._calls.append(call)
        try:
            return await self._provider.send(message)
        finally:
            call.ended_at = self._now()

    async def look_up(self, message: OutgoingMessage) -> LookUp:
        return await self._provider.look_up(message)

    async def health(self) -> Verdict | None:
        return await self._provider.health()

    def credential_changed(self) -> bool:
        return self._provider.credential_changed()

    async def limit_connections(self, count: int) -> int:
        return await self._provider.limit_connections(count)

    async def close(self) -> None:
        await self._provider.close()
