"""Where the sandbox listens, whatever it speaks there: a port that really closes, connections that are really reset."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Set
from typing import Final, Generic, Protocol, TypeVar

from posthouse.errors import ConfigError
from posthouse.sandbox.api import SandboxApi

Clock = Callable[[], float]
"""Seconds since 1970."""

GATE_CHECK_S: Final = 0.05
"""How late a window of refused connections may begin and end."""

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER, on for 0 s: close sends RST


class Connection(Protocol):
    """One connection that a gate has let in."""

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        """None once it is closed."""

    def close(self) -> None:
        """Closes it when what is under way is answered."""


C = TypeVar("C", bound=Connection)
Open = TypeVar("Open", bound=Connection, covariant=True)


class Protocols(Protocol[Open]):
    """Makes a protocol for each connection, and knows which are open."""

    def __call__(self) -> asyncio.BaseProtocol:
        """A new connection's."""

    @property
    def connections(self) -> Iterable[Open]:
        """Those that are open."""


class Gate(Generic[C]):
    """The listening socket, which really closes while connections are refused, and reopens on the same port.

    `busy` are the connections with something under way; with `tls`, every connection begins with a handshake.
    """

    def __init__(
        self, protocols: Protocols[C], busy: Set[C], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        self._protocols = protocols
        self._busy = busy
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._placeholder: socket.socket | None = None
        self.host = host
        self.port = port

    @property
    def connections(self) -> list[C]:
        """The connections that are open."""
        return list(self._protocols.connections)

    @property
    def place(self) -> str:
        """Host and port as a URL has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def begin(self, api: SandboxApi, clock: Clock) -> None:
        """Takes the port, and listens unless connections are to be refused now. Raises ConfigError."""
        try:
            await self.open()
        except OSError as error:
            reason = f"can't listen on {self.host}:{self.port}: {error.strerror or error}"
            raise ConfigError("port", reason) from None
        if api.refuses(clock()):
            self.shut()

    async def open(self) -> None:
        """Listens, unless it does already. Raises OSError."""
        if self._server is not None:
            return
        self._let_go()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._protocols, self.host, self.port, reuse_address=True, backlog=1024, ssl=self._tls
        )
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def shut(self) -> None:
        """Refuses connections from now on; idle ones are closed, busy ones when their call is answered."""
        if self._server is None:
            return
        family = self._server.sockets[0].family
        self._server.close()
        self._server = None
        self._hold(family)
        for connection in self.connections:
            if connection in self._busy:
                connection.close()
            elif connection.transport is not None:
                connection.transport.close()

    def close(self) -> None:
        """Stops for good."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._let_go()

    def _hold(self, family: int) -> None:
        """Keeps the port from being given to others: a socket that is bound and doesn't listen refuses connections."""
        self._placeholder = socket.socket(family, socket.SOCK_STREAM)
        self._placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # taken in this very moment: reopening will tell
            self._placeholder.bind((self.host, self.port))

    def _let_go(self) -> None:
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None


async def follow_schedule(api: SandboxApi, clock: Clock, gate: Gate[C]) -> None:
    """Opens and shuts `gate` as the faults' schedule has it, until it is cancelled."""
    while True:
        await asyncio.sleep(GATE_CHECK_S)
        if api.refuses(clock()):
            gate.shut()
        else:
            # Somebody else may have taken the port for a moment: the next check tries again.
            with contextlib.suppress(OSError):
                await gate.open()


def abort_with_reset(transport: asyncio.Transport) -> None:
    """Ends the connection with RST, so that nothing at all arrives, not even what was written before."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
