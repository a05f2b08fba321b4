"""Kill switches: rows that a person writes and every worker obeys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, literal, or_, select, update

from posthouse.core.lifecycle import Status
from posthouse.core.slowdown import Slowdown
from posthouse.core.switches import PACED_FOR_S, Scope, Switch
from posthouse.errors import NotPossible
from posthouse.store.database import Database
from posthouse.store.group_health import end_slowdowns, read_slowdowns
from posthouse.store.operations import write_audit
from posthouse.store.schema import Instant, sends, status_is, switches

FORGOTTEN_AFTER_S: Final = 10 * PACED_FOR_S


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """One switch, and when a person opened it again, if somebody has."""

    switch: Switch
    resumed_at: float | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in some lanes, and what of it ends before it is opened."""

    pending: int
    expiring: int
    first_expires_at: float | None


class Switchboard:
    """Each method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pause(self, switch: Switch) -> None:
        """Closes, or changes the reason and the end of what is closed."""
        with self._database.write() as connection:
            mine = _is(switch.scope, switch.value)
            connection.execute(delete(switches).where(mine))
            connection.execute(
                insert(switches).values(
                    scope=switch.scope.value,
                    value=switch.value,
                    reason=switch.reason,
                    who=switch.who,
                    since=switch.since,
                    until=switch.until,
                )
            )
            write_audit(
                connection, switch.since, switch.who, "pause", _named(switch.scope, switch.value), switch.reason
            )

    def resume(self, scope: Scope, value: str, *, who: str, now: float) -> bool:
        """Opens what a person has closed. A group that is not: ends its slow-downs, and returns False.

        Raises NotPossible where there is neither.
        """
        closed = or_(switches.c.until.is_(None), switches.c.until > literal(now, Instant))
        opening = update(switches).where(_is(scope, value), switches.c.resumed_at.is_(None), closed)
        with self._database.write() as connection:
            if not connection.execute(opening.values(resumed_at=now)).rowcount:
                if scope is Scope.GROUP and end_slowdowns(connection, value, who, now):
                    return False
                raise NotPossible(f"{_named(scope, value)} is not paused")
            write_audit(connection, now, who, "resume", _named(scope, value), "")
            _forget(connection, now)
            return True

    def rows(self) -> list[SwitchRow]:
        """Every switch, and those that were opened lately."""
        with self._database.read() as connection:
            return [_row(row) for row in connection.execute(select(switches).order_by(switches.c.since))]

    def gates(self) -> tuple[list[SwitchRow], list[Slowdown]]:
        """What workers obey before they start anything: the switches, and the mailbox groups that are slowed."""
        with self._database.read() as connection:
            rows = [_row(row) for row in connection.execute(select(switches).order_by(switches.c.since))]
            return rows, read_slowdowns(connection)

    def waiting(self, lanes: Sequence[str], before: float) -> Waiting:
        """What is pending in these lanes, and how much of it ends before `before`."""
        mine = (status_is(Status.PENDING), sends.c.lane.in_(lanes))
        ends = sends.c.expires_at <= literal(before, Instant)
        with self._database.read() as connection:
            pending, first = connection.execute(select(func.count(), func.min(sends.c.expires_at)).where(*mine)).one()
            expiring = connection.scalar(select(func.count()).select_from(sends).where(*mine, ends)) or 0
            return Waiting(pending, expiring, first)


def _is(scope: Scope, value: str) -> Any:
    return (switches.c.scope == scope.value) & (switches.c.value == value)


def _named(scope: Scope, value: str) -> str:
    return f"{scope} {value}".strip()


def _row(row: Any) -> SwitchRow:
    return SwitchRow(Switch(Scope(row.scope), row.value, row.reason, row.who, row.since, row.until), row.resumed_at)


def _forget(connection: Connection, now: float) -> None:
    connection.execute(delete(switches).where(switches.c.resumed_at < literal(now - FORGOTTEN_AFTER_S, Instant)))
