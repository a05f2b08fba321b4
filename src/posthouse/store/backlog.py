"""How much is pending: counted now and then, no further than the caps need it, and written down for whoever enqueues.

There is no exact counter: each transaction would have to lock it. One worker at a time has the turn to count. It also
makes room where the outbox sheds; in each transaction it first makes sure that the turn is still its own, so that two
workers never shed for the same surplus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, literal, or_, select, update
from sqlalchemy.exc import IntegrityError

from posthouse.core.cap_policy import Backlog, CapPolicy
from posthouse.core.caps import shed
from posthouse.core.lanes import ORDER, type_of
from posthouse.core.lifecycle import Status
from posthouse.core.policy import Priority
from posthouse.store.database import MYSQL, SQLITE, Database
from posthouse.store.moments import age_sql
from posthouse.store.rows import SWEEP_ROWS, Step, apply, by_index, lock
from posthouse.store.schema import Instant, sends, status_is
from posthouse.store.schema import backlog as table
from posthouse.store.script import Row, Script, play

TURN: Final = "turn"
TURN_S: Final = 4.0
"""Nobody counts again within this time."""

SHED_MAX: Final = 20 * SWEEP_ROWS
"""So much is shed in one turn; and so much beyond a cap is counted."""

LANES_A_STATEMENT: Final = 500


def read_backlog(dialect: str, caps: CapPolicy, now: float) -> Script[tuple[Backlog, float] | None]:
    """What the workers counted last and how many seconds ago; None where they have not counted all that is needed."""
    rows = yield f"SELECT name, pending, {age_sql(dialect, 'counted_at', now)} FROM email_backlog", ()
    found = {name: (int(pending), float(age)) for name, pending, age in rows}
    names = _names(caps)
    if not found.keys() >= names.keys():
        return None
    counts = {names[name]: found[name][0] for name in names}
    return _backlog(counts), max(found[name][1] for name in names)


def count_backlog(dialect: str, caps: CapPolicy) -> Script[Backlog]:
    """Counts what is pending, no further than the caps and SHED_MAX."""
    lanes = [lane for (lane,) in (yield _lanes_sql(dialect), ())]
    counts: dict[Priority | str, int] = {}
    if caps.outbox is not None:
        room = caps.outbox.count + SHED_MAX
        for priority in reversed(ORDER):  # the lowest first: they are refused and shed first
            counts[priority] = yield from _count(dialect, caps.lanes_of(lanes, priority), room)
            room -= counts[priority]
    for type_, cap in caps.types.items():
        counts[type_] = yield from _count(dialect, [lane for lane in lanes if type_of(lane) == type_], cap.count)
    return _backlog(counts)


def _count(dialect: str, lanes: Sequence[str], room: int) -> Script[int]:
    counted = 0
    for begin in range(0, len(lanes), LANES_A_STATEMENT):
        some = lanes[begin : begin + LANES_A_STATEMENT]
        if counted < room:
            ((found,),) = yield _count_sql(dialect, len(some), room - counted), some
            counted += int(found)
    return counted


def _count_sql(dialect: str, lanes: int, room: int) -> str:
    hint = "FORCE INDEX (email_sends_due) " if dialect == MYSQL else ""
    marks = ", ".join(["?" if dialect == SQLITE else "%s"] * lanes)
    some = (
        f"SELECT 1 AS one FROM email_sends {hint}WHERE status = '{Status.PENDING}' AND lane IN ({marks}) LIMIT {room}"
    )
    return f"SELECT count(*) FROM ({some}) AS counted"


def _lanes_sql(dialect: str) -> str:
    """Every lane with pending sends, by one hop each; see `queue.py`."""
    pending = f"status = '{Status.PENDING}'"
    if dialect == MYSQL:
        return f"SELECT lane FROM email_sends FORCE INDEX (email_sends_due) WHERE {pending} GROUP BY status, lane"
    return (
        f"WITH RECURSIVE lanes(lane) AS (SELECT min(lane) FROM email_sends WHERE {pending} UNION ALL "
        f"SELECT (SELECT min(lane) FROM email_sends WHERE {pending} AND email_sends.lane > lanes.lane) FROM lanes "
        "WHERE lanes.lane IS NOT NULL) SELECT lane FROM lanes WHERE lane IS NOT NULL"
    )


def _names(caps: CapPolicy) -> dict[str, Priority | str]:
    """What stands in the table under which name."""
    priorities = {f"priority {priority}": priority for priority in ORDER} if caps.outbox is not None else {}
    return {**priorities, **{f"type {type_}": type_ for type_ in caps.types}}


def _backlog(counts: Mapping[Priority | str, int]) -> Backlog:
    return Backlog(
        {what: count for what, count in counts.items() if isinstance(what, Priority)},
        {what: count for what, count in counts.items() if not isinstance(what, Priority)},
    )


class _Reader:
    """Runs scripts that only read, on a connection of the store's own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.dialect = connection.dialect.name

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        return list(self._connection.exec_driver_sql(sql, tuple(parameters)))


