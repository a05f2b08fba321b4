"""`email_suppressions`: who must not get mail. One statement for a batch, however many addresses.

Rows are written in the order of their addresses. Whoever locks sends as well has locked those before.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, TextClause, and_, delete, func, literal, or_, select, text

from posthouse.address import fold
from posthouse.core.events import EventKind
from posthouse.core.provider_lists import Listed, TakenBack, to_pull
from posthouse.core.suppression import (
    REVIEW_AFTER,
    REVIEW_WITHIN_S,
    REVIEWED,
    Suppress,
    Suppression,
    SuppressionCause,
)
from posthouse.store.batch import Batch, Kind
from posthouse.store.database import MYSQL, POSTGRESQL, SQLITE, Database
from posthouse.store.operations import write_audit
from posthouse.store.rows import storable
from posthouse.store.schema import ADDRESS_CHARS, ERROR_CHARS_MAX, Instant, audit, events, suppressions

UNSUPPRESS: Final = "unsuppress"
"""As the audit calls it."""

WHO_CHARS_MAX: Final = 255
SUBJECT_CHARS_MAX: Final = 255
FIND_SCANNED_ROWS: Final = 100_000
"""How many of the newest suppressions a search by part of an address looks through."""


class Word(Enum):
    """Whose word a suppression is, which decides what it changes where the same is known already."""

    PERSON = auto()  # replaces what was said before, also how long it lasts
    NEWS = auto()  # is the newest reason, and only ever makes it longer
    LIST = auto()  # only makes it longer, and gives a reason where none is known; one that has run out begins anew


@dataclass(frozen=True, slots=True)
class ToReview:
    """An address that bounced several times, and not for good. Times in seconds since 1970."""

    address: str
    bounces: int
    first_at: float
    last_at: float


class Suppressions:
    """Each method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def active(self, addresses: Collection[str], now: float) -> dict[str, list[Suppression]]:
        """What holds for these folded addresses now, in one statement; those with nothing are left out."""
        found: dict[str, list[Suppression]] = defaultdict(list)
        if addresses:
            with self._database.read() as connection:
                wanted = {"addresses": json.dumps(sorted(addresses), ensure_ascii=False)}
                for row in connection.execute(_active_sql(self._database.dialect), wanted):
                    each = _suppression(row)
                    if each.is_on(now):
                        found[each.address].append(each)
        return dict(found)

    def add(self, wishes: Sequence[Suppress], now: float) -> int:
        """Writes what a person says, which replaces what was said before; how many are new."""
        with self._database.write() as connection:
            before = _count(connection, wishes)
            write_suppressions(connection, wishes, now, Word.PERSON)
            for wish in wishes:
                write_audit(connection, now, wish.who, "suppress", wish.address[:SUBJECT_CHARS_MAX], _detail(wish))
            return _count(connection, wishes) - before

    def import_(self, wishes: Sequence[Suppress], now: float) -> int:
        """Writes what a list says, who may have it from us; how many are new. What is known stays as it is, but for
        an end that the list has later."""
        with self._database.write() as connection:
            before = _count(connection, wishes)
            write_suppressions(connection, wishes, now, Word.LIST)
            return _count(connection, wishes) - before

    def pull(self, listed: Sequence[Listed], who: str, now: float) -> int:
        """Writes what a provider's list has and we lack; how many that is. Whom a person has taken off since is left
        alone."""
        listed = [each for each in listed if _storable(fold(each.address))]
        addresses = {fold(each.address) for each in listed}
        with self._database.write() as connection:
            known: dict[str, list[Suppression]] = defaultdict(list)
            for row in connection.execute(_PLAIN.where(suppressions.c.address.in_(addresses))):
                known[row.address].append(_suppression(row))
            back = taken_back(connection, addresses)
            found = (to_pull(each, known[fold(each.address)], back[fold(each.address)], who, now) for each in listed)
            wishes = [wish for wish in found if wish is not None]
            write_suppressions(connection, wishes, now)
        return len({(wish.address, wish.cause) for wish in wishes})

    def remove(
        self,
        address: str,
        *,
        who: str,
        now: float,
        cause: SuppressionCause | None = None,
        scope: str | None = None,
    ) -> list[Suppression]:
        """Lets mail to an address go out again; what was removed. What was heard already never brings it back.

        None stands for every cause, and for every scope.
        """
        mine = [suppressions.c.address == fold(address)]
        if cause is not None:
            mine.append(suppressions.c.cause == cause.value)
        if scope is not None:
            mine.append(suppressions.c.scope == scope)
        with self._database.write() as connection:
            found = [_suppression(row) for row in connection.execute(_PLAIN.where(*mine).order_by(suppressions.c.id))]
            connection.execute(delete(suppressions).where(suppressions.c.id.in_([each.id for each in found])))
            for each in found:
                write_audit(connection, now, who, UNSUPPRESS, each.address[:SUBJECT_CHARS_MAX], _detail(each))
        return found

    def find(
        self, words: Sequence[str], cause: SuppressionCause | None, limit: int, before: int | None = None
    ) -> list[Suppression]:
        """The newest first, from below the id `before`. Words are addresses, or parts of them; all must match."""
        wanted: list[ColumnElement[bool]] = [] if cause is None else [suppressions.c.cause == cause.value]
        if before is not None:
            wanted.append(suppressions.c.id < before)
        with self._database.read() as connection:
            exact = [suppressions.c.address == fold(word) for word in words]
            found = connection.execute(_newest([*wanted, *exact], limit)).all()
            if not found and words:
                newest = connection.scalar(select(func.max(suppressions.c.id))) or 0
                recent = suppressions.c.id > newest - FIND_SCANNED_ROWS
                partly = [suppressions.c.address.icontains(fold(word), autoescape=True) for word in words]
                found = connection.execute(_newest([*wanted, recent, *partly], limit)).all()
            return [_suppression(row) for row in found]

    def page(self, after: int, limit: int) -> list[Suppression]:
        """Suppressions in the order of their ids, from above the id `after`."""
        query = _PLAIN.where(suppressions.c.id > after).order_by(suppressions.c.id).limit(limit)
        with self._database.read() as connection:
            return [_suppression(row) for row in connection.execute(query)]

    def count(self) -> int:
        """How many there are."""
        with self._database.read() as connection:
            return connection.scalar(select(func.count()).select_from(suppressions)) or 0

    def to_review(self, now: float, limit: int) -> list[ToReview]:
        """Addresses that bounced again and again, though not for good, and are not suppressed; the worst first."""
        counted = or_(*(and_(events.c.cause == cause.value, events.c.hard == hard) for cause, hard in REVIEWED))
        since = events.c.received_at >= literal(now - REVIEW_WITHIN_S, Instant)
        known = select(suppressions.c.address).where(suppressions.c.address == events.c.recipient).exists()
        query = (
            select(events.c.recipient, func.count(), func.min(events.c.received_at), func.max(events.c.received_at))
            .where(since, events.c.kind == EventKind.BOUNCED.value, counted, events.c.recipient != "", ~known)
            .group_by(events.c.recipient)
            .having(func.count() >= REVIEW_AFTER)
            .order_by(func.count().desc(), events.c.recipient)
            .limit(limit)
        )
        with self._database.read() as connection:
            return [ToReview(*row) for row in connection.execute(query)]


