"""Writing new sends on the caller's own connection, inside its transaction.

The statements are driver SQL, the same few for every kind of connection, so that the caller's connection needs no
SQLAlchemy and the hot path compiles nothing. What is written is a script (`store/script.py`); a `Runner` is the one
thing that a kind of connection must offer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar

from posthouse.core.lanes import lane_name
from posthouse.core.lifecycle import Status
from posthouse.core.mailbox_groups import OTHER, mailbox_group
from posthouse.email import CheckedEmail
from posthouse.errors import KeyReused
from posthouse.store.batch import MYSQL_TEXT, Batch, Kind, ascii_text, str_time
from posthouse.store.blobs import insert_files
from posthouse.store.column_types import to_datetime
from posthouse.store.database import MYSQL, POSTGRESQL, SQLITE
from posthouse.store.families import Asked, start_cooldowns
from posthouse.store.schema import ADDRESS_CHARS
from posthouse.store.script import Script

T = TypeVar("T")

CHUNK: Final = 500
"""Rows a statement."""

CHUNK_CHARS_MAX: Final = 16 * 1024 * 1024
"""Content a statement, but for one that is larger alone: a JSON document in PostgreSQL ends at 256 MB."""


MYSQL_CHUNK_CHARS_MAX: Final = 1024 * 1024
"""The same for MariaDB, which takes 16 MB a statement by default: escaped, a character is up to 7 bytes."""


@dataclass(frozen=True, slots=True)
class NewSend:
    """A checked email with what the outbox adds to it."""

    email: CheckedEmail
    idempotency_key: str
    max_age_s: float
    cooldown_s: float = 0.0  # of its type
    gather_s: float = 0.0  # how long after its time it is due, so that others can join it

    @property
    def cools_down(self) -> bool:
        """Whether it begins a cooldown, or may not begin one yet."""
        return self.cooldown_s > 0 and self.email.family is not None


@dataclass(frozen=True, slots=True)
class Stored:
    """Where an email stands in the ledger. `created` is False when an earlier call had written it."""

    id: int
    key: str
    created: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """The row of a key, after the writing."""

    id: int
    fingerprint: str
    created: bool


_NEW: Final = Batch(
    "new",
    {
        "dedupe_key": Kind.TEXT,
        "fingerprint": Kind.TEXT,
        "idempotency_key": Kind.TEXT,
        "type": Kind.TEXT,
        "lane": Kind.TEXT,
        "to_address": Kind.TEXT,
        "recipients": Kind.TEXT,
        "status": Kind.TEXT,
        "service": Kind.TEXT,
        "campaign": Kind.TEXT,
        "tags": Kind.TEXT,
        "metadata": Kind.TEXT,
        "after_key": Kind.TEXT,
        "send_at": Kind.INSTANT,
        "gather_s": Kind.NUMBER,
        "expires": Kind.INSTANT,
        "max_age_s": Kind.NUMBER,
        "now": Kind.INSTANT,
        "body": Kind.TEXT,
    },
)
_AS_GIVEN: Final = tuple(_NEW.columns)[:13]


_NAMES: Final = ("send_at", "gather_s", "expires", "max_age_s", "now")


def _times(dialect: str, send_at: str, gather_s: str, expires: str, max_age_s: str, now: str) -> str:
    """next_try_at, expires_at, created_at and updated_at, from five columns or placeholders.

    With the database's own clock, a server whose clock is wrong delays nothing and expires nothing.
    """
    if dialect == MYSQL:
        due = f"coalesce(CAST({send_at} AS DATETIME(6)), UTC_TIMESTAMP(6)) + INTERVAL {gather_s} MICROSECOND"
        ends = f"coalesce(CAST({expires} AS DATETIME(6)), {due} + INTERVAL {max_age_s} MICROSECOND)"
        return f"{due}, {ends}, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)"
    if dialect != POSTGRESQL:
        return f"{send_at}, {expires}, {now}, {now}"  # both were reckoned from this process's clock
    due = f"coalesce({send_at}::timestamptz, clock_timestamp()) + {gather_s} * interval '1 second'"
    ends = f"coalesce({expires}::timestamptz, {due} + {max_age_s} * interval '1 second')"
    return f"{due}, {ends}, clock_timestamp(), clock_timestamp()"


class _Sql:
    """The statements for one dialect: for a batch, whose document is the first parameter, and for one email."""

    def __init__(self, dialect: str) -> None:
        self.placeholder = mark = "?" if dialect == SQLITE else "%s"
        given, new = ", ".join(_AS_GIVEN), _NEW.relation(dialect, mark)
        columns = f"{given}, next_try_at, expires_at, created_at, updated_at"
        once = "ON CONFLICT (dedupe_key) DO NOTHING RETURNING id, dedupe_key"
        many = f"INSERT INTO email_sends ({columns}) SELECT {given}, {_times(dialect, *_NAMES)} "
        many += f"FROM {{}} WHERE true {once}"
        marks = ", ".join([mark] * len(_AS_GIVEN))
        one = f"INSERT INTO email_sends ({columns}) VALUES ({marks}, {_times(dialect, *[mark] * 5)}) {once}"
        content = "INSERT INTO email_contents (send_id, body) SELECT made.id, new.body"
        if dialect == POSTGRESQL:  # each is one trip to the server
            self.insert_one = (
                f"WITH made AS ({one}), "
                f"written AS (INSERT INTO email_contents (send_id, body) SELECT id, {mark} FROM made) "
                "SELECT id, dedupe_key FROM made"
            )
            self.insert_many = (
                f"WITH new AS MATERIALIZED (SELECT * FROM {new}), made AS ({many.format('new')}), "
                f"written AS ({content} FROM made JOIN new ON new.dedupe_key = made.dedupe_key) "
                "SELECT id, dedupe_key FROM made"
            )
        else:
            self.insert_one = one
            self.insert_many = many.format(new)
        self.content_of_one = f"INSERT INTO email_contents (send_id, body) VALUES ({mark}, {mark})"
        self.contents_of_many = (
            f"{content} FROM {new} JOIN email_sends AS made ON made.dedupe_key = new.dedupe_key "
            f"WHERE made.id IN (SELECT value FROM json_each({mark}))"
        )

    def select_by_key(self, count: int) -> str:
        keys = ", ".join([self.placeholder] * count)
        return f"SELECT id, dedupe_key, fingerprint FROM email_sends WHERE dedupe_key IN ({keys})"


@cache
def _sql(dialect: str) -> _Sql:
    return _Sql(dialect)


def insert_sends(dialect: str, new: Sequence[NewSend], clock: Callable[[], float]) -> Script[list[Stored]]:
    """Writes the emails, in order. The first writer of a key wins, whatever the race.

    Raises KeyReused where a key stands for another content, TooSoon where a family has not cooled down; then nothing of
    this call stays written. `clock` is used only where the database has none of its own.
    """
    if len(new) == 1 and not new[0].email.files and not new[0].cools_down:  # nearly always
        return (yield from _insert_chunk(dialect, new, clock))
    return (yield from _all_or_nothing(_insert_chunks(dialect, new, clock)))


def _insert_chunks(dialect: str, new: Sequence[NewSend], clock: Callable[[], float]) -> Script[list[Stored]]:
    stored: list[Stored] = []
    for chunk in _chunks(new, MYSQL_CHUNK_CHARS_MAX if dialect == MYSQL else CHUNK_CHARS_MAX):
        stored += yield from _insert_chunk(dialect, chunk, clock)
    return stored


def _chunks(new: Sequence[NewSend], chars_max: int) -> Iterator[list[NewSend]]:
    chunk: list[NewSend] = []
    chars = 0
    for item in new:
        size = len(item.email.stored)
        if chunk and (len(chunk) == CHUNK or chars + size > chars_max):
            yield chunk
            chunk, chars = [], 0
        chunk.append(item)
        chars += size
    if chunk:
        yield chunk


def _all_or_nothing(script: Script[T]) -> Script[T]:
    """The script in a savepoint, so that its failure takes back what it wrote and nothing else."""
    yield "SAVEPOINT posthouse_enqueue", ()
    try:
        result = yield from script
    except GeneratorExit:  # whoever ran us is gone, and can't run anything any more
        raise
    except BaseException:
        with suppress(Exception):  # a lost connection has rolled back everything already
            yield "ROLLBACK TO SAVEPOINT posthouse_enqueue", ()
            yield "RELEASE SAVEPOINT posthouse_enqueue", ()
        raise
    yield "RELEASE SAVEPOINT posthouse_enqueue", ()
    return result


def _insert_chunk(dialect: str, new: Sequence[NewSend], clock: Callable[[], float]) -> Script[list[Stored]]:
    first_of_key: dict[str, NewSend] = {}
    for item in new:
        first_of_key.setdefault(item.email.key, item)
    once = list(first_of_key.values())
    if dialect == MYSQL:
        found = yield from _write_on_mysql(dialect, once)
    else:
        found = yield from _write_or_find(dialect, once, clock())
    stored = _stored(new, found)
    files = {row.id: item.email.files for row, item in zip(stored, new, strict=True) if row.created}
    yield from insert_files(dialect, files, clock())
    made = [item for row, item in zip(stored, new, strict=True) if row.created and item.cools_down]
    asked = [Asked(item.email.type, item.email.family or "", item.email.key, item.cooldown_s) for item in made]
    yield from start_cooldowns(dialect, asked, clock())
    return stored


def _stored(new: Sequence[NewSend], found: Mapping[str, _Found]) -> list[Stored]:
    """What became of each. Raises KeyReused."""
    stored, seen = [], set()
    for item in new:
        key = item.email.key
        row = found[key]
        if row.fingerprint != item.email.fingerprint:
            raise KeyReused(key, row.id)
        stored.append(Stored(row.id, key, created=row.created and key not in seen))
        seen.add(key)
    return stored


def _write_or_find(dialect: str, new: Sequence[NewSend], now: float) -> Script[dict[str, _Found]]:
    created = yield from _write(dialect, new, now)
    existing = yield from _existing(dialect, [item.email.key for item in new if item.email.key not in created])
    return {
        item.email.key: _Found(created[item.email.key], item.email.fingerprint, created=True)
        for item in new
        if item.email.key in created
    } | {key: _Found(id_, fingerprint, created=False) for key, (id_, fingerprint) in existing.items()}


def _write(dialect: str, new: Sequence[NewSend], now: float) -> Script[dict[str, int]]:
    """Writes those whose key is new; their ids by key."""
    sql, own_clock = _sql(dialect), dialect == POSTGRESQL
    rows = [_new_row(item, now, own_clock) for item in new]
    if len(rows) == 1:
        return (yield from _write_one(dialect, sql, rows[0], own_clock))
    document = _NEW.document(dialect, rows)
    created = {key: id_ for id_, key in (yield sql.insert_many, (document,))}
    if created and not own_clock:
        yield sql.contents_of_many, (document, json.dumps(list(created.values())))
    return created


def _write_one(dialect: str, sql: _Sql, row: Sequence[Any], own_clock: bool) -> Script[dict[str, int]]:
    *given, send_at, gather_s, expires, max_age_s, now, body = row
    if own_clock:
        send_at, expires = (_moment(dialect, send_at), _moment(dialect, expires))
        parameters = [*given, send_at, gather_s, expires, send_at, gather_s, max_age_s, body]
        return {key: id_ for id_, key in (yield sql.insert_one, parameters)}
    times = [str_time(at) for at in (send_at, expires, now, now)]
    created = {key: id_ for id_, key in (yield sql.insert_one, [*given, *times])}
    for id_ in created.values():
        yield sql.content_of_one, (id_, body)
    return created


def _moment(dialect: str, seconds: float | None) -> datetime | None:
    return None if seconds is None else to_datetime(seconds, dialect)


def _existing(dialect: str, keys: Sequence[str]) -> Script[dict[str, tuple[int, str]]]:
    if not keys:
        return {}
    rows = yield _sql(dialect).select_by_key(len(keys)), keys
    return {key: (id_, fingerprint) for id_, key, fingerprint in rows}


def existing_keys(dialect: str, keys: Sequence[str]) -> Script[set[str]]:
    """Those of up to CHUNK keys that are in the ledger."""
    if dialect == MYSQL:
        return set((yield from _find_on_mysql(keys, ())))
    return set((yield from _existing(dialect, keys)))


def _write_on_mysql(dialect: str, new: Sequence[NewSend]) -> Script[dict[str, _Found]]:
    """Writes those whose key is new, and finds all.

    There an INSERT doesn't say what it did, so the idempotency key, which no other call has, tells whose a row is.
    """
    parameters: list[Any] = []
    for item in new:
        *given, send_at, gather_s, expires, max_age_s, _now, _body = _new_row(item, 0.0, own_clock=True)
        due = [_moment(dialect, send_at), round(gather_s * 1_000_000)]
        parameters += [*map(_ascii, given), *due, _moment(dialect, expires), *due, round(max_age_s * 1_000_000)]
    yield (_MYSQL_INSERT + ", ".join([_MYSQL_ROW] * len(new)) + _MYSQL_ONCE), parameters
    ours = {item.idempotency_key for item in new}
    found = yield from _find_on_mysql([item.email.key for item in new], ours)
    hidden = [item.email.key for item in new if item.email.key not in found]
    if hidden:  # won by somebody who committed after the caller's snapshot; only a locking read shows them
        found |= yield from _find_on_mysql(hidden, ours, " FOR UPDATE")
    bodies = [(found[item.email.key].id, _ascii(item.email.stored)) for item in new if found[item.email.key].created]
    if bodies:
        values = ", ".join([f"(%s, {MYSQL_TEXT})"] * len(bodies))
        yield _MYSQL_CONTENTS + values, [value for body in bodies for value in body]
    return found


def _find_on_mysql(keys: Sequence[str], ours: Collection[str], lock: str = "") -> Script[dict[str, _Found]]:
    wanted = _MYSQL_FIND.format(keys=", ".join([MYSQL_TEXT] * len(keys)))
    rows = yield wanted + lock, [_ascii(key) for key in keys]
    return {
        bytes.fromhex(key).decode(): _Found(id_, fingerprint, created=idempotency_key in ours)
        for id_, key, fingerprint, idempotency_key in rows
    }


_MYSQL_INSERT: Final = (
    f"INSERT INTO email_sends ({', '.join(_AS_GIVEN)}, next_try_at, expires_at, created_at, updated_at) VALUES "
)
# Rows as VALUES: an INSERT … SELECT that waits for somebody's key would keep the lock on new ids from everybody else.
_MYSQL_ROW: Final = f"({', '.join([MYSQL_TEXT] * len(_AS_GIVEN))}, {_times(MYSQL, *['%s'] * 5)})"
_MYSQL_ONCE: Final = " ON DUPLICATE KEY UPDATE id = email_sends.id"
# Not locking: with repeatable reads it would lock the gaps beside the keys too, and hold up everybody's new keys.
_MYSQL_FIND: Final = (
    "SELECT id, HEX(dedupe_key), fingerprint, idempotency_key FROM email_sends "
    "FORCE INDEX (email_sends_dedupe_key) WHERE dedupe_key IN ({keys})"
)
_MYSQL_CONTENTS: Final = "INSERT INTO email_contents (send_id, body) VALUES "


def _ascii(said: str | None) -> str | None:
    return None if said is None else ascii_text(said)


def _group(address: str) -> str:
    """The mailbox group that is part of the lane's name; those of no group are the lane without one."""
    group = mailbox_group(address)
    return "" if group == OTHER else group


def _new_row(new: NewSend, now: float, own_clock: bool) -> tuple[Any, ...]:
    email, content = new.email, new.email.content
    recipients = content.recipients
    due, expires = email.send_at, email.expires
    if not own_clock:
        due = (now if due is None else due) + new.gather_s
        expires = due + new.max_age_s if expires is None else expires
    return (
        email.key,
        email.fingerprint,
        new.idempotency_key,
        email.type,
        lane_name(email.type, email.service or "", email.campaign or "", _group(recipients[0].email)),
        recipients[0].folded[:ADDRESS_CHARS],
        json.dumps([recipient.email for recipient in recipients], ensure_ascii=False),
        Status.WAITING.value if email.after else Status.PENDING.value,
        email.service,
        email.campaign,
        json.dumps(content.tags, ensure_ascii=False) if content.tags else None,
        json.dumps(content.metadata, ensure_ascii=False) if content.metadata else None,
        email.after,
        due,
        new.gather_s,
        expires,
        new.max_age_s,
        now,
        email.stored,
    )
