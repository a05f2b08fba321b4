"""MariaDB and MySQL: the engine, what the server must be able to do, and what its errors mean.

Where the two differ is asked once a connection, from the server's own version.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.pool import NullPool

from posthouse.errors import ConfigError
from posthouse.store.limits import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    IDLE_IN_TRANSACTION_TIMEOUT_S,
    LOCK_TIMEOUT_S,
    POOL_SIZE,
    STATEMENT_TIMEOUT_S,
)

DRIVERS: Final = {"pymysql": "PyMySQL", "mysqldb": "mysqlclient"}
MISSING: Final = frozenset({1054, 1146})
"""Errors for a column or a table that does not exist (ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE)."""

MISTAKES: Final = frozenset(
    {1050, 1060, 1061, 1064, 1091, 1142, 1143, 1153, 1264, 1265, 1267, 1292, 1364, 1366, 1406, 1690}
)
"""Errors of a statement, its values or our rights, which no waiting mends; the drivers call most of them operational,
like a database that is away."""

_READ_ONLY: Final = frozenset({1290, 1792, 1836})
"""Errors for a write where none is allowed, as on a server that a failover has made a replica."""

_MARIADB_MIN, _MYSQL_MIN = (10, 6, 0), (8, 0, 14)
_RECYCLE_S: Final = 300  # servers and proxies between drop connections that are idle for some minutes

_SESSION: Final = {
    "time_zone": "'+00:00'",
    "sql_mode": "'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
}


@dataclass(frozen=True, slots=True)
class Server:
    """What `SELECT VERSION()` says."""

    is_mariadb: bool
    version: tuple[int, ...]

    @property
    def refusal(self) -> str | None:
        """Why this server won't do; None if it will. What counts is SKIP LOCKED, then JSON_TABLE."""
        name, needed = ("MariaDB", _MARIADB_MIN) if self.is_mariadb else ("MySQL", _MYSQL_MIN)
        if self.version >= needed:
            return None
        return (
            f"{name} {_dotted(self.version)} is too old: its claims can't pass by the rows of another worker "
            f"(SKIP LOCKED); Posthouse needs MariaDB {_dotted(_MARIADB_MIN[:2])} or MySQL {_dotted(_MYSQL_MIN)}, "
            "or newer"
        )


def server_of(version: str) -> Server:
    """Reads the server's version, such as `8.0.36`, `10.11.6-MariaDB` or, for old replicas, `5.5.5-10.11.6-MariaDB`."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)(?=-MariaDB)", version) or re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    numbers = tuple(int(number) for number in found.groups()) if found else ()
    return Server("mariadb" in version.lower(), numbers)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version) or "of an unknown version"


def refuse_old_server(version: str) -> None:
    """Raises ConfigError for a server that the store can't work with."""
    refusal = server_of(version).refusal
    if refusal is not None:
        raise ConfigError("database", refusal)


def session_limits(server: Server) -> dict[str, str]:
    """The settings of a session that keep every statement short."""
    limits = {"innodb_lock_wait_timeout": LOCK_TIMEOUT_S, "lock_wait_timeout": LOCK_TIMEOUT_S}
    if server.is_mariadb:
        limits |= {
            "max_statement_time": STATEMENT_TIMEOUT_S,
            "idle_transaction_timeout": IDLE_IN_TRANSACTION_TIMEOUT_S,
        }
    else:
        limits |= {"max_execution_time": STATEMENT_TIMEOUT_S * 1000}  # it ends SELECTs only
    return {name: str(value) for name, value in limits.items()}


def error_number(error: object) -> int | None:
    """The server's number of a driver's error."""
    arguments = getattr(error, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None


def mysql_engine(url: URL) -> Engine:
    """The engine that the store works with: every statement has its limits. Raises ConfigError."""
    timeouts = {"read_timeout": ANSWER_TIMEOUT_S, "write_timeout": ANSWER_TIMEOUT_S}
    engine = create_engine(
        _with_driver(url),
        isolation_level="READ COMMITTED",
        pool_size=POOL_SIZE,
        max_overflow=POOL_SIZE,
        pool_timeout=CONNECT_TIMEOUT_S,
        pool_recycle=_RECYCLE_S,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "charset": "utf8mb4", **timeouts},
    )
    _prepare_sessions(engine, limited=True)
    return engine


def patient_engine(url: URL) -> Engine:
    """An engine for migrations, whose statements take as long as a big table needs; it keeps no connection."""
    engine = create_engine(
        url, poolclass=NullPool, connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "charset": "utf8mb4"}
    )
    _prepare_sessions(engine, limited=False)
    return engine


def _with_driver(url: URL) -> URL:
    driver = url.drivername.partition("+")[2] or "pymysql"
    if driver not in DRIVERS:
        raise ConfigError("database", f"the driver {driver} is not supported; use mysql:// or mysql+mysqldb://")
    return url.set(drivername=f"mysql+{driver}")


def _prepare_sessions(engine: Engine, *, limited: bool) -> None:
    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SELECT VERSION()")
            server = server_of(cursor.fetchone()[0])
            if server.refusal is not None:
                return  # it may not know these settings, and whoever starts on it says why it won't do
            settings = _SESSION | (session_limits(server) if limited else {})
            cursor.execute("SET SESSION " + ", ".join(f"{name} = {value}" for name, value in settings.items()))

    @event.listens_for(engine, "handle_error")
    def _leave_read_only(context: ExceptionContext) -> None:
        if error_number(context.original_exception) in _READ_ONLY:
            context.is_disconnect = True  # nothing comes of these connections any more; new ones find the primary
