"""Rows of `email_routes`: read, locked, changed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, select, update

from posthouse.core.breaker import Breaker, BreakerState
from posthouse.core.routing import RouteHealth, RouteState
from posthouse.store.database import Database
from posthouse.store.missing_rows import insert_missing
from posthouse.store.schema import routes


def health_of(row: Any) -> RouteHealth:
    """The health in a row."""
    return RouteHealth(
        row.name,
        RouteState(row.state),
        row.held_until,
        row.reason,
        row.strikes,
        _breaker(row.breaker),
        row.held_since or 0.0,
        row.last_accepted_at,
    )


def _breaker(stored: str | None) -> Breaker:
    """The stored breaker; one that nothing ever happened to where there is none, or it can't be read."""
    try:
        parts = json.loads(stored or "{}")
        return Breaker(**parts | {"state": BreakerState(parts.get("state", BreakerState.CLOSED))})
    except (ValueError, TypeError, AttributeError):
        return Breaker()


def locked_health(connection: Connection, database: Database, name: str, now: float) -> RouteHealth:
    """A route's health, its row locked for this transaction, and written first where there is none."""
    query = select(routes).where(routes.c.name == name)
    if not database.is_sqlite:
        query = query.with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        # What is not there can't be locked: two first decisions at once would both start from nothing.
        new = {"name": name, **_values(RouteHealth(name), now)}
        connection.execute(insert_missing(database.dialect, routes, [new]))
        row = connection.execute(query).one()
    return health_of(row)


def write_health(connection: Connection, health: RouteHealth, now: float) -> None:
    """Writes the health of a route whose row is locked."""
    connection.execute(update(routes).where(routes.c.name == health.name).values(**_values(health, now)))


def _values(health: RouteHealth, now: float) -> dict[str, Any]:
    return {
        "state": health.state.value,
        "held_until": health.held_until,
        "held_since": health.held_since,
        "reason": health.reason,
        "strikes": health.strikes,
        "breaker": None if health.breaker == Breaker() else json.dumps(asdict(health.breaker)),
        "changed_at": now,
    }
