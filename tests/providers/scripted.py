"""A transport that answers from a script, and how a route is built upon it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from posthouse.providers.port import Provider
from posthouse.providers.transport import HttpAnswer, HttpFailure, HttpRequest, Transport, TransportOptions

NOW = 1_800_000_000.0
URL = "https://api.example.com/v1/send"

Build = Callable[..., Provider]


class ScriptedTransport:
    """Answers from a script and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer: HttpAnswer | HttpFailure = HttpAnswer(200, {}, b'{"id":"m-1"}')
        self.first: list[HttpAnswer | HttpFailure] = []  # one for each call, before the others
        self.requests: list[HttpRequest] = []
        self.timeouts: list[float] = []
        self.options: TransportOptions | None = None
        self.closed = False

    def open(self, options: TransportOptions) -> Transport:
        self.options = options
        return self

    def replies(self, status: int, body: str = "", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = HttpAnswer(status, named, body.encode())

    def replies_json(self, status: int, body: Any, **headers: str) -> None:
        """A body that is no text becomes JSON."""
        self.replies(status, body if isinstance(body, str) else json.dumps(body), **headers)

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        self.requests.append(request)
        self.timeouts.append(timeout_s)
        return self.first.pop(0) if self.first else self.answer

    async def close(self) -> None:
        self.closed = True
