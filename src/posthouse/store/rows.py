"""Rows of `email_sends`: read, locked, changed; and the attempts that go with a change.

Every writer locks rows in the order of their ids, and applies changes by primary key.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Select,
    TextClause,
    TextualSelect,
    bindparam,
    delete,
    select,
    text,
)

from posthouse.core.lifecycle import Status
from posthouse.core.sends import CALLS, Attempt, Change, SendState, Via
from posthouse.store.batch import Batch, Kind
from posthouse.store.database import MYSQL, POSTGRESQL, Database
from posthouse.store.schema import (
    CODE_CHARS_MAX,
    ERROR_CHARS_MAX,
    ID_CHARS_MAX,
    RULE_CHARS_MAX,
    blob_uses,
    contents,
    sends,
)
from posthouse.values import value

SWEEP_ROWS: Final = 500
"""Rows a sweep locks at once; it goes on until it gets fewer."""


@value
class Step:
    """One decision on one row, with the attempt behind it if there is one."""

    state: SendState
    change: Change
    attempt: Attempt | None = None


STATE_COLUMNS: Final[tuple[ColumnElement[Any], ...]] = (
    sends.c.id,
    sends.c.type,
    sends.c.status,
    sends.c.fence,
    sends.c.attempts,
    sends.c.failures,
    sends.c.expires_at,
    sends.c.route,
    sends.c.claimed_by,
    sends.c.unknown_since,
    sends.c.unknown_fence,
    sends.c.maybe_duplicate,
    sends.c.message_id,
)


_STATUSES: Final = {status.value: status for status in Status}


def state_of(row: Sequence[Any]) -> SendState:
    """The row as the deciding functions see it; it begins with the STATE_COLUMNS."""
    id_, type_, status, *rest = row[: len(STATE_COLUMNS)]
    return SendState(id_, type_, _STATUSES[status], *rest)


def state_query(index: str, *conditions: ColumnElement[bool], order: ColumnElement[Any] = sends.c.id) -> Select[Any]:
    """Up to SWEEP_ROWS rows that a sweep has to decide upon, and the index that has them in this order."""
    query = select(*STATE_COLUMNS, sends.c.updated_at).where(*conditions).order_by(order).limit(SWEEP_ROWS)
    return by_index(query, index)


def by_index(query: Select[Any], index: str) -> Select[Any]:
    """Holds MariaDB and MySQL to an index: they lock every entry that they look at, so a worse plan locks too much."""
    return query.with_hint(sends, f"FORCE INDEX ({index})", MYSQL)


def apart(database: Database, statuses: Sequence[Status]) -> list[Sequence[Status]]:
    """The statuses that one statement may ask for: each by itself where the index is not a partial one over all."""
    return [[status] for status in statuses] if database.dialect == MYSQL else [statuses]


def locking(query: Select[Any], database: Database) -> Select[Any]:
    """Locks the rows of `email_sends` that the query returns, passing by those that another transaction has.

    SQLite's writer has locked everything already.
    """
    if database.is_sqlite:
        return query
    return query.with_for_update(of=sends, skip_locked=True, key_share=True)


@cache
def _lock_sql(dialect: str) -> TextualSelect:
    names = ", ".join(column.name for column in STATE_COLUMNS)
    if dialect == MYSQL:
        locked = f"SELECT {names} FROM email_sends FORCE INDEX (PRIMARY) WHERE id IN :ids ORDER BY id FOR UPDATE"
        return text(locked).bindparams(bindparam("ids", expanding=True)).columns(*STATE_COLUMNS)
    some = "id = ANY(:ids)" if dialect == POSTGRESQL else "id IN (SELECT value FROM json_each(:ids))"
    locking_them = " FOR NO KEY UPDATE" if dialect == POSTGRESQL else ""
    return text(f"SELECT {names} FROM email_sends WHERE {some} ORDER BY id{locking_them}").columns(*STATE_COLUMNS)


def lock(connection: Connection, database: Database, ids: Collection[int]) -> dict[int, SendState]:
    """The rows with these ids as they stand, locked for this transaction."""
    wanted = sorted(set(ids))
    given = json.dumps(wanted) if database.is_sqlite else wanted
    rows = connection.execute(_lock_sql(database.dialect), {"ids": given}).all()
    return {row[0]: state_of(row) for row in rows}


_TRIED: Final = Batch(
    "tried",
    {
        "send_id": Kind.INTEGER,
        "fence": Kind.INTEGER,
        "via": Kind.TEXT,
        "route": Kind.TEXT,
        "worker": Kind.INTEGER,
        "started_at": Kind.INSTANT,
        "ended_at": Kind.INSTANT,
        "outcome": Kind.TEXT,
        "maybe_accepted": Kind.BOOLEAN,
        "code": Kind.TEXT,
        "text": Kind.TEXT,
        "rule": Kind.TEXT,
        "message_id": Kind.TEXT,
        "request_id": Kind.TEXT,
        "raw": Kind.TEXT,
    },
)


@cache
def _record_sql(dialect: str) -> TextClause:
    columns = ", ".join(_TRIED.columns)
    writing = f"INSERT INTO email_attempts ({columns}) SELECT {columns} FROM {_TRIED.relation(dialect, ':tried')} "
    if dialect == MYSQL:
        return text(f"{writing} ON DUPLICATE KEY UPDATE id = email_attempts.id")
    return text(f"{writing} WHERE true ON CONFLICT (send_id, fence, via) DO NOTHING RETURNING send_id, fence, via")


_RECORDED: Final = text(
    "SELECT send_id, fence, via FROM email_attempts FORCE INDEX (email_attempts_once) WHERE send_id IN :ids"
).bindparams(bindparam("ids", expanding=True))


def record(
    connection: Connection, database: Database, batch: Sequence[Attempt], worker: int
) -> set[tuple[int, int, str]]:
    """Writes the attempts, of rows that are locked; returns those that were not recorded before."""
    if not batch:
        return set()
    if database.dialect == MYSQL:  # an INSERT there doesn't say what it did; nobody else records for a locked row
        recorded = connection.execute(_RECORDED, {"ids": sorted({attempt.send_id for attempt in batch})})
        known = {(send_id, fence, via) for send_id, fence, via in recorded}
        new = [attempt for attempt in batch if (attempt.send_id, attempt.fence, attempt.via) not in known]
        _insert_attempts(connection, new, worker)
        return {(attempt.send_id, attempt.fence, attempt.via) for attempt in new}
    written: Sequence[Sequence[Any]] = _insert_attempts(connection, batch, worker).all()
    return {(send_id, fence, via) for send_id, fence, via in written}


def _insert_attempts(connection: Connection, batch: Sequence[Attempt], worker: int) -> CursorResult[Any]:
    dialect = connection.dialect.name
    document = _TRIED.document(dialect, (_attempt_row(attempt, worker) for attempt in batch))
    return connection.execute(_record_sql(dialect), {"tried": document})


def _attempt_row(attempt: Attempt, worker: int) -> tuple[Any, ...]:
    verdict = attempt.verdict
    return (
        attempt.send_id,
        attempt.fence,
        attempt.via,
        attempt.route,
        worker,
        attempt.started_at,
        attempt.ended_at,
        verdict.outcome,
        verdict.maybe_accepted,
        storable(verdict.code, CODE_CHARS_MAX),
        storable(verdict.text, ERROR_CHARS_MAX),
        verdict.rule[:RULE_CHARS_MAX],
        storable(verdict.message_id, ID_CHARS_MAX),
        storable(verdict.request_id, ID_CHARS_MAX),
        storable(verdict.raw, ERROR_CHARS_MAX),
    )


def changed(state: SendState, change: Change, attempt: Attempt | None) -> SendState:
    """The state after a change, for a second attempt on the same send in one batch."""
    call = _call(attempt)
    return SendState(
        id=state.id,
        type=state.type,
        status=change.status,
        fence=state.fence,
        attempts=state.attempts + int(call is not None),
        failures=state.failures + change.failures,
        expires_at=state.expires_at,
        route=_route(call) or state.route,
        claimed_by=None,
        unknown_since=change.unknown_since,
        unknown_fence=change.unknown_fence,
        maybe_duplicate=state.maybe_duplicate or change.maybe_duplicate,
        message_id=change.message_id or state.message_id,
    )


def _call(attempt: Attempt | None) -> Attempt | None:
    return attempt if attempt is not None and attempt.via in CALLS else None


def _route(call: Attempt | None) -> str | None:
    """The route that a call took; the reaper can't know it."""
    return call.route if call is not None and call.via is not Via.REAPER else None


