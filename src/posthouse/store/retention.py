"""Deleting what need not be kept: contents first, then answers and attempts, then the ledger. In small batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, literal, select, update

from posthouse.core.lifecycle import TERMINAL
from posthouse.store.database import Database
from posthouse.store.rows import locking
from posthouse.store.schema import Instant, attempts, contents, sends, status_is

BATCH_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """How old each kind may become, in seconds."""

    contents_s: float
    attempts_s: float
    raw_answers_s: float
    sends_s: float


class Retention:
    """One batch a call: the caller decides how often, so that sending goes on beside it.

    Sends are locked before anything of theirs goes: one that a person is bringing back just now is passed by.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def purge(self, limits: Limits, now: float) -> int:
        """Deletes one batch of each kind; how many rows went. Fewer than BATCH_ROWS means that nothing is left."""
        return max(
            self._purge_contents(now - limits.contents_s),
            self._purge_raw_answers(now - limits.raw_answers_s),
            self._purge_attempts(now - limits.attempts_s),
            self._purge_sends(now - limits.sends_s),
        )

    def _purge_contents(self, before: float) -> int:
        old = (
            select(sends.c.id)
            .join(contents, contents.c.send_id == sends.c.id)
            .where(status_is(*TERMINAL_ORDERED), sends.c.updated_at < literal(before, Instant))
            .limit(BATCH_ROWS)
        )
        with self._database.write() as connection:
            ids = connection.scalars(locking(old, self._database)).all()
            return connection.execute(delete(contents).where(contents.c.send_id.in_(ids))).rowcount if ids else 0

    def _purge_raw_answers(self, before: float) -> int:
        old = (
            select(attempts.c.id)
            .where(attempts.c.raw.is_not(None), attempts.c.ended_at < literal(before, Instant))
            .limit(BATCH_ROWS)
        )
        with self._database.write() as connection:
            ids = connection.scalars(old).all()
            return (
                connection.execute(update(attempts).where(attempts.c.id.in_(ids)).values(raw=None)).rowcount
                if ids
                else 0
            )

    def _purge_attempts(self, before: float) -> int:
        ended = select(sends.c.id).where(sends.c.id == attempts.c.send_id, ~status_is(*TERMINAL_ORDERED)).exists()
        old = (
            select(attempts.c.id)
            .where(attempts.c.ended_at < literal(before, Instant), ~ended)  # an open send keeps its guard
            .order_by(attempts.c.ended_at)
            .limit(BATCH_ROWS)
        )
        with self._database.write() as connection:
            ids = connection.scalars(old).all()
            return connection.execute(delete(attempts).where(attempts.c.id.in_(ids))).rowcount if ids else 0

    def _purge_sends(self, before: float) -> int:
        old = (
            select(sends.c.id)
            .where(status_is(*TERMINAL_ORDERED), sends.c.updated_at < literal(before, Instant))
            .order_by(sends.c.updated_at)
            .limit(BATCH_ROWS)
        )
        with self._database.write() as connection:
            ids = connection.scalars(locking(old, self._database)).all()
            if not ids:
                return 0
            connection.execute(delete(contents).where(contents.c.send_id.in_(ids)))
            connection.execute(delete(attempts).where(attempts.c.send_id.in_(ids)))
            return connection.execute(delete(sends).where(sends.c.id.in_(ids))).rowcount


TERMINAL_ORDERED: Final = tuple(sorted(TERMINAL))
