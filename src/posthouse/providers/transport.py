"""The one HTTP client under every HTTP provider: a request in, an answer or a failure with its phase out.

What matters for the promise is the *phase* of a failure: before the request left, the message was certainly not
accepted; after it, nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, complete: the bytes that are sent are these."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A status line and headers that arrived, and as much of the body as was read."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    complete: bool = True  # False: the body was cut off, or longer than the cap


class FailurePhase(StrEnum):
    """How far a request without an answer had come."""

    CONNECT = "connect"  # DNS, TCP, TLS or the wait for a free connection: nothing was sent
    EXCHANGE = "exchange"  # some or all of the request had left: it may have been acted upon


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """No status line arrived."""

    phase: FailurePhase
    code: str  # "connect_refused", "connect_timeout", "dns", "tls", "read_timeout", "reset", …
    text: str


class Transport(Protocol):
    """Makes requests. Never raises for what the network does."""

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        """One request, no redirects followed, no retries; at most `timeout_s` seconds in all."""

    async def close(self) -> None:
        """Closes every connection."""
