"""A batch of rows as one JSON document, which the database reads as a relation.

One parameter and one constant statement, however many rows: no driver parses thousands of placeholders, every
statement can be prepared, and the databases differ only here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from posthouse.store.column_types import to_datetime
from posthouse.store.database import MYSQL, POSTGRESQL

MYSQL_TEXT: Final = "JSON_UNQUOTE(CONVERT(%s USING utf8mb4))"
"""A text that travels as ASCII: the caller's connection may have a character set that lacks most characters."""


def ascii_text(said: str) -> str:
    """What MYSQL_TEXT's placeholder is given."""
    return json.dumps(said)


class Kind(StrEnum):
    """What a column holds."""

    INTEGER = "bigint"
    TEXT = "text"
    BOOLEAN = "boolean"
    NUMBER = "double precision"
    INSTANT = "float8"  # seconds since 1970


_MYSQL_TYPES: Final = {
    Kind.INTEGER: "BIGINT",
    Kind.TEXT: "LONGTEXT CHARACTER SET utf8mb4",
    Kind.BOOLEAN: "TINYINT",
    Kind.NUMBER: "DOUBLE",
    Kind.INSTANT: "DATETIME(6)",
}


class Batch:
    """Rows with these columns. `name` is both the relation's alias and the statement's parameter."""

    def __init__(self, name: str, columns: Mapping[str, Kind]) -> None:
        self.name: Final = name
        self.columns: Final = columns
        self._instants = [place for place, kind in enumerate(columns.values()) if kind is Kind.INSTANT]

    def relation(self, dialect: str, parameter: str) -> str:
        """What stands after FROM; `parameter` is the document's placeholder, such as `:rows` or `?`."""
        if dialect == POSTGRESQL:
            typed = ", ".join(f"{column} {kind.value}" for column, kind in self.columns.items())
            chosen = ", ".join(_from_epoch(column, kind) for column, kind in self.columns.items())
            source = f"json_to_recordset(CAST({parameter} AS json)) AS given({typed})"
            return f"(SELECT {chosen} FROM {source}) AS {self.name}"
        if dialect == MYSQL:
            read = (f"{column} {_MYSQL_TYPES[kind]} PATH '$.{column}'" for column, kind in self.columns.items())
            return f"JSON_TABLE({parameter}, '$[*]' COLUMNS ({', '.join(read)})) AS {self.name}"
        chosen = ", ".join(f"json_extract(value, '$.{column}') AS {column}" for column in self.columns)
        return f"(SELECT {chosen} FROM json_each({parameter})) AS {self.name}"

    def document(self, dialect: str, rows: Iterable[Sequence[Any]]) -> str:
        """The rows, each with its values in the order of the columns, as the parameter's value."""
        if dialect != POSTGRESQL:
            rows = [self._with_readable_times(row) for row in rows]
        return json.dumps([dict(zip(self.columns, row, strict=True)) for row in rows], ensure_ascii=False)

    def _with_readable_times(self, row: Sequence[Any]) -> list[Any]:
        readable = list(row)
        for place in self._instants:
            if readable[place] is not None:
                readable[place] = str_time(readable[place])
        return readable


def _from_epoch(column: str, kind: Kind) -> str:
    return f"to_timestamp({column}) AS {column}" if kind is Kind.INSTANT else column


def str_time(seconds: float) -> str:
    """The text of a time in UTC, which SQLite keeps and MariaDB and MySQL read."""
    return to_datetime(seconds, "sqlite").isoformat(" ", "microseconds")