_CHANGED: Final = Batch(
    "changed",
    {
        "id": Kind.INTEGER,
        "status": Kind.TEXT,
        "next_try_at": Kind.INSTANT,
        "calls": Kind.INTEGER,
        "failures": Kind.INTEGER,
        "route": Kind.TEXT,
        "message_id": Kind.TEXT,
        "last_error": Kind.TEXT,
        "maybe_duplicate": Kind.BOOLEAN,
        "unknown_since": Kind.INSTANT,
        "unknown_fence": Kind.INTEGER,
        "accepted_at": Kind.INSTANT,
        "updated_at": Kind.INSTANT,
    },
)


_SETS: Final = {
    "status": "changed.status",
    "next_try_at": "changed.next_try_at",
    "claimed_by": "NULL",
    "attempts": "email_sends.attempts + changed.calls",
    "failures": "email_sends.failures + changed.failures",
    "route": "coalesce(changed.route, email_sends.route)",
    "message_id": "coalesce(changed.message_id, email_sends.message_id)",
    "last_error": f"CASE WHEN changed.status = '{Status.ACCEPTED.value}' THEN changed.last_error "
    "ELSE coalesce(changed.last_error, email_sends.last_error) END",
    "maybe_duplicate": "email_sends.maybe_duplicate OR changed.maybe_duplicate",
    "unknown_since": "changed.unknown_since",
    "unknown_fence": "changed.unknown_fence",
    # The claim's, but for one that was given back before any call: the next claim dates it anew.
    "first_attempt_at": "CASE WHEN email_sends.attempts + changed.calls > 0 THEN email_sends.first_attempt_at END",
    "accepted_at": "coalesce(email_sends.accepted_at, changed.accepted_at)",
    "updated_at": "changed.updated_at",
}


