"""Taking sends for a worker: constant statements, so that nothing is put together or compiled in the hot path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import Boolean, Connection, TextClause, TextualSelect, bindparam, column, text

from posthouse.core.lifecycle import TRANSITIONS, Happening, Status, sources
from posthouse.core.policy import SHARES
from posthouse.core.routing import SPREAD, RoutePlan
from posthouse.core.sends import SendState
from posthouse.store.database import MYSQL, POSTGRESQL, SQLITE
from posthouse.store.rows import STATE_COLUMNS, state_of
from posthouse.store.schema import Instant, contents, sends
from posthouse.values import value


@value
class ClaimedSend:
    """A send that a worker owns now, with all it needs to start a call."""

    state: SendState
    key: str
    idempotency_key: str
    body: str | None  # the stored content; None when it is gone
    due_at: float
    lane: str
    date: float  # when it was taken for its first call: the message's Date, the same on every call
    to_check: bool  # there may be a suppression: of its only recipient there is one, or it has several


_PLAIN: Final = (*STATE_COLUMNS, sends.c.dedupe_key, sends.c.idempotency_key, sends.c.next_try_at, sends.c.lane)
_COLUMNS: Final = (*_PLAIN, column("date", Instant), column("to_check", Boolean))
_NAMES: Final = (
    ", ".join(f"email_sends.{plain.name}" for plain in _PLAIN)
    # An earlier release's claim has written none.
    + ", coalesce(email_sends.first_attempt_at, email_sends.created_at) AS date"
    ", (email_sends.recipients LIKE '%\", \"%' OR EXISTS (SELECT 1 FROM email_suppressions "
    "WHERE email_suppressions.address = email_sends.to_address)) AS to_check"
)
_INSTANTS: Final = ("now", "again_at")


@dataclass(frozen=True, slots=True)
class Taking:
    """One way to take sends: from which state, and what it sets beside the fence and the owner."""

    status: Status
    index: str
    sets: str


# From the one table of transitions, like every other change of a status.
(_CLAIMABLE,) = sources(Happening.CLAIMED)
_CLAIMED: Final = TRANSITIONS[_CLAIMABLE, Happening.CLAIMED]

CLAIM: Final = Taking(
    _CLAIMABLE,
    "email_sends_due",
    f"status = '{_CLAIMED.value}', updated_at = :now, first_attempt_at = coalesce(first_attempt_at, :now), "
    "route = {route}",
)
UNKNOWN: Final = Taking(Status.UNKNOWN, "email_sends_unknown", "next_try_at = :again_at")


def routes_parameters(routes: RoutePlan) -> dict[str, Any]:
    """What the claim's route is chosen from, as `RoutePlan.next_route` chooses it."""
    return {
        "pins": routes.pins,
        "first": routes.first,
        "after": json.dumps(dict(routes.after)),
        "standby": routes.standby,
        "share": routes.standby_share,
    }


def take(connection: Connection, taking: Taking, lane: bool, parameters: dict[str, Any]) -> list[ClaimedSend]:
    """Takes the due sends, of one lane or of all, that no other transaction is taking just now; oldest first.

    On PostgreSQL it is one statement, which may be its own transaction; elsewhere it is two or three.
    """
    dialect = connection.dialect.name
    if dialect == MYSQL:
        return take_picked(connection, taking, pick(connection, taking, lane, parameters), parameters)
    if dialect == POSTGRESQL:
        rows: Sequence[Any] = connection.execute(_at_once(taking, lane), parameters).all()
    else:
        taken = connection.execute(_sqlite_take(taking, lane), parameters).scalars().all()
        rows = _rows(connection, taken)
    return _oldest_first(rows)


def pick(connection: Connection, taking: Taking, lane: bool, parameters: dict[str, Any]) -> Sequence[int]:
    """The ids of the sends that `take` would take, which are locked and otherwise as they were."""
    return connection.execute(_pick(taking, lane, connection.dialect.name), parameters).scalars().all()


def take_picked(
    connection: Connection, taking: Taking, ids: Sequence[int], parameters: dict[str, Any]
) -> list[ClaimedSend]:
    """Takes sends that are picked; oldest first."""
    if not ids:
        return []
    given = _given(ids, connection.dialect.name)
    connection.execute(_take_these(taking, connection.dialect.name), {**parameters, "ids": given})
    return _oldest_first(_rows(connection, ids))


def _rows(connection: Connection, ids: Sequence[int]) -> Sequence[Any]:
    dialect = connection.dialect.name
    return connection.execute(_read(dialect), {"ids": _given(ids, dialect)}).all()


def _oldest_first(rows: Sequence[Any]) -> list[ClaimedSend]:
    return sorted((_claimed(row) for row in rows), key=lambda send: (send.due_at, send.state.id))


def _claimed(row: Sequence[Any]) -> ClaimedSend:
    key, idempotency_key, due_at, lane, date, to_check, body = row[len(STATE_COLUMNS) :]
    return ClaimedSend(state_of(row), key, idempotency_key, body, due_at, lane, date, to_check)


