"""The connection to the database: engines, time limits, transactions, and foreign errors translated once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, func, literal
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    PendingRollbackError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import StaticPool
from sqlalchemy.sql import ColumnElement

from posthouse.errors import ConfigError, DatabaseUnavailable, SchemaError
from posthouse.store.limits import (
    CONNECT_TIMEOUT_S,
    IDLE_IN_TRANSACTION_TIMEOUT_S,
    LOCK_TIMEOUT_S,
    POOL_SIZE,
    STATEMENT_TIMEOUT_S,
)
from posthouse.store.mysql import MISSING, MISTAKES, error_number, mysql_engine
from posthouse.store.schema import Instant

SQLITE, POSTGRESQL, MYSQL = "sqlite", "postgresql", "mysql"
MARIADB: Final = "mariadb"
"""Another name for MYSQL, in URLs and as the dialect of a caller's own connection."""

READ_ONLY: Final = "25006"
"""PostgreSQL's code for a write where none is allowed, as on a server that a failover has made a standby."""

_WRITE_AHEAD_TRIES: Final = 100

Clock = Callable[[], float]


class Database:
    """One engine, and the two kinds of transaction on it.

    `clock` is the database's clock where the database runs in this process (SQLite); a server uses its own.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock
        self.dialect = engine.dialect.name

    @property
    def is_sqlite(self) -> bool:
        return self.dialect == SQLITE

    @property
    def sqlite_file(self) -> str | None:
        """The file's path; None for another database, or one in memory."""
        place = self.engine.url.database if self.is_sqlite else None
        return None if place in (None, "", ":memory:") else place

    def now(self) -> ColumnElement[Any]:
        """The database's time, as an expression in a statement."""
        if self.dialect == POSTGRESQL:
            return func.clock_timestamp(type_=Instant)
        if self.dialect == MYSQL:
            return func.utc_timestamp(6, type_=Instant)
        return literal(self.clock(), type_=Instant)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write; committed at the end. Raises DatabaseUnavailable, SchemaError."""
        with _translated(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """A connection on which each statement is a transaction of its own. Raises DatabaseUnavailable, SchemaError."""
        with _translated(), self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that only reads, each statement for itself. Raises DatabaseUnavailable, SchemaError."""
        with self.autocommit() as connection:
            yield connection

    def close(self) -> None:
        """Closes every pooled connection."""
        self.engine.dispose()


def open_database(url: str, clock: Clock) -> Database:
    """A Database for `sqlite:///…`, `postgresql://…` or `mysql://…`. Connects at the first use. Raises ConfigError."""
    parsed = make_url(url)
    name = parsed.get_backend_name()
    try:
        if name == SQLITE:
            return Database(_sqlite_engine(parsed), clock)
        if name == POSTGRESQL:
            return Database(_postgresql_engine(parsed), clock)
        if name in (MYSQL, MARIADB):
            return Database(mysql_engine(parsed), clock)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        extra = MYSQL if name == MARIADB else name
        raise ConfigError("database", f"its driver is missing ({error}); pip install 'posthouse[{extra}]'") from None
    raise ConfigError("database", f"{name} is not supported; use sqlite, postgresql, mysql or mariadb")


def _sqlite_engine(url: URL) -> Engine:
    in_memory = url.database in (None, "", ":memory:")
    pool: dict[str, Any] = {"poolclass": StaticPool} if in_memory else {}
    engine = create_engine(
        url,
        connect_args={"check_same_thread": False, "timeout": LOCK_TIMEOUT_S, "isolation_level": None},
        **pool,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")  # NORMAL may forget an acceptance when the power fails

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # Taking the write lock at once: a reader that turns writer half-way can only fail.
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Turns the file to WAL. Of several who do so at once, SQLite refuses all but one without waiting.

    A transaction does wait: until whoever is at it has let go of the file.
    """
    for tries_left in reversed(range(_WRITE_AHEAD_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or not tries_left:
                raise
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")


def _postgresql_engine(url: URL) -> Engine:
    if url.drivername == POSTGRESQL:
        url = url.set(drivername="postgresql+psycopg")
    limits = {
        "statement_timeout": STATEMENT_TIMEOUT_S,
        "lock_timeout": LOCK_TIMEOUT_S,
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_TIMEOUT_S,
    }
    engine = create_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=POOL_SIZE,
        pool_timeout=CONNECT_TIMEOUT_S,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "options": " ".join(f"-c {name}={seconds}s" for name, seconds in limits.items()),
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            "tcp_user_timeout": STATEMENT_TIMEOUT_S * 1000,
            "target_session_attrs": "read-write",  # never a standby, nor what a failover has made one
        },
    )

    @event.listens_for(engine, "handle_error")
    def _leave_read_only(context: ExceptionContext) -> None:
        if getattr(context.original_exception, "sqlstate", "") == READ_ONLY:
            context.is_disconnect = True  # nothing comes of these connections any more; new ones look for the primary

    return engine


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, ProgrammingError) as error:
        raise translate(error) from error
    except PoolTimeout as error:
        raise DatabaseUnavailable("no free database connection in time") from error
    except PendingRollbackError as error:
        raise DatabaseUnavailable("the database connection was lost") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise translate(error) from error
        raise


def translate(error: DBAPIError) -> Exception:
    """Our exception for a driver's: tables that are missing, or a database that is away; else the same."""
    if (missing := schema_error(error.orig)) is not None:
        return missing
    if isinstance(error, ProgrammingError) or error_number(error.orig) in MISTAKES:
        return error
    return DatabaseUnavailable(f"the database is not available: {_first_line(error.orig)}")


def schema_error(error: BaseException | None) -> SchemaError | None:
    """Our exception for a driver's that is about a table or a column that does not exist; else None."""
    said = _first_line(error)
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)  # psycopg's name for it, and psycopg2's
    missing = state in ("42P01", "42703") or error_number(error) in MISSING
    if missing or any(words in said for words in _MISSING_IN_SQLITE):
        return SchemaError(f"the tables are missing or older than this release ({said}); run: posthouse migrate")
    return None


_MISSING_IN_SQLITE: Final = ("no such table", "no such column", "has no column")


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().partition("\n")[0]
