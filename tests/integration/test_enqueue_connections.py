"""Which connections `enqueue` takes, however an application has set them up, and which it refuses and why."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from types import SimpleNamespace
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.orm import Session

from posthouse.email import Email
from posthouse.errors import UnsupportedConnection
from posthouse.store.database import Database
from posthouse.store.store import Store
from tests.contract.store_support import email, outbox
from tests.integration.enqueue_callers import keys, sqlalchemy_engine, sqlite_file

# What is refused.


class _NewerSqlite(sqlite3.Connection):
    """A sqlite3 connection of Python 3.12 with `autocommit=True`."""

    autocommit: ClassVar[Any] = True


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("kind", [sqlite3.Connection, _NewerSqlite])
def test_sqlite3_in_autocommit_without_a_transaction_is_refused(
    database_url: str, store: Store, kind: type[sqlite3.Connection]
) -> None:
    level: Any = None if kind is sqlite3.Connection else ""
    with closing(sqlite3.connect(sqlite_file(database_url), isolation_level=level, factory=kind)) as connection:
        with pytest.raises(UnsupportedConnection, match="autocommit mode and no transaction is open"):
            outbox().enqueue(connection, email("k"))
        assert not connection.in_transaction

        connection.execute("BEGIN")
        outbox().enqueue(connection, email("k"))
        connection.execute("COMMIT")

    assert keys(store) == ["k"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no `autocommit` before Python 3.12")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_sqlite3_of_today_is_taken_in_a_transaction_and_refused_in_autocommit(database_url: str, store: Store) -> None:
    settings: dict[str, Any] = {"autocommit": False}
    with closing(sqlite3.connect(sqlite_file(database_url), **settings)) as connection:
        outbox().enqueue_many(connection, [email("kept-1"), email("kept-2")])
        connection.commit()
        outbox().enqueue(connection, email("gone"))
        connection.rollback()
    settings["autocommit"] = True
    with (
        closing(sqlite3.connect(sqlite_file(database_url), **settings)) as connection,
        pytest.raises(UnsupportedConnection, match="autocommit mode"),
    ):
        outbox().enqueue(connection, email("k"))

    assert keys(store) == ["kept-1", "kept-2"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_psycopg_in_autocommit_without_a_transaction_is_refused(database_url: str, store: Store) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(UnsupportedConnection, match="autocommit mode and no transaction is open"):
            outbox().enqueue(connection, email("k"))
        with connection.transaction():
            outbox().enqueue(connection, email("k"))

    assert keys(store) == ["k"]


@pytest.mark.parametrize("by_engine", [True, False], ids=["set on the engine", "set on the connection"])
def test_sqlalchemy_in_autocommit_is_refused(database_url: str, store: Store, by_engine: bool) -> None:
    engine = sqlalchemy_engine(database_url)
    if by_engine:
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        if not by_engine:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(UnsupportedConnection, match="autocommit mode"):
            outbox().enqueue(connection, email("k"))
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        with pytest.raises(UnsupportedConnection, match="autocommit mode"):
            outbox().enqueue(session, email("k"))
        session.commit()
    engine.dispose()

    assert keys(store) == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_sqlalchemy_that_begins_its_sqlite_transactions_itself_is_taken(database_url: str, store: Store) -> None:
    engine = create_engine(database_url, connect_args={"isolation_level": None})
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.begin() as connection:
        outbox().enqueue_many(connection, [email("kept-1"), email("kept-2")])
    with engine.connect() as connection:
        outbox().enqueue(connection, email("gone"))
    engine.dispose()

    assert keys(store) == ["kept-1", "kept-2"]


@pytest.mark.parametrize(
    "thing", [None, "sqlite:///x.db", object(), {}, Email(key="k")], ids=lambda x: type(x).__name__
)
def test_what_is_no_connection_is_refused_by_its_type(thing: object) -> None:
    with pytest.raises(UnsupportedConnection, match=type(thing).__qualname__):
        outbox().enqueue(thing, email("k"))


def test_an_engine_or_a_cursor_is_refused(database: Database, database_url: str) -> None:
    with pytest.raises(UnsupportedConnection, match="Engine"):
        outbox().enqueue(database.engine, email("k"))
    with database.engine.connect() as connection:
        cursor = connection.connection.cursor()
        with pytest.raises(UnsupportedConnection, match="Cursor"):
            outbox().enqueue(cursor, email("k"))
        cursor.close()
        with pytest.raises(UnsupportedConnection):
            outbox().enqueue(connection.connection, email("k"))  # the pool's proxy


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_an_async_connection_is_refused(database_url: str) -> None:
    async def plain() -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            with pytest.raises(UnsupportedConnection, match="async"):
                outbox().enqueue(connection, email("k"))

    asyncio.run(plain())


@pytest.mark.parametrize(
    ("name", "driver", "paramstyle"), [("oracle", "oracledb", "named"), ("postgresql", "asyncpg", "numeric_dollar")]
)
def test_another_database_or_driver_is_refused_by_its_name(name: str, driver: str, paramstyle: str) -> None:
    connection = object.__new__(Connection)
    connection.dialect = SimpleNamespace(name=name, driver=driver, paramstyle=paramstyle)  # type: ignore[assignment]

    with pytest.raises(UnsupportedConnection, match=rf"{name} connection through {driver}"):
        outbox().enqueue(connection, email("k"))


# Connections that an application has set up in its own way.


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_psycopg_connection_may_have_its_own_row_factory(database_url: str, store: Store) -> None:
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        first = outbox().enqueue(connection, email("k"))
        again = outbox().enqueue(connection, email("k"))
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}

    assert (first.id, again.created, keys(store)) == (again.id, False, ["k"])


class _TheirConnection(psycopg.Connection[Any]):
    """An application's subclass."""


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("cursor", [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor])
def test_a_psycopg_connection_may_be_a_subclass_with_its_own_cursors(
    database_url: str, store: Store, cursor: type[psycopg.Cursor[Any]]
) -> None:
    with _TheirConnection.connect(database_url, cursor_factory=cursor) as connection:
        outbox().enqueue(connection, email("k"))

    assert keys(store) == ["k"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "row_factory", [sqlite3.Row, lambda cursor, row: dict(zip([c[0] for c in cursor.description], row, strict=True))]
)
def test_a_sqlite3_connection_may_have_its_own_row_factory(database_url: str, store: Store, row_factory: Any) -> None:
    with closing(sqlite3.connect(sqlite_file(database_url))) as connection:
        connection.row_factory = row_factory
        first = outbox().enqueue(connection, email("k"))
        again = outbox().enqueue(connection, email("k"))
        assert connection.execute("SELECT 1 AS one").fetchone()["one"] == 1
        connection.commit()

    assert (first.id, again.created, keys(store)) == (again.id, False, ["k"])


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_caller_with_repeatable_reads_gets_the_databases_own_error_for_a_lost_race(
    database_url: str, store: Store
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM email_sends")  # its snapshot
        outbox().enqueue(connection, email("mine"))
        with store.database.write() as other:
            outbox().enqueue(other, email("theirs"))

        with pytest.raises(psycopg.errors.SerializationFailure):
            outbox().enqueue(connection, email("theirs"))
        connection.rollback()
        assert not outbox().enqueue(connection, email("theirs")).created

    assert keys(store) == ["theirs"]
