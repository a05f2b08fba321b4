"""Postfix's smtp-sink: an SMTP server that throws everything away, in a process of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

CONNECTIONS_MAX: Final = 512
START_S: Final = 10.0


class NoSink(Exception):
    """smtp-sink is not installed."""

    def __init__(self) -> None:
        super().__init__("smtp-sink is missing; it comes with Postfix, which need not run: apt-get install postfix")


@contextmanager
def smtp_sink() -> Iterator[int]:
    """Its port on 127.0.0.1, while it runs. Raises NoSink."""
    program = shutil.which("smtp-sink", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise NoSink
    port = _free_port()
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    process = subprocess.Popen([program, *user, "-m", str(CONNECTIONS_MAX), f"127.0.0.1:{port}", str(CONNECTIONS_MAX)])
    try:
        _await_start(process, port)
        yield port
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _await_start(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("smtp-sink does not start")
