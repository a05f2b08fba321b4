"""A claim beside five million rows, and a code beside half a million bulk emails, paused or not, on PostgreSQL."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.answering import answering_server
from posthouse.app import Outbox
from posthouse.core.routing import RoutePlan
from posthouse.email import Email
from posthouse.store.database import open_database
from posthouse.store.migrate import migrate
from posthouse.store.store import Store

ROWS: Final = 5_000_000
PENDING_SHARE: Final = 10
"""One row in so many is pending bulk, the others have ended."""

CLAIMS: Final = 200
CLAIMED: Final = 32
CODES: Final = 10
DEADLINE_S: Final = 60.0

_FILL = """
    INSERT INTO email_sends (dedupe_key, fingerprint, idempotency_key, type, lane, to_address, recipients, status,
        next_try_at, expires_at, created_at, updated_at, accepted_at)
    SELECT 'k' || n, 'f', 'i' || n, 'newsletter', 'newsletter', 'p@example.com', '["p@example.com"]',
        CASE WHEN n %% %(share)s = 0 THEN 'pending' ELSE 'accepted' END,
        CASE WHEN n %% %(share)s = 0 THEN now() END, now() + interval '1 day', now(), now(),
        CASE WHEN n %% %(share)s <> 0 THEN now() END
    FROM generate_series(1, %(rows)s) AS n
"""
_CONTENTS = """
    INSERT INTO email_contents (send_id, body)
    SELECT id, '{"subject":"News","text":"Hello","to":[["p@example.com"]],"version":1}'
    FROM email_sends WHERE status = 'pending'
"""

CONFIG: Final = """
database = "{database}"
sender = "shop@example.com"

[routes.main]
provider = "http"
url = "{url}"
auth = "none"
message_id = "id"

[types.newsletter]
priority = "bulk"

[types.one-time-code]
priority = "urgent"
"""


@dataclass(frozen=True)
class Claimed:
    """Milliseconds of each claim, and seconds from the commit to the beginning of the call for each code."""

    claims_ms: list[float]
    code_s: list[float]  # bulk goes out
    code_beside_paused_s: list[float]  # bulk is paused

    @property
    def median_ms(self) -> float:
        return statistics.median(self.claims_ms)

    @property
    def p99_ms(self) -> float:
        return sorted(self.claims_ms)[len(self.claims_ms) * 99 // 100]


def run(database_url: str, rows: int) -> Claimed:
    """All three, on one database."""
    database = open_database(database_url, time.time)
    migrate(database)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_FILL, {"rows": rows, "share": PENDING_SHARE})
        connection.execute(_CONTENTS)
        connection.execute("VACUUM ANALYZE email_sends")
    claims_ms = _claims_ms(Store(database))
    database.close()
    with answering_server() as url, tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "posthouse.toml"
        config.write_text(CONFIG.format(database=database_url, url=url), encoding="utf-8")
        with _worker(config):
            going = _code_s(config, database_url, "going")
        _posthouse(config, "pause", "--type", "newsletter", "--why", "benchmark")
        with _worker(config):
            paused = _code_s(config, database_url, "paused")
    return Claimed(claims_ms, going, paused)


def _claims_ms(store: Store) -> list[float]:
    """The production claim, one after the other, as a worker makes it."""
    worker = store.control.register("bench", 1, "0")
    plan = RoutePlan("main", {}, pins=True)
    took = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        claimed = store.queue.claim("newsletter", CLAIMED, worker, time.time(), plan)
        took.append(1000 * (time.perf_counter() - began))
        assert len(claimed) == CLAIMED
    return took


def _code_s(config: Path, database_url: str, name: str) -> list[float]:
    """Codes, one after the other, each as an application sends it."""
    outbox = Outbox(config)
    took = []
    with psycopg.connect(database_url) as connection:
        for number in range(CODES):
            key = f"code-{name}-{number}"
            code = Email(type="one-time-code", key=key, to="ada@example.com", subject="Your code", text="123456")
            outbox.enqueue(connection, code)
            connection.commit()
            committed = time.time()
            took.append(_began_at(connection, key) - committed)
    return took


def _began_at(connection: psycopg.Connection[tuple[float | None]], key: str) -> float:
    """When its call began, by the clock that the server shares with us."""
    asked = (
        "SELECT extract(epoch FROM started_at)::float8 FROM email_attempts JOIN email_sends ON email_sends.id = send_id"
    )
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = connection.execute(f"{asked} WHERE dedupe_key = %s".encode(), (key,)).fetchone()
        connection.commit()
        if found is not None and found[0] is not None:
            return found[0]
        time.sleep(0.01)
    raise AssertionError(f"{key} was not sent")


@contextmanager
def _worker(config: Path) -> Iterator[None]:
    worker = subprocess.Popen([sys.executable, "-m", "posthouse", "--config", str(config), "worker"])
    try:
        time.sleep(5.0)  # until it is at work
        yield
    finally:
        worker.terminate()
        worker.wait()


def _posthouse(config: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "posthouse", *arguments, "--config", str(config)]
    subprocess.run(command, check=True, capture_output=True)
