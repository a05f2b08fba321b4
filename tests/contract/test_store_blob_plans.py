"""Query plans over many files: whatever enqueues, workers and the purge ask is a range of an index."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, text

from posthouse.attachment import Attachment
from posthouse.store import retention
from posthouse.store.database import Database, open_database
from posthouse.store.migrate import migrate
from posthouse.store.retention import Retention
from posthouse.store.schema import blob_parts, blob_uses, blobs
from posthouse.store.store import Store
from tests.contract.store_support import DAY_S, Bench

MANY = 20_000
TABLES = ("email_blobs", "email_blob_parts", "email_blob_uses")


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mysql"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Many files in use: half of the uses are of one of them."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('plans') / 'posthouse.db'}"
    else:
        url = request.getfixturevalue({"postgresql": "postgres"}.get(request.param, request.param)).create()
    with closing(open_database(url, time.time)) as database:
        migrate(database)
        bench = Bench(Store(database))
        ids, old = range(1, MANY + 1), bench.now - 9 * DAY_S
        with database.write() as connection:
            connection.execute(
                insert(blobs), [{"id": i, "digest": f"{i:064x}", "size": 1, "created_at": old} for i in ids]
            )
            connection.execute(insert(blob_parts), [{"blob_id": i, "part": 0, "body": b"x"} for i in ids])
            uses = [{"send_id": i, "blob_id": i if i <= MANY else 7} for i in range(1, 2 * MANY)]
            connection.execute(insert(blob_uses), uses)
            if request.param == "postgresql":
                connection.execute(text("SELECT setval('email_blobs_id_seq', 1000000)"))
        with database.read() as connection:
            if request.param != "sqlite":  # a SQLite file normally is never analysed
                connection.execute(text(f"ANALYZE {'TABLE ' if request.param == 'mysql' else ''}{', '.join(TABLES)}"))
        yield bench


def enqueue(bench: Bench) -> None:
    bench.enqueue("k", attachments=[Attachment(b"new"), Attachment(b"another")])


HOT: dict[str, Callable[[Bench], object]] = {
    "enqueue": enqueue,
    "read": lambda bench: bench.store.blobs.read(MANY + 5, [f"{7:064x}"]),
    "purge": lambda bench: Retention(bench.store.database)._purge_blobs(bench.now),
}


@pytest.mark.parametrize("name", HOT)
def test_a_question_about_files_is_a_range_of_an_index(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STRETCH_BLOBS", 1000)
    asked: list[tuple[str, Any]] = []

    def catch(_c: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if statement.startswith("SELECT") and "email_blob" in statement:
            asked.append((statement, parameters))

    event.listen(bench.store.database.engine, "before_cursor_execute", catch)
    HOT[name](bench)
    event.remove(bench.store.database.engine, "before_cursor_execute", catch)

    assert asked
    assert [fault for one in asked for fault in walks(bench.store.database, *one)] == []


def walks(database: Database, statement: str, parameters: Any) -> list[str]:
    """Where the statement goes through a whole table or index."""
    with database.read() as connection:
        if database.is_sqlite:
            lines = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            return [str(line[3]) for line in lines if str(line[3]).startswith("SCAN email_blob")]
        if database.dialect == "mysql":
            rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).mappings()
            return [str(row) for row in rows if row["table"] in TABLES and row["type"] in ("ALL", "index")]
        lines = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).all()
        return [str(line[0]) for line in lines if "Seq Scan on email_blob" in str(line[0])]
