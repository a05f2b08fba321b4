"""Bringing the tables to this release's shape, with Alembic; and refusing to run on any other shape.

The version stands in a table of its own, `email_schema_version`, so that the application's own Alembic history in
the same database is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, text

from posthouse.errors import DatabaseUnavailable, SchemaError
from posthouse.store.database import MYSQL, POSTGRESQL, Database
from posthouse.store.mysql import patient_engine, refuse_old_server

if TYPE_CHECKING:
    from alembic.config import Config as AlembicConfig

VERSION_TABLE: Final = "email_schema_version"
_SCRIPTS: Final = Path(__file__).parent / "migrations"
_READ_VERSION: Final = text(f"SELECT version_num FROM {VERSION_TABLE}")
_LOCK_NUMBER: Final = 0x706F7374  # "post": any number that is ours
_MYSQL_LOCK: Final = text("SELECT GET_LOCK(CONCAT('posthouse ', MD5(DATABASE())), :seconds)")  # names are the server's
_MYSQL_LOCK_S: Final = 3600
_MYSQL_VERSION: Final = text("SELECT VERSION()")


def migrate(database: Database) -> str:
    """Creates or upgrades the tables; the version they have then. Several callers at once wait for each other.

    Raises SchemaError when the tables belong to a newer release, ConfigError when the server is too old.
    """
    with _migrating(database) as connection:
        found = _version(connection)
        _refuse_newer(found)
        if found != head():
            _upgrade(connection)
    return head()


def _upgrade(connection: Connection) -> None:
    from alembic import command  # a fifth of all that a command imports, and only this needs it

    config = _alembic()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextmanager
def _migrating(database: Database) -> Iterator[Connection]:
    """A transaction without a limit on its statements (an index on a big table takes its time), alone in it."""
    if database.dialect != MYSQL:
        with database.write() as connection:
            if database.dialect == POSTGRESQL:
                connection.execute(text("SET LOCAL statement_timeout = 0"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
            yield connection
        return
    # The lock and the settings last as long as the session, so it is one of its own.
    patient = Database(patient_engine(database.engine.url), database.clock)
    with closing(patient), patient.write() as connection:
        _refuse_old_server(connection)
        if not connection.scalar(_MYSQL_LOCK, {"seconds": _MYSQL_LOCK_S}):
            raise DatabaseUnavailable(f"another migration has not ended within {_MYSQL_LOCK_S} s")
        yield connection


def _refuse_old_server(connection: Connection) -> None:
    if connection.dialect.name == MYSQL:
        refuse_old_server(str(connection.scalar(_MYSQL_VERSION)))


def version(database: Database) -> str | None:
    """The tables' version; None when there are none."""
    with database.read() as connection:
        return _version(connection)


def _version(connection: Connection) -> str | None:
    if not connection.dialect.has_table(connection, VERSION_TABLE):
        return None
    return connection.scalars(_READ_VERSION).one_or_none()


@cache
def versions() -> list[str]:
    """Every version that this release knows, the oldest first: the migrations lie in files named for theirs."""
    return sorted(file.stem[1:5] for file in (_SCRIPTS / "versions").glob("v*.py"))


def head() -> str:
    """The version that this release works with."""
    return versions()[-1]


def check(database: Database) -> None:
    """Raises SchemaError unless the tables have this release's version, ConfigError when the server is too old."""
    with database.read() as connection:
        _refuse_old_server(connection)
        found = _version(connection)
    if found is None:
        raise SchemaError("the database has no Posthouse tables; run: posthouse migrate")
    _refuse_newer(found)
    if found != head():
        raise SchemaError(f"the tables are at version {found}, this release needs {head()}; run: posthouse migrate")


def _refuse_newer(found: str | None) -> None:
    if found is not None and found not in versions():
        raise SchemaError(f"the tables are at version {found}, newer than this release ({head()}); upgrade posthouse")


def _alembic() -> AlembicConfig:
    from alembic.config import Config as AlembicConfig

    config = AlembicConfig()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    return config
