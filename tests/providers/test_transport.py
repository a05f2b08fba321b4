"""The HTTP client: what it sends, what it reads, and above all how far a failed request had come."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from posthouse.providers import http_client as module
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.transport import (
    ANSWER_BYTES_MAX,
    FailurePhase,
    HttpAnswer,
    HttpFailure,
    HttpRequest,
    TransportOptions,
)
from tests.providers.loopback import Api, Received, answer, drop, running_api, stall
from tests.providers.wire import (
    CERTIFICATE,
    OK,
    free_port,
    port_that_never_accepts,
    raw_server,
    read_request,
    replying,
    resetting,
    silent,
)

CONNECT, EXCHANGE = FailurePhase.CONNECT, FailurePhase.EXCHANGE
HEADERS = {"Authorization": "Bearer swordfish", "Content-Type": "application/json"}


def post(url: str, body: bytes = b'{"a":1}', method: str = "POST") -> HttpRequest:
    return HttpRequest(method, url, HEADERS, body)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with running_api() as one:
        yield one


@pytest.fixture
async def client() -> AsyncIterator[AiohttpTransport]:
    one = AiohttpTransport(TransportOptions(connect_timeout_s=0.3))
    yield one
    await one.close()


async def ask(client: AiohttpTransport, url: str, timeout_s: float = 5.0, method: str = "POST") -> HttpAnswer:
    found = await client.request(post(url, method=method), timeout_s=timeout_s)
    assert isinstance(found, HttpAnswer), found
    return found


async def fail(client: AiohttpTransport, url: str, timeout_s: float = 5.0, method: str = "POST") -> HttpFailure:
    found = await client.request(post(url, method=method), timeout_s=timeout_s)
    assert isinstance(found, HttpFailure), found
    return found


async def test_an_answer_comes_with_status_headers_in_lower_case_and_body(client: AiohttpTransport, api: Api) -> None:
    api.reply = answer(422, {"message": "no"}, X_Request_Id="r-1", Retry_After="3")
    found = await ask(client, api.url + "/v1/send?x=1")
    assert (found.status, found.body, found.complete) == (422, b'{"message": "no"}', True)
    assert (found.headers["x-request-id"], found.headers["retry-after"]) == ("r-1", "3")


async def test_the_bytes_and_headers_that_arrive_are_the_requests_own(client: AiohttpTransport, api: Api) -> None:
    body = '{"subject":"Grüße \\u2028 ✉"}'.encode()
    await client.request(HttpRequest("PUT", api.url + "/a%20b?q=%2F", HEADERS, body), timeout_s=5)
    got = api.received[0]
    assert (got.method, got.path, got.body) == ("PUT", "/a%20b?q=%2F", body)
    assert got.headers["authorization"] == "Bearer swordfish"
    assert "cookie" not in got.headers
    assert "accept-encoding" not in got.headers


async def test_a_large_body_arrives_whole(client: AiohttpTransport, api: Api) -> None:
    body = bytes(range(256)) * 12_000
    assert isinstance(await client.request(post(api.url, body), timeout_s=10), HttpAnswer)
    assert api.received[0].body == body
    assert api.received[0].headers["content-length"] == str(len(body))


async def test_a_connection_is_used_again(client: AiohttpTransport, api: Api) -> None:
    for _ in range(3):
        await ask(client, api.url)
    assert len(api.connections) == 1


async def test_without_keepalive_every_call_makes_its_own_connection(api: Api) -> None:
    client = AiohttpTransport(TransportOptions(keepalive_s=0.0))
    await ask(client, api.url)
    await ask(client, api.url)
    await client.close()
    assert len(api.connections) == 2


async def test_no_redirect_is_followed(client: AiohttpTransport, api: Api) -> None:
    for status in (301, 302, 303, 307, 308):
        api.reply = answer(status, "", Location=api.url + "/elsewhere")
        assert (await ask(client, api.url)).status == status
    assert [got.path for got in api.received] == ["/"] * 5


async def test_no_cookie_is_kept(client: AiohttpTransport, api: Api) -> None:
    named = api.url.replace("127.0.0.1", "localhost")  # cookies are never kept for bare addresses
    api.reply = answer(200, "", Set_Cookie="session=1; Path=/")
    await ask(client, named)
    await ask(client, named)
    assert ["cookie" in got.headers for got in api.received] == [False, False]


async def test_the_environments_proxy_is_not_used(
    client: AiohttpTransport, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    assert (await ask(client, api.url)).status == 200


async def test_a_refused_connection_was_never_sent(client: AiohttpTransport) -> None:
    port = free_port()
    found = await fail(client, f"http://127.0.0.1:{port}/v1?api_key=hidden")
    assert (found.phase, found.code) == (CONNECT, "connect_refused")
    assert found.text == f"127.0.0.1:{port}: the host refuses connections (Connection refused)"


async def test_a_name_that_does_not_resolve_was_never_sent(
    client: AiohttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_name(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)
    found = await fail(client, "https://api.nowhere.example/v1")
    assert (found.phase, found.code) == (CONNECT, "dns")


async def test_a_host_that_does_not_take_the_connection_was_never_sent_to(client: AiohttpTransport) -> None:
    with port_that_never_accepts() as port:
        found = await fail(client, f"http://127.0.0.1:{port}")
    assert (found.phase, found.code) == (CONNECT, "connect_timeout")


@pytest.mark.parametrize(("connect_timeout_s", "timeout_s"), [(0.2, 5.0), (5.0, 0.2), (0.2, 0.2)])
async def test_a_tls_handshake_that_never_ends_was_never_sent(connect_timeout_s: float, timeout_s: float) -> None:
    client = AiohttpTransport(TransportOptions(connect_timeout_s=connect_timeout_s))
    async with raw_server(silent) as port:
        found = await fail(client, f"https://127.0.0.1:{port}", timeout_s)
    assert (found.phase, found.code) == (CONNECT, "connect_timeout")
    await client.close()


async def test_a_connection_cut_in_the_handshake_was_never_sent(client: AiohttpTransport) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(64)

    async with raw_server(hang_up) as port:
        found = await fail(client, f"https://127.0.0.1:{port}")
    assert (found.phase, found.code) == (CONNECT, "connect_reset")


async def test_a_certificate_that_can_not_be_verified_gets_nothing(client: AiohttpTransport) -> None:
    got: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read(1))

    async with raw_server(listen, tls=True) as port:
        found = await fail(client, f"https://127.0.0.1:{port}")
    assert (found.phase, found.code) == (CONNECT, "tls_verify")
    assert "self-signed certificate" in found.text
    assert not any(got)


async def test_a_private_authority_can_be_trusted() -> None:
    client = AiohttpTransport(TransportOptions(ca_file=CERTIFICATE))
    async with raw_server(replying(OK), tls=True) as port:
        assert (await ask(client, f"https://127.0.0.1:{port}")).status == 200
    await client.close()


async def test_tls_to_a_port_without_it_was_never_sent(client: AiohttpTransport) -> None:
    async def answer_in_clear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(answer_in_clear) as port:
        found = await fail(client, f"https://127.0.0.1:{port}")
    assert (found.phase, found.code) == (CONNECT, "tls")


async def test_waiting_for_a_free_connection_is_not_sending(api: Api) -> None:
    client = AiohttpTransport(TransportOptions(concurrency=1, connect_timeout_s=0.1))
    api.reply = stall
    first = asyncio.create_task(client.request(post(api.url), timeout_s=5))
    await api.arrived.wait()
    found = await fail(client, api.url)
    assert (found.phase, found.code) == (CONNECT, "connect_timeout")
    assert len(api.received) == 1
    first.cancel()
    await client.close()


async def test_silence_after_the_request_leaves_its_fate_open(client: AiohttpTransport, api: Api) -> None:
    api.reply = stall
    found = await fail(client, api.url, timeout_s=0.2)
    assert (found.phase, found.code) == (EXCHANGE, "read_timeout")
    assert len(api.received) == 1


async def test_silence_on_a_used_connection_leaves_its_fate_open(client: AiohttpTransport, api: Api) -> None:
    await ask(client, api.url)
    api.reply = stall
    found = await fail(client, api.url, timeout_s=0.2)
    assert (found.phase, found.code, len(api.connections)) == (EXCHANGE, "read_timeout", 1)


async def test_a_connection_cut_after_the_request_leaves_its_fate_open(client: AiohttpTransport) -> None:
    async with raw_server(resetting) as port:
        found = await fail(client, f"http://127.0.0.1:{port}")
    assert (found.phase, found.code) == (EXCHANGE, "reset")


async def test_a_connection_closed_without_an_answer_leaves_its_fate_open(client: AiohttpTransport) -> None:
    for reply in (b"", b"HTTP/1.1 20"):
        async with raw_server(replying(reply)) as port:
            found = await fail(client, f"http://127.0.0.1:{port}")
        assert (found.phase, found.code) == (EXCHANGE, "closed")


async def test_an_answer_that_is_not_http_leaves_its_fate_open(client: AiohttpTransport) -> None:
    async with raw_server(replying(b"220 mail.example ESMTP\r\n")) as port:
        found = await fail(client, f"http://127.0.0.1:{port}")
    assert (found.phase, found.code) == (EXCHANGE, "bad_answer")


async def test_a_request_cut_while_it_is_written_leaves_its_fate_open(client: AiohttpTransport) -> None:
    async def read_a_little(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.transport.abort()

    async with raw_server(read_a_little) as port:
        request = post(f"http://127.0.0.1:{port}", b"x" * 8_000_000)
        found = await client.request(request, timeout_s=5)
    assert isinstance(found, HttpFailure)
    assert found.phase is EXCHANGE


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
async def test_a_request_is_never_repeated_by_itself(client: AiohttpTransport, method: str) -> None:
    requests: list[bytes] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK)
        requests.append(await read_request(reader))

    async with raw_server(answer_once) as port:
        await ask(client, f"http://127.0.0.1:{port}", method=method)
        found = await fail(client, f"http://127.0.0.1:{port}", method=method)
    assert found.phase is EXCHANGE
    assert len(requests) == 2


async def test_a_body_that_is_cut_off_keeps_its_status(client: AiohttpTransport) -> None:
    cut = b'HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{"id":'
    async with raw_server(replying(cut)) as port:
        found = await ask(client, f"http://127.0.0.1:{port}")
    assert (found.status, found.body, found.complete) == (202, b'{"id":', False)


async def test_a_body_that_never_ends_keeps_its_status(client: AiohttpTransport) -> None:
    async def drip(request: web.Request, _: Received) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"id":')
        await asyncio.Event().wait()
        return response

    async with running_api() as api:
        api.reply = drip
        found = await ask(client, api.url, timeout_s=0.3)
    assert (found.status, found.body, found.complete) == (200, b'{"id":', False)


async def test_a_body_over_the_cap_is_read_no_further(client: AiohttpTransport, api: Api) -> None:
    written = 0

    async def flood(request: web.Request, _: Received) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 10_000)
            written += 10_000

    api.reply = flood
    found = await ask(client, api.url)
    assert (len(found.body), found.complete) == (ANSWER_BYTES_MAX, False)
    assert written < 50_000_000


async def test_a_body_that_just_fits_is_whole(client: AiohttpTransport, api: Api) -> None:
    api.reply = answer(200, b"x" * ANSWER_BYTES_MAX)
    found = await ask(client, api.url)
    assert (len(found.body), found.complete) == (ANSWER_BYTES_MAX, True)


async def test_a_request_may_ask_for_more_of_its_answer(client: AiohttpTransport, api: Api) -> None:
    api.reply = answer(200, b"x" * 2 * ANSWER_BYTES_MAX)
    found = await client.request(replace(post(api.url), answer_bytes_max=2 * ANSWER_BYTES_MAX), timeout_s=5.0)
    assert isinstance(found, HttpAnswer)
    assert (len(found.body), found.complete) == (2 * ANSWER_BYTES_MAX, True)


async def test_a_cancelled_call_leaves_nothing_behind(api: Api) -> None:
    client = AiohttpTransport(TransportOptions(concurrency=1))
    api.reply = stall
    task = asyncio.create_task(client.request(post(api.url), timeout_s=5))
    await api.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    api.reply = answer(200, "")
    assert (await ask(client, api.url)).status == 200  # its one connection is free again
    await client.close()


async def test_a_dropped_connection_is_replaced_for_the_next_call(client: AiohttpTransport, api: Api) -> None:
    api.reply = drop
    assert (await fail(client, api.url)).phase is EXCHANGE
    api.reply = answer(200, "")
    assert (await ask(client, api.url)).status == 200


async def test_closing_twice_is_fine_and_a_closed_transport_opens_again(client: AiohttpTransport, api: Api) -> None:
    await client.close()
    await ask(client, api.url)
    await client.close()
    await client.close()
    assert (await ask(client, api.url)).status == 200


async def test_a_request_that_was_not_marked_is_never_trusted(
    client: AiohttpTransport, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._MarkedRequest, "send", aiohttp.ClientRequest.send)
    with pytest.raises(AssertionError, match="without being marked"):
        await client.request(post(api.url), timeout_s=5)


def test_a_request_shows_neither_credential_nor_message() -> None:
    shown = repr(post("http://x.example", b"private"))
    assert "swordfish" not in shown
    assert "private" not in shown


def test_the_phases_are_the_same_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

    async def phases() -> list[tuple[FailurePhase, str]]:
        client = AiohttpTransport(TransportOptions(connect_timeout_s=0.2))
        found = [await fail(client, f"http://127.0.0.1:{free_port()}")]
        async with raw_server(silent) as port:
            found.append(await fail(client, f"https://127.0.0.1:{port}"))
            found.append(await fail(client, f"http://127.0.0.1:{port}", timeout_s=0.2))
        async with raw_server(resetting) as port:
            found.append(await fail(client, f"http://127.0.0.1:{port}"))
        async with raw_server(silent, tls=True) as port:
            found.append(await fail(client, f"https://127.0.0.1:{port}"))
        await client.close()
        return [(failure.phase, failure.code) for failure in found]

    assert uvloop.run(phases()) == [
        (CONNECT, "connect_refused"),
        (CONNECT, "connect_timeout"),
        (EXCHANGE, "read_timeout"),
        (EXCHANGE, "reset"),
        (CONNECT, "tls_verify"),
    ]
