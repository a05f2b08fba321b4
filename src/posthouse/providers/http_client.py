"""The one HTTP client, on aiohttp: a Transport whose failures know their phase.

The phase is not guessed from the kind of error: a request is marked in the moment before its first byte is handed to a
connection, and it can be handed over once.

A connection that the server closes just as it is used again can't be told from one that it closes after reading
the request: the outcome is unknown. `keepalive_s` below the server's own idle time keeps that rare.
"""

from __future__ import annotations

import io
import ssl
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from posthouse.core.answers import FailurePhase
from posthouse.providers.transport import (
    CONNECT_CODES,
    EXCHANGE_CODES,
    HttpAnswer,
    HttpFailure,
    HttpRequest,
    TransportOptions,
    connect_code,
    system_detail,
)

LARGE_BODY_BYTES: Final = 1024 * 1024  # from here on a body is written in pieces, so that the loop stays free


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

    def __init__(self, options: TransportOptions) -> None:
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
        return await _read(response, request.answer_bytes_max)

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


async def _read(response: aiohttp.ClientResponse, bytes_max: int) -> HttpAnswer:
    """The answer with as much of its body as comes before the timeout and is at most `bytes_max`."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        headers.setdefault(name.lower(), value)
    body = bytearray()
    try:
        while (chunk := await response.content.readany()) and len(body) <= bytes_max:
            body += chunk
    except (aiohttp.ClientError, OSError):
        return HttpAnswer(response.status, headers, bytes(body[:bytes_max]), complete=False)
    finally:
        response.close()  # a whole body has given its connection back already
    return HttpAnswer(response.status, headers, bytes(body[:bytes_max]), len(body) <= bytes_max)


def _failure(error: Exception, left: bool, url: URL) -> HttpFailure:
    """The failure in our own words: the library's may hold the URL, and with it a key."""
    cause = _cause(error)
    code = _exchange_code(error) if left else connect_code(cause)
    phase = FailurePhase.EXCHANGE if left else FailurePhase.CONNECT
    told = f"{url.host}:{url.port}: {(EXCHANGE_CODES if left else CONNECT_CODES)[code]}"
    detail = system_detail(cause)
    return HttpFailure(phase, code, f"{told} ({detail})" if detail else told)


def _exchange_code(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "read_timeout"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed"
    return "bad_answer" if isinstance(error, aiohttp.ClientResponseError) else "reset"


def _cause(error: Exception) -> Exception:
    """The system's own error inside the library's."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    return error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
