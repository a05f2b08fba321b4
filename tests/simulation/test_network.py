"""The simulated network keeps what TCP promises, and promises nothing more."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from posthouse.providers.smtp_wire import Wire
from tests.simulation.machines import Process
from tests.simulation.network import Network, Server, Weather
from tests.simulation.virtual_time import run

FAIR = Weather(until_s=0.0, latency_max_s=0.3)
FOUL = Weather(until_s=1e9, latency_max_s=0.3, window=7, no_way=0.05, reset=0.02, silence=0.02, split=0.2)

LINES = [b"line %d\r\n" % number for number in range(30)]


class Listener(asyncio.Protocol):
    """A server's end that only listens."""

    def __init__(self) -> None:
        self.heard = b""
        self.ended: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = exc


class Stage:
    """A process, a server, and a way from one to the other."""

    def __init__(self, weather: Weather, seed: int = 0, *, refuses: bool = False) -> None:
        self.process = Process("worker")
        self.listener = Listener()
        self.server = Server(lambda: self.listener, lambda: refuses)
        network = Network({"main.example": self.server}, random.Random(seed))
        self._connect = partial(network.connect, self.process, weather, "main.example", 25, None)

    async def connect(self) -> Wire:
        async with asyncio.timeout(10):
            return await self._connect()

    async def say(self, wire: Wire) -> None:
        """Every line, some time after another, as long as the connection is there; then time for all to arrive."""
        for line in LINES:
            if wire.transport is not None and not wire.transport.is_closing():
                wire.transport.write(line)
            await asyncio.sleep(0.1)
        await asyncio.sleep(200)


def test_in_fair_weather_everything_arrives() -> None:
    async def scene() -> None:
        stage = Stage(FAIR)
        await stage.say(await stage.connect())
        assert stage.listener.heard == b"".join(LINES)

    run(scene())


def test_in_foul_weather_what_arrives_is_in_order_and_without_a_gap() -> None:
    heard = []

    async def scene(seed: int) -> None:
        stage = Stage(FOUL, seed)
        try:
            await stage.say(await stage.connect())
        except OSError:
            return
        heard.append(len(stage.listener.heard))
        assert b"".join(LINES).startswith(stage.listener.heard)

    for seed in range(50):
        run(scene(seed))
    assert len(set(heard)) > 10, "it ends anywhere"


def test_a_server_that_refuses_says_so() -> None:
    async def scene() -> None:
        with pytest.raises(ConnectionRefusedError):
            await Stage(FAIR, refuses=True).connect()

    run(scene())


def test_the_connections_of_a_killed_process_are_reset_for_the_server() -> None:
    async def scene() -> None:
        stage = Stage(FAIR)
        await stage.connect()
        stage.process.kill()
        await asyncio.sleep(1)
        assert isinstance(stage.listener.ended, ConnectionResetError)
        assert stage.server.most == {"worker": 1}

    run(scene())


def test_a_suspended_process_hears_and_says_nothing_until_it_goes_on() -> None:
    async def scene() -> None:
        stage = Stage(FAIR)
        wire = await stage.connect()
        greeting = asyncio.create_task(wire.greeting())
        stage.process.suspend()
        stage.listener.transport.write(b"220 hello\r\n")
        assert wire.transport is not None
        wire.transport.write(LINES[0])
        await asyncio.sleep(10)
        assert (greeting.done(), stage.listener.heard) == (False, b"")
        stage.process.resume()
        await greeting
        await asyncio.sleep(1)
        assert stage.listener.heard == LINES[0]

    run(scene())


def test_a_connection_that_nobody_answers_is_given_up_without_a_trace() -> None:
    async def scene() -> None:
        stage = Stage(Weather(until_s=1e9, latency_max_s=0.3, silence=1.0))
        with pytest.raises(TimeoutError):
            await stage.connect()
        assert stage.listener.ended is None
        assert stage.server.most == {"worker": 1}, "the attempt counts"

    run(scene())
