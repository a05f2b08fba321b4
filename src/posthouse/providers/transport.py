"""The port to the network under every HTTP provider: a request in, an answer or a failure with its phase out.

What matters for the promise is the *phase* of a failure: before the request left, the message was certainly not
accepted; after it, nobody knows. `http_client.py` fills the port; who makes no request never imports it.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from posthouse.core.answers import FailurePhase as FailurePhase
from posthouse.values import value

ANSWER_BYTES_MAX: Final = 64 * 1024


@value
class HttpRequest:
    """One request, complete: the bytes that are sent are these."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)  # the credential is among them
    body: bytes = field(default=b"", repr=False)
    answer_bytes_max: int = ANSWER_BYTES_MAX  # of the answer no more is read


@value
class HttpAnswer:
    """A status line and headers that arrived, and as much of the body as was read."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    complete: bool = True  # False: the body was cut off, or longer than the cap


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """No status line arrived."""

    phase: FailurePhase
    code: str  # see CONNECT_CODES and EXCHANGE_CODES
    text: str


CONNECT_CODES: Final = {
    "dns": "the host's name could not be resolved",
    "connect_refused": "the host refuses connections",
    "connect_timeout": "no connection within the connect timeout",
    "connect_reset": "the connection was cut while it was being made",
    "unreachable": "there is no way to the host",
    "tls": "no TLS connection could be agreed upon",
    "tls_verify": "the host's certificate can't be verified",
    "connect": "no connection could be made",
}
EXCHANGE_CODES: Final = {
    "read_timeout": "no answer within the timeout",
    "closed": "the connection was closed without an answer",
    "reset": "the connection was cut after the request had begun to leave",
    "bad_answer": "what came back is not HTTP",
}


class Transport(Protocol):
    """Makes requests. Never raises for what the network does."""

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        """One request, no redirects followed, no retries; at most `timeout_s` seconds in all."""

    async def close(self) -> None:
        """Closes every connection."""


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """How one route's connections are made and kept. Times in seconds."""

    connect_timeout_s: float = 2.0  # the name, TCP and TLS together
    concurrency: int = 32  # connections at once
    keepalive_s: float = 15.0  # an idle connection is closed after this; 0 = every call makes its own
    ca_file: Path | None = None  # the authorities to trust instead of the system's


TransportFactory = Callable[[TransportOptions], Transport]


_CONNECT_ERRNOS: Final = {
    errno.ECONNREFUSED: "connect_refused",
    errno.ECONNRESET: "connect_reset",
    errno.EPIPE: "connect_reset",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.ETIMEDOUT: "connect_timeout",
}


def connect_code(error: Exception) -> str:
    """Which of CONNECT_CODES an error is, the system's own, that came before the request left."""
    if isinstance(error, TimeoutError):
        return "connect_timeout"
    if isinstance(error, socket.gaierror):
        return "dns"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "tls_verify"
    if isinstance(error, ssl.SSLError):  # an end in the middle of the handshake is an outage, not a set-up
        return "connect_reset" if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) else "tls"
    if isinstance(error, ConnectionResetError):
        return "connect_reset"
    return _CONNECT_ERRNOS.get(error.errno or 0, "connect") if isinstance(error, OSError) else "connect"


def system_detail(error: Exception) -> str:
    """What the system says about an error, in words that hold no secret; empty where it says nothing."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or ""
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return ""