def taken_back(connection: Connection, addresses: Collection[str]) -> dict[str, list[TakenBack]]:
    """When people let mail to these folded addresses go out again."""
    by_subject = {address[:SUBJECT_CHARS_MAX]: address for address in addresses}
    query = select(audit.c.subject, audit.c.at, audit.c.detail).where(
        audit.c.subject.in_(by_subject), audit.c.action == UNSUPPRESS
    )
    found: dict[str, list[TakenBack]] = defaultdict(list)
    for subject, at, detail in connection.execute(query):
        cause, _, rest = detail.partition(", ")
        scope = rest.partition(", ")[0]
        known = SuppressionCause(cause) if cause in set(SuppressionCause) else None
        narrow = scope if scope.startswith(("type ", "category ")) else ""
        found[by_subject[subject]].append(TakenBack(known, at, narrow))
    return found


_PLAIN: Final = select(
    suppressions.c.id,
    suppressions.c.address,
    suppressions.c.cause,
    suppressions.c.scope,
    suppressions.c.until,
    suppressions.c.reason,
    suppressions.c.who,
    suppressions.c.updated_at,
)


def _newest(conditions: Sequence[ColumnElement[bool]], limit: int) -> Any:
    return _PLAIN.where(*conditions).order_by(suppressions.c.id.desc()).limit(limit)


def _suppression(row: Sequence[Any]) -> Suppression:
    id_, address, cause, scope, until, reason, who, at = row
    return Suppression(id_, address, SuppressionCause(cause), scope, until, reason, who, at)


def _detail(each: Suppress | Suppression) -> str:
    return ", ".join(part for part in (each.cause.value, each.scope, each.reason) if part)


_GIVEN: Final = {
    SQLITE: "address IN (SELECT value FROM json_each(:addresses))",
    POSTGRESQL: "address = ANY(ARRAY(SELECT json_array_elements_text(CAST(:addresses AS json))))",
}


