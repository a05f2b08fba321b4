"""TCP in virtual time: two protocols joined by a connection on which everything can go wrong.

Both protocols are production code, the provider's and the sandbox's. What one end sends arrives at the other in
order, in whatever pieces, late, or not at all.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

from posthouse.providers.smtp_wire import Wire
from tests.simulation.machines import Act, Process

STEP_S = 1e-6
"""So long after one piece the next one arrives at the earliest."""

SPLIT_MAX_S = 2.0
"""So long after its first part the rest of a piece arrives at the latest."""

BABBLE = (b"250 2.0.0 Ok\r\n", b"354 Go ahead\r\n", b"451 4.3.0 Not now\r\n", b"550 5.1.1 Never\r\n")

NO_WAY = (
    ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
    ConnectionResetError(errno.ECONNRESET, "reset"),
    OSError(errno.EHOSTUNREACH, "no way to the host"),
    socket.gaierror(socket.EAI_AGAIN, "no such name now"),
)


class Signal(Enum):
    """What travels beside bytes."""

    OPEN = auto()  # the client asks for a connection, the server grants it
    END = auto()  # its sender writes nothing more
    RESET = auto()  # there is no such connection, or no longer


@dataclass(frozen=True)
class Weather:
    """How the network treats one process until `until_s` of the loop's clock; afterwards it does all it can."""

    until_s: float
    latency_max_s: float  # this it always has
    window: int = 65536  # so many bytes are on their way at once, the rest waits in its sender's buffer
    no_way: float = 0.0  # the share of the attempts to connect that fail
    reset: float = 0.0  # the share of the pieces at which the connection is cut
    silence: float = 0.0  # the share of the pieces from which on nothing arrives any more
    split: float = 0.0  # the share of the pieces that arrive in two
    babble: float = 0.0  # the share of a server's pieces that another reply comes with


class Server:
    """What listens at one host, and how many connections each process has had there at once."""

    def __init__(self, accept: Callable[[], asyncio.Protocol], refuses: Callable[[], bool]) -> None:
        self.accept = accept
        self.refuses = refuses
        self.most: Counter[str] = Counter()
        self.most_together = 0
        self._open: Counter[str] = Counter()

    def count(self, process: str, change: int) -> None:
        self._open[process] += change
        self.most[process] = max(self.most[process], self._open[process])
        self.most_together = max(self.most_together, self._open.total())


class Network:
    """The servers by their hosts' names."""

    def __init__(self, servers: Mapping[str, Server], chance: random.Random) -> None:
        self.servers = servers
        self._chance = chance

    async def connect(
        self, process: Process, weather: Weather, host: str, _port: int, _tls: ssl.SSLContext | None
    ) -> Wire:
        """A connection as the `smtp` provider asks for it; TLS makes no difference here."""
        await process.border()
        link = Link(process, self.servers[host], weather, random.Random(self._chance.random()))
        process.holds(link)
        try:
            link.ask()
            await link.granted
        except BaseException:  # refused, or given up while the server may just be granting it
            link.client.abort()
            raise
        return link.wire


class Link:
    """One connection between a process and a server; it counts from the wish for it until one of them has let go."""

    def __init__(self, process: Process, server: Server, weather: Weather, chance: random.Random) -> None:
        self.wire = Wire()
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._weather = weather
        self.chance = chance
        self.client = End(self, self.wire, process.cross)
        self.server = End(self, server.accept(), lambda act: act())
        self.client.peer, self.server.peer = self.server, self.client
        self._process = process
        self._server = server
        self._counted = False

    @property
    def is_open(self) -> bool:
        """Whether the client has not let go of it."""
        return not self.client.gone

    def ask(self) -> None:
        """The client asks for the connection. Raises OSError."""
        if self.chance.random() < self.weather.no_way:
            raise self.chance.choice(NO_WAY)
        self._counted = True
        self._server.count(self._process.name, 1)
        if self.trouble() == "silence":
            self.client.silent = True
        self.client.send(Signal.OPEN)

    def asked(self) -> None:
        """The server hears of it."""
        if self._server.refuses():
            self.server.vanish()
            self.server.send(Signal.RESET)
            return
        self.server.send(Signal.OPEN)
        self.server.protocol.connection_made(self.server)

    def answered(self) -> None:
        """The client hears that it is granted, unless it has given up meanwhile."""
        if not self.granted.done():
            self.client.protocol.connection_made(self.client)
            self.granted.set_result(None)

    def ended(self, end: End) -> None:
        """One end is no more."""
        if self._counted:
            self._counted = False
            self._server.count(self._process.name, -1)
        if end is self.client and not self.granted.done():
            self.granted.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "refused"))

    def cut(self) -> None:
        """The client's process has ended, and its system resets what it had open."""
        if not self.client.gone:
            self.client.vanish()
            self._drop_some(self.client)
            self.client.send(Signal.RESET)

    @property
    def weather(self) -> Weather:
        """As it is now."""
        fair = asyncio.get_running_loop().time() >= self._weather.until_s
        return Weather(self._weather.until_s, self._weather.latency_max_s) if fair else self._weather

    def latency_s(self) -> float:
        return self.chance.uniform(0.001, self._weather.latency_max_s)

    def trouble(self) -> str | None:
        """What happens to the next piece."""
        drawn = self.chance.random()
        for kind in ("reset", "silence", "split", "babble"):
            drawn -= getattr(self.weather, kind)
            if drawn < 0:
                return kind
        return None

    def reset(self) -> None:
        """Somebody on the way cuts it; what is on its way to either end arrives or doesn't."""
        for end in (self.client, self.server):
            self._drop_some(end)
            end.send(Signal.RESET)

    def fall_silent(self) -> None:
        """From now on nothing arrives, in one direction or in both."""
        for end in self.chance.choice([(self.client,), (self.server,), (self.client, self.server)]):
            end.silent = True

    def _drop_some(self, end: End) -> None:
        if self.chance.random() < 0.5:
            end.drop()


