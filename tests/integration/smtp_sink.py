"""Postfix's smtp-sink: an SMTP server that throws everything away, and fails at any step that its flags name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.acceptance.installation import until
from tests.integration.programs import Running, open_folder, program
from tests.providers.wire import free_port

BACKLOG = "64"


class SmtpSink:
    """One smtp-sink on a free port of 127.0.0.1."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._dumps = folder / "dumps"
        self._dumps.mkdir()
        self.port = free_port()
        self._command = [program("smtp-sink", "postfix"), "-4", "-c", "-v", "-d", f"{self._dumps}/", *self._as_nobody()]
        self._command += [*flags, f"127.0.0.1:{self.port}", BACKLOG]
        self._folder = folder
        self._running: Running

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        self._running = Running(self._command, self._folder)
        until(self._listens, "smtp-sink listens")

    def _as_nobody(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        self._dumps.chmod(0o777)
        return ["-u", "nobody"]

    def _listens(self) -> bool:
        self._running.check()
        connections = psutil.Process(self._running.process.pid).net_connections("tcp4")
        return any(one.status == psutil.CONN_LISTEN for one in connections)

    @property
    def heard(self) -> list[str]:
        """The first word of each command, from all connections."""
        lines = re.findall(r"^\S*smtp-sink: ([A-Za-z]+|\.)(?: |$)", self._running.stderr, re.MULTILINE)
        return [word.upper() for word in lines if word.lower() not in ("connect", "disconnect")]

    @property
    def opened(self) -> int:
        """How many connections it has taken."""
        return len(re.findall(r"^\S*smtp-sink: connect ", self._running.stderr, re.MULTILINE))

    @property
    def closed(self) -> int:
        """How many of them have ended."""
        return self._count("sess")

    @property
    def goodbyes(self) -> int:
        """How many connections ended with QUIT."""
        return self._count("quit")

    @property
    def taken(self) -> int:
        """How many messages it has taken."""
        return self._count("mesg")

    def _count(self, name: str) -> int:
        """The last that it has said about one of its own counters."""
        said = re.findall(rf"\b{name}=(\d+)", self._running.stdout)
        return int(said[-1]) if said else 0

    def contents(self) -> list[bytes]:
        """The messages as it received them, without the headers that it puts before them, line ends as on the wire."""
        return [_received(path.read_bytes()) for path in sorted(self._dumps.iterdir())]

    def end(self) -> None:
        """Nothing of it is left."""
        self._running.end()


def _received(dump: bytes) -> bytes:
    """What stands after the `Received:` of three lines, without the empty line at the end."""
    head, _, after = dump.partition(b"\nReceived: ")
    assert head.startswith(b"X-Client-Addr: "), dump[:200]
    return after.split(b"\n", 3)[3].removesuffix(b"\n").replace(b"\n", b"\r\n")


@contextmanager
def smtp_sink(*flags: str) -> Iterator[SmtpSink]:
    """A SmtpSink with these flags."""
    with open_folder("smtp-sink") as folder:
        sink = SmtpSink(folder, *flags)
        try:
            sink.start()
            yield sink
        finally:
            sink.end()
