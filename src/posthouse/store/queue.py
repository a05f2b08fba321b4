"""The queue in `email_sends`: claiming and settling.

Statements are written so that every scan is a range of a partial index: a closed lane is never asked for, a
finished row is never walked. Whatever decides lives in `core`; here a decision is applied under the row's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Select, func, literal, select, update

from posthouse.core.lifecycle import Status
from posthouse.core.refusals import in_full
from posthouse.core.routing import RoutePlan
from posthouse.core.sends import Attempt, Change, SendState
from posthouse.core.suppression import SuppressionPolicy
from posthouse.store.combining import take_combined
from posthouse.store.database import MYSQL, POSTGRESQL, Database
from posthouse.store.rows import STATE_COLUMNS, Step, apply, by_index, changed, lock, record, state_of
from posthouse.store.schema import Instant, sends, status_is
from posthouse.store.splits import Narrowed, leave_out, split
from posthouse.store.suppressions import write_suppressions
from posthouse.store.taking import CLAIM, UNKNOWN, ClaimedSend, routes_parameters, take
from posthouse.values import value


@dataclass(frozen=True, slots=True)
class DueTime:
    """One lane with pending sends, and when its first is due."""

    lane: str
    at: float


@value
class Report:
    """What a worker has to say about one send: `decide` sees the row as it stands, locked.

    With an attempt, `decide` is asked once for it and has to look at the fence itself (the truth may come late);
    without one it is asked only while the fence is still the report's.
    """

    send_id: int
    fence: int
    decide: Callable[[SendState], Change | None]
    attempt: Attempt | None = None


class Queue:
    """Everything that moves sends. Each method is one short transaction."""

    def __init__(self, database: Database, suppression: SuppressionPolicy) -> None:
        self._database = database
        self._suppression = suppression

    def due_lanes(self) -> list[DueTime]:
        """Every lane with pending sends and its earliest time, due or not: one index hop a lane, never a count."""
        with self._database.read() as connection:
            query = _DUE_LANES_GROUPED if self._database.dialect == MYSQL else _DUE_LANES
            return [DueTime(lane, at) for lane, at in connection.execute(query)]

    def claim(
        self,
        lane: str,
        count: int,
        worker: int,
        now: float,
        routes: RoutePlan,
        combine_s: float | None = None,
    ) -> list[ClaimedSend]:
        """Takes up to `count` due sends of one lane for `worker`, oldest first: `sending`, under a new fence.

        Each gets the route of its next call, so that a crash leaves a row that says who may have accepted it. With
        `combine_s`, those to one recipient go out as one, with what was to go out within that time.
        """
        parameters = {"lane": lane, "count": count, "worker": worker, "now": now, **routes_parameters(routes)}
        if combine_s is not None:
            with self._database.write() as connection:
                return take_combined(connection, self._database, parameters, combine_s)
        with self._taking() as connection:
            return take(connection, CLAIM, True, parameters)

    def reroute(self, send: SendState, route: str) -> bool:
        """Gives a claimed send another route before its call begins. Returns whether it is still the claimer's."""
        moving = update(sends).where(sends.c.id == send.id, sends.c.fence == send.fence, status_is(Status.SENDING))
        with self._database.write() as connection:
            return connection.execute(moving.values(route=route)).rowcount > 0

    def leave_out(self, send: SendState, reasons: Mapping[str, str], now: float) -> Narrowed | None:
        """Takes recipients out of a claimed send before its call; see `splits.leave_out`."""
        with self._database.write() as connection:
            return leave_out(connection, self._database, send, reasons, now)

    def take_unknown(self, count: int, worker: int, now: float, lease_s: float) -> list[ClaimedSend]:
        """Takes up to `count` unknown sends whose time has come, for one step of finding out.

        They stay `unknown`; nobody else takes them for `lease_s`, and the new fence makes an older taker's result
        too late.
        """
        parameters = {"count": count, "worker": worker, "now": now, "again_at": now + lease_s}
        with self._taking() as connection:
            return take(connection, UNKNOWN, False, parameters)

    def _taking(self) -> AbstractContextManager[Connection]:
        return self._database.autocommit() if self._database.dialect == POSTGRESQL else self._database.write()

    def owned_by(self, worker: int, before: float) -> list[SendState]:
        """The sends that `worker` has claimed until `before` and not settled."""
        mine = (status_is(Status.SENDING), sends.c.claimed_by == worker, sends.c.updated_at <= literal(before, Instant))
        query = by_index(select(*STATE_COLUMNS).where(*mine), "email_sends_claimed")
        with self._database.read() as connection:
            return [state_of(row) for row in connection.execute(query)]

    def settle(self, batch: Sequence[Report], worker: int, now: float) -> list[Change | None]:
        """Records the attempts and applies what they mean, in one transaction; the changes made, in order.

        May be called again with the same batch: an attempt that is recorded already is not applied twice.
        """
        with self._database.write() as connection:
            # Rows first and in the order of their ids: every writer locks in the same order.
            states = lock(connection, self._database, [report.send_id for report in batch])
            tried = [report.attempt for report in batch if report.attempt is not None]
            fresh = record(connection, self._database, tried, worker)
            changes: list[Change | None] = []
            steps: list[Step] = []
            for report in batch:
                state = states.get(report.send_id)
                change = None if state is None else _decided(report, state, fresh)
                if state is not None and change is not None:
                    steps.append(Step(state, change, report.attempt))
                    states[state.id] = changed(state, change, report.attempt)
                changes.append(change)
            split(connection, self._database, steps, worker, now)
            apply(connection, steps, now)
            self._suppress(connection, [each for each in tried if _key(each) in fresh], now)
            return changes

    def _suppress(self, connection: Connection, tried: Iterable[Attempt], now: float) -> None:
        """What a call says against an address counts as if its message had come back."""
        bad = [(address, attempt) for attempt in tried for address in attempt.verdict.bad_addresses]
        wishes = [
            self._suppression.hard_bounce(
                address, in_full(attempt.verdict.code, attempt.verdict.text), attempt.route, now
            )
            for address, attempt in bad
        ]
        write_suppressions(connection, wishes, now)


