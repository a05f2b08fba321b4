"""News of what became of sends: each piece kept once, joined to its send, and applied to it, in one transaction.

Rows are locked events first, sends second, in the order of their ids. Whatever is applied may be applied again.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, TextClause, literal, or_, select, text

from posthouse.address import fold
from posthouse.core.delivery import Delivery, delivery
from posthouse.core.events import Cause, Event, EventKind, resolve
from posthouse.core.lifecycle import Status
from posthouse.core.policy import TypePolicy
from posthouse.core.provider_lists import taken_back_since
from posthouse.core.references import Candidate, is_main, its_send
from posthouse.core.sends import SendState
from posthouse.core.suppression import About, Suppress, SuppressionPolicy, what_follows
from posthouse.store.batch import Batch, Kind
from posthouse.store.database import MYSQL, Database
from posthouse.store.group_health import count_events
from posthouse.store.rows import SWEEP_ROWS, Step, apply, lock, locking, record, state_of, state_query, storable
from posthouse.store.schema import (
    ADDRESS_CHARS,
    CODE_CHARS_MAX,
    ERROR_CHARS_MAX,
    ID_CHARS_MAX,
    Instant,
    events,
    sends,
    status_is,
)
from posthouse.store.suppressions import taken_back, write_suppressions

JOIN_FIRST_S: Final = 2.0
"""News may come before the answer to the call is written: its send is looked for again so soon."""

JOIN_FOR_S: Final = 3 * 86_400.0
"""And each time after twice as long, until it is so old: a send may be `unknown` as long until its id is known."""

JOIN_ROWS: Final = 500
NOBODY: Final = 0
"""The worker of attempts that no worker made."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What came of a batch of news."""

    new: int = 0  # of it, what was not known before
    joined: int = 0  # of the new, what is about a send of ours
    resolved: int = 0  # sends that are accepted because of it


_HEARD_OF: Final = (status_is(Status.UNKNOWN), sends.c.last_event_at.is_not(None))
"""An `unknown` send of which something was heard."""


def _due(now: float) -> ColumnElement[bool]:
    """News whose send is to be looked for again now."""
    return events.c.join_at <= literal(now, Instant)


