"""How the mailbox groups take our mail: counts by time, what follows from them, and our own faults, for people.

Counts are added at the end of the transaction that stores what is counted, in the order of their keys, so that those
who count at once never wait for each other in a ring.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    TextClause,
    delete,
    func,
    insert,
    literal,
    not_,
    select,
    text,
    tuple_,
    update,
)

from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.group_health import (
    DAY_S,
    KEPT_S,
    RECENT_S,
    Bucket,
    CountKey,
    Counts,
    GroupRoute,
    HealthPolicy,
    Signal,
    count_key,
    trouble,
)
from posthouse.core.slowdown import Slowdown, judge
from posthouse.store.batch import Batch, Kind
from posthouse.store.database import MYSQL, Database
from posthouse.store.operations import write_audit
from posthouse.store.pacing import locked_limits
from posthouse.store.schema import OUR_FAULTS_SQL, Instant, attempts, events, group_counts, sends, slowdowns
from posthouse.store.schema import limits as limits_table

JUDGED_EVERY_S: Final = 60.0
TURN: Final = "judging mailbox groups"
"""The row of `email_limits` that says when they were judged last: whoever locks it has the turn."""

FAULTS_READ_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Judged:
    """A slow-down that has begun, changed or ended: what it was, and what it is."""

    where: GroupRoute
    before: Slowdown | None
    after: Slowdown | None


@dataclass(frozen=True, slots=True)
class Fault:
    """An event, or a server's refusal at the call, that says something about us: see `OUR_FAULTS`."""

    recipient: str
    route: str
    cause: Cause
    code: str
    text: str
    at: float
    send_id: int | None


@dataclass(frozen=True, slots=True)
class Faults:
    """The newest of them."""

    found: tuple[Fault, ...]
    all: bool  # whether there were no more


def count_events(connection: Connection, news: Iterable[tuple[str, Event]], now: float) -> None:
    """Counts events that were not known before, each with its route. To be called last in their transaction."""
    keys = (count_key(event, route, now) for route, event in news)
    _add(connection, Counter(key for key in keys if key is not None))


def read_slowdowns(connection: Connection, *, locking: bool = False) -> list[Slowdown]:
    """Every slow-down, and those that a person ended lately."""
    query = select(slowdowns).order_by(slowdowns.c.mailbox_group, slowdowns.c.route)
    return [_slowdown(row) for row in connection.execute(query.with_for_update() if locking else query)]


