"""Enqueue on every kind of connection: the email shares the fate of the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from posthouse.errors import InvalidEmail, KeyReused, SchemaError
from posthouse.store.database import Database
from posthouse.store.store import Store
from tests.contract.store_support import email, outbox
from tests.integration.enqueue_callers import KINDS, Caller, keys, make_orders, orders, sqlalchemy_engine


@pytest.fixture(params=KINDS)
def caller(request: pytest.FixtureRequest, database_url: str) -> Iterator[Caller]:
    """The application's connection, of every kind, with its transaction begun."""
    make_orders(database_url)
    with KINDS[request.param](database_url) as caller:
        yield caller


# Commit and rollback.


def test_an_email_exists_when_the_callers_transaction_commits(caller: Caller, store: Store, database_url: str) -> None:
    caller.order(1)
    enqueued = outbox().enqueue(caller.connection, email("order-1", text="Grüße 📬"))
    assert keys(store) == []

    caller.commit()

    story = store.ledger.story("order-1")
    assert (enqueued.id, enqueued.key, enqueued.created) == (story.send["id"], "order-1", True)
    assert "Grüße 📬" in (story.body or "")
    assert orders(database_url) == [1]


def test_an_email_never_existed_when_the_callers_transaction_rolls_back(
    caller: Caller, store: Store, database_url: str
) -> None:
    caller.order(1)
    outbox().enqueue(caller.connection, email("order-1"))

    caller.rollback()

    assert (keys(store), orders(database_url)) == ([], [])


def test_the_email_may_come_before_anything_else_in_the_transaction(
    caller: Caller, store: Store, database_url: str
) -> None:
    outbox().enqueue(caller.connection, email("order-1"))
    caller.order(1)
    caller.rollback()

    assert (keys(store), orders(database_url)) == ([], [])


def test_many_emails_share_the_fate_of_one_transaction(caller: Caller, store: Store, database_url: str) -> None:
    outbox().enqueue_many(caller.connection, [email(f"order-{n}") for n in range(450)])
    caller.order(1)
    caller.rollback()

    assert (keys(store), orders(database_url)) == ([], [])


def test_many_emails_exist_when_the_callers_transaction_commits(caller: Caller, store: Store) -> None:
    enqueued = outbox().enqueue_many(caller.connection, [email(f"order-{n}") for n in range(450)])
    caller.commit()

    assert [(item.key, item.created) for item in enqueued] == [(f"order-{n}", True) for n in range(450)]
    assert len(keys(store)) == 450


# The transaction stays usable after a refusal.


def test_after_a_used_key_with_other_content_the_transaction_goes_on(
    caller: Caller, store: Store, database_url: str
) -> None:
    first = outbox().enqueue(caller.connection, email("order-1", text="first"))
    before = _row(caller, "order-1")

    with pytest.raises(KeyReused) as refused:
        outbox().enqueue(caller.connection, email("order-1", text="another"))

    assert (refused.value.key, refused.value.send_id) == ("order-1", first.id)
    assert f"send {first.id}" in str(refused.value)
    assert _row(caller, "order-1") == before
    caller.order(1)
    outbox().enqueue(caller.connection, email("order-2"))
    caller.commit()
    assert (keys(store), orders(database_url)) == (["order-1", "order-2"], [1])
    assert "first" in (store.ledger.story("order-1").body or "")


def _row(caller: Caller, key: str) -> list[Any]:
    return [tuple(row) for row in caller.execute(f"SELECT * FROM email_sends WHERE dedupe_key = '{key}'")]


BAD: dict[str, dict[str, Any]] = {
    "key": {"key": ""},
    "to": {"to": []},
    "to[1]": {"to": ["ada@example.com", "no address"]},
    "type": {"type": "unheard-of"},
    "subject": {"subject": "a\r\nBcc: everybody@example.com"},
    "text": {"text": "a\x00b"},
    "headers": {"headers": {"X-A\nB": "1"}},
    "tags": {"tags": [""]},
    "metadata.order": {"metadata": {"order": 1042}},
    "send_at": {"send_at": "tomorrow"},
    "after": {"after": "bad"},
    "email": {},
}
"""One of each kind of refusal, by the field that it names; `tests/core` has them all."""


@pytest.mark.parametrize("field", BAD)
def test_bad_input_is_refused_by_name_and_the_transaction_goes_on(
    caller: Caller, store: Store, database_url: str, field: str
) -> None:
    caller.order(1)
    bad: Any = (
        "not an email" if field == "email" else email("bad", **{k: v for k, v in BAD[field].items() if k != "key"})
    )
    if field == "key":
        bad.key = BAD[field]["key"]

    with pytest.raises(InvalidEmail) as refused:
        outbox().enqueue(caller.connection, bad)
    with pytest.raises(InvalidEmail):
        outbox().enqueue_many(caller.connection, [email("good-1"), bad, email("good-2")])

    assert refused.value.field == field
    caller.order(2)
    outbox().enqueue(caller.connection, email("good"))
    caller.commit()
    assert (keys(store), orders(database_url)) == (["good"], [1, 2])


