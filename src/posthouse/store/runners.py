"""Every kind of connection that a caller may hand to `enqueue`, as a Runner."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import Connection

from posthouse.errors import UnsupportedConnection
from posthouse.store.database import MARIADB, MYSQL, POSTGRESQL, SQLITE, schema_error
from posthouse.store.mysql import error_number
from posthouse.store.script import Row, Runner, Script, play

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

T = TypeVar("T")


def write_through(connection: object, script_for: Callable[[str], Script[T]]) -> T:
    """Plays the script for the connection's dialect, on the caller's connection. Raises UnsupportedConnection."""
    runner = runner_for(connection)
    return play(script_for(runner.dialect), runner)


def runner_for(connection: object) -> Runner:
    """A Runner on the caller's connection. Raises UnsupportedConnection."""
    if comes_from("sqlalchemy.orm", connection):
        connection = _of_session(connection)
    if isinstance(connection, Connection):
        return _SqlAlchemyRunner(connection)
    if isinstance(connection, sqlite3.Connection):
        return _SqliteRunner(connection)
    if comes_from("psycopg", connection):
        return _psycopg_runner(connection)
    for package in ("pymysql", "MySQLdb"):
        if comes_from(package, connection):
            return _mysql_runner(connection, package)
    if comes_from("django", connection) and hasattr(connection, "in_atomic_block"):
        return _DjangoRunner(connection)
    if sqlalchemy_async(connection) is not None:
        raise _refuse_async(connection)
    raise UnsupportedConnection(
        f"enqueue can't write through a {type_name(connection)}; hand it a SQLAlchemy Connection or Session, a Django "
        "connection, or a sqlite3, psycopg, PyMySQL or mysqlclient connection"
    )


def _of_session(session: object) -> object:
    """The connection of a SQLAlchemy Session or scoped_session; anything else as it is."""
    from sqlalchemy.orm import Session, scoped_session  # whoever has a session has imported this already

    if isinstance(session, scoped_session):
        session = session()
    return session.connection() if isinstance(session, Session) else session


def comes_from(package: str, thing: object) -> bool:
    """Whether the class of `thing`, or one that it is derived from, is of this package; without importing that."""
    return any(f"{kind.__module__}.".startswith(f"{package}.") for kind in type(thing).__mro__)


