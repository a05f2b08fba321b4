"""The one HTTP client under every HTTP provider: a request in, an answer or a failure with its phase out.

What matters for the promise is the *phase* of a failure: before the request left, the message was certainly not
accepted; after it, nobody knows. So the phase is not guessed from the kind of error: a request is marked in the
moment before its first byte is handed to a connection, and it can be handed over once.

A connection that the server closes just as it is used again can't be told from one that it closes after reading
the request: the outcome is unknown. `keepalive_s` below the server's own idle time keeps that rare.
"""

from __future__ import annotations

import errno
import io
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from posthouse.core.answers import FailurePhase as FailurePhase

ANSWER_BYTES_MAX: Final = 64 * 1024
LARGE_BODY_BYTES: Final = 1024 * 1024  # from here on a body is written in pieces, so that the loop stays free


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, complete: the bytes that are sent are these."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)  # the credential is among them
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
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


class _Call:
    """One request under way."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = False  # its first byte may have been handed to a connection


_call: ContextVar[_Call] = ContextVar("call")


class _SentTwice(aiohttp.ClientError):
    """The client library was about to repeat a request by itself, as it does for PUT on a dropped connection."""


class _MarkedRequest(aiohttp.ClientRequest):
    """A request that marks its call as left, and leaves once."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        call = _call.get()
        if call.left:
            raise _SentTwice
        call.left = True
        return await super().send(conn)


@lru_cache(maxsize=256)
def _url(text: str) -> URL:
    """Sent as it stands: nothing in it is quoted anew."""
    return URL(text, encoded=True)


class AiohttpTransport:
    """Keeps up to `concurrency` connections and uses them again."""

    def __init__(self, options: TransportOptions = TransportOptions()) -> None:
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        """One request; see Transport."""
        session = self._session or self._open()
        call = _Call()
        _call.set(call)
        body = request.body if len(request.body) < LARGE_BODY_BYTES else io.BytesIO(request.body)
        try:
            response = await session.request(
                request.method,
                _url(request.url),
                data=body or None,
                headers=request.headers,
                allow_redirects=False,
                timeout=self._timeout(timeout_s),
            )
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            return _failure(error, call.left, _url(request.url))
        if not call.left:
            raise AssertionError("a request left without being marked: failures could not be told apart")
        return await _read(response)

    async def close(self) -> None:
        """Closes every connection. It may be called twice, and the transport used again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        options = self._options
        connector = aiohttp.TCPConnector(
            limit=options.concurrency,
            ssl=True if options.ca_file is None else ssl.create_default_context(cafile=options.ca_file),
            keepalive_timeout=options.keepalive_s or None,
            force_close=not options.keepalive_s,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            request_class=_MarkedRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            trust_env=False,
        )
        return self._session

    def _timeout(self, timeout_s: float) -> aiohttp.ClientTimeout:
        if timeout_s not in self._timeouts:
            self._timeouts[timeout_s] = aiohttp.ClientTimeout(
                total=timeout_s,
                connect=min(self._options.connect_timeout_s, timeout_s),
                ceil_threshold=float("inf"),  # else long timeouts are rounded up to whole seconds
            )
        return self._timeouts[timeout_s]


async def _read(response: aiohttp.ClientResponse) -> HttpAnswer:
    """The answer with as much of its body as comes before the timeout and fits under the cap."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        headers.setdefault(name.lower(), value)
    body = bytearray()
    try:
        while (chunk := await response.content.readany()) and len(body) <= ANSWER_BYTES_MAX:
            body += chunk
    except (aiohttp.ClientError, OSError):
        return HttpAnswer(response.status, headers, bytes(body[:ANSWER_BYTES_MAX]), complete=False)
    finally:
        response.close()  # a whole body has given its connection back already
    return HttpAnswer(response.status, headers, bytes(body[:ANSWER_BYTES_MAX]), len(body) <= ANSWER_BYTES_MAX)


def _failure(error: Exception, left: bool, url: URL) -> HttpFailure:
    """The failure in our own words: the library's may hold the URL, and with it a key."""
    code = _exchange_code(error) if left else connect_code(error)
    phase = FailurePhase.EXCHANGE if left else FailurePhase.CONNECT
    told = f"{url.host}:{url.port}: {(EXCHANGE_CODES if left else CONNECT_CODES)[code]}"
    detail = system_detail(error)
    return HttpFailure(phase, code, f"{told} ({detail})" if detail else told)


def _exchange_code(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "read_timeout"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed"
    return "bad_answer" if isinstance(error, aiohttp.ClientResponseError) else "reset"


_CONNECT_ERRNOS: Final = {
    errno.ECONNREFUSED: "connect_refused",
    errno.ECONNRESET: "connect_reset",
    errno.EPIPE: "connect_reset",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.ETIMEDOUT: "connect_timeout",
}


def connect_code(error: Exception) -> str:
    """Which of CONNECT_CODES an error is that came before the request left."""
    if isinstance(error, TimeoutError):
        return "connect_timeout"
    cause = _cause(error)
    if isinstance(cause, socket.gaierror):
        return "dns"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "tls_verify"
    if isinstance(cause, ssl.SSLError):  # an end in the middle of the handshake is an outage, not a set-up
        return "connect_reset" if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError) else "tls"
    if isinstance(cause, ConnectionResetError):
        return "connect_reset"
    return _CONNECT_ERRNOS.get(cause.errno or 0, "connect") if isinstance(cause, OSError) else "connect"


def _cause(error: Exception) -> Exception:
    """The system's own error inside the library's."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    return error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error


def system_detail(error: Exception) -> str:
    """What the system says about an error, in words that hold no secret; empty where it says nothing."""
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    if isinstance(cause, ssl.SSLError):
        return cause.reason or ""
    if isinstance(cause, OSError) and cause.errno is not None and not isinstance(cause, socket.gaierror):
        return os.strerror(cause.errno)
    return ""
