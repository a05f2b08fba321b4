"""How far each route's log at its provider was read, and whose turn it is to read on.

A turn lasts from one write to the next: who holds it writes down each stretch, and that it still reads one that takes
long; and only while nobody else has taken it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from posthouse.store.database import Database
from posthouse.store.rows import storable
from posthouse.store.schema import ERROR_CHARS_MAX, Instant
from posthouse.store.schema import log_cursors as table


@dataclass(frozen=True, slots=True)
class LogCursor:
    """Where the reading of one route's log stands. Moments in seconds since 1970."""

    route: str
    read_until: float | None  # what happened before was read; None: nothing yet
    turn_at: float  # when it was written last: whoever wrote that has the turn
    failing_since: float | None = None
    error: str = ""  # of the latest pass, while it fails


class LogCursors:
    """`email_log_cursors`. Each method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, route: str) -> LogCursor | None:
        """How it stands with a route; None where its log was never read."""
        columns = (table.c.route, table.c.read_until, table.c.turn_at, table.c.failing_since, table.c.error)
        with self._database.read() as connection:
            row = connection.execute(select(*columns).where(table.c.route == route)).one_or_none()
        return None if row is None else LogCursor(*row)

    def take_turn(self, route: str, now: float, quiet_s: float) -> LogCursor | None:
        """The turn, where nobody has written for `quiet_s`; None where somebody has."""
        known = self.of(route)
        if known is None:
            return self._begin(route, now)
        if 0.0 <= now - known.turn_at < quiet_s:
            return None
        return self._write(known, turn_at=now)

    def advance(self, cursor: LogCursor, read_until: float, now: float) -> LogCursor | None:
        """Writes that everything before `read_until` was read; None where the turn is somebody else's now."""
        return self._write(cursor, turn_at=now, read_until=read_until, failing_since=None, error="")

    def keep(self, cursor: LogCursor, now: float) -> LogCursor | None:
        """Writes that a stretch is still being read; None where the turn is somebody else's now."""
        return self._write(cursor, turn_at=now)

    def fail(self, cursor: LogCursor, error: str, now: float) -> LogCursor | None:
        """Writes why the log could not be read on; None where the turn is somebody else's now."""
        since = now if cursor.failing_since is None else cursor.failing_since
        return self._write(cursor, turn_at=now, failing_since=since, error=storable(error, ERROR_CHARS_MAX))

    def seize_turn(self, route: str, now: float, since: float | None = None) -> LogCursor:
        """The turn, whoever has it; with `since`, what happened from then on is read again at the least."""
        while True:
            known = self.of(route) or self._begin(route, now)
            if known is None:
                continue  # somebody else has just begun
            until = known.read_until
            if since is not None:
                until = since if until is None else min(until, since)
            turn_at = max(now, known.turn_at + 1e-3)  # not what its holder wrote, who is to notice
            if (mine := self._write(known, turn_at=turn_at, read_until=until)) is not None:
                return mine

    def _begin(self, route: str, now: float) -> LogCursor | None:
        try:
            with self._database.write() as connection:
                connection.execute(insert(table).values(route=route, turn_at=now))
        except IntegrityError:
            return None  # somebody else was faster
        return LogCursor(route, None, now)

    def _write(self, cursor: LogCursor, **values: Any) -> LogCursor | None:
        mine = table.c.turn_at == literal(cursor.turn_at, Instant)
        with self._database.write() as connection:
            written = connection.execute(update(table).where(table.c.route == cursor.route, mine).values(**values))
        return replace(cursor, **values) if written.rowcount else None