class BacklogTable:
    """The workers' side. `turn` is the moment at which the caller took it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take_turn(self, now: float) -> bool:
        """Whether it is the caller's turn to count, which it has begun at `now`."""
        over = or_(table.c.counted_at <= literal(now - TURN_S, Instant), table.c.counted_at > literal(now, Instant))
        with self._database.write() as connection:
            if connection.execute(update(table).where(table.c.name == TURN, over).values(counted_at=now)).rowcount:
                return True
            if connection.scalar(select(table.c.name).where(table.c.name == TURN)):
                return False
        try:
            with self._database.write() as connection:
                connection.execute(insert(table).values(name=TURN, pending=0, counted_at=now))
        except IntegrityError:
            return False  # somebody else was faster
        return True

    def count(self, caps: CapPolicy) -> Backlog:
        """Counts; nobody waits for it."""
        with self._database.read() as connection:
            return play(count_backlog(self._database.dialect, caps), _Reader(connection))

    def write(self, caps: CapPolicy, counted: Backlog, turn: float) -> bool:
        """Writes down what was counted, as of the turn's beginning; False where the turn is somebody else's now."""
        rows = [
            {"name": name, "pending": _of(counted, what), "counted_at": turn} for name, what in _names(caps).items()
        ]
        with self._in_turn(turn) as connection:
            if connection is None:
                return False
            connection.execute(delete(table).where(table.c.name != TURN))
            connection.execute(insert(table), rows)
            return True

    def newest(self, caps: CapPolicy, priority: Priority, count: int) -> list[int]:
        """The ids of the last in the line of one priority, of those for which no call was made; the last first."""
        with self._database.read() as connection:
            rows = connection.exec_driver_sql(_lanes_sql(self._database.dialect))
            lanes = [lane for (lane,) in rows if type_of(lane) in caps.priorities]
            found = [row for lane in caps.lanes_of(lanes, priority) for row in connection.execute(_last(lane, count))]
        found.sort(key=lambda row: (row.next_try_at, row.id), reverse=True)
        return [row.id for row in found[:count]]

    def shed(self, ids: Sequence[int], reason: str, turn: float, now: float) -> int | None:
        """Ends those of these sends that are still untouched; how many. None where the turn is somebody else's now."""
        with self._in_turn(turn) as connection:
            if connection is None:
                return None
            states = lock(connection, self._database, ids).values()
            steps = [Step(state, change) for state in states if (change := shed(state, reason)) is not None]
            apply(connection, steps, now)
            return len(steps)

    @contextmanager
    def _in_turn(self, turn: float) -> Iterator[Connection | None]:
        mine = select(table.c.name).where(table.c.name == TURN, table.c.counted_at == literal(turn, Instant))
        if not self._database.is_sqlite:
            mine = mine.with_for_update()
        with self._database.write() as connection:
            yield connection if connection.scalar(mine) else None


def _of(counted: Backlog, what: Priority | str) -> int:
    return counted.priorities.get(what, 0) if isinstance(what, Priority) else counted.types.get(what, 0)


def _last(lane: str, count: int) -> Any:
    untouched = (sends.c.attempts == 0, sends.c.unknown_since.is_(None))
    query = select(sends.c.id, sends.c.next_try_at).where(status_is(Status.PENDING), sends.c.lane == lane, *untouched)
    return by_index(query.order_by(sends.c.next_try_at.desc(), sends.c.id.desc()).limit(count), "email_sends_due")
