"""What a real client sees over a real connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from posthouse.errors import ConfigError
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import FaultPlan
from posthouse.sandbox.http import SandboxServer, serve
from posthouse.sandbox.ledger import CallResult
from tests.sandbox.conftest import Bench, make_bench, message


@contextlib.asynccontextmanager
async def serving(*faults: str, **settings: Any) -> AsyncIterator[tuple[Bench, SandboxServer, aiohttp.ClientSession]]:
    bench = make_bench(*faults, **settings)
    server = await serve(bench.api, clock=bench.clock)
    try:
        async with aiohttp.ClientSession(server.url) as client:
            yield bench, server, client
    finally:
        await server.close()


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:  # type: ignore[misc]
    """A fault on purpose is no error of the server."""
    with caplog.at_level(logging.WARNING):
        yield
    assert not caplog.records


async def post(client: aiohttp.ClientSession, body: bytes | None = None, **options: Any) -> tuple[int, bytes]:
    timeout = aiohttp.ClientTimeout(total=options.pop("timeout_s", 5.0))
    key = options.pop("key", None)
    headers = {"Idempotency-Key": key} if key else {}
    async with client.post("/v1/send", data=body or message(), headers=headers, timeout=timeout) as answer:
        return answer.status, await answer.read()


async def soon(condition: Callable[[], Any], limit_s: float = 5.0) -> None:
    """Waits until `condition` holds; fails after `limit_s`."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in a socket
            await asyncio.sleep(0.005)


async def status_after_conflicts(client: aiohttp.ClientSession, key: str) -> int:
    """Sends under `key` until its first call is no longer in progress."""
    async with asyncio.timeout(5):
        while (status := (await post(client, key=key))[0]) == 409:  # noqa: ASYNC110 - only the server knows when
            await asyncio.sleep(0.01)
    return status


async def test_a_send_is_answered_and_can_be_looked_up() -> None:
    async with serving() as (bench, _, client):
        status, body = await post(client, key="order/1")
        assert status == 200
        async with client.get("/v1/messages/by-key/order%2F1") as answer:
            assert (await answer.json())["id"] == json.loads(body)["id"]
        async with client.get("/v1/health") as answer:
            assert answer.status == 200
        assert bench.ledger.acceptances[0].key == "order/1"


async def test_a_large_message_is_taken() -> None:
    async with serving() as (_, _, client):
        assert (await post(client, message(text="x" * 12_000_000)))[0] == 200


@pytest.mark.parametrize(
    ("fault", "status"), [("503", 503), ("429:retry-after=7", 429), ("401", 401), ("422", 422), ("html=502", 502)]
)
async def test_an_error_answer_arrives(fault: str, status: int) -> None:
    async with serving(fault) as (bench, _, client):
        async with client.post("/v1/send", data=message()) as answer:
            assert answer.status == status
            assert answer.headers.get("Retry-After") == ("7" if status == 429 else None)
            assert ("html" in answer.content_type) is (status == 502)
        assert not bench.ledger.acceptances


async def test_twice_503_then_accepted_for_a_magic_recipient() -> None:
    async with serving() as (bench, _, client):
        sends = [await post(client, message("twice-503+a@example.com"), key="k") for _ in range(3)]
        assert [status for status, _ in sends] == [503, 503, 200]
        assert len(bench.ledger.acceptances) == 1


async def test_a_slow_call_outlasts_its_caller_and_is_accepted_once() -> None:
    async with serving("slow=700ms:first=1") as (bench, _, client):
        with pytest.raises(TimeoutError):
            await post(client, key="k", timeout_s=0.05)
        status, body = await post(client, key="k")
        assert (status, json.loads(body)["error"]) == (409, "idempotency_key_in_progress")

        assert await status_after_conflicts(client, "k") == 200
        assert len(bench.ledger.acceptances) == 1


async def test_a_slow_call_takes_its_time_and_holds_up_nobody_else() -> None:
    async with serving("slow=700ms:to=slowly@example.com") as (_, _, client):
        began = time.monotonic()
        slow = asyncio.create_task(post(client, message("slowly@example.com")))
        await post(client)
        assert not slow.done()
        assert (await slow)[0] == 200
        assert time.monotonic() - began >= 0.7


async def test_a_late_acceptance_is_dropped_when_its_caller_leaves() -> None:
    async with serving("slow-not-accepted=600ms:first=1") as (bench, _, client):
        with pytest.raises(TimeoutError):
            await post(client, key="k", timeout_s=0.05)
        await soon(lambda: bench.ledger.results.get(CallResult.ABANDONED))
        assert not bench.ledger.acceptances
        assert (await post(client, key="k"))[0] == 200


