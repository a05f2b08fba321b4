"""Bringing the tables to this release's shape, with Alembic; and refusing to run on any other shape.

The version stands in a table of its own, `email_schema_version`, so that the application's own Alembic history in
the same database is left alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from posthouse.errors import SchemaError
from posthouse.store.database import POSTGRESQL, Database

VERSION_TABLE: Final = "email_schema_version"
_LOCK_NUMBER: Final = 0x706F7374  # "post": any number that is ours


def migrate(database: Database) -> str:
    """Creates or upgrades the tables; the version they have then. Several callers at once wait for each other.

    Raises SchemaError when the tables belong to a newer release.
    """
    with database.write() as connection:
        if database.dialect == POSTGRESQL:
            connection.execute(text("SET LOCAL statement_timeout = 0"))  # an index on a big table takes its time
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
        _refuse_newer(_version(connection))
        config = _alembic()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return head()


def version(database: Database) -> str | None:
    """The tables' version; None when there are none."""
    with database.read() as connection:
        return _version(connection)


def _version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


@cache
def head() -> str:
    """The version that this release works with."""
    revision = ScriptDirectory.from_config(_alembic()).get_current_head()
    if revision is None:
        raise AssertionError("no migrations are installed")
    return revision


def check(database: Database) -> None:
    """Raises SchemaError unless the tables have this release's version."""
    found = version(database)
    if found is None:
        raise SchemaError("the database has no Posthouse tables; run: posthouse migrate")
    _refuse_newer(found)
    if found != head():
        raise SchemaError(f"the tables are at version {found}, this release needs {head()}; run: posthouse migrate")


def _refuse_newer(found: str | None) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(_alembic()).walk_revisions()}
    if found is not None and found not in known:
        raise SchemaError(f"the tables are at version {found}, newer than this release ({head()}); upgrade posthouse")


def _alembic() -> AlembicConfig:
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config
