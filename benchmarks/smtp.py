"""Draining text and HTML over SMTP: one worker, against a bare aiosmtplib loop and against django-post-office."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiosmtplib

from benchmarks import post_office
from benchmarks.drain import drain, fill
from benchmarks.messages import SENDER, message, rendered
from benchmarks.sink import smtp_sink
from posthouse.app import loop_factory
from posthouse.email import Email

SENDS: Final = 5000
CONNECTIONS: Final = 32
PROCESSES: Final = (1, 2)  # on both sides, dividing the connections among them
INSTALLED: Final = {"processes": 1, "threads": 5, "batch": 100}  # django-post-office without a setting

CONFIG: Final = """
database = "{database}"
sender = "{sender}"

[routes.main]
provider = "smtp"
url = "smtp://127.0.0.1:{port}"
concurrency = {connections}
"""


@dataclass(frozen=True)
class Drained:
    """Messages a second of all sides of one run; of the two queues by the number of processes."""

    bare: float  # on asyncio's own event loop, as a script has it
    bare_uvloop: float  # on the event loop that the worker has
    post_office_installed: float  # as it is installed
    post_office: dict[int, float]  # set up for speed
    posthouse: dict[int, float]

    @property
    def to_bare(self) -> float:
        return self.posthouse[1] / self.bare

    @property
    def to_bare_uvloop(self) -> float:
        return self.posthouse[1] / self.bare_uvloop

    @property
    def to_post_office_installed(self) -> float:
        return self.posthouse[1] / self.post_office_installed

    def to_post_office(self, processes: int) -> float:
        return self.posthouse[processes] / self.post_office[processes]


def email(number: int) -> Email:
    """The benchmark's message of this number, as an application asks for it."""
    item = message(number)
    return Email(key=f"k{number}", to=item.to, subject=item.subject, text=item.text, html=item.html)


async def bare(port: int, mails: list[tuple[str, bytes]], connections: int) -> float:
    """A bare aiosmtplib loop over as many connections, with bytes that were rendered before."""
    queue = iter(mails)

    async def send() -> None:
        async with aiosmtplib.SMTP(hostname="127.0.0.1", port=port, use_tls=False, start_tls=False) as client:
            for to, content in queue:
                await client.sendmail(SENDER, to, content)

    now = asyncio.get_running_loop().time
    began = now()
    await asyncio.gather(*(send() for _ in range(connections)))
    return len(mails) / (now() - began)


def run(new_database: Callable[[], str], sends: int = SENDS, connections: int = CONNECTIONS) -> Drained:
    """All sides, one after the other, to the same server over as many connections. Raises NoSink."""
    mails = [(item.to, rendered(item)) for item in map(message, range(sends))]
    with smtp_sink() as port:
        with asyncio.Runner() as runner:
            plain = runner.run(bare(port, mails, connections))
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            quick = runner.run(bare(port, mails, connections))
        installed = post_office.drain(new_database(), port, sends, **INSTALLED)
        peer, ours = {}, {}
        for processes in PROCESSES:
            each = connections // processes
            peer[processes] = post_office.drain(new_database(), port, sends, processes, threads=each, batch=sends)
            ours[processes] = _posthouse(new_database(), port, sends, processes, each)
        return Drained(plain, quick, installed, peer, ours)


def _posthouse(database_url: str, port: int, sends: int, processes: int, connections: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        config_file = Path(folder) / "posthouse.toml"
        config_file.write_text(
            CONFIG.format(database=database_url, sender=SENDER, port=port, connections=connections), encoding="utf-8"
        )
        fill(config_file, database_url, [email(number) for number in range(sends)])
        return drain(config_file, database_url, sends, processes)