@cache
def _apply_sql(dialect: str) -> TextClause:
    given = _CHANGED.relation(dialect, ":changed")
    if dialect == MYSQL:
        sets = ", ".join(f"email_sends.{column} = {value}" for column, value in _SETS.items())
        by_id = "STRAIGHT_JOIN email_sends FORCE INDEX (PRIMARY) ON email_sends.id = changed.id"
        return text(f"UPDATE {given} {by_id} SET {sets}")
    sets = ", ".join(f"{column} = {value}" for column, value in _SETS.items())
    # PostgreSQL can't tell how many rows a document has, and would rather read a whole table of some thousands.
    by_id = " AND email_sends.id = ANY(:ids)" if dialect == POSTGRESQL else ""
    return text(f"UPDATE email_sends SET {sets} FROM {given} WHERE email_sends.id = changed.id{by_id}")


def apply(connection: Connection, steps: Sequence[Step], now: float) -> None:
    """Writes the changes. The rows must be locked."""
    dialect = connection.dialect.name
    for part in _each_send_once(steps):
        parameters: dict[str, Any] = {"changed": _CHANGED.document(dialect, (_change_row(step, now) for step in part))}
        if dialect == POSTGRESQL:
            parameters["ids"] = [step.state.id for step in part]
        connection.execute(_apply_sql(dialect), parameters)
    finished = [step.state.id for step in steps if step.change.delete_content]
    if finished:
        remove_contents(connection, finished)


def remove_contents(connection: Connection, send_ids: Sequence[int]) -> None:
    """Deletes what these sends were to say, and their hold on the files that went along."""
    remove(connection, contents.c.send_id, send_ids)
    remove(connection, blob_uses.c.send_id, send_ids)


def remove(connection: Connection, column: Column[Any], values: Sequence[int], index: str = "PRIMARY") -> None:
    """Deletes the rows that have one of these values in the column, which the index begins with."""
    if connection.dialect.name == MYSQL:
        connection.execute(_mysql_remove(column, index), {"gone": json.dumps(list(values))})
    else:
        connection.execute(delete(column.table).where(column.in_(values)))


@cache
def _mysql_remove(column: Column[Any], index: str) -> TextClause:
    # Given a list, it walks a small table instead, and waits for rows that an application has not committed yet.
    table = column.table.name
    return text(
        f"DELETE {table} FROM JSON_TABLE(:gone, '$[*]' COLUMNS (value BIGINT PATH '$')) AS gone "
        f"STRAIGHT_JOIN {table} FORCE INDEX ({index}) ON {table}.{column.name} = gone.value"
    )


def _each_send_once(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps in statements: one statement changes a row once, so a second step on a send goes into the next."""
    parts: list[list[Step]] = []
    taken: Counter[int] = Counter()
    for step in steps:
        place = taken[step.state.id]
        taken[step.state.id] += 1
        if place == len(parts):
            parts.append([])
        parts[place].append(step)
    return parts


def _change_row(step: Step, now: float) -> tuple[Any, ...]:
    change, call = step.change, _call(step.attempt)
    return (
        step.state.id,
        change.status,
        change.next_try_at,
        int(call is not None),
        change.failures,
        _route(call),
        storable(change.message_id, ID_CHARS_MAX),
        storable(change.last_error, ERROR_CHARS_MAX),
        change.maybe_duplicate,
        change.unknown_since,
        change.unknown_fence,
        now if change.status is Status.ACCEPTED else None,
        now,
    )


def storable(said: str | None, chars_max: int) -> str | None:
    """What a provider said, so that every database takes it: no answer may make a result unstorable."""
    if not said:
        return said
    said = said[:chars_max]
    return said if said.isascii() and "\x00" not in said else _cleaned(said)


def _cleaned(said: str) -> str:
    return said.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
