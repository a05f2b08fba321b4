"""Limits that all workers share: each a row of `email_limits`, changed under its lock."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from posthouse.core.pace import Limit, LimitState, Permit, pay_for_lateness, permit, return_unused, spend_more
from posthouse.store.database import Database
from posthouse.store.missing_rows import insert_missing
from posthouse.store.schema import limits as table


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One limit as it stands."""

    name: str
    state: LimitState


class Pacing:
    """Each method is one short transaction; rows are locked in the order of their names."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def permit(self, limits: Sequence[Limit], want: int, now: float) -> tuple[Permit, list[str]]:
        """Leave for up to `want` sends, and the names of the quotas to warn about."""
        with self._locked(limits) as (connection, states):
            given, changed, warnings = permit(limits, states, want, now)
            _write(connection, changed)
            return given, warnings

    def give_back(self, limits: Sequence[Limit], given: Permit, unused: int) -> None:
        """Takes back the last `unused` sends of a permit."""
        with self._locked(limits) as (connection, states):
            _write(connection, return_unused(limits, states, given, unused))

    def spend(self, limits: Sequence[Limit], extra: int, now: float) -> bool:
        """Counts `extra` recipients beyond the sends themselves; False where a quota has no room for them."""
        with self._locked(limits) as (connection, states):
            changed = spend_more(limits, states, extra, now)
            _write(connection, changed or {})
            return changed is not None

    def pay_for_lateness(self, limits: Sequence[Limit], start_at: float, now: float) -> None:
        """Counts a start that comes later than its slot."""
        with self._locked(limits) as (connection, states):
            _write(connection, pay_for_lateness(limits, states, start_at, now))

    def rows(self) -> list[LimitRow]:
        """Every limit that was ever asked."""
        with self._database.read() as connection:
            rows = connection.execute(select(table).order_by(table.c.name))
            return [LimitRow(row.name, _state(row)) for row in rows]

    @contextmanager
    def _locked(self, limits: Sequence[Limit]) -> Iterator[tuple[Connection, dict[str, LimitState]]]:
        with self._database.write() as connection:
            yield connection, locked_limits(connection, self._database, {limit.name for limit in limits})


def locked_limits(connection: Connection, database: Database, names: Collection[str]) -> dict[str, LimitState]:
    """The limits of these names, their rows locked for this transaction, and written first where there are none."""
    ordered = sorted(names)
    query = select(table).where(table.c.name.in_(ordered)).order_by(table.c.name)
    if not database.is_sqlite:
        query = query.with_for_update()
    rows = connection.execute(query).all()
    if len(rows) < len(ordered):
        new = [{"name": name, "tat": 0.0, "parts": "[]", "warned_at": 0.0} for name in ordered]
        connection.execute(insert_missing(database.dialect, table, new))
        rows = connection.execute(query).all()
    return {row.name: _state(row) for row in rows}


def _state(row: Any) -> LimitState:
    parts = tuple((number, count) for number, count in json.loads(row.parts or "[]"))
    return LimitState(row.tat, parts, row.warned_at)


_CHANGE = (
    update(table)
    .where(table.c.name == bindparam("limit_name"))
    .values(tat=bindparam("new_tat"), parts=bindparam("new_parts"), warned_at=bindparam("new_warned_at"))
)


def _write(connection: Connection, changed: Mapping[str, LimitState]) -> None:
    if changed:
        rows = [
            {
                "limit_name": name,
                "new_tat": state.tat,
                "new_parts": json.dumps(state.parts),
                "new_warned_at": state.warned_at,
            }
            for name, state in changed.items()
        ]
        connection.execute(_CHANGE, rows)