class GroupHealth:
    """Each method is one short transaction, or several."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def count(self, numbers: Mapping[CountKey, int]) -> None:
        """Adds what a worker has counted."""
        with self._database.write() as connection:
            _add(connection, numbers)

    def judge(self, policy: HealthPolicy, now: float) -> list[Judged] | None:
        """Judges every group on every route; what has changed. None where somebody has just done so.

        Nobody waits while it reads: what a person has changed meanwhile stays as it is.
        """
        with self._database.write() as connection:
            if not _take_turn(connection, self._database, now):
                return None
        with self._database.read() as connection:
            known = {row.where: row for row in read_slowdowns(connection)}
            found = _judged(connection, known, policy, now)
        if found:
            with self._database.write() as connection:
                locked_limits(connection, self._database, [TURN])
                still = {row.where: row for row in read_slowdowns(connection, locking=not self._database.is_sqlite)}
                found = [one for one in found if still.get(one.where) == one.before]
                for one in found:
                    _write(connection, one)
        return found

    def slowdowns(self) -> list[Slowdown]:
        """Those that slow something now."""
        with self._database.read() as connection:
            return [row for row in read_slowdowns(connection) if row.is_on]

    def totals(self, since: float) -> dict[GroupRoute, Counts]:
        """What became of the mail to each group on each route."""
        with self._database.read() as connection:
            return _sums(connection, group_counts.c.bucket >= literal(since, Instant))

    def faults(self, since: float, over_smtp: Collection[str] = ()) -> Faults:
        """What says something about us, the newest: of FAULTS_READ_MAX events, and of as many refusals at the call on
        the routes `over_smtp`. On another one the provider answers, and no receiver."""
        with self._database.read() as connection:
            heard, refused = _heard(connection, since), _refused(connection, since, over_smtp)
            addresses = _addresses(connection, {row.send_id for row in refused})
        faults = [
            Fault(row.recipient, row.route, Cause(row.cause), row.code, row.text, row.at, row.send_id) for row in heard
        ]
        faults += [fault for row in refused for fault in _of_call(row, addresses.get(row.send_id, ""))]
        faults.sort(key=lambda fault: -fault.at)
        most = max(len(heard), len(refused), len(faults))
        return Faults(tuple(faults[:FAULTS_READ_MAX]), most < FAULTS_READ_MAX)


def _heard(connection: Connection, since: float) -> Sequence[Row[Any]]:
    """Events, the newest first."""
    query: Select[Any] = (
        select(*(events.c[name] for name in ("recipient", "route", "cause", "code", "text", "at", "send_id")))
        .where(text(OUR_FAULTS_SQL), events.c.received_at >= literal(since, Instant))
        .order_by(events.c.received_at.desc())
        .limit(FAULTS_READ_MAX)
    )
    return connection.execute(query).all()


def _refused(connection: Connection, since: float, routes: Collection[str]) -> Sequence[Row[Any]]:
    """Calls that a server answered with a refusal, the newest first; not those that are about the address alone."""
    from posthouse.core.call_faults import OF_THE_ADDRESS, REFUSALS  # many rules, which only people who look need

    tried = attempts.c
    query: Select[Any] = (
        select(tried.send_id, tried.route, tried.code, tried.text, tried.rule, tried.ended_at)
        .with_hint(attempts, "FORCE INDEX (email_attempts_ended)", MYSQL)
        .where(
            tried.ended_at >= literal(since, Instant),
            tried.outcome.in_([outcome.value for outcome in REFUSALS]),
            tried.route.in_(routes),
            tried.code.between("400", "599"),  # what begins with a letter is no reply
            tried.rule.not_in(OF_THE_ADDRESS),
        )
        .order_by(tried.ended_at.desc())
        .limit(FAULTS_READ_MAX)
    )
    return connection.execute(query).all()


def _addresses(connection: Connection, ids: Collection[int]) -> dict[int, str]:
    """The first recipient of each of these sends that is still there."""
    found = connection.execute(select(sends.c.id, sends.c.to_address).where(sends.c.id.in_(ids)))
    return {row.id: row.to_address for row in found}


def _of_call(row: Row[Any], address: str) -> Iterator[Fault]:
    from posthouse.core.call_faults import faults_of_call

    for one in faults_of_call(address, row.code, row.text, row.rule):
        yield Fault(one.recipient, row.route, one.cause, one.code, one.text, row.ended_at, row.send_id)


def end_slowdowns(connection: Connection, group: str, who: str, now: float) -> bool:
    """Ends those of a group, because a person says so; whether there was any."""
    mine = slowdowns.c.mailbox_group == group
    ended = connection.execute(update(slowdowns).where(mine, slowdowns.c.ended_at.is_(None)).values(ended_at=now))
    if ended.rowcount:
        write_audit(connection, now, who, "end slow-down", f"group {group}", "")
    return bool(ended.rowcount)


def _take_turn(connection: Connection, database: Database, now: float) -> bool:
    judged_at = locked_limits(connection, database, [TURN])[TURN].tat
    if 0.0 <= now - judged_at < JUDGED_EVERY_S:
        return False
    connection.execute(update(limits_table).where(limits_table.c.name == TURN).values(tat=now))
    return True


def _judged(
    connection: Connection, known: Mapping[GroupRoute, Slowdown], policy: HealthPolicy, now: float
) -> list[Judged]:
    """The sums of all, and the buckets and the past of those only that these make suspect."""
    bucket = group_counts.c.bucket
    day, recent = bucket >= literal(now - DAY_S, Instant), bucket >= literal(now - RECENT_S, Instant)
    sums = [(now - DAY_S, _sums(connection, day)), (now - RECENT_S, _sums(connection, recent))]
    suspect = {
        where
        for since, of_all in sums
        for where, counts in of_all.items()
        if trouble([Bucket(since, counts)], Counts(), policy, now)
    }
    looked_at = sorted(suspect | known.keys())
    if not looked_at:
        return []
    mine = tuple_(group_counts.c.mailbox_group, group_counts.c.route).in_(looked_at)
    days = _buckets(connection, mine, day)
    pasts = _sums(connection, mine, bucket >= literal(now - KEPT_S, Instant), not_(day))
    changes = []
    for where in looked_at:
        before = known.get(where)
        after = judge(where, before, days.get(where, []), pasts.get(where, Counts()), policy, now)
        if after != before:
            changes.append(Judged(where, before, after))
    return changes


_WHAT: Final = tuple(group_counts.c[name] for name in ("mailbox_group", "route", "kind", "cause"))


def _sums(connection: Connection, *where: ColumnElement[bool]) -> dict[GroupRoute, Counts]:
    """What was counted in all, by group and route."""
    found: dict[GroupRoute, Counts] = defaultdict(Counts)
    query = select(*_WHAT, func.sum(group_counts.c.number).label("number")).where(*where).group_by(*_WHAT)
    for row in connection.execute(query):
        found[GroupRoute(row.mailbox_group, row.route)] += _counts(row)
    return found


def _buckets(connection: Connection, *where: ColumnElement[bool]) -> dict[GroupRoute, list[Bucket]]:
    """What was counted, by group and route, bucket by bucket."""
    found: dict[GroupRoute, dict[float, Counts]] = defaultdict(lambda: defaultdict(Counts))
    for row in connection.execute(select(group_counts).where(*where)):
        found[GroupRoute(row.mailbox_group, row.route)][row.bucket] += _counts(row)
    return {where: [Bucket(*item) for item in sorted(buckets.items())] for where, buckets in found.items()}


def _counts(row: Any) -> Counts:
    return Counts.of(EventKind(row.kind), Cause(row.cause), int(row.number))


def _write(connection: Connection, judged: Judged) -> None:
    mine = (slowdowns.c.mailbox_group == judged.where.group) & (slowdowns.c.route == judged.where.route)
    connection.execute(delete(slowdowns).where(mine))
    if judged.after is not None:
        connection.execute(insert(slowdowns).values(_row(judged.after)))


def _row(slowed: Slowdown) -> dict[str, Any]:
    row = {name: getattr(slowed, name) for name in Slowdown.__slots__ if name != "group"}
    return row | {"mailbox_group": slowed.group, "signal": slowed.signal.value}


def _slowdown(row: Row[Any]) -> Slowdown:
    fields = {name: getattr(row, name) for name in Slowdown.__slots__ if name != "group"}
    return Slowdown(**fields | {"group": row.mailbox_group, "signal": Signal(row.signal)})


_COUNTED: Final = Batch(
    "counted",
    {
        "bucket": Kind.INSTANT,
        "mailbox_group": Kind.TEXT,
        "route": Kind.TEXT,
        "kind": Kind.TEXT,
        "cause": Kind.TEXT,
        "number": Kind.INTEGER,
    },
)


def _add(connection: Connection, numbers: Mapping[CountKey, int]) -> None:
    if numbers:
        dialect = connection.dialect.name
        rows = [(*key, number) for key, number in sorted(numbers.items())]
        connection.execute(_add_sql(dialect), {"counted": _COUNTED.document(dialect, rows)})


@cache
def _add_sql(dialect: str) -> TextClause:
    columns = ", ".join(_COUNTED.columns)
    adding = (
        f"INSERT INTO email_group_counts ({columns}) SELECT {columns} FROM {_COUNTED.relation(dialect, ':counted')} "
    )
    if dialect == MYSQL:
        return text(f"{adding} ON DUPLICATE KEY UPDATE number = email_group_counts.number + VALUES(number)")
    return text(
        f"{adding} WHERE true ON CONFLICT (bucket, mailbox_group, route, kind, cause) "
        "DO UPDATE SET number = email_group_counts.number + excluded.number"
    )
