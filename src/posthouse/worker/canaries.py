"""When a route last accepted anything, told to all workers; and canaries through those that were quiet for long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from posthouse.core.canary import ACCEPTED_LAG_S, Canary, failing, is_due
from posthouse.core.lanes import lane_name
from posthouse.core.mailbox_groups import OTHER, mailbox_group
from posthouse.core.routing import RouteHealth
from posthouse.email import Email
from posthouse.errors import DatabaseUnavailable, InvalidEmail, KeyReused
from posthouse.outbox import Outbox
from posthouse.store.access import StoreAccess
from posthouse.store.store import Store
from posthouse.worker.alarm import Alarm
from posthouse.worker.gates import Gates
from posthouse.worker.pulse import Pulse
from posthouse.worker.routes import Routes

LOOK_EVERY_S: Final = 10.0

log = logging.getLogger("posthouse.worker")


@dataclass(frozen=True, slots=True)
class CanarySettings:
    """Which routes get canaries, and the way in for them."""

    canaries: Sequence[Canary]
    outbox: Outbox


class Canaries:
    """Looks every few seconds. A worker without canaries asks the database for nothing, and writes what it accepted."""

    def __init__(
        self,
        settings: CanarySettings | None,
        store: Store,
        access: StoreAccess,
        routes: Routes,
        gates: Gates,
        alarm: Alarm,
        pulse: Pulse,
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._store = store
        self._access = access
        self._routes = routes
        self._gates = gates
        self._alarm = alarm
        self._pulse = pulse
        self._now = now
        self._told: dict[str, float] = {}

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            try:
                await self.look()
            except DatabaseUnavailable:
                pass  # said once already; the next look finds everything still there
            except Exception:
                log.exception("the canaries can't be looked after; the next look tries again")
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Once. Raises DatabaseUnavailable."""
        await self._tell_accepted()
        if self._settings is None or not self._settings.canaries or not self._pulse.may_start:
            return
        health = await self._access.run(self._store.control.route_health)
        await self._gates.refresh()
        for canary in self._settings.canaries:
            await self._look_after(canary, health.get(canary.route, RouteHealth(canary.route)), self._settings.outbox)

    async def _tell_accepted(self) -> None:
        for route, at in list(self._routes.accepted_at.items()):
            if abs(at - self._told.get(route, 0.0)) >= ACCEPTED_LAG_S:
                await self._access.run(self._store.control.note_accepted, route, at, ACCEPTED_LAG_S)
                self._told[route] = at

    async def _look_after(self, canary: Canary, health: RouteHealth, outbox: Outbox) -> None:
        now = self._now()
        sent = await self._access.run(self._store.ledger.canaries, canary.keys(now))
        if (why := failing(canary, health, sent, now)) is not None:
            # Once, and again only where it has worked in between.
            self._alarm.sound(f"canary {canary.route}", why, quiet_s=now - (health.last_accepted_at or 0.0))
        group = mailbox_group(canary.to.email)
        lane = lane_name(canary.type, mailbox_group="" if group == OTHER else group)
        if is_due(canary, health, sent, now) and self._gates.closing(lane) is None:
            await self._make(canary, outbox, now)

    async def _make(self, canary: Canary, outbox: Outbox, now: float) -> None:
        try:
            await self._access.run(self._write, outbox, _email(canary, now))
        except InvalidEmail as error:
            self._alarm.sound(f"canary {canary.route}", f"no canary can be made: {error}")

    def _write(self, outbox: Outbox, email: Email) -> None:
        with suppress(KeyReused), self._store.database.write() as connection:  # made by a worker that is set otherwise
            outbox.enqueue(connection, email)


def _email(canary: Canary, now: float) -> Email:
    """The same for every worker of one slot."""
    return Email(
        type=canary.type,
        key=canary.keys(now)[0],
        to=canary.to,
        subject=f"Posthouse: the route {canary.route} works",
        text=(
            f"Nothing had gone by the route {canary.route} for a while, so Posthouse sent this message by it, to know "
            "that it works on the day it is needed. There is nothing to do.\n\n"
            f"It is asked for in posthouse.toml, [routes.{canary.route}], as canary_to and canary_every.\n"
        ),
    )
