"""One key, one email: whoever writes it first, however often it is written, however alike two keys look."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy import func, select

from posthouse.email import Email
from posthouse.errors import KeyReused
from posthouse.outbox import Enqueued
from posthouse.store.database import Database
from posthouse.store.schema import contents, sends
from posthouse.store.store import Store
from tests.contract.store_support import email, outbox, race
from tests.integration.enqueue_callers import pymysql_connection, sqlite_file

WRITERS = 50


def enqueue(database: Database, *emails: Email) -> list[Enqueued]:
    """In a transaction of their own."""
    with database.write() as connection:
        return outbox().enqueue_many(connection, emails)


def counts(store: Store) -> tuple[int, int]:
    """How many sends and how many contents there are."""
    with store.database.read() as connection:
        number = [connection.scalar(select(func.count()).select_from(table)) for table in (sends, contents)]
    return number[0] or 0, number[1] or 0


def _connect(url: str) -> sqlite3.Connection | psycopg.Connection | pymysql.Connection[Any]:
    if url.startswith("sqlite"):
        return sqlite3.connect(sqlite_file(url), timeout=60)
    return pymysql_connection(url) if url.startswith("mysql") else psycopg.connect(url)


def _write_once(url: str, key: str, text: str) -> Enqueued | KeyReused:
    """One writer with a connection of its own, as another process would have."""
    with closing(_connect(url)) as connection:
        try:
            enqueued = outbox().enqueue(connection, email(key, text=text))
        except KeyReused as refused:
            connection.rollback()
            return refused
        connection.commit()
        return enqueued


def test_of_fifty_racing_writers_the_first_one_wins_and_all_hear_of_it(database_url: str, store: Store) -> None:
    results = race([partial(_write_once, database_url, "order-1", "Hi")] * WRITERS)

    enqueued = [result for result in results if isinstance(result, Enqueued)]
    assert len(enqueued) == WRITERS
    assert {result.id for result in enqueued} == {store.ledger.story("order-1").send["id"]}
    assert [result.created for result in enqueued].count(True) == 1
    assert counts(store) == (1, 1)


def test_of_racing_writers_with_other_contents_one_wins_and_the_others_are_told(
    database_url: str, store: Store
) -> None:
    results = race([partial(_write_once, database_url, "order-1", f"from {n}") for n in range(10)])

    (winner,) = [result for result in results if isinstance(result, Enqueued)]
    refused = [result for result in results if isinstance(result, KeyReused)]
    assert winner.created
    assert len(refused) == 9
    assert {one.send_id for one in refused} == {winner.id}
    assert counts(store) == (1, 1)


def test_a_writer_that_waits_for_a_rollback_becomes_the_first(
    database: Database, store: Store, open_another: Callable[[], Database]
) -> None:
    other = open_another()
    with database.engine.connect() as first:
        outbox().enqueue(first, email("order-1", text="never committed"))
        first.rollback()

    assert enqueue(other, email("order-1", text="the real one"))[0].created
    assert "the real one" in (store.ledger.story("order-1").body or "")


def test_enqueueing_the_same_email_a_hundred_times_writes_it_once(database: Database, store: Store) -> None:
    results = [enqueue(database, email("order-1"))[0] for _ in range(100)]

    assert [result.created for result in results] == [True] + [False] * 99
    assert len({result.id for result in results}) == 1
    assert counts(store) == (1, 1)


def test_a_repetition_changes_nothing_of_what_is_stored(database: Database, store: Store) -> None:
    enqueue(database, email("order-1"))
    before = store.ledger.story("order-1")

    enqueue(database, email("order-1"))

    assert store.ledger.story("order-1") == before


@pytest.mark.parametrize(
    "other",
    [
        {"text": "Hi!"},
        {"subject": "hello"},
        {"to": "grace@example.com"},
        {"type": "newsletter"},
        {"service": "shop"},
        {"campaign": "spring"},
        {"after": "order-0"},
        {"tags": ["a"]},
        {"metadata": {"a": "b"}},
        {"headers": {"X-A": "1"}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_used_key_with_other_content_is_refused(database: Database, store: Store, other: dict[str, object]) -> None:
    (first,) = enqueue(database, email("order-1"))
    before = store.ledger.story("order-1")

    with pytest.raises(KeyReused, match="posthouse show order-1") as refused:
        enqueue(database, email("order-1", **other))

    assert refused.value.send_id == first.id
    assert store.ledger.story("order-1") == before


KEYS = [
    "order-1",
    "Order-1",
    "ORDER-1",
    "order-1.",
    "order-1\u00a0x",
    "order-1 x",
    "order-1  x",
    "ördér",
    "o\u0308rde\u0301r",
    "ORDÉR",
    "ﬁ",
    "fi",
    "ß",
    "ss",
    "📬",
    "📭",
    "📬📬",
    "١",
    "1",
    "a%",
    "a_",
    "a\\",
    "'; DROP TABLE email_sends; --",
    "?",
    "%s",
    ":name",
    "%(key)s",
    "k" * 190,
    "K" * 190,
    "📬" * 190,
]


def test_keys_that_look_alike_are_different_keys(database: Database, store: Store) -> None:
    results = enqueue(database, *[email(key) for key in KEYS])
    again = [enqueue(database, email(key))[0] for key in KEYS]

    assert [result.created for result in results] == [True] * len(KEYS)
    assert [result.id for result in again] == [result.id for result in results]
    assert counts(store) == (len(KEYS), len(KEYS))
    assert [store.ledger.story(key).send["dedupe_key"] for key in KEYS if key != "1"] == [k for k in KEYS if k != "1"]


def test_an_id_is_never_given_to_a_second_send(database: Database, store: Store) -> None:
    (first,) = enqueue(database, email("order-1"))
    with database.write() as connection:
        connection.execute(sends.delete())

    assert enqueue(database, email("order-1"))[0].id > first.id
