"""The sweeps: whatever no worker's claim would find is found here, so that nothing is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, func, literal, or_, select, true

from posthouse.core.lifecycle import TERMINAL, Happening, Status
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.sends import Attempt, Change, Via
from posthouse.core.settlement import end_life, reap
from posthouse.store.database import Database
from posthouse.store.rows import (
    STATE_COLUMNS,
    SWEEP_ROWS,
    Step,
    apart,
    apply,
    by_index,
    locking,
    record,
    state_of,
    state_query,
)
from posthouse.store.schema import Instant, sends, status_is, workers

_OWNERS: Final = by_index(select(sends.c.claimed_by).where(status_is(Status.SENDING)).distinct(), "email_sends_claimed")
"""The workers that have a claimed send."""


class Sweeps:
    """Run by every worker, in any number at once; each method repeats short transactions until nothing is left."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def reap(self, alive_since: float, now: float, worker: int) -> int:
        """Turns `sending` sends of dead workers into `unknown`, with an attempt that says so.

        Dead is whoever has not said since `alive_since` that it lives, or is not in `email_workers` at all.
        """
        dead = or_(workers.c.id.is_(None), workers.c.heartbeat_at < literal(alive_since, Instant))
        alive = (
            select(workers.c.id)
            .where(workers.c.id == sends.c.claimed_by, workers.c.heartbeat_at >= literal(alive_since, Instant))
            .exists()
        )
        return sum(self._reap_worker(owner, name, ~alive, now, worker) for owner, name in self._owners(dead))

    def reap_all(self, now: float, worker: int) -> int:
        """Like `reap`, for whoever knows that no other worker lives (the holder of a SQLite file's lock)."""
        return sum(
            self._reap_worker(owner, name, true(), now, worker)
            for owner, name in self._owners(true())
            if owner != worker
        )

    def _owners(self, which: ColumnElement[bool]) -> list[tuple[int, str]]:
        """Those of the workers with a claimed send, and their names as far as they are known."""
        owners = _OWNERS.subquery()
        asked = (
            select(owners.c.claimed_by, workers.c.host, workers.c.pid)
            .outerjoin_from(owners, workers, workers.c.id == owners.c.claimed_by)
            .where(which)
        )
        with self._database.read() as connection:
            found = connection.execute(asked).all()
        return [(owner, f"{host or '?'}:{pid or '?'}") for owner, host, pid in found]

    def _reap_worker(self, owner: int, name: str, dead: ColumnElement[bool], now: float, worker: int) -> int:
        """`dead` is asked again in the transaction that reaps."""
        reaped = 0
        while True:
            with self._database.write() as connection:
                query = state_query("email_sends_claimed", status_is(Status.SENDING), sends.c.claimed_by == owner, dead)
                rows = connection.execute(locking(query, self._database)).all()
                steps = [_reaped(row, name, now) for row in rows]
                record(connection, self._database, [step.attempt for step in steps if step.attempt], worker)
                apply(connection, steps, now)
            reaped += len(rows)
            if len(rows) < SWEEP_ROWS:
                return reaped

    def end_lives(self, now: float) -> int:
        """Ends waiting and pending sends whose expiry has passed, whatever gate holds their lane."""
        groups = apart(self._database, (Status.PENDING, Status.WAITING))
        return sum(self._end_lives(statuses, now) for statuses in groups)

    def _end_lives(self, statuses: Sequence[Status], now: float) -> int:
        ended = 0
        while True:
            with self._database.write() as connection:
                query = state_query(
                    "email_sends_expiring",
                    status_is(*statuses),
                    sends.c.expires_at <= literal(now, Instant),
                    order=sends.c.expires_at,
                )
                rows = connection.execute(locking(query, self._database)).all()
                states = [state_of(row) for row in rows]
                changes = [(state, end_life(state)) for state in states]
                apply(connection, [Step(state, change) for state, change in changes if change is not None], now)
            ended += len(rows)
            if len(rows) < SWEEP_ROWS:
                return ended

    def sweep_dependencies(self, now: float) -> int:
        """Moves on the sends whose `after` was accepted, and cancels those whose `after` ended without it."""
        first, carrier = sends.alias("first"), sends.alias("carrier")
        first_status = func.coalesce(carrier.c.status, first.c.status)  # a combined one stands as what carries it does
        ended = [status.value for status in TERMINAL]
        moved = 0
        while True:
            with self._database.write() as connection:
                query = (
                    select(*STATE_COLUMNS, sends.c.next_try_at, sends.c.after_key, first_status.label("first_status"))
                    .join_from(sends, first, first.c.dedupe_key == sends.c.after_key)
                    .outerjoin(carrier, carrier.c.id == first.c.combined_into)
                    .where(
                        sends.c.status == literal(Status.WAITING.value, literal_execute=True), first_status.in_(ended)
                    )
                    .order_by(
                        sends.c.after_key, sends.c.id
                    )  # the order of its index, so that no planner walks the table
                    .limit(SWEEP_ROWS)
                )
                rows = connection.execute(locking(by_index(query, "email_sends_waiting"), self._database)).all()
                apply(connection, [Step(state_of(row), _dependency_change(row)) for row in rows], now)
            moved += len(rows)
            if len(rows) < SWEEP_ROWS:
                return moved


def _dependency_change(row: Row[Any]) -> Change:
    if row.first_status == Status.ACCEPTED:
        return Change(Happening.DEPENDENCY_ACCEPTED, Status.PENDING, row.next_try_at)
    reason = f"the email it waits for, {row.after_key}, ended as {row.first_status}"
    return Change(Happening.DEPENDENCY_ENDED, Status.CANCELLED, None, last_error=reason)


def _reaped(row: Row[Any], name: str, now: float) -> Step:
    state = state_of(row)
    text = f"worker {state.claimed_by} ({name}) died while it had this send; a call may have been made"
    verdict = Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="worker_died", text=text, rule="worker died")
    attempt = Attempt(state.id, state.fence, state.route or "?", row.updated_at, now, verdict, Via.REAPER)
    return Step(state, reap(state, row.updated_at, now), attempt)
