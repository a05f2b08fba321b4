"""What all workers obey: each other's heartbeats, the routes' health, and their places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import and_, delete, insert, literal, or_, select, update

from posthouse.core.lifecycle import Status
from posthouse.core.places import Grant, Holding, grant
from posthouse.core.routing import RouteHealth
from posthouse.store.database import MYSQL, Database
from posthouse.store.route_rows import health_of, locked_health, write_health
from posthouse.store.rows import by_index
from posthouse.store.schema import Instant, places, routes, sends, status_is, workers


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker process, as `posthouse status` shows it."""

    id: int
    host: str
    pid: int
    version: str
    started_at: float
    heartbeat_at: float


class Control:
    """Workers and routes. Each method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, host: str, pid: int, version: str) -> int:
        """A new worker's id, written before its first claim."""
        now = self._database.now()
        row = {"host": host, "pid": pid, "version": version, "started_at": now, "heartbeat_at": now}
        with self._database.write() as connection:
            (id_,) = connection.execute(insert(workers).values(**row)).inserted_primary_key or (0,)
            return int(id_)

    def heartbeat(self, worker: int) -> float | None:
        """Says that the worker lives; the database's time, or None when its row is gone."""
        mine = workers.c.id == worker
        beat = update(workers).where(mine).values(heartbeat_at=self._database.now())
        with self._database.write() as connection:
            if self._database.dialect == MYSQL:  # an UPDATE there returns nothing
                connection.execute(beat)
                at = connection.scalar(select(workers.c.heartbeat_at).where(mine))
            else:
                at = connection.scalar(beat.returning(workers.c.heartbeat_at))
            return None if at is None else float(at)

    def leave(self, worker: int) -> None:
        """Removes a worker that has settled everything. One that has not is left for the reaper."""
        owned = select(sends.c.id).where(status_is(Status.SENDING), sends.c.claimed_by == worker)
        owns = by_index(owned, "email_sends_claimed").exists()
        with self._database.write() as connection:
            connection.execute(delete(places).where(places.c.worker == worker))
            connection.execute(delete(workers).where(workers.c.id == worker, ~owns))

    def hold_places(self, route: str, mine: Holding, total: int, alive_since: float, now: float) -> Grant:
        """Writes what a worker holds of a route's places, and gives it what else it may have.

        A worker that was not heard of since `alive_since` is dead, and holds nothing any more.
        """
        with self._database.write() as connection:
            locked_health(connection, self._database, route, now)  # the route's row: one worker at a time
            alive = workers.c.heartbeat_at >= literal(alive_since, Instant)
            others = connection.execute(
                select(places.c.worker, places.c.places, places.c.wanted, workers.c.id.is_not(None))
                .outerjoin_from(places, workers, and_(workers.c.id == places.c.worker, alive))
                .where(places.c.route == route, places.c.worker != mine.worker)
            ).all()
            granted = grant(total, mine, [Holding(*holding) for *holding, lives in others if lives])
            gone = [mine.worker, *(row.worker for row in others if not row[-1])]
            connection.execute(delete(places).where(places.c.route == route, places.c.worker.in_(gone)))
            if granted.places or mine.wanted:
                row = {"places": granted.places, "wanted": mine.wanted, "changed_at": now}
                connection.execute(insert(places).values(route=route, worker=mine.worker, **row))
            return granted

    def forget_dead(self, before: float) -> None:
        """Removes workers that were last heard of before `before`; whoever they still own is reaped all the same."""
        with self._database.write() as connection:
            connection.execute(delete(workers).where(workers.c.heartbeat_at < literal(before, Instant)))

    def workers(self) -> list[WorkerRow]:
        """All workers that are known, the oldest first."""
        with self._database.read() as connection:
            return [WorkerRow(**row._mapping) for row in connection.execute(select(workers).order_by(workers.c.id))]

    def route_health(self) -> dict[str, RouteHealth]:
        """The health of every route that ever accepted anything, or was in trouble."""
        with self._database.read() as connection:
            return {row.name: health_of(row) for row in connection.execute(select(routes))}

    def note_accepted(self, route: str, at: float, every_s: float) -> None:
        """Writes when a call on a route was accepted, unless somebody has done so within `every_s`."""
        known = or_(routes.c.last_accepted_at.is_(None), routes.c.last_accepted_at < literal(at - every_s, Instant))
        with self._database.write() as connection:
            locked_health(connection, self._database, route, at)
            changing = update(routes).where(routes.c.name == route, known)
            connection.execute(changing.values(last_accepted_at=at))

    def change_route(self, name: str, decide: Callable[[RouteHealth], RouteHealth | None], now: float) -> RouteHealth:
        """Applies one decision to a route's health, under its row's lock; the health as it stands then."""
        with self._database.write() as connection:
            health = locked_health(connection, self._database, name, now)
            changed = decide(health)
            if changed is None:
                return health
            write_health(connection, changed, now)
            return changed
