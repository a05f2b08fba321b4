"""Which connections `enqueue_async` takes and which it refuses, with the method that would take them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

from posthouse.errors import UnsupportedConnection
from posthouse.store.database import Database
from posthouse.store.store import Store
from tests.contract.store_support import email, outbox
from tests.integration.async_callers import async_engine
from tests.integration.enqueue_callers import keys

postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@postgresql
async def test_psycopg_in_autocommit_without_a_transaction_is_refused(database_url: str, store: Store) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        with pytest.raises(UnsupportedConnection, match="autocommit mode and no transaction is open"):
            await outbox().enqueue_async(connection, email("k"))
        async with connection.transaction():
            await outbox().enqueue_async(connection, email("k"))

    assert keys(store) == ["k"]


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_sqlalchemy_in_autocommit_is_refused(database_url: str, store: Store, many: bool) -> None:
    engine = async_engine(database_url, isolation_level="AUTOCOMMIT")
    emails = [email("a"), email("b")] if many else [email("a")]
    async with engine.connect() as connection:
        with pytest.raises(UnsupportedConnection, match="autocommit mode"):
            await outbox().enqueue_many_async(connection, emails)
    async with AsyncSession(engine) as session:
        with pytest.raises(UnsupportedConnection, match="autocommit mode"):
            await outbox().enqueue_many_async(session, emails)
        await session.commit()
    await engine.dispose()

    assert keys(store) == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_sqlalchemy_that_begins_its_sqlite_transactions_itself_is_taken(database_url: str, store: Store) -> None:
    engine = async_engine(database_url, connect_args={"isolation_level": None})
    event.listen(engine.sync_engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    async with engine.begin() as connection:
        await outbox().enqueue_many_async(connection, [email("kept-1"), email("kept-2")])
    async with engine.connect() as connection:
        await outbox().enqueue_async(connection, email("gone"))
    await engine.dispose()

    assert keys(store) == ["kept-1", "kept-2"]


async def test_a_blocking_connection_is_sent_to_enqueue(database: Database) -> None:
    with database.engine.connect() as connection:
        with pytest.raises(UnsupportedConnection, match=r"Connection; .* not async goes to outbox\.enqueue"):
            await outbox().enqueue_async(connection, email("k"))
        assert not connection.in_transaction()
    with (
        closing(sqlite3.connect(":memory:")) as plain,
        pytest.raises(UnsupportedConnection, match=r"sqlite3\.Connection; .* not async goes to outbox\.enqueue"),
    ):
        await outbox().enqueue_many_async(plain, [email("k")])


@postgresql
async def test_a_blocking_psycopg_connection_is_sent_to_enqueue(database_url: str) -> None:
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(UnsupportedConnection, match=r"not async goes to outbox\.enqueue"),
    ):
        await outbox().enqueue_async(connection, email("k"))


async def test_an_async_connection_is_sent_to_enqueue_async(database_url: str) -> None:
    engine = async_engine(database_url)
    scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: None)
    async with engine.connect() as connection, AsyncSession(engine) as session:
        for each in (connection, session, scoped):
            with pytest.raises(UnsupportedConnection, match=r"is async; hand it to `await outbox\.enqueue_async`"):
                outbox().enqueue(each, email("k"))
    await scoped.remove()
    await engine.dispose()


async def test_an_async_engine_or_session_maker_is_refused_by_both(database_url: str) -> None:
    engine = async_engine(database_url)
    for each in (engine, async_sessionmaker(engine)):
        with pytest.raises(UnsupportedConnection, match=type(each).__name__):
            await outbox().enqueue_async(each, email("k"))
        with pytest.raises(UnsupportedConnection, match=type(each).__name__):
            outbox().enqueue(each, email("k"))
    await engine.dispose()


@pytest.mark.parametrize("thing", [None, "sqlite:///x.db", object()], ids=lambda x: type(x).__name__)
async def test_what_is_no_connection_is_refused_by_its_type(thing: object) -> None:
    with pytest.raises(UnsupportedConnection, match=type(thing).__qualname__):
        await outbox().enqueue_async(thing, email("k"))


@postgresql
async def test_a_psycopg_connection_may_have_its_own_rows_and_cursors(database_url: str, store: Store) -> None:
    async with await psycopg.AsyncConnection.connect(
        database_url, row_factory=dict_row, cursor_factory=psycopg.AsyncClientCursor
    ) as connection:
        first = await outbox().enqueue_async(connection, email("k"))
        again = await outbox().enqueue_async(connection, email("k"))

    assert (first.id, again.created, keys(store)) == (again.id, False, ["k"])


async def test_the_synchronous_part_of_an_async_session_goes_to_enqueue(database_url: str, store: Store) -> None:
    engine = async_engine(database_url)

    def in_synchronous_code(session: Any) -> None:
        outbox().enqueue(session, email("k"))

    async with AsyncSession(engine) as session, session.begin():
        await session.run_sync(in_synchronous_code)
    await engine.dispose()

    assert keys(store) == ["k"]
