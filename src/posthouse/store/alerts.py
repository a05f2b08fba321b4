"""What a person has to know: each alert is raised by one worker, and not again too soon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from posthouse.store.database import Database
from posthouse.store.schema import Instant, alerts

SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert, as it was raised last."""

    name: str
    text: str
    raised_at: float
    times: int


class Alerts:
    """Each method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def raise_once(self, name: str, text: str, now: float, quiet_s: float) -> bool:
        """Writes the alert, unless it was raised within `quiet_s`. Whether the caller is the one who raised it."""
        raised: dict[str, Any] = {"text": text, "raised_at": now}
        stale = alerts.c.raised_at <= literal(now - quiet_s, Instant)
        again = update(alerts).where(alerts.c.name == name, stale).values(**raised, times=alerts.c.times + 1)
        with self._database.write() as connection:
            if connection.execute(again).rowcount:
                return True
            if connection.scalar(select(alerts.c.name).where(alerts.c.name == name)):
                return False
        try:
            with self._database.write() as connection:
                connection.execute(insert(alerts).values(name=name, times=1, **raised))
        except IntegrityError:
            return False  # somebody else was faster
        return True

    def since(self, moment: float) -> list[Alert]:
        """The alerts raised since then, the newest first."""
        query = (
            select(alerts.c.name, alerts.c.text, alerts.c.raised_at, alerts.c.times)
            .where(alerts.c.raised_at >= literal(moment, Instant))
            .order_by(alerts.c.raised_at.desc())
            .limit(SHOWN_MAX)
        )
        with self._database.read() as connection:
            return [Alert(*row) for row in connection.execute(query)]
