"""`enqueue_many`: any number in chunks, in order, all or none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event, func, select

from posthouse.email import Email
from posthouse.errors import InvalidEmail, KeyReused
from posthouse.outbox import Enqueued
from posthouse.store.database import Database
from posthouse.store.schema import contents, sends
from posthouse.store.store import Store
from tests.contract.store_support import ROUTES, email, outbox


def enqueue_many(database: Database, emails: Any) -> list[Enqueued]:
    with database.write() as connection:
        return outbox().enqueue_many(connection, emails)


def count(store: Store) -> int:
    """How many sends there are; each has its content."""
    with store.database.read() as connection:
        number = connection.scalar(select(func.count()).select_from(sends)) or 0
        assert connection.scalar(select(func.count()).select_from(contents)) == number
    return number


@pytest.fixture
def statements(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """Every statement on the sends and contents, with its parameters."""
    seen: list[tuple[str, Any]] = []

    def see(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if "INSERT" in statement:
            seen.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", see)
    yield seen
    event.remove(database.engine, "before_cursor_execute", see)


def test_a_thousand_emails_are_written_in_order_by_a_few_statements(
    database: Database, store: Store, statements: list[tuple[str, Any]]
) -> None:
    keys = [f"order-{n}" for n in range(1201)]

    results = enqueue_many(database, [email(key, text=key) for key in keys])

    assert [(result.key, result.created) for result in results] == [(key, True) for key in keys]
    assert len({result.id for result in results}) == len(keys)
    assert count(store) == len(keys)
    assert "order-777" in (store.ledger.story("order-777").body or "")
    assert len(statements) <= 20


def test_emails_become_due_in_the_order_of_the_call(database: Database, store: Store) -> None:
    keys = [f"order-{n}" for n in reversed(range(600))]

    results = enqueue_many(database, [email(key) for key in keys])

    ids = [result.id for result in results]
    assert ids == sorted(ids)
    assert [send.key for send in store.queue.claim("receipt", 600, 1, time.time() + 60, ROUTES)] == keys


def test_large_contents_are_spread_over_more_statements(
    database: Database, store: Store, statements: list[tuple[str, Any]]
) -> None:
    megabyte = "x" * 1024 * 1024

    enqueue_many(database, [email(f"k{n}", text=megabyte * 7) for n in range(4)])

    assert count(store) == 4
    assert max(len(str(value)) for _, parameters in statements for value in parameters) < 17 * 1024 * 1024


def test_some_new_and_some_known_are_told_apart(database: Database, store: Store) -> None:
    before = enqueue_many(database, [email("b"), email("d")])

    results = enqueue_many(database, [email(key) for key in "abcde"])

    assert [(result.key, result.created) for result in results] == [
        ("a", True),
        ("b", False),
        ("c", True),
        ("d", False),
        ("e", True),
    ]
    assert [results[1].id, results[3].id] == [result.id for result in before]
    assert count(store) == 5


@pytest.mark.parametrize("apart", [1, 700], ids=["in one chunk", "in two chunks"])
def test_the_same_email_twice_in_one_call_is_written_once(database: Database, store: Store, apart: int) -> None:
    between = [email(f"other-{n}") for n in range(apart)]

    results = enqueue_many(database, [email("twice"), *between, email("twice")])

    assert (results[0].id, results[0].created) == (results[-1].id, True)
    assert not results[-1].created
    assert count(store) == apart + 1


@pytest.mark.parametrize("apart", [1, 700], ids=["in one chunk", "in two chunks"])
def test_one_key_with_two_contents_in_one_call_is_refused_whole(database: Database, store: Store, apart: int) -> None:
    between = [email(f"other-{n}") for n in range(apart)]

    with pytest.raises(KeyReused) as refused:
        enqueue_many(database, [email("twice", text="a"), *between, email("twice", text="b")])

    assert refused.value.key == "twice"
    assert count(store) == 0


def test_a_used_key_in_the_middle_takes_all_of_the_call_back_and_nothing_else(database: Database, store: Store) -> None:
    enqueue_many(database, [email("used", text="first")])

    with database.write() as connection:
        outbox().enqueue(connection, email("before"))
        with pytest.raises(KeyReused):
            outbox().enqueue_many(connection, [*(email(f"new-{n}") for n in range(700)), email("used"), email("last")])
        outbox().enqueue(connection, email("after"))

    assert sorted(row["dedupe_key"] for row in store.ledger.find([], None, 99)) == ["after", "before", "used"]


def test_one_bad_email_refuses_all_before_anything_is_written(
    database: Database, store: Store, statements: list[tuple[str, Any]]
) -> None:
    with pytest.raises(InvalidEmail, match="subject"):
        enqueue_many(database, [email("good"), email("bad", subject="a\nb")])

    assert (count(store), statements) == (0, [])


def test_any_iterable_will_do_and_nothing_is_nothing(database: Database, store: Store) -> None:
    emails: Iterator[Email] = (email(key) for key in "ab")

    assert [result.key for result in enqueue_many(database, emails)] == ["a", "b"]
    assert enqueue_many(database, []) == []
    assert count(store) == 2
