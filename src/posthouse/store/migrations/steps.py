"""What migrations are made of: tables and indexes, each as every database needs it.

MariaDB and MySQL commit each of these steps by itself. There a migration that was interrupted goes on where it
stopped: a step that is done already is passed by. The other databases undo the whole migration.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

_TABLE: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def create_table(name: str, *items: sa.schema.SchemaItem, **options: Any) -> None:
    """Creates a table. One in the way that has other columns is an error."""
    columns = {item.name for item in items if isinstance(item, sa.Column)}
    if _on_mysql() and _columns(name) == columns:
        return
    op.create_table(name, *items, **options, **_TABLE)


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Adds a column."""
    if not (_on_mysql() and column.name in (_columns(table) or ())):
        op.add_column(table, column)


def create_index(name: str, table: str, columns: list[str], *, only: str | None = None) -> None:
    """Creates an index, of the rows that meet the condition.

    Where there are no partial indexes, it is one of all rows, which begins with the status if the condition is on it.
    """
    if _on_mysql():
        if name not in {index["name"] for index in _inspector().get_indexes(table)}:
            by_status = only is not None and only.startswith("status ")
            op.create_index(name, table, ["status", *columns] if by_status else columns)
        return
    where = None if only is None else sa.text(only)
    op.create_index(name, table, columns, postgresql_where=where, sqlite_where=where)


def widen_index(name: str, table: str, columns: list[str], *, only: str) -> None:
    """Makes an index anew for the rows of more statuses; one of all rows stays as it is."""
    if not _on_mysql():
        op.drop_index(name, table)
        create_index(name, table, columns, only=only)


def _on_mysql() -> bool:
    return op.get_bind().dialect.name == "mysql"


def _inspector() -> sa.Inspector:
    return sa.inspect(op.get_bind())


def _columns(table: str) -> set[str] | None:
    """The columns of a table that exists."""
    inspector = _inspector()
    return {column["name"] for column in inspector.get_columns(table)} if inspector.has_table(table) else None
