"""What a person does to a send, and the audit of who did it."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, insert, select, update

from posthouse.core.intervention import Intervention
from posthouse.core.lifecycle import Status
from posthouse.core.routing import RouteHealth
from posthouse.core.sends import SendState
from posthouse.errors import NotPossible, UnknownSend
from posthouse.store.database import Database
from posthouse.store.route_rows import locked_health, write_health
from posthouse.store.rows import Step, apply, lock
from posthouse.store.schema import audit, contents, sends


class Operations:
    """Each method is one transaction: the change and its line in `email_audit` together."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def intervene(
        self,
        send_id: int,
        decide: Callable[[SendState], Intervention],
        *,
        action: str,
        who: str,
        detail: str,
        now: float,
        max_age_s: float,
        new_key: Callable[[], str],
    ) -> Status:
        """Applies a person's decision to a send as it stands; its new status. Raises NotPossible, UnknownSend."""
        with self._database.write() as connection:
            state = lock(connection, self._database, [send_id]).get(send_id)
            if state is None:
                raise UnknownSend(f"no send has the id {send_id}")
            made = decide(state)
            if made.fresh_start:
                self._start_afresh(connection, state, made, now, max_age_s, new_key)
            apply(connection, [Step(state, made.change)], now)
            key = connection.scalar(select(sends.c.dedupe_key).where(sends.c.id == send_id))
            write_audit(connection, now, who, action, str(key), detail)
            return made.change.status

    def _start_afresh(
        self,
        connection: Connection,
        state: SendState,
        made: Intervention,
        now: float,
        max_age_s: float,
        new_key: Callable[[], str],
    ) -> None:
        if not connection.scalar(select(contents.c.send_id).where(contents.c.send_id == state.id)):
            raise NotPossible("it can't be sent again: its content is no longer kept")
        values: dict[str, object] = {"failures": 0, "expires_at": max(state.expires_at, now + max_age_s)}
        if made.new_key:
            values |= {"idempotency_key": new_key(), "first_attempt_at": None}  # as good as a new message
        connection.execute(update(sends).where(sends.c.id == state.id).values(**values))

    def change_route(self, health: RouteHealth, *, who: str, action: str, detail: str, now: float) -> None:
        """A person's word on a route, whatever its health was."""
        with self._database.write() as connection:
            locked_health(connection, self._database, health.name, now)
            write_health(connection, health, now)
            write_audit(connection, now, who, action, health.name, detail)

    def audit(self, who: str, action: str, subject: str, detail: str, now: float) -> None:
        """Writes one line of audit that changes no send."""
        with self._database.write() as connection:
            write_audit(connection, now, who, action, subject, detail)


def write_audit(connection: Connection, now: float, who: str, action: str, subject: str, detail: str) -> None:
    """One line of `email_audit`."""
    connection.execute(insert(audit).values(at=now, who=who, action=action, subject=subject, detail=detail))
