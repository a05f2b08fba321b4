"""The connections of an `smtp` route, counted from the attempt to make one until it is gone; in virtual time."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

from posthouse.config import RouteSettings
from posthouse.core.outcome import Outcome
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.providers.smtp_wire import Wire
from tests.providers.messages import message
from tests.providers.smtp_server import USUAL
from tests.simulation.virtual_time import run


class Peer(asyncio.Transport):
    """A server and the way to it: every line is answered at once, but for those steps at which it is `slow`."""

    def __init__(self, wire: Wire, script: dict[str, bytes], slow: set[str]) -> None:
        super().__init__()
        self.is_open = True
        self._wire = wire
        self._script = USUAL | script
        self._slow = slow
        self.say("banner")

    def say(self, step: str) -> None:
        """What it has to say at a step, on its way to the client."""
        asyncio.get_running_loop().call_soon(self._wire.data_received, self._script[step])

    def write(self, data: Any) -> None:
        step = "dot" if data.endswith(b"\r\n.\r\n") else data.split()[0].decode().lower()
        if step in self._script and step not in self._slow:
            self.say(step)

    def abort(self) -> None:
        if self.is_open:
            self.is_open = False
            asyncio.get_running_loop().call_soon(self._wire.connection_lost, None)

    def is_closing(self) -> bool:
        return not self.is_open


class Peers:
    """A server that is as slow as a test wants it to be, and what it has seen of connections."""

    def __init__(self, script: dict[str, bytes] | None = None, slow: set[str] | None = None) -> None:
        self.script = script or {}
        self.slow = slow or set()
        self.refuses = False
        self.all: list[Peer] = []
        self.most = 0

    async def connect(self, *_: object) -> Wire:
        if self.refuses:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        wire = Wire()
        self.all.append(Peer(wire, self.script, self.slow))
        self.most = max(self.most, sum(peer.is_open for peer in self.all))
        wire.connection_made(self.all[-1])
        return wire

    def route(self, **settings: Any) -> Provider:
        given = {"provider": "smtp", "url": "smtp://127.0.0.1", "timeout": "10s", "concurrency": 1}
        model = RouteSettings.model_validate(given | settings)
        return build_provider("main", model, transport_factory=AiohttpTransport, now=lambda: 0.0, connect=self.connect)


async def outcome_of(provider: Provider) -> Outcome:
    return (await provider.send(message())).outcome


def test_a_connection_that_has_been_idle_keeps_its_place_until_the_server_lets_go() -> None:
    async def scene() -> None:
        peers = Peers(slow={"quit"})
        provider = peers.route(idle_close="5s")
        assert await outcome_of(provider) is Outcome.ACCEPTED
        await asyncio.sleep(6)
        second = asyncio.create_task(outcome_of(provider))
        await asyncio.sleep(0.5)
        assert len(peers.all) == 1, "QUIT is not answered yet"
        peers.all[0].say("quit")
        assert await second is Outcome.ACCEPTED
        assert (len(peers.all), peers.most) == (2, 1)

    run(scene())


def test_a_server_that_refuses_a_connection_gets_no_other_before_it_has_let_go() -> None:
    async def scene() -> None:
        peers = Peers({"banner": b"421 4.7.0 too many connections\r\n"}, slow={"quit"})
        provider = peers.route()
        assert await outcome_of(provider) is Outcome.THROTTLED
        second = asyncio.create_task(outcome_of(provider))
        await asyncio.sleep(0.5)
        assert len(peers.all) == 1
        peers.all[0].say("quit")
        assert await second is Outcome.THROTTLED
        assert (len(peers.all), peers.most) == (2, 1)

    run(scene())


def test_a_server_that_never_says_goodbye_is_left_without_it() -> None:
    async def scene() -> None:
        peers = Peers(slow={"quit"})
        provider = peers.route(max_messages=1)
        for _ in range(3):
            assert await outcome_of(provider) is Outcome.ACCEPTED
        assert (len(peers.all), peers.most) == (3, 1)

    run(scene())


def test_an_idle_session_goes_to_whoever_waits_for_a_place() -> None:
    async def scene() -> None:
        peers = Peers()
        provider = peers.route(concurrency=2)
        assert await asyncio.gather(*(outcome_of(provider) for _ in range(7))) == [Outcome.ACCEPTED] * 7
        assert (len(peers.all), peers.most) == (2, 2)

    run(scene())


def test_an_attempt_to_connect_that_fails_takes_no_place() -> None:
    async def scene() -> None:
        peers = Peers()
        provider = peers.route()
        peers.refuses = True
        assert await outcome_of(provider) is Outcome.TRANSIENT
        peers.refuses = False
        assert await outcome_of(provider) is Outcome.ACCEPTED

    run(scene())