async def test_a_late_acceptance_counts_when_its_caller_waits() -> None:
    async with serving("slow-not-accepted=50ms") as (bench, _, client):
        status, body = await post(client)
        assert (status, json.loads(body)["id"]) == (200, bench.ledger.acceptances[0].message_id)


async def test_a_dripped_answer_begins_at_once_and_ends_late() -> None:
    async with serving("drip=300ms") as (_, _, client):
        async with client.post("/v1/send", data=message()) as answer:
            assert answer.status == 200
            began = time.monotonic()
            body = await answer.read()
        assert time.monotonic() - began > 0.2
        assert "id" in json.loads(body)


async def test_a_dripped_answer_can_outlast_its_caller() -> None:
    async with serving("drip=5s") as (bench, _, client):
        with pytest.raises(TimeoutError):
            await post(client, timeout_s=0.1)
        assert len(bench.ledger.acceptances) == 1


async def test_a_truncated_answer_breaks_off() -> None:
    async with serving("truncated") as (bench, _, client):
        async with client.post("/v1/send", data=message()) as answer:
            assert answer.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        assert len(bench.ledger.acceptances) == 1


async def test_a_malformed_answer_is_complete_and_no_json() -> None:
    async with serving("malformed") as (_, _, client):
        status, body = await post(client)
        assert status == 200
        with pytest.raises(ValueError, match="Unterminated"):
            json.loads(body)


@pytest.mark.parametrize(("fault", "accepted"), [("drop", 0), ("drop-accepted", 1)])
async def test_a_dropped_call_ends_without_an_answer(fault: str, accepted: int) -> None:
    async with serving(fault) as (bench, _, client):
        with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
            await post(client)
        assert len(bench.ledger.acceptances) == accepted


async def test_a_dropped_connection_is_reset() -> None:
    async with serving("drop") as (_, server, _):
        assert await asyncio.to_thread(_ends_with_reset, server.url)


def _ends_with_reset(url: str) -> bool:
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=5) as connection:
        body = message()
        connection.sendall(b"POST /v1/send HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        try:
            return connection.recv(1) != b""
        except ConnectionResetError:
            return True


@pytest.mark.parametrize(("fault", "accepted"), [("stall", 0), ("stall-accepted", 1)])
async def test_a_stalled_call_never_answers_and_ends_when_its_caller_leaves(fault: str, accepted: int) -> None:
    async with serving(f"{fault}:first=1") as (bench, _, client):
        with pytest.raises(TimeoutError):
            await post(client, key="k", timeout_s=0.1)
        assert len(bench.ledger.acceptances) == accepted

        assert await status_after_conflicts(client, "k") == 200
        assert len(bench.ledger.acceptances) == 1


async def test_refused_connections_are_really_refused_and_the_port_opens_again() -> None:
    async with serving() as (bench, server, client):
        assert (await post(client))[0] == 200  # leaves an open connection in the client's pool
        bench.api.set_faults(FaultPlan([parse_fault("refuse:until=1m")]), bench.now)
        await soon(lambda: _refused(server.url))
        async with aiohttp.ClientSession(server.url) as newcomer:
            with pytest.raises(aiohttp.ClientConnectorError) as caught:
                await post(newcomer)
        assert isinstance(caught.value.os_error, ConnectionRefusedError)
        bench.now += 60
        await soon(lambda: not _refused(server.url))
        assert (await post(client))[0] == 200
        assert len(bench.ledger.acceptances) == 2


def _refused(url: str) -> bool:
    place = urlsplit(url)
    try:
        with socket.create_connection((place.hostname, place.port), timeout=5):
            return False
    except ConnectionRefusedError:
        return True


async def test_a_call_under_way_is_answered_although_connections_are_refused() -> None:
    async with serving("slow=300ms", "refuse:from=1m") as (bench, server, client):
        slow = asyncio.create_task(post(client))
        await soon(lambda: bench.ledger.acceptances)
        bench.now += 60
        await soon(lambda: _refused(server.url))
        assert (await slow)[0] == 200


async def test_connections_can_be_refused_from_the_beginning() -> None:
    async with serving("refuse:until=1m") as (_, server, _):
        assert _refused(server.url)


async def test_a_port_in_use_is_named() -> None:
    async with serving() as (bench, server, _):
        port = urlsplit(server.url).port
        with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1:{port}"):
            await serve(bench.api, clock=bench.clock, port=port or 0)


async def test_closing_cuts_stalled_calls_at_once() -> None:
    async with serving("stall-accepted") as (bench, server, client):
        stalled = asyncio.create_task(post(client))
        await soon(lambda: bench.ledger.acceptances)
        began = time.monotonic()
        await server.close()
        assert time.monotonic() - began < 1
        with pytest.raises(aiohttp.ClientError):
            await stalled
        assert _refused(server.url)
