"""Writing new sends on the caller's own connection, inside its transaction.

The statements are driver SQL, the same few for every kind of connection, so that the caller's connection needs no
SQLAlchemy and the hot path compiles nothing. `Runner` is the one thing a kind of connection must offer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

from posthouse.core.lanes import lane_name
from posthouse.core.lifecycle import Status
from posthouse.email import CheckedEmail
from posthouse.errors import KeyReused
from posthouse.store.batch import Batch, Kind
from posthouse.store.database import POSTGRESQL, SQLITE
from posthouse.store.schema import ADDRESS_CHARS

CHUNK: Final = 500
"""Rows a statement."""

CHUNK_CHARS_MAX: Final = 16 * 1024 * 1024
"""Content a statement, but for one that is larger alone: a JSON document in PostgreSQL ends at 256 MB."""

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
        "tags": Kind.TEXT,
        "metadata": Kind.TEXT,
        "after_key": Kind.TEXT,
        "send_at": Kind.INSTANT,
        "expires": Kind.INSTANT,
        "max_age_s": Kind.NUMBER,
        "now": Kind.INSTANT,
    },
)
_AS_GIVEN: Final = tuple(_NEW.columns)[:12]
_CONTENT: Final = Batch("content", {"send_id": Kind.INTEGER, "body": Kind.TEXT})


class _Sql:
    """The statements for one dialect."""

    def __init__(self, dialect: str) -> None:
        self.placeholder = "?" if dialect == SQLITE else "%s"
        given = ", ".join(_AS_GIVEN)
        # With the database's own clock, a server whose clock is wrong delays nothing and expires nothing.
        now = "clock_timestamp()" if dialect == POSTGRESQL else "now"
        due = f"coalesce(send_at, {now})"
        expires = f"coalesce(expires, {due} + max_age_s * interval '1 second')" if dialect == POSTGRESQL else "expires"
        self.insert_sends = (
            f"INSERT INTO email_sends ({given}, next_try_at, expires_at, created_at, updated_at) "
            f"SELECT {given}, {due}, {expires}, {now}, {now} FROM {_NEW.relation(dialect, self.placeholder)} "
            "WHERE true ON CONFLICT (dedupe_key) DO NOTHING RETURNING id, dedupe_key"
        )
        self.insert_contents = (
            "INSERT INTO email_contents (send_id, body) "
            f"SELECT send_id, body FROM {_CONTENT.relation(dialect, self.placeholder)}"
        )

    def select_by_key(self, count: int) -> str:
        keys = ", ".join([self.placeholder] * count)
        return f"SELECT id, dedupe_key, fingerprint FROM email_sends WHERE dedupe_key IN ({keys})"


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
        return [stored for chunk in _chunks(new) for stored in _insert_chunk(runner, chunk, clock)]


def _chunks(new: Sequence[NewSend]) -> Iterator[list[NewSend]]:
    chunk: list[NewSend] = []
    chars = 0
    for item in new:
        size = len(item.email.stored)
        if chunk and (len(chunk) == CHUNK or chars + size > CHUNK_CHARS_MAX):
            yield chunk
            chunk, chars = [], 0
        chunk.append(item)
        chars += size
    if chunk:
        yield chunk


@contextmanager
def _savepoint(runner: Runner) -> Iterator[None]:
    runner.run("SAVEPOINT posthouse_enqueue", ())
    try:
        yield
    except BaseException:
        with suppress(Exception):  # a lost connection has rolled back everything already
            runner.run("ROLLBACK TO SAVEPOINT posthouse_enqueue", ())
            runner.run("RELEASE SAVEPOINT posthouse_enqueue", ())
        raise
    runner.run("RELEASE SAVEPOINT posthouse_enqueue", ())


def _insert_chunk(runner: Runner, new: Sequence[NewSend], clock: Callable[[], float]) -> list[Stored]:
    sql = _sql(runner.dialect)
    first_of_key: dict[str, NewSend] = {}
    for item in new:
        first_of_key.setdefault(item.email.key, item)
    now, own_clock = clock(), runner.dialect == POSTGRESQL
    sends = _NEW.document(runner.dialect, [_new_row(item, now, own_clock) for item in first_of_key.values()])
    created = {key: id_ for id_, key in runner.run(sql.insert_sends, (sends,))}
    if created:
        bodies = [(id_, first_of_key[key].email.stored) for key, id_ in created.items()]
        runner.run(sql.insert_contents, (_CONTENT.document(runner.dialect, bodies),))
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


def _new_row(new: NewSend, now: float, own_clock: bool) -> tuple[Any, ...]:
    email, content = new.email, new.email.content
    recipients = content.recipients
    expires = email.expires
    if expires is None and not own_clock:
        expires = (now if email.send_at is None else email.send_at) + new.max_age_s
    return (
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
        email.send_at,
        expires,
        new.max_age_s,
        now,
    )
