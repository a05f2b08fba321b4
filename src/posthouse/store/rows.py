"""Rows of `email_sends`: read, locked, changed; and the attempts that go with a change.

Every writer locks rows in the order of their ids, and applies changes by primary key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    Text,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from posthouse.core.lifecycle import Status
from posthouse.core.sends import Attempt, Change, SendState, Via
from posthouse.store.database import POSTGRESQL, Database
from posthouse.store.schema import ERROR_CHARS_MAX, ID_CHARS_MAX, Instant, attempts, contents, sends

SWEEP_ROWS: Final = 500
"""Rows a sweep locks at once; it goes on until it gets fewer."""

CALLS: Final = frozenset({Via.SEND, Via.REPLAY, Via.REAPER})
"""Attempts that stand for a call (for the reaper: that may have been one)."""


@dataclass(frozen=True, slots=True)
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


def state_of(row: Any) -> SendState:
    """The row as the deciding functions see it."""
    return SendState(
        id=row.id,
        type=row.type,
        status=Status(row.status),
        fence=row.fence,
        attempts=row.attempts,
        failures=row.failures,
        expires_at=row.expires_at,
        route=row.route,
        claimed_by=row.claimed_by,
        unknown_since=row.unknown_since,
        unknown_fence=row.unknown_fence,
        maybe_duplicate=row.maybe_duplicate,
        message_id=row.message_id,
    )


def state_query(*conditions: ColumnElement[bool], order: ColumnElement[Any] = sends.c.id) -> Select[Any]:
    return select(*STATE_COLUMNS, sends.c.updated_at).where(*conditions).order_by(order).limit(SWEEP_ROWS)


def locking(query: Select[Any], database: Database, skip_locked: bool = True) -> Select[Any]:
    """Locks the rows of `email_sends` that the query returns; SQLite's writer has locked everything already."""
    if database.is_sqlite:
        return query
    return query.with_for_update(of=sends, skip_locked=skip_locked, key_share=True)


def lock(connection: Connection, database: Database, ids: Collection[int]) -> dict[int, SendState]:
    query = select(*STATE_COLUMNS).where(sends.c.id.in_(sorted(set(ids)))).order_by(sends.c.id)
    rows = connection.execute(locking(query, database, skip_locked=False))
    return {row.id: state_of(row) for row in rows}


def record(
    connection: Connection, database: Database, batch: Sequence[Attempt], worker: int
) -> set[tuple[int, int, str]]:
    """Writes the attempts; returns those that were not recorded before."""
    if not batch:
        return set()
    dialect_insert: Any = postgresql.insert if database.dialect == POSTGRESQL else sqlite.insert
    statement = (
        dialect_insert(attempts)
        .on_conflict_do_nothing(index_elements=["send_id", "fence", "via"])
        .returning(attempts.c.send_id, attempts.c.fence, attempts.c.via)
    )
    rows = connection.execute(statement, [_attempt_row(attempt, worker) for attempt in batch])
    return {(send_id, fence, via) for send_id, fence, via in rows}


def _attempt_row(attempt: Attempt, worker: int) -> dict[str, Any]:
    verdict = attempt.verdict
    return {
        "send_id": attempt.send_id,
        "fence": attempt.fence,
        "via": attempt.via.value,
        "route": attempt.route,
        "worker": worker,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "outcome": verdict.outcome.value,
        "maybe_accepted": verdict.maybe_accepted,
        "code": _storable(verdict.code, 64),
        "text": _storable(verdict.text, ERROR_CHARS_MAX),
        "rule": verdict.rule[:128],
        "message_id": _storable(verdict.message_id, ID_CHARS_MAX),
        "request_id": _storable(verdict.request_id, ID_CHARS_MAX),
        "raw": _storable(verdict.raw, ERROR_CHARS_MAX),
    }


def changed(state: SendState, change: Change, attempt: Attempt | None) -> SendState:
    """The state after a change, for a second attempt on the same send in one batch."""
    call = _call(attempt)
    return SendState(
        id=state.id,
        type=state.type,
        status=change.status,
        fence=state.fence,
        attempts=state.attempts + int(call is not None),
        failures=state.failures + change.spends_attempt,
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


_ACCEPTED: Final = bindparam("b_status", type_=String) == Status.ACCEPTED.value

_APPLY: Final = (
    update(sends)
    .where(sends.c.id == bindparam("b_id"))
    .values(
        status=bindparam("b_status", type_=String),
        next_try_at=bindparam("b_next_try_at", type_=Instant),
        claimed_by=None,
        attempts=sends.c.attempts + bindparam("b_calls", type_=Integer),
        failures=sends.c.failures + bindparam("b_failures", type_=Integer),
        route=func.coalesce(bindparam("b_route", type_=String), sends.c.route),
        message_id=func.coalesce(bindparam("b_message_id", type_=String), sends.c.message_id),
        last_error=case(
            (_ACCEPTED, bindparam("b_error", type_=Text)),
            else_=func.coalesce(bindparam("b_error", type_=Text), sends.c.last_error),
        ),
        maybe_duplicate=or_(sends.c.maybe_duplicate, bindparam("b_duplicate", type_=Boolean)),
        unknown_since=bindparam("b_unknown_since", type_=Instant),
        unknown_fence=bindparam("b_unknown_fence", type_=Integer),
        first_attempt_at=func.coalesce(sends.c.first_attempt_at, bindparam("b_started_at", type_=Instant)),
        accepted_at=case(
            (_ACCEPTED, func.coalesce(sends.c.accepted_at, bindparam("b_now", type_=Instant))),
            else_=sends.c.accepted_at,
        ),
        updated_at=bindparam("b_now", type_=Instant),
    )
)


def apply(connection: Connection, steps: Sequence[Step], now: float) -> None:
    """Writes the changes. The rows must be locked."""
    if not steps:
        return
    connection.execute(_APPLY, sorted((_change_row(step, now) for step in steps), key=lambda row: row["b_id"]))
    finished = [step.state.id for step in steps if step.change.delete_content]
    if finished:
        connection.execute(delete(contents).where(contents.c.send_id.in_(finished)))


def _change_row(step: Step, now: float) -> dict[str, Any]:
    change, call = step.change, _call(step.attempt)
    return {
        "b_id": step.state.id,
        "b_status": change.status.value,
        "b_next_try_at": change.next_try_at,
        "b_calls": int(call is not None),
        "b_failures": int(change.spends_attempt),
        "b_route": _route(call),
        "b_message_id": _storable(change.message_id, ID_CHARS_MAX),
        "b_error": _storable(change.last_error, ERROR_CHARS_MAX),
        "b_duplicate": change.maybe_duplicate,
        "b_unknown_since": change.unknown_since,
        "b_unknown_fence": change.unknown_fence,
        "b_started_at": None if call is None else call.started_at,
        "b_now": now,
    }


def _storable(said: str | None, chars_max: int) -> str | None:
    """What a provider said, so that every database takes it: no answer may make a result unstorable."""
    if said is None:
        return None
    return said[:chars_max].replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
