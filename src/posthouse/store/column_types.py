"""What stands in the columns of the tables, on each database: times, ids, long texts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, LargeBinary, Text, text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeDecorator, TypeEngine


class Instant(TypeDecorator[float]):
    """Seconds since 1970 in Python; a timestamp that people can read in the database, always UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return mysql.DATETIME(fsp=6) if dialect.name == "mysql" else self.impl_instance

    def process_bind_param(self, value: float | None, dialect: Dialect) -> datetime | None:
        return None if value is None else to_datetime(value, dialect.name)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> float | None:
        if value is None:
            return None
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


def to_datetime(seconds: float, dialect_name: str) -> datetime:
    """The value that a driver is handed: aware where the database knows time zones, else naive UTC."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment if dialect_name == "postgresql" else moment.replace(tzinfo=None)


BigId = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER is SQLite's rowid
LongText = Text().with_variant(mysql.LONGTEXT(), "mysql")  # its TEXT ends at 64 KB
PartBytes = LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql")  # its BLOB ends at 64 KB
EMPTY: Final = text("('')")  # as an expression: MySQL takes no other default for a text without limit

MYSQL_TABLE: Final[dict[str, Any]] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
"""Four-byte characters, and keys that differ in case or accents are different."""