class End(asyncio.Transport):
    """One end of a connection, as its protocol's transport. `cross` leads from its owner to the world and back."""

    def __init__(self, link: Link, protocol: asyncio.Protocol, cross: Callable[[Act], None]) -> None:
        super().__init__()
        self.peer: End
        self.protocol = protocol
        self.gone = False
        self.silent = False  # nothing that it sends arrives any more
        self._link = link
        self._cross = cross
        self._closing = False
        self._paused = False
        self._drops_on_abort = False
        self._buffer = bytearray()
        self._flying: deque[tuple[int, asyncio.TimerHandle]] = deque()
        self._arrives_s = 0.0  # when the piece does that was sent last

    # What its protocol calls.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._cross(partial(self._write, bytes(data)))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._cross(self._flush)

    def abort(self) -> None:
        self._closing = True
        self._cross(self._abort)

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": ("192.0.2.7", 40000), "socket": self}.get(name, default)

    def setsockopt(self, level: int, option: int, _: bytes) -> None:
        """Where a socket lingers for no time, `abort` throws away what is on its way."""
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER)
        self._drops_on_abort = True

    # How it ends.

    def lost(self, error: Exception | None) -> None:
        """It is no more, and its protocol hears of it."""
        if not self.gone:
            self.vanish()
            self.protocol.connection_lost(error)

    def vanish(self) -> None:
        """It is no more."""
        self.gone = self._closing = True
        self._buffer.clear()
        self._link.ended(self)

    def _abort(self) -> None:
        if not self.gone:
            self._buffer.clear()
            if self._drops_on_abort:
                self.drop()
            self.send(Signal.RESET)
            self._lose_soon()

    def _lose_soon(self) -> None:
        lose = partial(self._cross, partial(self.lost, None))
        asyncio.get_running_loop().call_soon(lose, context=Context())

    # The way to the other end.

    def _write(self, data: bytes) -> None:
        self._buffer += data
        self._flush()

    def _flush(self) -> None:
        """Sends what there is room for, and the end where nothing remains."""
        while self._buffer and (room := self._link.weather.window - sum(size for size, _ in self._flying)) > 0:
            piece = bytes(self._buffer[:room])
            del self._buffer[:room]
            self._send_piece(piece)
        if self._closing and not self._buffer and not self.gone:
            self.send(Signal.END)
            self._lose_soon()
        elif bool(self._buffer) is not self._paused:
            self._paused = not self._paused
            self.protocol.pause_writing() if self._paused else self.protocol.resume_writing()

    def _send_piece(self, piece: bytes) -> None:
        trouble = self._link.trouble()
        if trouble == "split" and len(piece) > 1:
            middle = self._link.chance.randrange(1, len(piece))
            self.send(piece[:middle])
            self.send(piece[middle:], self._link.chance.uniform(0, SPLIT_MAX_S))
            return
        if trouble == "babble" and self is self._link.server:
            piece += self._link.chance.choice(BABBLE)
        if trouble == "silence":
            self._link.fall_silent()
        self.send(piece)
        if trouble == "reset":
            self._link.reset()

    def send(self, piece: bytes | Signal, gap_s: float = 0.0) -> None:
        """Puts it on its way, behind what was sent before."""
        loop = asyncio.get_running_loop()
        self._arrives_s = gap_s + max(loop.time() + self._link.latency_s(), self._arrives_s + STEP_S)
        size = len(piece) if isinstance(piece, bytes) else 0
        self._flying.append((size, loop.call_at(self._arrives_s, self._arrive, piece, context=Context())))

    def drop(self) -> None:
        """What is on its way doesn't arrive."""
        while self._flying:
            self._flying.popleft()[1].cancel()

    def _arrive(self, piece: bytes | Signal) -> None:
        if self.silent:
            return
        self._flying.popleft()
        self.peer.receive(piece)
        if self._buffer:
            self._cross(self._flush)

    def receive(self, piece: bytes | Signal) -> None:
        """Something has arrived here; the protocol gets it as soon as its process runs."""
        self._cross(partial(self._take, piece))

    def _take(self, piece: bytes | Signal) -> None:
        if piece is Signal.RESET:
            self.lost(ConnectionResetError(errno.ECONNRESET, "reset"))
        elif self.gone:
            self.send(Signal.RESET)
        elif isinstance(piece, bytes):
            self.protocol.data_received(piece)
        elif piece is Signal.OPEN:
            self._link.answered() if self is self._link.client else self._link.asked()
        elif not self.protocol.eof_received():
            self.close()
