"""SQLite databases with the tables in them: migrated once, and copied for each test."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from posthouse.store.database import Database, open_database
from posthouse.store.migrate import migrate


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "posthouse.db"
        database = open_database(f"sqlite:///{file}", time.time)
        migrate(database)
        database.close()
        return file.read_bytes()


def sqlite_url(folder: Path) -> str:
    """The URL of a file in `folder`."""
    file = folder / "posthouse.db"
    file.write_bytes(_migrated())
    return f"sqlite:///{file}"


@cache
def _image() -> bytes:
    database = open_database("sqlite://", time.time)
    migrate(database)
    with database.engine.connect() as connection:
        image: bytes = connection.connection.driver_connection.serialize()  # type: ignore[union-attr]
    return image


def in_memory(now: Callable[[], float]) -> Database:
    """One that lives as long as it is open."""
    database = open_database("sqlite://", now)
    with database.engine.connect() as connection:
        connection.connection.driver_connection.deserialize(_image())  # type: ignore[union-attr]
    return database
