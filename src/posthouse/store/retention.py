"""Deleting what need not be kept: contents first, then answers and attempts, then the ledger, and files that no send
uses any more. In small batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    literal,
    select,
    true,
    update,
)

from posthouse.config import Config
from posthouse.core.group_health import KEPT_S
from posthouse.core.lifecycle import TERMINAL
from posthouse.store.blobs import PURGE_AFTER_S
from posthouse.store.database import MYSQL, Database
from posthouse.store.rows import apart, by_index, locking, remove, remove_contents
from posthouse.store.schema import (
    Instant,
    attempts,
    blob_parts,
    blob_uses,
    blobs,
    contents,
    events,
    families,
    group_counts,
    quarantine,
    sends,
    status_is,
    webhook_tokens,
)
from posthouse.store.webhook_tokens import TOKENS_KEPT_S

BATCH_ROWS: Final = 1000
WALK_S: Final = 86400.0
"""The stretch of time that one statement walks through at most."""

STRETCH_BLOBS: Final = 10_000
"""Blobs that one statement looks at."""

BATCH_BYTES: Final = 16 * 1024 * 1024
"""What one transaction deletes of blobs, but for one that is larger alone."""

BLOBS_EVERY_S: Final = 3600.0
"""All blobs are gone through so often: any of them may have lost its last use."""


FAMILIES_KEPT_S: Final = 86400.0
EVENTS_KEPT_S: Final = 400 * 86400.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How old each kind may become, in seconds."""

    contents_s: float
    attempts_s: float
    raw_answers_s: float
    sends_s: float
    families_s: float = FAMILIES_KEPT_S  # no shorter than any cooldown
    events_s: float = EVENTS_KEPT_S


def retention_limits(config: Config) -> Limits:
    """The configured ages."""
    kept = config.retention
    cooldowns = [settings.cooldown for settings in config.types.values() if settings.cooldown is not None]
    return Limits(
        contents_s=kept.contents,
        attempts_s=kept.attempts,
        raw_answers_s=kept.raw_answers,
        sends_s=kept.sends,
        families_s=max([FAMILIES_KEPT_S, *cooldowns]),
        events_s=kept.events,
    )


@dataclass(slots=True)
class _Walk:
    """How far one kind of row was gone through, so that what is older is not walked again every time."""

    done_until: float | None = None


@dataclass(slots=True)
class _Round:
    """How far the blobs were gone through, and when the next round begins."""

    after: int = 0
    begins_at: float | None = None


