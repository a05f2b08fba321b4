"""Enqueueing one email at a time, against the bare INSERTs of the same rows on the same kind of connection."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import psycopg

from posthouse.app import Outbox
from posthouse.config import parse_config
from posthouse.email import Email
from posthouse.store.database import open_database
from posthouse.store.migrate import migrate

EMAILS = 2000
BODY = "x" * 2800


def email(run: int, number: int) -> Email:
    """One of the benchmark's emails, about 3 kB stored."""
    return Email(
        key=f"run-{run}-{number}",
        to=f"Person {number} <p{number}@example.com>",
        subject=f"Order {number}",
        text=BODY,
        tags=["receipt"],
    )


def ratio(connection: Any, placeholder: str, runs: int = 5) -> tuple[float, float, float]:
    """Seconds for EMAILS enqueues and for the bare INSERTs, each the best of `runs` in turn; and their ratio."""
    outbox = Outbox(parse_config({"database": "sqlite://", "sender": "shop@example.com"}, environment={}))
    ours: list[float] = []
    bare: list[float] = []
    for run in range(runs):
        emails = [email(run, number) for number in range(EMAILS)]
        ours.append(_timed(partial(_enqueue, outbox, connection, emails)))
        rows = _rows_of(connection, run, placeholder)
        connection.rollback()
        bare.append(_timed(partial(_insert, connection, rows, placeholder)))
        connection.rollback()
    return min(ours), min(bare), min(ours) / min(bare)


def _enqueue(outbox: Outbox, connection: Any, emails: list[Email]) -> None:
    for item in emails:
        outbox.enqueue(connection, item)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _rows_of(connection: Any, run: int, placeholder: str) -> list[tuple[Sequence[Any], str]]:
    """What was enqueued, as it stands in the two tables."""
    found = connection.execute(
        f"SELECT s.*, c.body FROM email_sends s JOIN email_contents c ON c.send_id = s.id "
        f"WHERE dedupe_key LIKE {placeholder}",
        (f"run-{run}-%",),
    ).fetchall()
    return [(row[1:-1], row[-1]) for row in found]


def _insert(connection: Any, rows: list[tuple[Sequence[Any], str]], placeholder: str) -> None:
    columns = [item[0] for item in connection.execute("SELECT * FROM email_sends LIMIT 0").description][1:]
    values = ", ".join([placeholder] * len(columns))
    send = f"INSERT INTO email_sends ({', '.join(columns)}) VALUES ({values}) RETURNING id"
    content = f"INSERT INTO email_contents (send_id, body) VALUES ({placeholder}, {placeholder})"
    for row, body in rows:
        (send_id,) = connection.execute(send, row).fetchone()
        connection.execute(content, (send_id, body))


def run(postgresql_url: str) -> dict[str, tuple[float, float, float]]:
    """Seconds for ours, for the bare INSERTs, and their ratio, by the kind of connection."""
    return {"psycopg": _on_postgresql(postgresql_url), "sqlite3": _on_sqlite()}


def _migrate(url: str) -> None:
    database = open_database(url, time.time)
    migrate(database)
    database.close()


def _on_postgresql(url: str) -> tuple[float, float, float]:
    _migrate(url)
    with psycopg.connect(url) as connection:
        return ratio(connection, "%s")


def _on_sqlite() -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/posthouse.db"
        _migrate(f"sqlite:///{file}")
        with closing(sqlite3.connect(file)) as connection:
            return ratio(connection, "?")
