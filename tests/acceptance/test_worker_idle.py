"""A worker beside a long queue of mail that is not due: hardly a query, hardly any processor time."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from sqlalchemy import text

from tests.acceptance.installation import Installation, cpu_seconds, http_route
from tests.acceptance.sandbox_thread import SandboxThread

FUTURE_ROWS = 100_000
WATCHED_S = 10.0
QUERIES_A_SECOND_MAX = 4.0
CPU_SHARE_MAX = 0.05

COUNTED = """
import sys
from sqlalchemy import Engine, event

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *_):
    with open(sys.argv.pop(1) if False else {file!r}, "a") as counted:
        counted.write(" ".join(statement.split())[:80] + "\\n")

from posthouse.cli.main import main
main()
"""


def put_future_rows(installation: Installation) -> None:
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {FUTURE_ROWS})"
        if installation.is_sqlite
        else f"WITH n(i) AS (SELECT * FROM generate_series(1, {FUTURE_ROWS}))"
    )
    later, now = (
        ("'2990-01-01 00:00:00.000000'", "'2026-01-01 00:00:00.000000'")
        if installation.is_sqlite
        else ("timestamptz '2990-01-01'", "now()")
    )
    with installation.database.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO email_sends (dedupe_key, fingerprint, idempotency_key, type, lane, to_address, "
                "recipients, status, next_try_at, expires_at, created_at, updated_at) "
                f"{numbers} SELECT 'future-' || i, 'f', 'future-' || i, 'default', 'default', 'a@example.com', "
                f"'[]', 'pending', {later}, {later}, {now}, {now} FROM n"
                if not installation.is_sqlite
                else f"{numbers} INSERT INTO email_sends (dedupe_key, fingerprint, idempotency_key, type, lane, "
                "to_address, recipients, status, next_try_at, expires_at, created_at, updated_at) "
                "SELECT 'future-' || i, 'f', 'future-' || i, 'default', 'default', 'a@example.com', "
                f"'[]', 'pending', {later}, {later}, {now}, {now} FROM n"
            )
        )
