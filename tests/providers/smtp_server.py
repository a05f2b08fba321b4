"""A scripted SMTP server on loopback: it says what a test tells it to, whether or not that is SMTP."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.providers.wire import CERTIFICATE

SILENCE = b""
"""Says nothing, and leaves the connection open."""

CUT = b"<cut>"
"""Cuts the connection at once, with a reset."""

CLOSE = b"<close>"
"""After what stands before it: closes the connection in an orderly way."""

Script = dict[str, bytes | list[bytes]]
"""What to say at each step (`banner`, `mail`, `rcpt bob@example.com`, `dot`, …), each time or, as a list, in turn."""

HELLO = b"250-scripted\r\n250-SIZE 1000000\r\n250-8BITMIME\r\n250-ENHANCEDSTATUSCODES\r\n"

PIPELINING = HELLO + b"250 PIPELINING\r\n"

NOT_NOW = b"503 5.5.1 not now\r\n"

USUAL = {
    "banner": b"220 scripted ESMTP\r\n",
    "ehlo": HELLO + b"250 HELP\r\n",
    "starttls": b"220 2.0.0 go ahead\r\n",
    "auth": b"235 2.7.0 welcome\r\n",
    "line": b"235 2.7.0 welcome\r\n",
    "rset": b"250 2.0.0 Ok\r\n",
    "noop": b"250 2.0.0 Ok\r\n",
    "mail": b"250 2.1.0 Ok\r\n",
    "rcpt": b"250 2.1.5 Ok\r\n",
    "data": b"354 go ahead\r\n",
    "dot": b"250 2.0.0 Ok: queued as m-1\r\n",
    "quit": b"221 2.0.0 Bye\r\n",
}


def server_context() -> ssl.SSLContext:
    """TLS as 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


class _FallenSilentError(Exception):
    """The script says nothing more on this connection."""


@dataclass
class ScriptedServer:
    """What it says, and what it heard."""

    script: Script = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)  # commands, from all connections
    contents: list[bytes] = field(default_factory=list)  # as they were on the wire, dot-stuffed, without the dot
    opened: int = 0
    open_now: int = 0
    open_most: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    reached: dict[str, asyncio.Event] = field(default_factory=dict)
    port: int = 0

    def event(self, step: str) -> asyncio.Event:
        """Set when the step is reached."""
        return self.reached.setdefault(step, asyncio.Event())

    def steps(self) -> list[str]:
        """The first word of every command."""
        return [line.split()[0].upper() if line else "" for line in self.heard]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open_now += 1
        self.open_most = max(self.open_most, self.open_now)
        self.writers.append(writer)
        try:
            await self._converse(reader, writer)
        except _FallenSilentError:
            with suppress(ConnectionError, ssl.SSLError):
                while await reader.read(4096):
                    pass  # it listens until the other end has gone
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self.open_now -= 1
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender_taken = recipient_taken = False
        going = await self._say(writer, "banner", self._answer("banner"))
        while going:
            line = (await reader.readuntil(b"\r\n")).decode().rstrip("\r\n")
            self.heard.append(line)
            step = self._step(line)
            in_order = sender_taken if step == "rcpt" else recipient_taken if step == "data" else True
            said = self._answer(step, line, in_order=in_order)
            going = await self._say(writer, step, said)
            if step in ("rset", "mail"):
                sender_taken, recipient_taken = step == "mail" and said.startswith(b"2"), False
            elif step == "rcpt":
                recipient_taken |= said.startswith(b"2")
            elif step == "starttls" and b"220" in said:
                await writer.start_tls(server_context())
            elif step == "data" and b"354" in said:
                going = going and await self._content(reader, writer)
            elif step == "quit":
                return

    async def _content(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = []
        while (line := await reader.readuntil(b"\r\n")) != b".\r\n":
            lines.append(line)
        self.contents.append(b"".join(lines))
        return await self._say(writer, "dot", self._answer("dot"))

    def _step(self, line: str) -> str:
        word = line.split(" ")[0].lower()
        return word if word in USUAL else "line"

    def _answer(self, step: str, line: str = "", *, in_order: bool = True) -> bytes:
        """What the script has for the step, else what any server says."""
        usual = USUAL[step] if in_order else NOT_NOW
        said = self.script.get(f"{step} {_address(line)}", self.script.get(step, usual))
        if isinstance(said, list):
            return said.pop(0) if said else usual
        return said

    async def _say(self, writer: asyncio.StreamWriter, step: str, said: bytes) -> bool:
        """Whether the conversation goes on."""
        self.event(step).set()
        if said == SILENCE:
            raise _FallenSilentError
        if said == CUT:
            writer.transport.abort()
            return False
        writer.write(said.removesuffix(CLOSE))
        await writer.drain()
        return not said.endswith(CLOSE)


def _address(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]


@asynccontextmanager
async def scripted_server(
    script: Script | None = None, *, tls: bool = False, port: int = 0
) -> AsyncIterator[ScriptedServer]:
    """A ScriptedServer that listens on a port of 127.0.0.1; 0: any free one."""
    scripted = ScriptedServer(script or {})
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(scripted.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(
        accept, "127.0.0.1", port, ssl=server_context() if tls else None, limit=16 * 1024 * 1024
    )
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


def cram_md5_challenge() -> bytes:
    """A challenge of RFC 2195."""
    return b"334 " + base64.b64encode(b"<1896.697170952@scripted>") + b"\r\n"