class Events:
    """`email_events` and what they change. `policies` are the types', by name."""

    def __init__(self, database: Database, suppression: SuppressionPolicy) -> None:
        self._database = database
        self._suppression = suppression

    def store(
        self,
        route: str,
        news: Sequence[Event],
        policies: Mapping[str, TypePolicy],
        now: float,
        *,
        verified: bool = True,
    ) -> Stored:
        """Keeps the news that came in on a route and applies what is new of it. All of it, or an exception.

        `verified` is news that only the provider can have sent. Mail can be forged: what came that way counts only for
        the recipients of a send whose id it knows.
        """
        if not news:
            return Stored()
        by_digest = {_digest(event, route): event for event in news}
        with self._database.write() as connection:
            fresh = _insert(connection, route, by_digest, now)
            found = [_News(route, digest, by_digest[digest]) for digest in sorted(fresh)]
            applied = self._apply(connection, found, policies, now)
            self._suppress(connection, applied.told if verified else applied.joined, now)
            counted = found if verified else _believed(connection, applied.by_send)
            count_events(connection, [(piece.route, piece.event) for piece in counted], now)
            return applied.stored

    def unsubscribe(self, event: Event, wish: Suppress, policies: Mapping[str, TypePolicy], now: float) -> None:
        """Keeps one person's own word, and what it asks for. May be called again, whatever was said in between: the
        event, by its `provider_event_id`, is kept once, and the suppression holds afterwards each time."""
        with self._database.write() as connection:
            digest = _digest(event, wish.who)
            fresh = _insert(connection, wish.who, {digest: event}, now)
            self._apply(connection, [_News(wish.who, each, event) for each in fresh], policies, now)
            named = (events.c.route == wish.who, events.c.provider_event_id == event.provider_event_id)
            kept = connection.scalar(select(events.c.digest).where(*named))
            write_suppressions(connection, [replace(wish, event=kept)], now)

    def wait_for_a_sweep(self, now: float) -> bool:
        """Whether `join` or `resolve_told` has anything to do: one statement, since nearly always neither has."""
        homeless = select(events.c.id).where(_due(now)).exists()
        told = select(sends.c.id).where(*_HEARD_OF).exists()
        with self._database.read() as connection:
            return bool(connection.scalar(select(or_(homeless, told))))

    def join(self, policies: Mapping[str, TypePolicy], now: float) -> int:
        """Looks again for the sends of news that had none; how many were found."""
        joined = 0
        while True:
            with self._database.write() as connection:
                due = select(events).where(_due(now)).order_by(events.c.join_at)
                due = due.limit(JOIN_ROWS)
                rows = connection.execute(due if self._database.is_sqlite else due.with_for_update(skip_locked=True))
                waiting = [_News(row.route, row.digest, _event(row), row.received_at) for row in rows]
                joined += self._apply(connection, waiting, policies, now).stored.joined
            if len(waiting) < JOIN_ROWS:
                return joined

    def resolve_told(self, policies: Mapping[str, TypePolicy], now: float) -> int:
        """Moves on `unknown` sends of which something was heard while they were being sent; how many."""
        resolved = 0
        while True:
            with self._database.write() as connection:
                told = state_query("email_sends_unknown", *_HEARD_OF)
                states = [state_of(row) for row in connection.execute(locking(told, self._database))]
                heard = select(events).where(events.c.send_id.in_([state.id for state in states]))
                news: dict[int, list[_News]] = defaultdict(list)
                for row in connection.execute(heard.order_by(events.c.id)) if states else ():
                    news[row.send_id].append(_News(row.route, row.digest, _event(row)))
                steps = [step for state in states for step in _steps(state, news[state.id], policies, now)]
                _write(connection, self._database, steps, now)
            resolved += len(steps)
            if len(steps) < SWEEP_ROWS:
                return resolved

    def route_of(self, event: Event) -> str | None:
        """The route of the send that an event is about, where that is known."""
        with self._database.read() as connection:
            candidate = its_send(event, _sends_of(connection, [event]), None)
            if candidate is None:
                return None
            route: str | None = connection.scalar(select(sends.c.route).where(sends.c.id == candidate.send_id))
            return route

    def without_end(self, message_ids: Collection[str]) -> set[str]:
        """Those of the providers' ids under which a send of ours was accepted whose end nobody has told yet."""
        open_ones = sends.c.delivery.in_([Delivery.NONE.value, Delivery.DEFERRED.value])
        with self._database.read() as connection:
            found = select(sends.c.message_id).where(sends.c.message_id.in_(message_ids), open_ones)
            return {message_id for message_id in connection.scalars(found) if message_id}

    def quarantine(self, route: str, items: Mapping[str, str], reason: str, now: float) -> None:
        """Keeps items that could not be read, by their digests, for a person to look at."""
        dialect = self._database.dialect
        told = storable(reason, ERROR_CHARS_MAX)
        rows = [(digest, route, now, told, storable(item, len(item))) for digest, item in sorted(items.items())]
        with self._database.write() as connection:
            connection.execute(_quarantine_sql(dialect), {"bad": _BAD.document(dialect, rows)})

    def _apply(
        self, connection: Connection, news: Sequence[_News], policies: Mapping[str, TypePolicy], now: float
    ) -> _Applied:
        """Joins the news, and writes what it means for the sends. The rows of the news are ours."""
        about = _sends_of(connection, [piece.event for piece in news])
        by_send: dict[int, list[tuple[_News, Candidate]]] = defaultdict(list)
        homeless: list[_News] = []
        for piece in news:
            candidate = its_send(piece.event, about, piece.route)
            if candidate is None:
                homeless.append(piece)
            else:
                by_send[candidate.send_id].append((piece, candidate))
        states = lock(connection, self._database, by_send)
        steps = [
            step
            for send_id, pieces in sorted(by_send.items())
            if (state := states.get(send_id)) is not None
            for step in _steps(state, [piece for piece, _ in pieces], policies, now)
        ]
        _write(connection, self._database, steps, now)
        _note(connection, by_send)
        _mark(connection, by_send, homeless, now)
        known = [
            (piece, _about(states.get(id_), whose, policies)) for id_, told in by_send.items() for piece, whose in told
        ]
        strangers = [(piece, About()) for piece in homeless]
        return _Applied(Stored(len(news), len(known), len(steps)), by_send, known, strangers)

    def _suppress(self, connection: Connection, news: Iterable[tuple[_News, About]], now: float) -> None:
        """What the news says against addresses. Only when it is heard first, with what is known of its send then: what
        a person has taken back since stays so, also where it is heard of only now."""
        wishes = [
            (wish, piece.event.at)
            for piece, about in news
            if (wish := what_follows(piece.event, about, self._suppression, piece.route, now, piece.digest)) is not None
        ]
        back = taken_back(connection, {wish.address for wish, _ in wishes}) if wishes else {}
        standing = [
            wish
            for wish, at in wishes
            if not taken_back_since(wish.cause, at, back.get(wish.address, ()), scope=wish.scope)
        ]
        write_suppressions(connection, standing, now)


