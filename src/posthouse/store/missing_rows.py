"""Rows that have to be there to be locked: written where there are none, in each database's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Insert, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite

from posthouse.store.database import MYSQL, POSTGRESQL


def insert_missing(dialect: str, table: Table, rows: Sequence[Mapping[str, Any]]) -> Insert:
    """Inserts the rows whose `name` the table doesn't have yet, whoever else does so at the same time."""
    if dialect == MYSQL:
        return mysql.insert(table).values(rows).on_duplicate_key_update(name=table.c.name)
    dialect_insert: Any = postgresql.insert if dialect == POSTGRESQL else sqlite.insert
    inserted: Insert = dialect_insert(table).values(rows).on_conflict_do_nothing(index_elements=["name"])
    return inserted
