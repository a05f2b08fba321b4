"""Draining: 5,000 sends of 3 kB through one worker, against a bare client loop that posts the same bytes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import aiohttp
import psycopg

from benchmarks.answering import answering_server
from posthouse.app import Outbox, loop_factory
from posthouse.email import Email
from posthouse.store.database import open_database
from posthouse.store.migrate import migrate

SENDS = 5000
BODY_CHARS = 2800
CONCURRENCY = 128
DEADLINE_S = 120.0

CONFIG = """
database = "{database}"
sender = "Shop <shop@example.com>"

[routes.main]
provider = "http"
url = "{url}"
auth = "none"
message_id = "id"
idempotency_header = "Idempotency-Key"
concurrency = {concurrency}
"""


@dataclass(frozen=True)
class Drained:
    """Messages a second of both sides of one run."""

    bare: float  # on asyncio's own event loop, as a script has it
    bare_uvloop: float  # on the event loop that the worker has
    posthouse: float

    @property
    def ratio(self) -> float:
        return self.posthouse / self.bare

    @property
    def ratio_uvloop(self) -> float:
        return self.posthouse / self.bare_uvloop


def email(number: int) -> Email:
    """One of the benchmark's emails, about 3 kB as a request."""
    return Email(key=f"k{number}", to=f"p{number}@example.com", subject=f"Order {number}", text="x" * BODY_CHARS)


async def bare(url: str, bodies: list[bytes]) -> float:
    """A bare aiohttp loop over the same connections."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    queue = iter(bodies)

    async def post(session: aiohttp.ClientSession) -> None:
        for body in queue:
            async with session.post(url, data=body, headers=headers) as answer:
                assert answer.status == 200
                await answer.json()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session:
        began = time.perf_counter()
        await asyncio.gather(*(post(session) for _ in range(CONCURRENCY)))
        return len(bodies) / (time.perf_counter() - began)


def _value(connection: psycopg.Connection[Any], sql: LiteralString) -> Any:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return row[0]


def fill(config_file: Path, database_url: str, emails: list[Email]) -> None:
    """Enqueues the emails in a new, empty database."""
    outbox = Outbox(config_file)
    database = open_database(database_url, time.time)
    migrate(database)
    with database.write() as connection:
        outbox.enqueue_many(connection, emails)
    database.close()


def drain(config_file: Path, database_url: str, sends: int, processes: int = 1) -> float:
    """A production worker. Sends a second, from the start of the first call to the last acceptance written."""
    arguments = ["--config", str(config_file), "worker", "--processes", str(processes)]
    worker = subprocess.Popen([sys.executable, "-m", "posthouse", *arguments])
    try:
        with psycopg.connect(database_url, autocommit=True) as connection:
            deadline = time.monotonic() + DEADLINE_S
            while _value(connection, "SELECT EXISTS (SELECT FROM email_sends WHERE status <> 'accepted')"):
                assert time.monotonic() < deadline, "the worker does not come to an end"
                time.sleep(0.1)
            took = _value(
                connection, "SELECT extract(epoch FROM max(accepted_at) - min(first_attempt_at)) FROM email_sends"
            )
    finally:
        worker.terminate()
        worker.wait()
    return sends / float(took)


def run(database_url: str) -> Drained:
    """Both sides, one after the other, against the same server over as many connections."""
    with answering_server() as url, tempfile.TemporaryDirectory() as folder:
        config_file = Path(folder) / "posthouse.toml"
        config_file.write_text(CONFIG.format(database=database_url, url=url, concurrency=CONCURRENCY), encoding="utf-8")
        fill(config_file, database_url, [email(number) for number in range(SENDS)])
        bodies = [b'{"pad": "' + b"x" * 3000 + b'"}'] * SENDS
        with asyncio.Runner() as runner:
            plain = runner.run(bare(url, bodies))
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            quick = runner.run(bare(url, bodies))
        return Drained(plain, quick, drain(config_file, database_url, SENDS))
