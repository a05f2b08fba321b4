"""Every kind of connection that a caller may hand to `enqueue`, as a Runner."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from importlib import import_module
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, scoped_session

from posthouse.errors import SchemaError, UnsupportedConnection
from posthouse.store.database import MARIADB, MYSQL, POSTGRESQL, SQLITE, missing_in_sqlite, translate
from posthouse.store.enqueue import Row, Runner
from posthouse.store.mysql import MISSING, error_number


def runner_for(connection: object) -> Runner:
    """A Runner on the caller's connection. Raises UnsupportedConnection."""
    if isinstance(connection, scoped_session):
        connection = connection()
    if isinstance(connection, Session):
        connection = connection.connection()
    if isinstance(connection, Connection):
        return _SqlAlchemyRunner(connection)
    if isinstance(connection, sqlite3.Connection):
        return _SqliteRunner(connection)
    packages = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    if "psycopg" in packages:
        return _psycopg_runner(connection)
    for package in packages & {"pymysql", "MySQLdb"}:
        return _mysql_runner(connection, package)
    raise UnsupportedConnection(
        f"enqueue can't write through a {type(connection).__module__}.{type(connection).__qualname__}; hand it a "
        "SQLAlchemy Connection or Session, or a sqlite3, psycopg, PyMySQL or mysqlclient connection"
    )


def _refuse_autocommit() -> UnsupportedConnection:
    return UnsupportedConnection(
        "the connection is in autocommit mode and no transaction is open: the email would not be part of your "
        "transaction; begin one first"
    )


_PLACEHOLDERS: Final = {SQLITE: ("qmark",), POSTGRESQL: ("pyformat", "format"), MYSQL: ("pyformat", "format")}
"""The styles that our statements are written in."""


class _SqlAlchemyRunner:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.dialect = MYSQL if connection.dialect.name == MARIADB else connection.dialect.name
        if connection.dialect.paramstyle not in _PLACEHOLDERS.get(self.dialect, ()):
            raise UnsupportedConnection(
                f"a {self.dialect} connection through {connection.dialect.driver}; Posthouse knows sqlite through "
                "sqlite3, postgresql through psycopg, and mysql through PyMySQL and mysqlclient"
            )
        if not connection.in_transaction():
            connection.begin()  # as its first statement would
        driver = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            _begin_sqlite(driver)
        elif self.dialect == MYSQL:
            _refuse_mysql_autocommit(self, driver)
        elif getattr(driver, "autocommit", False):
            raise _refuse_autocommit()

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        try:
            result = self._connection.exec_driver_sql(sql, tuple(parameters))
            return list(result) if result.returns_rows else []
        except DBAPIError as error:
            translated = translate(error)
            raise (translated if isinstance(translated, SchemaError) else error) from None


class _SqliteRunner:
    dialect = SQLITE

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        _begin_sqlite(connection)

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        try:
            # A cursor of our own: the application's may return rows of any kind.
            return sqlite3.Cursor(self._connection).execute(sql, tuple(parameters)).fetchall()
        except sqlite3.OperationalError as error:
            raise _sqlite_schema_error(error) or error from None


def _begin_sqlite(connection: sqlite3.Connection) -> None:
    """Makes sure that a transaction is open, as sqlite3 does by itself before an INSERT but not a SAVEPOINT."""
    autocommit = getattr(connection, "autocommit", None)  # from Python 3.12 on
    if connection.in_transaction or autocommit is False:
        return
    if connection.isolation_level is None or autocommit is True:
        raise _refuse_autocommit()
    connection.execute("BEGIN")


def _sqlite_schema_error(error: sqlite3.OperationalError) -> SchemaError | None:
    if missing_in_sqlite(str(error)):
        return SchemaError(f"the tables are missing or older than this release ({error}); run: posthouse migrate")
    return None


def _psycopg_runner(connection: object) -> Runner:
    import psycopg  # the driver is an option, and the caller has it

    if isinstance(connection, psycopg.AsyncConnection):
        raise UnsupportedConnection("an async psycopg connection; hand enqueue a psycopg.Connection")
    if not isinstance(connection, psycopg.Connection):
        raise UnsupportedConnection(f"a {type(connection).__qualname__}; hand enqueue the psycopg.Connection itself")
    idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if connection.autocommit and idle:
        raise _refuse_autocommit()
    return _PsycopgRunner(connection)


class _PsycopgRunner:
    dialect = POSTGRESQL

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        from psycopg import Cursor, errors
        from psycopg.rows import tuple_row

        try:
            # A cursor of our own: the application's may return rows and take parameters of any kind.
            with Cursor(self._connection, row_factory=tuple_row) as cursor:
                cursor.execute(sql, tuple(parameters))
                return list(cursor.fetchall()) if cursor.description else []
        except (errors.UndefinedTable, errors.UndefinedColumn) as error:
            raise SchemaError(
                f"the tables are missing or older than this release ({error}); run: posthouse migrate"
            ) from None


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
        with closing(self._connection.cursor(self._cursor_class)) as cursor:
            try:
                cursor.execute(sql, tuple(parameters))
            except Exception as error:
                if error_number(error) in MISSING:
                    raise SchemaError(
                        f"the tables are missing or older than this release ({error}); run: posthouse migrate"
                    ) from None
                raise
            return list(cursor.fetchall()) if cursor.description else []
