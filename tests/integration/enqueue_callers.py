"""An application's own connection to its own database, of every kind that `enqueue` takes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import django.db
import psycopg
import pymysql
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from posthouse.store.store import Store
from tests.integration.django_project.databases import pointed_at

ORDERS: Final = "shop_orders"
"""The application's table."""


@dataclass(frozen=True)
class Caller:
    """A connection inside the application's transaction, and how the application goes on with it."""

    connection: object  # what is handed to `enqueue`
    execute: Callable[[str], Any]
    commit: Callable[[], object]
    rollback: Callable[[], object]

    def order(self, number: int) -> None:
        """Writes a row of the application's own."""
        self.execute(f"INSERT INTO {ORDERS} (id) VALUES ({number})")


def sqlalchemy_engine(url: str) -> Engine:
    """An engine as an application would make it: nothing of ours."""
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://").replace("mysql://", "mysql+pymysql://"))


def pymysql_connection(url: str, **options: Any) -> pymysql.Connection[Any]:
    """A connection as an application would make it."""
    return pymysql.connect(**mysql_parts(url), **options)


def mysql_parts(url: str) -> dict[str, Any]:
    """What both drivers call the parts of a URL."""
    parsed = make_url(url)
    return {
        "host": parsed.host,
        "port": parsed.port or 3306,
        "user": parsed.username,
        "password": parsed.password or "",
        "database": parsed.database,
    }


def sqlite_file(url: str) -> str:
    return url.removeprefix("sqlite:///")


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Caller]:
    engine = sqlalchemy_engine(url)
    with engine.connect() as connection:
        yield Caller(connection, lambda sql: connection.execute(text(sql)), connection.commit, connection.rollback)
    engine.dispose()


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Caller]:
    engine = sqlalchemy_engine(url)
    with Session(engine) as session:
        yield Caller(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)
    engine.dispose()


@contextmanager
def driver(url: str) -> Iterator[Caller]:
    """sqlite3, psycopg or PyMySQL, as they come: the first statement begins a transaction."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_file(url), timeout=30)) as connection:
            yield Caller(connection, connection.execute, connection.commit, connection.rollback)
    elif url.startswith("mysql"):
        with closing(pymysql_connection(url)) as connection__:
            yield _by_cursor(connection__)
    else:
        with psycopg.connect(url) as connection_:
            yield Caller(
                connection_, lambda sql: connection_.execute(sql.encode()), connection_.commit, connection_.rollback
            )


@contextmanager
def driver_in_autocommit(url: str) -> Iterator[Caller]:
    """The same in autocommit mode, inside a transaction that the application began."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_file(url), timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield Caller(
                connection,
                connection.execute,
                lambda: connection.execute("COMMIT"),
                lambda: connection.execute("ROLLBACK"),
            )
    elif url.startswith("mysql"):
        with closing(pymysql_connection(url, autocommit=True)) as connection__:
            connection__.begin()
            yield _by_cursor(connection__)
    else:
        with psycopg.connect(url, autocommit=True) as connection_:
            transaction = connection_.transaction()
            transaction.__enter__()
            yield Caller(
                connection_,
                lambda sql: connection_.execute(sql.encode()),
                lambda: transaction.__exit__(None, None, None),
                lambda: transaction.__exit__(psycopg.Rollback, psycopg.Rollback(), None),
            )


@contextmanager
def django_connection(url: str) -> Iterator[Caller]:
    """Django's, inside `transaction.atomic()`; another such block follows on each end of one."""
    if url.startswith("mysql"):
        pytest.skip("a Django connection to MariaDB is refused")
    with pointed_at(url) as wrapper:
        block = _AtomicBlock()

        def execute(sql: str) -> Any:
            cursor = wrapper.cursor()
            cursor.execute(sql)
            return cursor

        yield Caller(django.db.connection, execute, block.commit, block.rollback)
        block.end(roll_back=True)


class _AtomicBlock:
    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._atomic = django.db.transaction.atomic()
        self._atomic.__enter__()

    def end(self, *, roll_back: bool) -> None:
        django.db.transaction.set_rollback(roll_back)
        self._atomic.__exit__(None, None, None)

    def commit(self) -> None:
        self.end(roll_back=False)
        self._begin()

    def rollback(self) -> None:
        self.end(roll_back=True)
        self._begin()


def _by_cursor(connection: Any) -> Caller:
    def execute(sql: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    return Caller(connection, execute, connection.commit, connection.rollback)


@contextmanager
def mysqlclient(url: str) -> Iterator[Caller]:
    """The other driver of MariaDB and MySQL."""
    mysqldb = pytest.importorskip("MySQLdb", reason="mysqlclient is not installed")
    with closing(mysqldb.connect(**mysql_parts(url), charset="utf8mb4")) as connection:
        yield _by_cursor(connection)


KINDS: Final = {
    kind.__name__: kind
    for kind in (sqlalchemy_connection, sqlalchemy_session, driver, driver_in_autocommit, django_connection)
}


def make_orders(url: str) -> None:
    """The application's table, new and empty."""
    engine = sqlalchemy_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {ORDERS}"))
        connection.execute(text(f"CREATE TABLE {ORDERS} (id integer PRIMARY KEY)"))
    engine.dispose()


def orders(url: str) -> list[int]:
    """What another connection sees of it."""
    engine = sqlalchemy_engine(url)
    with engine.connect() as connection:
        numbers = list(connection.scalars(text(f"SELECT id FROM {ORDERS} ORDER BY id")))
    engine.dispose()
    return numbers


def keys(store: Store) -> list[str]:
    """The keys in the ledger that another connection sees."""
    return sorted(row["dedupe_key"] for row in store.ledger.find([], None, 10_000))
