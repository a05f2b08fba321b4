"""The database's time in driver SQL: now, some time ago, and how long ago something was.

On SQLite, which has no clock of its own, `now` is the machine's.
"""

from __future__ import annotations

from typing import Final

from posthouse.store.batch import str_time
from posthouse.store.database import MYSQL, POSTGRESQL

MICROSECONDS: Final = 1_000_000


def now_sql(dialect: str, now: float, less_s: float = 0.0) -> str:
    """The present moment, or one that lies so far back."""
    if dialect == POSTGRESQL:
        return f"(clock_timestamp() - {less_s:.6f} * interval '1 second')"
    if dialect == MYSQL:
        return f"(UTC_TIMESTAMP(6) - INTERVAL {round(less_s * MICROSECONDS)} MICROSECOND)"
    return f"'{str_time(now - less_s)}'"


def age_sql(dialect: str, column: str, now: float) -> str:
    """How long ago the column's moment was, in seconds."""
    if dialect == POSTGRESQL:
        return f"extract(epoch FROM clock_timestamp() - {column})"
    if dialect == MYSQL:
        return f"TIMESTAMPDIFF(MICROSECOND, {column}, UTC_TIMESTAMP(6)) / {MICROSECONDS}"
    return f"(julianday('{str_time(now)}') - julianday({column})) * 86400.0"


def epoch_sql(dialect: str, column: str) -> str:
    """The column's moment in seconds since 1970."""
    if dialect == POSTGRESQL:
        return f"extract(epoch FROM {column})"
    if dialect == MYSQL:
        return f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {column}) / {MICROSECONDS}"
    return f"(julianday({column}) - 2440587.5) * 86400.0"