def type_name(thing: object) -> str:
    """Its class as an error names it."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def sqlalchemy_async(connection: object) -> AsyncConnection | AsyncSession | None:
    """The SQLAlchemy connection or session that is awaited, where this is one; else None."""
    if not comes_from("sqlalchemy.ext.asyncio", connection):
        return None  # without importing what needs greenlet, which only such a caller has for certain
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    if isinstance(connection, async_scoped_session):
        connection = connection()
    return connection if isinstance(connection, AsyncConnection | AsyncSession) else None


def _refuse_async(connection: object) -> UnsupportedConnection:
    return UnsupportedConnection(
        f"a {type_name(connection)} is async; hand it to `await outbox.enqueue_async` (or enqueue_many_async) instead"
    )


def _refuse_autocommit() -> UnsupportedConnection:
    return UnsupportedConnection(
        "the connection is in autocommit mode and no transaction is open: the email would not be part of your "
        "transaction; begin one first"
    )


@contextmanager
def _missing_tables_named() -> Iterator[None]:
    """Translates the error about a table that is not there; every other one reaches the caller as it is."""
    try:
        yield
    except Exception as error:
        # SQLAlchemy and Django wrap the driver's own error, and name it as the cause.
        if (missing := schema_error(error.__cause__ or error)) is None:
            raise
        raise missing from None


# SQLAlchemy.

_PLACEHOLDERS: Final = {SQLITE: ("qmark",), POSTGRESQL: ("pyformat", "format"), MYSQL: ("pyformat", "format")}
"""The styles that our statements are written in."""

_MYSQL_DRIVERS: Final = ("pymysql", "mysqldb")


class _SqlAlchemyRunner:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.dialect = MYSQL if connection.dialect.name == MARIADB else connection.dialect.name
        known = connection.dialect.paramstyle in _PLACEHOLDERS.get(self.dialect, ())
        if not known or (self.dialect == MYSQL and connection.dialect.driver not in _MYSQL_DRIVERS):
            raise UnsupportedConnection(
                f"a {self.dialect} connection through {connection.dialect.driver}; Posthouse knows sqlite through "
                "sqlite3 or aiosqlite, postgresql through psycopg, and mysql through PyMySQL and mysqlclient"
            )
        if not connection.in_transaction():
            connection.begin()  # as its first statement would
        driver: Any = connection.connection.driver_connection
        if self.dialect == SQLITE:
            # aiosqlite hides the sqlite3 connection, which alone knows all of its modes.
            if _must_begin(getattr(driver, "_conn", driver)):
                self.run("BEGIN", ())
        elif self.dialect == MYSQL:
            _refuse_mysql_autocommit(self, driver)
        elif getattr(driver, "autocommit", False):
            raise _refuse_autocommit()

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        with _missing_tables_named():
            result = self._connection.exec_driver_sql(sql, tuple(parameters))
            return list(result) if result.returns_rows else []


# sqlite3.


class _SqliteRunner:
    dialect = SQLITE

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        if _must_begin(connection):
            self.run("BEGIN", ())

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        with _missing_tables_named():
            # A cursor of our own: the application's may return rows of any kind.
            return sqlite3.Cursor(self._connection).execute(sql, tuple(parameters)).fetchall()


def _must_begin(connection: sqlite3.Connection) -> bool:
    """Whether a transaction is to be begun, which sqlite3 does by itself before an INSERT but not a SAVEPOINT.

    Raises UnsupportedConnection in autocommit mode.
    """
    autocommit = getattr(connection, "autocommit", None)  # from Python 3.12 on
    if connection.in_transaction or autocommit is False:
        return False
    if connection.isolation_level is None or autocommit is True:
        raise _refuse_autocommit()
    return True


# psycopg.


def _psycopg_runner(connection: object) -> Runner:
    import psycopg  # the driver is an option, and the caller has it

    if isinstance(connection, psycopg.AsyncConnection):
        raise _refuse_async(connection)
    if not isinstance(connection, psycopg.Connection):
        raise UnsupportedConnection(f"a {type(connection).__qualname__}; hand enqueue the psycopg.Connection itself")
    _refuse_psycopg_autocommit(connection)
    return _PsycopgRunner(connection)


def _refuse_psycopg_autocommit(connection: Any) -> None:
    """Raises UnsupportedConnection for a psycopg connection, async or not, whose next statement would commit itself."""
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise _refuse_autocommit()


class _PsycopgRunner:
    dialect = POSTGRESQL

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        # A cursor of our own: the application's may return rows and take parameters of any kind.
        with _missing_tables_named(), Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(sql, tuple(parameters))
            return list(cursor.fetchall()) if cursor.description else []


class AsyncPsycopgRunner:
    """The same for a psycopg.AsyncConnection. Raises UnsupportedConnection in autocommit mode."""

    dialect = POSTGRESQL

    def __init__(self, connection: Any) -> None:
        _refuse_psycopg_autocommit(connection)
        self._connection = connection

    async def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        with _missing_tables_named():
            async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
                await cursor.execute(sql, tuple(parameters))
                return list(await cursor.fetchall()) if cursor.description else []


# Django.


class _DjangoRunner:
    """A Django connection, through Django's own cursors: they log, check the thread and know a broken transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.dialect: str = connection.vendor  # Django's names are ours
        if self.dialect not in (SQLITE, POSTGRESQL):
            raise UnsupportedConnection(f"a Django connection to {self.dialect}; Posthouse knows sqlite and postgresql")
        if connection.get_autocommit() and not connection.in_atomic_block:
            raise UnsupportedConnection(
                f"no transaction is open on Django's connection {connection.alias!r}: the email would not be part of "
                f"your transaction; enqueue inside `with transaction.atomic(using={connection.alias!r})`"
            )
        if self.dialect == SQLITE and _must_begin(connection.connection):
            self.run("BEGIN", ())

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        # On every database Django's placeholder is %s, and its log of queries knows no other.
        with _missing_tables_named(), self._connection.cursor() as cursor:
            cursor.execute(sql.replace("?", "%s"), tuple(parameters))
            return list(cursor.fetchall()) if cursor.description else []


# PyMySQL and mysqlclient.


def _mysql_runner(connection: Any, package: str) -> Runner:
    if not hasattr(connection, "commit"):
        raise UnsupportedConnection(f"a {type(connection).__qualname__}; hand enqueue the connection itself")
    # A cursor of our own: the application's may return rows of any kind.
    runner = _MysqlRunner(connection, import_module(f"{package}.cursors").Cursor)
    _refuse_mysql_autocommit(runner, connection)
    return runner


def _refuse_mysql_autocommit(runner: Runner, driver: Any) -> None:
    if not driver.get_autocommit():
        return
    # Outside a transaction a savepoint is gone with its own statement.
    runner.run("SAVEPOINT posthouse_begun", ())
    try:
        runner.run("RELEASE SAVEPOINT posthouse_begun", ())
    except Exception as error:
        if error_number(getattr(error, "orig", error)) == _NO_SAVEPOINT:
            raise _refuse_autocommit() from None
        raise


_NO_SAVEPOINT: Final = 1305  # ER_SP_DOES_NOT_EXIST


class _MysqlRunner:
    """On a connection of PyMySQL or mysqlclient, which are used in the same way."""

    dialect = MYSQL

    def __init__(self, connection: Any, cursor_class: type[Any]) -> None:
        self._connection = connection
        self._cursor_class = cursor_class

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        with _missing_tables_named(), closing(self._connection.cursor(self._cursor_class)) as cursor:
            cursor.execute(sql, tuple(parameters))
            return list(cursor.fetchall()) if cursor.description else []
