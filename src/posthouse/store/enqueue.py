"""Writing new sends on the caller's own connection, inside its transaction.

The statements are driver SQL, the same few for every kind of connection, so that the caller's connection needs no
SQLAlchemy and the hot path compiles nothing. `Runner` is the one thing a kind of connection must offer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

from posthouse.core.lanes import lane_name
from posthouse.core.lifecycle import Status
from posthouse.email import CheckedEmail
from posthouse.errors import KeyReused
from posthouse.store.database import POSTGRESQL
from posthouse.store.schema import ADDRESS_CHARS, to_datetime

CHUNK: Final = 200
"""Rows a statement: 18 parameters each stay far below every database's limit."""

Row = Sequence[Any]


class Runner(Protocol):
    """A caller's connection: runs driver SQL inside the caller's transaction and returns the rows."""

    dialect: str

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]: ...


@dataclass(frozen=True, slots=True)
class NewSend:
    """A checked email with what the outbox adds to it."""

    email: CheckedEmail
    idempotency_key: str
    max_age_s: float


@dataclass(frozen=True, slots=True)
class Stored:
    """Where an email stands in the ledger. `created` is False when an earlier call had written it."""

    id: int
    key: str
    created: bool


_COLUMNS: Final = (
    "dedupe_key",
    "fingerprint",
    "idempotency_key",
    "type",
    "lane",
    "to_address",
    "recipients",
    "status",
    "service",
    "tags",
    "metadata",
    "after_key",
    "next_try_at",
    "expires_at",
    "created_at",
    "updated_at",
)

# With the database's own clock, an application server whose clock is wrong delays nothing and expires nothing.
_POSTGRESQL_TIMES: Final = (
    "coalesce({p}::timestamptz, clock_timestamp()), "
    "coalesce({p}::timestamptz, coalesce({p}::timestamptz, clock_timestamp()) + {p} * interval '1 second'), "
    "clock_timestamp(), clock_timestamp()"
)


class _Sql:
    """The statements for one dialect's placeholders."""

    def __init__(self, dialect: str) -> None:
        self.placeholder = "?" if dialect == "sqlite" else "%s"
        own_clock = dialect == POSTGRESQL
        plain = len(_COLUMNS) - 4
        times = _POSTGRESQL_TIMES if own_clock else ", ".join(["{p}"] * 4)
        self._send_row = f"({self._list(plain)}, {times.format(p=self.placeholder)})"

    def _list(self, count: int) -> str:
        return ", ".join([self.placeholder] * count)

    def insert_sends(self, count: int) -> str:
        return (
            f"INSERT INTO email_sends ({', '.join(_COLUMNS)}) VALUES {', '.join([self._send_row] * count)} "
            "ON CONFLICT (dedupe_key) DO NOTHING RETURNING id, dedupe_key"
        )

    def insert_contents(self, count: int) -> str:
        return f"INSERT INTO email_contents (send_id, body) VALUES {', '.join([f'({self._list(2)})'] * count)}"

    def select_by_key(self, count: int) -> str:
        return f"SELECT id, dedupe_key, fingerprint FROM email_sends WHERE dedupe_key IN ({self._list(count)})"


@cache
def _sql(dialect: str) -> _Sql:
    return _Sql(dialect)


def insert_sends(runner: Runner, new: Sequence[NewSend], clock: Callable[[], float]) -> list[Stored]:
    """Writes the emails, in order. The first writer of a key wins, whatever the race.

    Raises KeyReused where a key stands for another content; then nothing of this call stays written. `clock` is
    used only where the database has none of its own.
    """
    if len(new) == 1:
        return _insert_chunk(runner, new, clock)
    with _savepoint(runner):
        return [
            stored
            for start in range(0, len(new), CHUNK)
            for stored in _insert_chunk(runner, new[start : start + CHUNK], clock)
        ]


@contextmanager
def _savepoint(runner: Runner) -> Iterator[None]:
    runner.run("SAVEPOINT posthouse_enqueue", ())
    try:
        yield
    except KeyReused:
        runner.run("ROLLBACK TO SAVEPOINT posthouse_enqueue", ())
        runner.run("RELEASE SAVEPOINT posthouse_enqueue", ())
        raise
    runner.run("RELEASE SAVEPOINT posthouse_enqueue", ())


def _insert_chunk(runner: Runner, new: Sequence[NewSend], clock: Callable[[], float]) -> list[Stored]:
    sql = _sql(runner.dialect)
    first_of_key = {item.email.key: item for item in reversed(new)}
    parameters = [value for item in first_of_key.values() for value in _parameters(item, runner.dialect, clock)]
    created = {key: id_ for id_, key in runner.run(sql.insert_sends(len(first_of_key)), parameters)}
    if created:
        bodies = [value for key, id_ in created.items() for value in (id_, first_of_key[key].email.stored)]
        runner.run(sql.insert_contents(len(created)), bodies)
    existing = _existing(runner, [key for key in first_of_key if key not in created])
    fingerprints = {key: first_of_key[key].email.fingerprint for key in created} | {
        key: fingerprint for key, (_, fingerprint) in existing.items()
    }
    stored, seen = [], set()
    for item in new:
        key = item.email.key
        id_ = created[key] if key in created else existing[key][0]
        if fingerprints[key] != item.email.fingerprint:
            raise KeyReused(key, id_)
        stored.append(Stored(id_, key, created=key in created and key not in seen))
        seen.add(key)
    return stored


def _existing(runner: Runner, keys: Sequence[str]) -> dict[str, tuple[int, str]]:
    if not keys:
        return {}
    rows = runner.run(_sql(runner.dialect).select_by_key(len(keys)), keys)
    return {key: (id_, fingerprint) for id_, key, fingerprint in rows}


def _parameters(new: NewSend, dialect: str, clock: Callable[[], float]) -> list[Any]:
    email, content = new.email, new.email.content
    recipients = content.recipients
    plain = [
        email.key,
        email.fingerprint,
        new.idempotency_key,
        email.type,
        lane_name(email.type, email.service or ""),
        recipients[0].folded[:ADDRESS_CHARS],
        json.dumps([recipient.email for recipient in recipients], ensure_ascii=False),
        Status.WAITING.value if email.after else Status.PENDING.value,
        email.service,
        json.dumps(content.tags, ensure_ascii=False) if content.tags else None,
        json.dumps(content.metadata, ensure_ascii=False) if content.metadata else None,
        email.after,
    ]
    if dialect == POSTGRESQL:
        send_at = None if email.send_at is None else to_datetime(email.send_at, dialect)
        expires = None if email.expires is None else to_datetime(email.expires, dialect)
        return [*plain, send_at, expires, send_at, new.max_age_s]
    now = clock()
    due = now if email.send_at is None else email.send_at
    ends = due + new.max_age_s if email.expires is None else email.expires
    return [*plain, *(str_time(moment) for moment in (due, ends, now, now))]


def str_time(seconds: float) -> str:
    """The text in which SQLite keeps a time, as SQLAlchemy writes it."""
    return to_datetime(seconds, "sqlite").isoformat(" ", "microseconds")