@dataclass(frozen=True, slots=True)
class _News:
    """One event and where it came in; `received_at` for what is older than this transaction."""

    route: str
    digest: str
    event: Event
    received_at: float | None = None


@dataclass(frozen=True, slots=True)
class _Applied:
    """What came of a batch of news, and what each piece of it is about."""

    stored: Stored
    by_send: Mapping[int, Sequence[tuple[_News, Candidate]]]
    joined: Sequence[tuple[_News, About]]
    strangers: Sequence[tuple[_News, About]]  # about no send that is known

    @property
    def told(self) -> list[tuple[_News, About]]:
        """All of it."""
        return [*self.joined, *self.strangers]


def _believed(connection: Connection, told: Mapping[int, Sequence[tuple[_News, Candidate]]]) -> list[_News]:
    """Of news that anybody may have made up, what counts for a mailbox group: the first of each send that is about a
    recipient of its own. So whoever has got a message can say one thing of it, and not a thousand. What is about
    somebody else takes no place."""
    own: dict[int, list[_News]] = defaultdict(list)
    for id_, pieces in told.items():
        for piece, candidate in pieces:
            if fold(piece.event.recipient) in candidate.recipients:
                own[id_].append(piece)
    known = {id_: pieces[0][1] for id_, pieces in told.items() if id_ in own and pieces[0][1].heard}
    told_before = _told_of_a_recipient(connection, known, {piece.digest for of_one in own.values() for piece in of_one})
    return [pieces[0] for id_, pieces in own.items() if id_ not in told_before]


def _told_of_a_recipient(connection: Connection, known: Mapping[int, Candidate], but: Collection[str]) -> set[int]:
    """Those of the sends of which something was told before of a recipient of their own, or of nobody by name."""
    if not known:
        return set()
    before = select(events.c.send_id, events.c.recipient).where(
        events.c.send_id.in_(known), events.c.digest.not_in(but)
    )
    return {id_ for id_, to in connection.execute(before.distinct()) if not to or to in known[id_].recipients}


def _about(state: SendState | None, candidate: Candidate, policies: Mapping[str, TypePolicy]) -> About:
    """The send that news is about."""
    if state is None:
        return About(recipients=candidate.recipients)
    policy = policies.get(state.type)
    return About(state.type, policy.category if policy else None, candidate.recipients)


def _write(connection: Connection, database: Database, steps: Sequence[Step], now: float) -> None:
    """Writes the steps, of rows that are locked, with the attempts behind them."""
    record(connection, database, [step.attempt for step in steps if step.attempt], NOBODY)
    apply(connection, steps, now)


def _steps(state: SendState, news: Iterable[_News], policies: Mapping[str, TypePolicy], now: float) -> list[Step]:
    """What the news of one send does to its status: at most one step, since then it is accepted."""
    policy = policies.get(state.type) or TypePolicy(state.type, routes=())
    for piece in news:
        made = resolve(state, piece.event, piece.route, policy, now)
        if made is not None:
            attempt, change = made
            return [Step(state, change, attempt)]
    return []


def _digest(event: Event, route: str) -> str:
    return hashlib.sha256(json.dumps(event.identity(route)).encode()).hexdigest()


