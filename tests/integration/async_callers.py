"""An application's own async connection, of every kind that `enqueue_async` takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)

from tests.integration.enqueue_callers import ORDERS


@dataclass(frozen=True)
class AsyncCaller:
    """A connection inside the application's transaction, and how the application goes on with it."""

    connection: object  # what is handed to `enqueue_async`
    execute: Callable[[str], Awaitable[Any]]
    commit: Callable[[], Awaitable[object]]
    rollback: Callable[[], Awaitable[object]]

    async def order(self, number: int) -> None:
        """Writes a row of the application's own."""
        await self.execute(f"INSERT INTO {ORDERS} (id) VALUES ({number})")


def async_engine(url: str, **settings: Any) -> AsyncEngine:
    """An engine as an application would make it: nothing of ours."""
    return create_async_engine(
        url.replace("postgresql://", "postgresql+psycopg://").replace("sqlite://", "sqlite+aiosqlite://"), **settings
    )


@asynccontextmanager
async def sqlalchemy_async_connection(url: str) -> AsyncIterator[AsyncCaller]:
    engine = async_engine(url)
    async with engine.connect() as connection:
        yield AsyncCaller(connection, lambda sql: connection.execute(text(sql)), connection.commit, connection.rollback)
    await engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_session(url: str) -> AsyncIterator[AsyncCaller]:
    engine = async_engine(url)
    async with AsyncSession(engine) as session:
        yield AsyncCaller(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)
    await engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_scoped_session(url: str) -> AsyncIterator[AsyncCaller]:
    engine = async_engine(url)
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    yield AsyncCaller(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)
    await session.remove()
    await engine.dispose()


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[AsyncCaller]:
    """As it comes: the first statement begins a transaction."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield AsyncCaller(
            connection, lambda sql: connection.execute(sql.encode()), connection.commit, connection.rollback
        )


@asynccontextmanager
async def psycopg_async_in_autocommit(url: str) -> AsyncIterator[AsyncCaller]:
    """In autocommit mode, inside a transaction that the application began."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        transaction = connection.transaction()
        await transaction.__aenter__()
        yield AsyncCaller(
            connection,
            lambda sql: connection.execute(sql.encode()),
            lambda: transaction.__aexit__(None, None, None),
            lambda: transaction.__aexit__(psycopg.Rollback, psycopg.Rollback(), None),
        )


_OF_SQLALCHEMY: Final = (sqlalchemy_async_connection, sqlalchemy_async_session, sqlalchemy_async_scoped_session)
_OF_PSYCOPG: Final = (psycopg_async, psycopg_async_in_autocommit)

ASYNC_KINDS: Final = [
    *(("sqlite", kind) for kind in _OF_SQLALCHEMY),
    *(("postgresql", kind) for kind in (*_OF_SQLALCHEMY, *_OF_PSYCOPG)),
]
"""Every database with each kind of connection to it."""
