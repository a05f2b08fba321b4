"""Reading the ledger: what became of an email, and how the whole stands. For people; never counts history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, case, extract, func, literal, or_, select

from posthouse.address import fold
from posthouse.config import CANARY_TYPES
from posthouse.core.canary import Sent
from posthouse.core.lifecycle import OPEN, Status
from posthouse.core.outcome import Outcome
from posthouse.core.outlook import Waiting
from posthouse.core.sends import CALLS, SendState
from posthouse.errors import UnknownSend
from posthouse.store.database import Database
from posthouse.store.rows import STATE_COLUMNS, state_of
from posthouse.store.schema import Instant, attempts, audit, contents, events, sends, status_is
from posthouse.text import unstorable

FIND_SCANNED_ROWS: Final = 100_000
"""How many of the newest sends a search by part of a word looks through."""

HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0

WAITING_COUNTED: Final = 10_000
LATELY_S: Final = 120.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Story:
    """All that is known of one send."""

    send: Json
    attempts: list[Json]
    audit: list[Json]
    body: str | None
    splits: list[Json] = field(default_factory=list)  # the sends that were split off this one
    carrier: Json | None = None  # the send that this one goes out in
    combined: list[Json] = field(default_factory=list)  # the sends that go out in this one
    events: list[Json] = field(default_factory=list)  # what was heard of it

    @property
    def state(self) -> SendState:
        """The send as the deciding functions see it."""
        return state_of([self.send[column.name] for column in STATE_COLUMNS])


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """What waits in one lane."""

    lane: str
    pending: int
    due: int
    oldest_due_at: float | None


@dataclass(frozen=True, slots=True)
class Traffic:
    """How much there is to do and how much was done: what a plan for an outage starts from."""

    created: int  # within the last hour
    accepted: int  # in the busiest minute of the last day
    pending: int  # now


@dataclass(frozen=True, slots=True)
class NamedSend:
    """One send of a list to go through."""

    id: int
    key: str
    type: str


class Ledger:
    """Read-only views. Times are seconds since 1970, UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> float:
        """The database's time, by which everything in the tables is dated."""
        with self._database.read() as connection:
            return float(connection.execute(select(self._database.now())).scalar_one())

    def story(self, key_or_id: str) -> Story:
        """The send with this key, or else this id. Raises UnknownSend."""
        if unstorable(key_or_id):
            raise UnknownSend(f"no send has the key or id {key_or_id!r}: no key contains such characters")
        with self._database.read() as connection:
            row = connection.execute(select(sends).where(sends.c.dedupe_key == key_or_id)).one_or_none()
            if row is None and (id_ := _as_id(key_or_id)) is not None:
                row = connection.execute(select(sends).where(sends.c.id == id_)).one_or_none()
            if row is None:
                raise UnknownSend(
                    f"no send has the key or id {key_or_id!r}; look for it with: posthouse find {key_or_id}"
                )
            tried = select(attempts).where(attempts.c.send_id == row.id).order_by(attempts.c.ended_at, attempts.c.id)
            acted = select(audit).where(audit.c.subject == row.dedupe_key).order_by(audit.c.id)
            parts = select(sends).where(sends.c.split_from == row.id).order_by(sends.c.id)
            joined = select(sends).where(sends.c.combined_into == row.id).order_by(sends.c.id)
            carrier = select(sends).where(sends.c.id == row.combined_into)
            heard = select(events).where(events.c.send_id == row.id).order_by(events.c.at, events.c.id)
            return Story(
                send=dict(row._mapping),
                attempts=_all(connection, tried),
                audit=_all(connection, acted),
                body=connection.scalar(select(contents.c.body).where(contents.c.send_id == row.id)),
                splits=_all(connection, parts),
                carrier=None if row.combined_into is None else next(iter(_all(connection, carrier)), None),
                combined=_all(connection, joined),
                events=_all(connection, heard),
            )

    def keys(self, ids: Collection[int]) -> dict[int, str]:
        """The keys of these sends, of those that are still there."""
        with self._database.read() as connection:
            found = connection.execute(select(sends.c.id, sends.c.dedupe_key).where(sends.c.id.in_(ids)))
            return {row.id: row.dedupe_key for row in found}

    def find(
        self,
        words: Sequence[str],
        status: Status | None,
        limit: int,
        *,
        held: bool = False,
        campaign: str | None = None,
    ) -> list[Json]:
        """The newest sends that match every word; `held`: only unknown ones that wait for a person.

        A word that is a whole key, an address, a provider's message id or an id is found by an index; else it is
        looked for as a part of these, of our id at providers, of the type and the tags, among the newest sends.
        Nobody who asks for nothing in particular asks for canaries.
        """
        if any(unstorable(word) for word in (*words, campaign or "")):
            return []
        wanted: list[ColumnElement[bool]] = [] if status is None else [status_is(status)]
        if campaign is not None:
            wanted.append(sends.c.campaign == campaign)
        if status is None and campaign is None and not words:
            wanted.append(sends.c.type.not_like(f"{CANARY_TYPES}%"))
        if held:
            wanted += _in_state(Status.UNKNOWN, None, held)
        with self._database.read() as connection:
            found = connection.execute(_find_query([*wanted, *map(_exactly, words)], limit)).all()
            if not found and words:
                newest = connection.scalar(select(func.max(sends.c.id))) or 0
                recent = sends.c.id > newest - FIND_SCANNED_ROWS
                found = connection.execute(_find_query([*wanted, recent, *map(_partly, words)], limit)).all()
            return [dict(row._mapping) for row in found]

    def canaries(self, keys: Sequence[str]) -> list[Sent]:
        """The canaries of these keys, the newest first."""
        query = (
            select(sends.c.dedupe_key, sends.c.status, sends.c.created_at, sends.c.expires_at, sends.c.last_error)
            .where(sends.c.dedupe_key.in_(keys))
            .order_by(sends.c.id.desc())
        )
        with self._database.read() as connection:
            return [Sent(key, Status(status), *rest) for key, status, *rest in connection.execute(query)]

    def open_counts(self) -> dict[str, int]:
        """How many sends are in each state that is not an end, and how many failed and were not looked after."""
        statuses = [*sorted(OPEN, key=list(Status).index), Status.FAILED]
        with self._database.read() as connection:
            return {
                status.value: connection.scalar(select(func.count()).select_from(sends).where(status_is(status))) or 0
                for status in statuses
            }

    def held_unknown(self) -> int:
        """Unknown sends that only a person can move on."""
        return self.count(Status.UNKNOWN, held=True)

    def lanes(self, now: float) -> list[LaneDepth]:
        """What waits in each lane: all of it, and what is due."""
        due = sends.c.next_try_at <= literal(now, Instant)
        query = (
            select(
                sends.c.lane,
                func.count(),
                func.count(case((due, 1))),
                func.min(case((due, sends.c.next_try_at))),
            )
            .where(status_is(Status.PENDING))
            .group_by(sends.c.lane)
            .order_by(sends.c.lane)
        )
        with self._database.read() as connection:
            return [LaneDepth(*row) for row in connection.execute(query)]

    def waiting(self, lanes: Sequence[str], now: float) -> Waiting:
        """What is due in these lanes, counted no further than WAITING_COUNTED in each, and what left lately."""
        lately = (attempts.c.ended_at >= literal(now - LATELY_S, Instant), attempts.c.outcome == Outcome.ACCEPTED.value)
        left = select(attempts.c.id).where(*lately).limit(WAITING_COUNTED).subquery()
        with self._database.read() as connection:
            found = [_due(connection, lane, now) for lane in lanes]
            accepted = connection.scalar(select(func.count()).select_from(left)) or 0
        oldest = min((at for _, at in found if at is not None), default=now)
        return Waiting(sum(count for count, _ in found), max(0.0, now - oldest), accepted / LATELY_S)

    def recent_outcomes(self, since: float) -> dict[str, int]:
        """How many calls ended in each outcome since then. A look-up is none: what it doesn't find is not unknown."""
        query = (
            select(attempts.c.outcome, func.count().label("count"))
            .where(attempts.c.ended_at >= literal(since, Instant), attempts.c.via.in_(CALLS))
            .group_by(attempts.c.outcome)
        )
        with self._database.read() as connection:
            return {row.outcome: row._mapping["count"] for row in connection.execute(query)}

    def traffic(self, now: float) -> Traffic:
        """How many emails come, how many were accepted when it was busiest, and how many wait."""
        minute = [extract(part, attempts.c.ended_at) for part in ("day", "hour", "minute")]
        of_the_day = attempts.c.ended_at >= literal(now - DAY_S, Instant)
        accepted = attempts.c.outcome == Outcome.ACCEPTED.value
        in_minutes = select(func.count().label("count")).where(of_the_day, accepted).group_by(*minute).subquery()
        with self._database.read() as connection:
            first = _first_id_since(connection, now - HOUR_S)
            created = connection.scalar(select(func.count()).select_from(sends).where(sends.c.id >= first))
            busiest = connection.scalar(select(func.max(in_minutes.c.count)))
        return Traffic(created or 0, busiest or 0, self.count(Status.PENDING))

    def ids(
        self, status: Status, type_: str | None, limit: int, above: int = 0, *, held: bool = False
    ) -> list[NamedSend]:
        """Sends in one state, in the order of their ids, from the first id above `above`; `held`: only held ones."""
        query = (
            select(sends.c.id, sends.c.dedupe_key, sends.c.type)
            .where(*_in_state(status, type_, held), sends.c.id > above)
            .order_by(sends.c.id)
            .limit(limit)
        )
        with self._database.read() as connection:
            return [NamedSend(*row) for row in connection.execute(query)]

    def count(self, status: Status, type_: str | None = None, *, held: bool = False) -> int:
        """How many sends are in one state; `held`: only held ones."""
        query = select(func.count()).select_from(sends).where(*_in_state(status, type_, held))
        with self._database.read() as connection:
            return connection.scalar(query) or 0