def _due(taking: Taking, lane: bool, hint: str = "") -> str:
    of_lane = "AND lane = :lane " if lane else ""
    return (
        f"SELECT id FROM email_sends {hint}WHERE status = '{taking.status.value}' {of_lane}AND next_try_at <= :now "
        "ORDER BY next_try_at, id LIMIT :count"
    )


def _update(taking: Taking, dialect: str) -> str:
    if dialect == POSTGRESQL:
        following, first = "CAST(:after AS json) ->> email_sends.route", "CAST(:first AS varchar)"
        pins = "CAST(:pins AS boolean)"
        standby, share = "CAST(:standby AS varchar)", "CAST(:share AS integer)"
    elif dialect == MYSQL:
        following = "JSON_UNQUOTE(JSON_EXTRACT(:after, CONCAT('$.\"', route, '\"')))"
        first, pins = ":first", ":pins"
        standby, share = ":standby", ":share"
    else:
        following, first, pins = "json_extract(:after, '$.\"' || route || '\"')", ":first", ":pins"
        standby, share = ":standby", ":share"
    route = (
        f"CASE WHEN {pins} AND unknown_since IS NOT NULL THEN email_sends.route "
        f"WHEN attempts = 0 AND email_sends.id * {SPREAD} % {SHARES} < {share} THEN {standby} "
        f"WHEN attempts = 0 THEN {first} ELSE coalesce({following}, {first}) END"
    )
    sets = taking.sets.format(route=route)
    by_id = " FORCE INDEX (PRIMARY)" if dialect == MYSQL else ""
    return f"UPDATE email_sends{by_id} SET fence = fence + 1, claimed_by = :worker, {sets}"


@cache
def _at_once(taking: Taking, lane: bool) -> TextualSelect:
    # A locking CTE is never inlined, so its limit holds; NO KEY leaves attempt rows free to be written.
    return _typed(
        f"WITH picked AS MATERIALIZED ({_due(taking, lane)} FOR NO KEY UPDATE SKIP LOCKED), "
        f"taken AS ({_update(taking, POSTGRESQL)} FROM picked WHERE email_sends.id = picked.id RETURNING {_NAMES}) "
        "SELECT taken.*, email_contents.body FROM taken LEFT JOIN email_contents ON email_contents.send_id = taken.id"
    )


@cache
def _sqlite_take(taking: Taking, lane: bool) -> TextualSelect:
    statement = f"{_update(taking, SQLITE)} WHERE id IN ({_due(taking, lane)}) RETURNING id"
    return text(statement).bindparams(*_instants(statement)).columns(sends.c.id)


@cache
def _pick(taking: Taking, lane: bool, dialect: str) -> TextualSelect:
    # InnoDB locks every index entry that it looks at: only the index in whose order the rows are wanted may be used.
    statement = _due(taking, lane, f"FORCE INDEX ({taking.index}) " if dialect == MYSQL else "") + _LOCKING[dialect]
    return text(statement).bindparams(*_instants(statement)).columns(sends.c.id)


_LOCKING: Final = {
    SQLITE: "",
    POSTGRESQL: " FOR NO KEY UPDATE SKIP LOCKED",
    MYSQL: " FOR UPDATE SKIP LOCKED",
}


def _given(ids: Sequence[int], dialect: str) -> Any:
    return json.dumps(list(ids)) if dialect == SQLITE else list(ids)


_THESE: Final = {
    SQLITE: "IN (SELECT value FROM json_each(:ids))",
    POSTGRESQL: "= ANY(:ids)",
    MYSQL: "IN :ids",
}


def _of_ids(statement: str, dialect: str) -> TextClause:
    expanded: list[Any] = [bindparam("ids", expanding=True)] if dialect == MYSQL else []
    return text(statement).bindparams(*expanded, *_instants(statement))


@cache
def _take_these(taking: Taking, dialect: str) -> TextClause:
    return _of_ids(f"{_update(taking, dialect)} WHERE id {_THESE[dialect]}", dialect)


@cache
def _read(dialect: str) -> TextualSelect:
    by_id = "FORCE INDEX (PRIMARY) " if dialect == MYSQL else ""
    statement = (
        f"SELECT {_NAMES}, email_contents.body FROM email_sends {by_id}"
        f"LEFT JOIN email_contents ON email_contents.send_id = email_sends.id WHERE email_sends.id {_THESE[dialect]}"
    )
    return _of_ids(statement, dialect).columns(*_COLUMNS, contents.c.body)


def _typed(statement: str) -> TextualSelect:
    return text(statement).bindparams(*_instants(statement)).columns(*_COLUMNS, contents.c.body)


def _instants(statement: str) -> list[Any]:
    return [bindparam(name, type_=Instant) for name in _INSTANTS if f":{name}" in statement]