def _due_lanes_query() -> Select[Any]:
    """A loose index scan: from each lane to the next greater one, then each one's first entry."""
    pending = status_is(Status.PENDING)
    hops = select(func.min(sends.c.lane).label("lane")).where(pending).cte("lanes", recursive=True)
    next_lane = select(func.min(sends.c.lane)).where(pending, sends.c.lane > hops.c.lane).scalar_subquery()
    hops = hops.union_all(select(next_lane).where(hops.c.lane.is_not(None)))
    first_due = select(func.min(sends.c.next_try_at)).where(pending, sends.c.lane == hops.c.lane).scalar_subquery()
    return select(hops.c.lane, first_due.label("at")).where(hops.c.lane.is_not(None))


_DUE_LANES: Final = _due_lanes_query()
_DUE_LANES_GROUPED: Final = (
    # MariaDB and MySQL hop by themselves, but only over the whole beginning of an index.
    select(sends.c.lane, func.min(sends.c.next_try_at).label("at"))
    .with_hint(sends, "FORCE INDEX (email_sends_due)", "mysql")
    .where(status_is(Status.PENDING))
    .group_by(sends.c.status, sends.c.lane)
)


def _decided(report: Report, state: SendState, fresh: Collection[tuple[int, int, str]]) -> Change | None:
    if report.attempt is None:
        return report.decide(state) if state.fence == report.fence else None
    return report.decide(state) if _key(report.attempt) in fresh else None


def _key(attempt: Attempt) -> tuple[int, int, str]:
    return attempt.send_id, attempt.fence, attempt.via