class Retention:
    """One batch a call: the caller decides how often, so that sending goes on beside it.

    Sends are locked before anything of theirs goes: one that a person is bringing back just now is passed by.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._contents = _Walk()
        self._answers = _Walk()
        self._blobs = _Round()
        self._ended = [status_is(*statuses) for statuses in apart(database, TERMINAL_ORDERED)]

    def purge(self, limits: Limits, now: float) -> bool:
        """Deletes one batch of each kind. Returns whether there is more to do."""
        more = [
            self._purge_contents(now - limits.contents_s),
            self._purge_raw_answers(now - limits.raw_answers_s),
            self._purge_attempts(now - limits.attempts_s),
            self._purge_sends(now - limits.sends_s),
            self._purge_received(events, now - limits.events_s),
            self._purge_received(quarantine, now - limits.events_s),
            self._purge_received(webhook_tokens, now - TOKENS_KEPT_S),
            self._purge_group_counts(now - KEPT_S),
            self._purge_families(now - limits.families_s),
            self._purge_blobs(now),
        ]
        return any(more)

    def _purge_contents(self, before: float) -> bool:
        found = select(sends.c.id).join(contents, contents.c.send_id == sends.c.id)
        return self._purge_walking(
            self._contents,
            sends.c.updated_at,
            [select(func.min(sends.c.updated_at)).where(ended) for ended in self._ended],
            [self._locking(found.where(ended)) for ended in self._ended],
            remove_contents,
            before,
        )

    def _purge_raw_answers(self, before: float) -> bool:
        return self._purge_walking(
            self._answers,
            attempts.c.ended_at,
            [select(func.min(attempts.c.ended_at))],
            [select(attempts.c.id).where(attempts.c.raw.is_not(None))],
            _forget_answers,
            before,
        )

    def _purge_walking(
        self,
        walk: _Walk,
        moment: ColumnElement[float],
        first: Sequence[Select[Any]],
        old: Sequence[Select[Any]],
        clean: Callable[[Connection, Sequence[int]], None],
        before: float,
    ) -> bool:
        """One batch within the next stretch that has rows at all; whether there is more to do."""
        after = true() if walk.done_until is None else moment >= literal(walk.done_until, Instant)
        with self._database.write() as connection:
            since = _earliest(connection, [query.where(after) for query in first])
            if since is None or since >= before:
                return False
            until = min(before, since + WALK_S)
            ids = _batch(connection, [query.where(_within(moment, since, until)) for query in old])
            if ids:
                clean(connection, ids)
        if len(ids) == BATCH_ROWS:
            return True
        walk.done_until = until
        return until < before

    def _purge_attempts(self, before: float) -> bool:
        ended = select(sends.c.id).where(sends.c.id == attempts.c.send_id, ~status_is(*TERMINAL_ORDERED)).exists()
        old = (
            select(attempts.c.id)
            .where(attempts.c.ended_at < literal(before, Instant), ~ended)  # an open send keeps its guard
            .order_by(attempts.c.ended_at)
            .limit(BATCH_ROWS)
        )
        with self._database.write() as connection:
            ids = connection.scalars(old).all()
            if ids:
                remove(connection, attempts.c.id, ids)
            return len(ids) == BATCH_ROWS

    def _purge_sends(self, before: float) -> bool:
        old = select(sends.c.id).where(sends.c.updated_at < literal(before, Instant)).order_by(sends.c.updated_at)
        with self._database.write() as connection:
            ids = _batch(connection, [self._locking(old.where(ended)) for ended in self._ended])
            if not ids:
                return False
            remove_contents(connection, ids)
            remove(connection, attempts.c.send_id, ids, "email_attempts_once")
            remove(connection, sends.c.id, ids)
            return len(ids) == BATCH_ROWS

    def _purge_received(self, table: Table, before: float) -> bool:
        """Deletes what came in before."""
        old = select(table.c.id).where(table.c.received_at < literal(before, Instant)).order_by(table.c.received_at)
        with self._database.write() as connection:
            ids = connection.scalars(old.limit(BATCH_ROWS)).all()
            if ids:
                remove(connection, table.c.id, ids)
            return len(ids) == BATCH_ROWS

    def _purge_group_counts(self, before: float) -> bool:
        """Deletes all that are old: a day's are some thousands at most."""
        with self._database.write() as connection:
            connection.execute(delete(group_counts).where(group_counts.c.bucket < literal(before, Instant)))
        return False

    def _purge_families(self, before: float) -> bool:
        """Deletes those that have cooled down, but for those that somebody is asking for another email of."""
        old = (
            select(families.c.type.label("its_type"), families.c.family.label("its_family"))
            .where(families.c.last_at < literal(before, Instant))
            .order_by(families.c.last_at)
            .limit(BATCH_ROWS)
        )
        if not self._database.is_sqlite:
            old = old.with_for_update(skip_locked=True)
        with self._database.write() as connection:
            found = [dict(row) for row in connection.execute(old).mappings()]
            if found:
                connection.execute(_FORGET_FAMILY, found)
            return len(found) == BATCH_ROWS

    def _purge_blobs(self, now: float) -> bool:
        """Deletes those of the next stretch that are old and in no use: nobody can begin to use them any more."""
        walk = self._blobs
        if walk.begins_at is not None and now < walk.begins_at:
            return False
        stretch = select(blobs.c.id).where(blobs.c.id > walk.after).order_by(blobs.c.id).limit(STRETCH_BLOBS).subquery()
        with self._database.read() as connection:
            until = connection.scalar(select(func.max(stretch.c.id)))
            if until is None:
                self._blobs = _Round(begins_at=now + BLOBS_EVERY_S)
                return False
            within = and_(blobs.c.id > walk.after, blobs.c.id <= until)
            found = connection.execute(
                _UNUSED.where(within, blobs.c.created_at < literal(now - PURGE_AFTER_S, Instant))
            )
            ids, whole = _fitting([(id_, size) for id_, size in found])
        if ids:
            with self._database.write() as connection:
                remove(connection, blob_parts.c.blob_id, ids)
                remove(connection, blobs.c.id, ids)
        walk.after = until if whole else ids[-1]
        return True

    def _locking(self, query: Select[Any]) -> Select[Any]:
        return locking(by_index(query, "email_sends_ended"), self._database)


_FORGET_FAMILY: Final = delete(families).where(
    families.c.type == bindparam("its_type"), families.c.family == bindparam("its_family")
)

# As a subquery that no planner takes for a join: one look into the index for each blob, however many uses there are.
_USE: Final = select(blob_uses.c.blob_id).where(blob_uses.c.blob_id == blobs.c.id).limit(1).scalar_subquery()
_UNUSED: Final = select(blobs.c.id, blobs.c.size).where(_USE.is_(None)).order_by(blobs.c.id).limit(BATCH_ROWS)


def _fitting(found: Sequence[tuple[int, int]]) -> tuple[list[int], bool]:
    """As many of the blobs as one transaction deletes, and whether these are all that there are."""
    ids: list[int] = []
    size = 0
    for id_, bytes_ in found:
        size += bytes_
        if ids and size > BATCH_BYTES:
            return ids, False
        ids.append(id_)
    return ids, len(ids) < BATCH_ROWS


def _forget_answers(connection: Connection, ids: Sequence[int]) -> None:
    by_id = update(attempts).with_hint("FORCE INDEX (PRIMARY)", dialect_name=MYSQL)
    connection.execute(by_id.where(attempts.c.id.in_(ids)).values(raw=None))


def _earliest(connection: Connection, queries: Sequence[Select[Any]]) -> float | None:
    found = [connection.scalar(query) for query in queries]
    return min((at for at in found if at is not None), default=None)


def _batch(connection: Connection, queries: Sequence[Select[Any]]) -> list[int]:
    """Up to BATCH_ROWS ids from all queries together."""
    ids: list[int] = []
    for query in queries:
        if len(ids) < BATCH_ROWS:
            ids += connection.scalars(query.limit(BATCH_ROWS - len(ids)))
    return ids


TERMINAL_ORDERED: Final = tuple(sorted(TERMINAL))


def _within(column: ColumnElement[float], since: float, until: float) -> ColumnElement[bool]:
    return and_(column >= literal(since, Instant), column < literal(until, Instant))
