"""Draining: 5,000 sends of 3 kB through one worker, against a bare client loop that posts the same bytes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import aiohttp
from sqlalchemy import text

from benchmarks.answering import answering_server
from posthouse.app import App, Outbox, loop_factory
from posthouse.config import Config, parse_config
from posthouse.email import Email
from posthouse.store.migrate import migrate
from posthouse.store.threads import StoreThreads

SENDS = 5000
BODY_CHARS = 2800
CONCURRENCY = 64


@dataclass(frozen=True)
class Drained:
    """Messages a second of both sides of one run."""

    bare: float
    posthouse: float

    @property
    def ratio(self) -> float:
        return self.posthouse / self.bare


def configure(database_url: str, url: str) -> Config:
    """One `http` route to the answering server."""
    return parse_config(
        {
            "database": database_url,
            "sender": "Shop <shop@example.com>",
            "routes": {
                "main": {
                    "provider": "http",
                    "url": url,
                    "auth": "none",
                    "message_id": "id",
                    "idempotency_header": "Idempotency-Key",
                    "concurrency": CONCURRENCY,
                }
            },
        },
        environment={},
    )


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


def _unfinished(app: App) -> bool:
    with app.database.read() as connection:
        return bool(connection.scalar(text("SELECT EXISTS (SELECT FROM email_sends WHERE status <> 'accepted')")))


async def drain(app: App) -> float:
    """One production worker, from its start until nothing is pending."""
    executor = StoreThreads(single=app.database.is_sqlite)
    worker = app.worker(app.providers(), executor)
    began = time.perf_counter()
    running = asyncio.create_task(worker.run())
    while await asyncio.to_thread(_unfinished, app):  # noqa: ASYNC110  # the end is seen from outside, in the table
        await asyncio.sleep(0.05)
    took = time.perf_counter() - began
    worker.stop()
    await running
    executor.close()
    return SENDS / took


def run(database_url: str) -> Drained:
    """Both sides, one after the other, against the same server."""
    with answering_server() as url:
        config = configure(database_url, url)
        app = App(config)
        migrate(app.database)
        outbox = Outbox(config)
        with app.database.engine.begin() as connection:
            outbox.enqueue_many(connection, [email(number) for number in range(SENDS)])
        bodies = [b'{"pad": "' + b"x" * 3000 + b'"}'] * SENDS
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            rate = runner.run(bare(url, bodies))
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            ours = runner.run(drain(app))
        app.database.close()
        return Drained(rate, ours)