def test_a_refusal_in_the_middle_of_many_leaves_nothing_of_them(
    caller: Caller, store: Store, database_url: str
) -> None:
    outbox().enqueue(caller.connection, email("used", text="first"))
    many = [email(f"new-{n}") for n in range(250)] + [email("used", text="another")] + [email("last")]

    with pytest.raises(KeyReused):
        outbox().enqueue_many(caller.connection, many)

    caller.order(1)
    caller.commit()
    assert (keys(store), orders(database_url)) == (["used"], [1])


# Savepoints of the caller's own.


def test_an_email_inside_a_savepoint_goes_with_it(caller: Caller, store: Store, database_url: str) -> None:
    caller.order(1)
    outbox().enqueue(caller.connection, email("kept"))
    caller.execute("SAVEPOINT the_apps")
    caller.order(2)
    outbox().enqueue(caller.connection, email("gone"))
    outbox().enqueue_many(caller.connection, [email("gone-1"), email("gone-2")])
    with pytest.raises(KeyReused):
        outbox().enqueue_many(caller.connection, [email("gone-3"), email("kept", text="another")])
    caller.execute("ROLLBACK TO SAVEPOINT the_apps")
    outbox().enqueue_many(caller.connection, [email("after-1"), email("after-2")])
    caller.execute("RELEASE SAVEPOINT the_apps")
    caller.commit()

    assert (keys(store), orders(database_url)) == (["after-1", "after-2", "kept"], [1])


def test_a_nested_transaction_of_sqlalchemy_goes_with_its_email(database_url: str, store: Store) -> None:
    engine = sqlalchemy_engine(database_url)
    with engine.begin() as connection:
        with connection.begin_nested():
            outbox().enqueue(connection, email("kept"))
        nested = connection.begin_nested()
        outbox().enqueue(connection, email("gone"))
        nested.rollback()
    with Session(engine) as session, session.begin():
        with session.begin_nested():
            outbox().enqueue_many(session, [email("kept-1"), email("kept-2")])
        nested_ = session.begin_nested()
        outbox().enqueue(session, email("gone-2"))
        nested_.rollback()
    engine.dispose()

    assert keys(store) == ["kept", "kept-1", "kept-2"]


_FULL_DISK = (
    "CREATE TRIGGER full_disk BEFORE INSERT ON email_sends FOR EACH ROW IF NEW.dedupe_key = 'bad' "
    "THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the disk is full'; END IF"
)


def test_a_failure_inside_many_leaves_nothing_of_them(
    caller: Caller, database: Database, store: Store, database_url: str
) -> None:
    if database_url.startswith("sqlite"):
        caller.execute(
            "CREATE TEMP TRIGGER full BEFORE INSERT ON main.email_sends WHEN new.dedupe_key = 'bad' "
            "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
    elif database_url.startswith("postgresql"):
        caller.execute("ALTER TABLE email_sends ADD CONSTRAINT full_disk CHECK (dedupe_key <> 'bad')")
    else:
        caller.rollback()  # this would commit the caller's transaction
        with database.write() as connection:
            connection.execute(text(_FULL_DISK))
        caller.execute("BEGIN")
    many = [email(f"new-{n}") for n in range(250)] + [email("bad")]

    with pytest.raises(Exception, match=r"full"):
        outbox().enqueue_many(caller.connection, many)

    caller.execute("SELECT 1")  # still usable
    if database_url.startswith("postgresql"):
        caller.execute("ALTER TABLE email_sends DROP CONSTRAINT full_disk")
    caller.order(1)
    caller.commit()
    if database_url.startswith("mysql"):
        with database.write() as connection:
            connection.execute(text("DROP TRIGGER full_disk"))
    assert (keys(store), orders(database_url)) == ([], [1])


# Tables that are missing.


def test_missing_tables_are_named_with_the_way_out(caller: Caller, database: Database) -> None:
    caller.rollback()
    with database.write() as connection:
        connection.execute(text("ALTER TABLE email_sends RENAME TO away"))
    try:
        if not isinstance(caller.connection, psycopg.Connection):
            caller.execute("BEGIN") if _raw_autocommit(caller) else None
            with pytest.raises(SchemaError, match="posthouse migrate"):
                outbox().enqueue(caller.connection, email("k"))
            caller.rollback()
        else:
            with caller.connection.transaction(), pytest.raises(SchemaError, match="posthouse migrate"):
                outbox().enqueue(caller.connection, email("k"))
    finally:
        with database.write() as connection:
            connection.execute(text("ALTER TABLE away RENAME TO email_sends"))


def _raw_autocommit(caller: Caller) -> bool:
    if isinstance(caller.connection, pymysql.Connection):
        return bool(caller.connection.get_autocommit())
    return isinstance(caller.connection, sqlite3.Connection) and caller.connection.isolation_level is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_database_without_tables_says_what_to_do(kind: str, tmp_path: Path) -> None:
    with (
        KINDS[kind](f"sqlite:///{tmp_path / 'new.db'}") as caller,
        pytest.raises(SchemaError, match="posthouse migrate"),
    ):
        outbox().enqueue_many(caller.connection, [email("k-1"), email("k-2")])
