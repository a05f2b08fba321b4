"""Cooldowns: when an email of a family was asked for last, one row each, in the caller's own transaction.

The row is locked until that transaction ends, so of two that ask at once the second waits, and then hears of the first.
A rolled back one leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from posthouse.errors import TooSoon
from posthouse.store.batch import MYSQL_TEXT, ascii_text
from posthouse.store.database import MYSQL, SQLITE
from posthouse.store.moments import age_sql, epoch_sql, now_sql
from posthouse.store.script import Script

_NEVER: Final = "'1970-01-01 00:00:00.000000'"


@dataclass(frozen=True, slots=True)
class Asked:
    """An email of a family that has just been written."""

    type: str
    family: str
    key: str
    cooldown_s: float


def start_cooldowns(dialect: str, asked: Iterable[Asked], now: float) -> Script[None]:
    """Begins the cooldown of each. Raises TooSoon; what was written before is then to be taken back.

    `now` is used only where the database has no clock of its own.
    """
    for one in sorted(asked, key=lambda one: (one.type, one.family)):  # everybody locks in the same order
        yield from _start(dialect, one, now)


def _start(dialect: str, asked: Asked, now: float) -> Script[None]:
    sql = _sql(dialect)
    family, key = (ascii_text(asked.family), ascii_text(asked.key)) if dialect == MYSQL else (asked.family, asked.key)
    yield sql.insert, (asked.type, family)
    # Its time means something only now that the row is locked: that may have taken a while.
    cooled = (
        f"(last_at <= {now_sql(dialect, now, asked.cooldown_s)} "
        f"OR last_at > {now_sql(dialect, now, -asked.cooldown_s)})"  # only a clock that was set back says so
    )
    yield f"{sql.update.format(now=now_sql(dialect, now))} AND {cooled}", (key, asked.type, family)
    ages = f"{age_sql(dialect, 'last_at', now)}, {epoch_sql(dialect, 'last_at')}"
    ((ours, age_s, last_at),) = yield sql.select.format(ages=ages), (key, asked.type, family)
    if not ours:
        again_at = datetime.fromtimestamp(float(last_at), UTC) + timedelta(seconds=asked.cooldown_s)
        raise TooSoon(asked.type, asked.family, max(0.0, asked.cooldown_s - float(age_s)), again_at)


@dataclass(frozen=True, slots=True)
class _Sql:
    """The statements for one dialect."""

    insert: str
    update: str
    select: str


@cache
def _sql(dialect: str) -> _Sql:
    mark = "?" if dialect == SQLITE else "%s"
    text = MYSQL_TEXT if dialect == MYSQL else mark
    once = "ON DUPLICATE KEY UPDATE last_at = last_at" if dialect == MYSQL else "ON CONFLICT (type, family) DO NOTHING"
    mine = f"WHERE type = {mark} AND family = {text}"
    return _Sql(
        insert=f"INSERT INTO email_families (type, family, dedupe_key, last_at) "
        f"VALUES ({mark}, {text}, '', {_NEVER}) {once}",
        update=f"UPDATE email_families SET dedupe_key = {text}, last_at = {{now}} {mine}",
        # Locking where a snapshot may be older than what we have just waited for.
        select=f"SELECT dedupe_key = {text}, {{ages}} FROM email_families {mine}"
        + (" FOR UPDATE" if dialect == MYSQL else ""),
    )