def _all(connection: Connection, query: Select[Any]) -> list[Json]:
    return [dict(row._mapping) for row in connection.execute(query)]


def _first_id_since(connection: Connection, since: float) -> int:
    """The id from which on sends were created after `since`: ids grow with time, and no index has the time itself."""
    low, high = 0, (connection.scalar(select(func.max(sends.c.id))) or 0) + 1
    while low < high:
        middle = (low + high) // 2
        next_ = select(sends.c.id, sends.c.created_at).where(sends.c.id >= middle).order_by(sends.c.id).limit(1)
        row = connection.execute(next_).first()
        if row is None or row.created_at >= since:
            high = middle
        else:
            low = row.id + 1
    return low


def _due(connection: Connection, lane: str, now: float) -> tuple[int, float | None]:
    """How much is due in a lane, and since when; both by the due index."""
    due = (status_is(Status.PENDING), sends.c.lane == lane, sends.c.next_try_at <= literal(now, Instant))
    some = select(sends.c.id).where(*due).limit(WAITING_COUNTED).subquery()
    count = connection.scalar(select(func.count()).select_from(some)) or 0
    return count, connection.scalar(select(func.min(sends.c.next_try_at)).where(*due))


def _in_state(status: Status, type_: str | None, held: bool) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [status_is(status)]
    if type_ is not None:
        conditions.append(sends.c.type == type_)
    if held:
        conditions.append(sends.c.next_try_at.is_(None))
    return conditions


def _find_query(conditions: Sequence[ColumnElement[bool]], limit: int) -> Select[Any]:
    carrier = sends.alias("carrier")
    return (
        select(sends, carrier.c.dedupe_key.label("carrier_key"), carrier.c.status.label("carrier_status"))
        .outerjoin_from(sends, carrier, carrier.c.id == sends.c.combined_into)
        .where(*conditions)
        .order_by(sends.c.id.desc())
        .limit(limit)
    )


def _exactly(word: str) -> ColumnElement[bool]:
    options = [sends.c.dedupe_key == word, sends.c.to_address == fold(word), sends.c.message_id == word]
    if (id_ := _as_id(word)) is not None:
        options.append(sends.c.id == id_)
    return or_(*options)


def _as_id(word: str) -> int | None:
    """The id that the word may be; more than 18 digits are none, and no database takes them."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 19 else None


def _partly(word: str) -> ColumnElement[bool]:
    columns = (
        sends.c.dedupe_key,
        sends.c.recipients,
        sends.c.message_id,
        sends.c.idempotency_key,
        sends.c.tags,
        sends.c.type,
    )
    return or_(*(column.icontains(word, autoescape=True) for column in columns))
