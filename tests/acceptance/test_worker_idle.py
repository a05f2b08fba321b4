"""A worker beside a long queue of mail that is not due: hardly a query, hardly any processor time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import text

from tests.acceptance.installation import POSTHOUSE, Installation, cpu_seconds, http_route
from tests.acceptance.sandbox_thread import SandboxThread
from tests.conftest import OwnPostgres

FUTURE_ROWS = 100_000
WATCHED_S = 8.0
QUERIES_A_SECOND_MAX = 4.0
CPU_SHARE_MAX = 0.06

COUNTED = (
    POSTHOUSE[0],
    "-c",
    """
from sqlalchemy import Engine, event

@event.listens_for(Engine, "before_cursor_execute")
def write_down(connection, cursor, statement, parameters, context, many):
    with open("statements.log", "a") as log:
        log.write(" ".join(statement.split()) + chr(10))

from posthouse.cli.main import main
main()
""",
)
"""The command, which writes down every statement that is handed to the driver."""

TRANSACTION_ENDS = ("BEGIN", "COMMIT", "ROLLBACK")
NUMBERS = {
    "sqlite": f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {FUTURE_ROWS})",
    "postgresql": f"WITH n(i) AS (SELECT * FROM generate_series(1, {FUTURE_ROWS}))",
}


def put_future_rows(installation: Installation) -> None:
    """Mail for the year 2990, straight into the table."""
    columns = "dedupe_key, fingerprint, idempotency_key, type, lane, to_address, recipients, status"
    times = "next_try_at, expires_at, created_at, updated_at"
    row = "'future-' || i, 'f', 'future-' || i, 'default', 'default', 'ada@example.com', '[]', 'pending'"
    moment = "'2990-01-01 00:00:00.000000'" if installation.is_sqlite else "timestamptz '2990-01-01 00:00Z'"
    rows = f"{NUMBERS[installation.database.dialect]} SELECT {row}, {', '.join([moment] * 4)} FROM n"
    with installation.database.engine.begin() as connection:
        connection.execute(text(f"INSERT INTO email_sends ({columns}, {times}) {rows}"))


def use_little(installation: Installation, command: Sequence[str], queries: Callable[[], int]) -> None:
    """One worker, once it has found out that there is nothing to do."""
    worker = installation.worker(command=command)
    time.sleep(1.5)
    began, asked_before, used_before = time.monotonic(), queries(), cpu_seconds(worker.process.pid)
    time.sleep(WATCHED_S)
    took_s = time.monotonic() - began
    asked, used_s = queries() - asked_before, cpu_seconds(worker.process.pid) - used_before
    assert worker.stopped() == 0
    assert 0 < asked / took_s <= QUERIES_A_SECOND_MAX
    assert used_s / took_s <= CPU_SHARE_MAX
    assert sum(installation.statuses().values()) == FUTURE_ROWS


def test_an_idle_worker_uses_little_by_the_servers_own_log(
    on_postgresql: Installation, postgres: OwnPostgres, sandbox: SandboxThread
) -> None:
    """Counted is every line of the server's log with a statement; only this database's are logged."""
    put_future_rows(on_postgresql)
    on_postgresql.configure({"main": http_route(sandbox)}, worker={})
    name, log = on_postgresql.database.engine.url.database, Path(postgres.server.log)
    with on_postgresql.database.autocommit() as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET log_statement = 'all'"))
    began_at = log.stat().st_size

    def queries() -> int:
        said = [line.partition(" LOG:  ")[2] for line in log.read_text(errors="replace")[began_at:].splitlines()]
        logged = [words.partition(": ")[2] for words in said if words.startswith(("statement", "execute"))]
        return sum(not statement.startswith(TRANSACTION_ENDS) for statement in logged)

    use_little(on_postgresql, POSTHOUSE, queries)


def test_an_idle_worker_uses_little_as_the_driver_is_called(on_sqlite: Installation) -> None:
    """Counted is every statement that SQLAlchemy hands to the driver."""
    put_future_rows(on_sqlite)
    on_sqlite.configure({"main": {"provider": "http", "url": "http://127.0.0.1:9/", "auth": "none"}}, worker={})

    def queries() -> int:
        lines = (on_sqlite.folder / "statements.log").read_text().splitlines()
        return sum(not line.startswith(TRANSACTION_ENDS) for line in lines)

    use_little(on_sqlite, COUNTED, queries)