@cache
def _active_sql(dialect: str) -> Any:
    names = ", ".join(f"email_suppressions.{column.name}" for column in _PLAIN.selected_columns)
    if dialect == MYSQL:
        given = "JSON_TABLE(:addresses, '$[*]' COLUMNS (address VARCHAR(320) CHARACTER SET utf8mb4 PATH '$')) AS given"
        by_address = "email_suppressions.address = given.address COLLATE utf8mb4_bin"
        join = f"STRAIGHT_JOIN email_suppressions FORCE INDEX (email_suppressions_once) ON {by_address}"
        return text(f"SELECT {names} FROM {given} {join}").columns(*_PLAIN.selected_columns)
    statement = f"SELECT {names} FROM email_suppressions WHERE {_GIVEN[dialect]}"
    return text(statement).columns(*_PLAIN.selected_columns)


_WISHED: Final = Batch(
    "wished",
    {
        "address": Kind.TEXT,
        "cause": Kind.TEXT,
        "scope": Kind.TEXT,
        "until": Kind.INSTANT,
        "reason": Kind.TEXT,
        "who": Kind.TEXT,
        "event": Kind.TEXT,
        "now": Kind.INSTANT,
    },
)


def _storable(address: str) -> bool:
    """Whether it can be stored as it is; cut or cleaned it would be somebody else's."""
    return storable(address, ADDRESS_CHARS) == address


def write_suppressions(connection: Connection, wishes: Sequence[Suppress], now: float, word: Word = Word.NEWS) -> None:
    """Writes suppressions; may be called again with the same. `word` decides what becomes of what is known already."""
    if not wishes:
        return
    once = {(wish.address, wish.cause.value, wish.scope): wish for wish in wishes if _storable(wish.address)}
    rows = [
        (
            wish.address,
            wish.cause.value,
            wish.scope,
            wish.until,
            storable(wish.reason, ERROR_CHARS_MAX),
            storable(wish.who, WHO_CHARS_MAX),
            wish.event,
            now,
        )
        for _, wish in sorted(once.items())
    ]
    dialect = connection.dialect.name
    connection.execute(_write_sql(dialect, word), {"wished": _WISHED.document(dialect, rows)})


@cache
def _write_sql(dialect: str, word: Word) -> TextClause:
    columns = "address, cause, scope, until, reason, who, event_id, created_at, updated_at"
    # An alias for what is read: MariaDB would take the columns of the table that is written for those of `wished`.
    chosen = (
        "wished.address, wished.cause, wished.scope, wished.until, wished.reason, wished.who, email_events.id, "
        "wished.now, wished.now"
    )
    known = "LEFT JOIN email_events ON email_events.digest = wished.event"
    writing = f"INSERT INTO email_suppressions ({columns}) SELECT {chosen} FROM {_WISHED.relation(dialect, ':wished')} "
    changes = _changes("VALUES({})" if dialect == MYSQL else "excluded.{}", word)
    if dialect == MYSQL:
        collated = "LEFT JOIN email_events ON email_events.digest = wished.event COLLATE utf8mb4_bin"
        return text(f"{writing} {collated} ON DUPLICATE KEY UPDATE {changes}")
    return text(f"{writing} {known} WHERE true ON CONFLICT (address, cause, scope) DO UPDATE SET {changes}")


def _changes(new: str, word: Word) -> str:
    """What is set where the same is known already. The end comes last: MySQL reads what it has just set."""
    told, was = ("reason", "who", "event_id", "updated_at"), "email_suppressions.{}"
    until, until_was, now = new.format("until"), was.format("until"), new.format("updated_at")
    sets = {name: new.format(name) for name in told}
    if word is Word.LIST:
        anew = f"{until_was} <= {now} AND ({until} IS NULL OR {until} > {now})"
        when = dict.fromkeys(told, anew) | {"reason": f"({anew}) OR {was.format('reason')} = ''"}
        sets = {
            name: f"CASE WHEN {when[name]} THEN {value} ELSE {was.format(name)} END" for name, value in sets.items()
        }
    longer = f"CASE WHEN {until_was} IS NULL OR {until} IS NULL THEN NULL "
    longer += f"WHEN {until_was} > {until} THEN {until_was} ELSE {until} END"
    sets["until"] = until if word is Word.PERSON else longer
    return ", ".join(f"{name} = {value}" for name, value in sets.items())


def _count(connection: Connection, wishes: Iterable[Suppress]) -> int:
    addresses = {wish.address for wish in wishes}
    query = select(func.count()).select_from(suppressions).where(suppressions.c.address.in_(addresses))
    return connection.scalar(query) or 0
