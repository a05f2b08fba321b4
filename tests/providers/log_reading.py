"""Reading a provider's log against a server that a test plays: page after page, with every detail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from posthouse.core.events import Event
from posthouse.core.outcome import Verdict
from posthouse.providers.logs import LogPage, LogQuestion, TooMuch
from posthouse.providers.port import Provider
from posthouse.providers.transport import HttpAnswer, HttpFailure, HttpRequest
from posthouse.providers.webhook import WebhookCall, reading, reading_of


class PlayedServer:
    """Answers GETs and POSTs as `reply` says, with JSON, and remembers what it was asked."""

    def __init__(self, reply: Callable[[HttpRequest], HttpAnswer | HttpFailure | Any]) -> None:
        self._reply = reply
        self.requests: list[HttpRequest] = []

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        self.requests.append(request)
        said = self._reply(request)
        if isinstance(said, HttpAnswer | HttpFailure):
            return said
        return HttpAnswer(200, {}, json.dumps(said).encode())

    async def close(self) -> None:
        """Nothing is open."""


async def read_log(provider: Provider, begin: float, end: float) -> list[Event] | TooMuch | Verdict:
    """Everything that the log tells of a stretch, or the first answer that told nothing."""
    assert provider.log is not None
    question: LogQuestion | None = provider.log.log.first(begin, end)
    entries: list[Any] = []
    while question is not None:
        page = await provider.log.ask(question)
        if not isinstance(page, LogPage):
            return page
        entries += page.entries
        for _, detail in page.details:
            opened = await provider.log.ask(detail)
            if not isinstance(opened, LogPage):
                return opened
            entries += opened.entries
        question = page.further
    told = reading_of(entries, provider.log.log.read)
    assert not told.unread
    return list(told.events)


def told_by_webhook(webhook: Any, document: Any) -> Event:
    """What the same news is when a webhook brings it."""
    (event,) = reading(webhook, WebhookCall({}, json.dumps(document).encode())).events
    return event


def count_as_one(one: Event, other: Event) -> bool:
    """Whether both are kept once on one route."""
    same_id = one.provider_event_id is not None and one.provider_event_id == other.provider_event_id
    return same_id or one.identity("main") == other.identity("main")