_HEARD: Final = Batch(
    "heard",
    {
        "digest": Kind.TEXT,
        "route": Kind.TEXT,
        "provider_event_id": Kind.TEXT,
        "send_key": Kind.TEXT,
        "message_id": Kind.TEXT,
        "recipient": Kind.TEXT,
        "kind": Kind.TEXT,
        "cause": Kind.TEXT,
        "hard": Kind.BOOLEAN,
        "code": Kind.TEXT,
        "text": Kind.TEXT,
        "url": Kind.TEXT,
        "at": Kind.INSTANT,
        "received_at": Kind.INSTANT,
    },
)


def _insert(connection: Connection, route: str, by_digest: Mapping[str, Event], now: float) -> set[str]:
    """Writes what is not known yet, under neither of its names; the digests of that."""
    dialect = connection.dialect.name
    rows = [_row(route, digest, event, now) for digest, event in sorted(by_digest.items())]
    if dialect == MYSQL:  # an INSERT there doesn't say what it did
        before = _known(connection, by_digest)
        connection.execute(_insert_sql(dialect), {"heard": _HEARD.document(dialect, rows)})
        return _known(connection, by_digest) - before
    inserted = connection.execute(_insert_sql(dialect), {"heard": _HEARD.document(dialect, rows)})
    return set(inserted.scalars())


def _known(connection: Connection, digests: Collection[str]) -> set[str]:
    return set(connection.scalars(select(events.c.digest).where(events.c.digest.in_(digests))))


@cache
def _insert_sql(dialect: str) -> TextClause:
    columns = ", ".join(_HEARD.columns)
    writing = f"INSERT INTO email_events ({columns}) SELECT {columns} FROM {_HEARD.relation(dialect, ':heard')} "
    if dialect == MYSQL:
        return text(f"{writing} ON DUPLICATE KEY UPDATE id = email_events.id")
    return text(f"{writing} WHERE true ON CONFLICT DO NOTHING RETURNING digest")


def _row(route: str, digest: str, event: Event, now: float) -> tuple[Any, ...]:
    return (
        digest,
        route,
        storable(event.provider_event_id, ID_CHARS_MAX),
        storable(event.key, ID_CHARS_MAX),
        storable(event.message_id, ID_CHARS_MAX),
        storable(fold(event.recipient), ADDRESS_CHARS),
        event.kind.value,
        event.cause.value,
        event.hard,
        storable(event.code, CODE_CHARS_MAX),
        storable(event.text, ERROR_CHARS_MAX),
        storable(event.url, ERROR_CHARS_MAX),
        event.at,
        now,
    )


def _event(row: Row[Any]) -> Event:
    return Event(
        EventKind(row.kind),
        row.at,
        row.recipient,
        row.send_key,
        row.message_id,
        row.provider_event_id,
        Cause(row.cause),
        bool(row.hard),
        row.code,
        row.text,
        row.url,
    )


_CANDIDATE: Final = select(
    sends.c.id, sends.c.idempotency_key, sends.c.message_id, sends.c.recipients, sends.c.route, sends.c.last_event_at
)


def _sends_of(connection: Connection, news: Iterable[Event]) -> list[Candidate]:
    """Every send that the news may be about; one statement for each of the two names."""
    keys, message_ids = set(), set()
    for event in news:
        keys.add(event.key)
        message_ids.add(event.message_id)
    found: dict[int, Candidate] = {}
    for column, names in ((sends.c.idempotency_key, keys), (sends.c.message_id, message_ids)):
        if names := names - {None}:
            rows = connection.execute(_CANDIDATE.where(column.in_(names)))
            for id_, key, message_id, recipients, route, heard_at in rows:
                folded = tuple(map(fold, json.loads(recipients)))
                found[id_] = Candidate(id_, key, message_id, folded, route, heard=heard_at is not None)
    return [*found.values()]


_TOLD: Final = Batch(
    "told", {"id": Kind.INTEGER, "delivery": Kind.TEXT, "message_id": Kind.TEXT, "last_event_at": Kind.INSTANT}
)


def _note(connection: Connection, by_send: Mapping[int, Sequence[tuple[_News, Candidate]]]) -> None:
    """Writes what the news says of the delivery. The rows must be locked."""
    if not by_send:
        return
    known = select(sends.c.id, sends.c.delivery, sends.c.last_event_at).where(sends.c.id.in_(by_send))
    rows = []
    for id_, delivery_so_far, last_at in connection.execute(known.order_by(sends.c.id)):
        heard = [(piece.event, candidate) for piece, candidate in by_send[id_]]
        of_main = [event.kind for event, candidate in heard if is_main(event, candidate.recipients)]
        ids = (event.message_id for event, _ in heard if event.message_id is not None)
        rows.append(
            (
                id_,
                delivery(Delivery(delivery_so_far), of_main).value,
                storable(next(ids, None), ID_CHARS_MAX),
                max([event.at for event, _ in heard] + [last_at or 0.0]),
            )
        )
    dialect = connection.dialect.name
    connection.execute(_note_sql(dialect), {"told": _TOLD.document(dialect, rows)})


@cache
def _note_sql(dialect: str) -> TextClause:
    told = _TOLD.relation(dialect, ":told")
    sets = {
        "delivery": "told.delivery",
        "message_id": "coalesce(email_sends.message_id, told.message_id)",
        "last_event_at": "told.last_event_at",
    }
    if dialect == MYSQL:
        its = ", ".join(f"email_sends.{column} = {value}" for column, value in sets.items())
        by_id = "STRAIGHT_JOIN email_sends FORCE INDEX (PRIMARY) ON email_sends.id = told.id"
        return text(f"UPDATE {told} {by_id} SET {its}")
    its = ", ".join(f"{column} = {value}" for column, value in sets.items())
    return text(f"UPDATE email_sends SET {its} FROM {told} WHERE email_sends.id = told.id")


_JOINED: Final = Batch("joined", {"digest": Kind.TEXT, "send_id": Kind.INTEGER, "join_at": Kind.INSTANT})


def _mark(
    connection: Connection,
    by_send: Mapping[int, Sequence[tuple[_News, Candidate]]],
    homeless: Sequence[_News],
    now: float,
) -> None:
    """Writes which send each piece is about, or when its send is looked for again."""
    rows: list[tuple[Any, ...]] = [
        (piece.digest, send_id, None) for send_id, pieces in by_send.items() for piece, _ in pieces
    ]
    rows += [(piece.digest, None, _join_at(piece, now)) for piece in homeless]
    if rows:
        dialect = connection.dialect.name
        connection.execute(_mark_sql(dialect), {"joined": _JOINED.document(dialect, sorted(rows))})


def _join_at(piece: _News, now: float) -> float | None:
    if piece.event.key is None and piece.event.message_id is None:
        return None
    age_s = 0.0 if piece.received_at is None else now - piece.received_at
    return None if age_s > JOIN_FOR_S else now + max(JOIN_FIRST_S, age_s)


@cache
def _mark_sql(dialect: str) -> TextClause:
    joined = _JOINED.relation(dialect, ":joined")
    if dialect == MYSQL:
        by_digest = "STRAIGHT_JOIN email_events FORCE INDEX (email_events_once) ON email_events.digest = joined.digest"
        return text(
            f"UPDATE {joined} {by_digest} SET email_events.send_id = joined.send_id, "
            "email_events.join_at = joined.join_at"
        )
    return text(
        f"UPDATE email_events SET send_id = joined.send_id, join_at = joined.join_at FROM {joined} "
        "WHERE email_events.digest = joined.digest"
    )


_BAD: Final = Batch(
    "bad",
    {
        "digest": Kind.TEXT,
        "route": Kind.TEXT,
        "received_at": Kind.INSTANT,
        "reason": Kind.TEXT,
        "item": Kind.TEXT,
    },
)


@cache
def _quarantine_sql(dialect: str) -> TextClause:
    columns = ", ".join(_BAD.columns)
    writing = f"INSERT INTO email_quarantine ({columns}) SELECT {columns} FROM {_BAD.relation(dialect, ':bad')} "
    known = "ON DUPLICATE KEY UPDATE id = email_quarantine.id" if dialect == MYSQL else "ON CONFLICT DO NOTHING"
    return text(f"{writing} {known if dialect == MYSQL else 'WHERE true ' + known}")
