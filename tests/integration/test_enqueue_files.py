"""The files of an email: written with it on every kind of connection, once however many emails have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import event, func, select, text, update

from posthouse.attachment import Attachment
from posthouse.email import Email
from posthouse.errors import KeyReused
from posthouse.store.blobs import PART_BYTES, REUSE_S
from posthouse.store.database import Database
from posthouse.store.schema import blob_parts, blob_uses, blobs
from posthouse.store.store import Store
from tests.contract.store_support import email, outbox
from tests.integration.async_callers import ASYNC_KINDS
from tests.integration.enqueue_callers import KINDS, Caller, keys, mysql_parts, pymysql_connection

EVERY_BYTE = bytes(range(256)) * 9 + b"%s %(a)s ? :b \\' \\\" '' \\x00"
LARGE = EVERY_BYTE * (5 * PART_BYTES // 2 // len(EVERY_BYTE)) + b"end"
"""More than two parts."""

LOGO = Attachment(EVERY_BYTE, "logo.png", content_id="logo")
FILES = [LOGO, Attachment(LARGE, "large.bin"), Attachment(b"", "empty.txt")]
RAW = b"From: shop@example.com\r\nTo: ada@example.com\r\nSubject: Hi\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n"

DRIVERS = pytest.mark.parametrize("driver", ["pymysql", "mysqlclient"])


def with_files(key: str, *files: Attachment, **fields: Any) -> Email:
    return email(key, attachments=files or FILES, **fields)


def enqueue(database: Database, *emails: Email) -> list[int]:
    with database.write() as connection:
        return [stored.id for stored in outbox(database.clock).enqueue_many(connection, emails)]


def read(store: Store, key: str, *bodies: bytes) -> list[bytes | None]:
    """What a worker would read of these files."""
    digests = [sha256(body).hexdigest() for body in bodies]
    found = store.blobs.read(store.ledger.story(key).send["id"], digests)
    return [found.get(digest) for digest in digests]


def counts(store: Store) -> tuple[int, int, int]:
    """How many blobs, parts and uses there are."""
    with store.database.read() as connection:
        found = [
            connection.scalar(select(func.count()).select_from(table)) or 0 for table in (blobs, blob_parts, blob_uses)
        ]
    return found[0], found[1], found[2]


def make_older(database: Database, seconds: float) -> None:
    """As if all blobs had been written so much earlier."""
    with database.write() as connection:
        for id_, created_at in connection.execute(select(blobs.c.id, blobs.c.created_at)).all():
            connection.execute(update(blobs).where(blobs.c.id == id_).values(created_at=created_at - seconds))


# Every kind of connection.


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_comes_back_whatever_the_connection(database_url: str, store: Store, kind: str) -> None:
    with KINDS[kind](database_url) as caller:
        outbox().enqueue(caller.connection, with_files("one"))
        outbox().enqueue_many(caller.connection, [with_files("two"), Email(key="raw", type="receipt", raw=RAW)])
        caller.commit()

    for key in ("one", "two"):
        assert read(store, key, EVERY_BYTE, LARGE, b"") == [EVERY_BYTE, LARGE, b""]
    assert read(store, "raw", RAW) == [RAW]
    assert counts(store) == (4, 5, 7)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_rolled_back_leaves_no_byte(database_url: str, store: Store, kind: str) -> None:
    with KINDS[kind](database_url) as caller:
        outbox().enqueue(caller.connection, with_files("one"))
        outbox().enqueue_many(caller.connection, [with_files("two"), email("three")])
        caller.rollback()

    assert (keys(store), counts(store)) == ([], (0, 0, 0))


@pytest.mark.parametrize(("database_url", "kind"), ASYNC_KINDS, indirect=["database_url"])
async def test_every_byte_comes_back_whatever_is_awaited(database_url: str, store: Store, kind: Any) -> None:
    async with kind(database_url) as caller:
        await outbox().enqueue_async(caller.connection, with_files("one"))
        await caller.commit()

    assert read(store, "one", EVERY_BYTE, LARGE, b"") == [EVERY_BYTE, LARGE, b""]
    assert counts(store) == (3, 4, 3)


@DRIVERS
@pytest.mark.parametrize("database_url", ["mysql"], indirect=True)
@pytest.mark.parametrize("charset", ["utf8mb4", "latin1", "gbk"])
def test_no_character_set_of_a_connection_changes_a_byte(
    database_url: str, store: Store, driver: str, charset: str
) -> None:
    with closing(_connect(driver, database_url, charset=charset)) as connection:
        outbox().enqueue(connection, with_files("k"))
        connection.commit()

    assert read(store, "k", EVERY_BYTE, LARGE, b"") == [EVERY_BYTE, LARGE, b""]


@pytest.mark.parametrize("database_url", ["mysql"], indirect=True)
@pytest.mark.parametrize("sql_mode", ["", "ANSI,NO_BACKSLASH_ESCAPES,TRADITIONAL"])
def test_no_sql_mode_of_a_connection_changes_a_byte(database_url: str, store: Store, sql_mode: str) -> None:
    with closing(pymysql_connection(database_url, init_command=f"SET sql_mode = '{sql_mode}'")) as connection:
        outbox().enqueue(connection, with_files("k"))
        connection.commit()

    assert read(store, "k", EVERY_BYTE, LARGE, b"") == [EVERY_BYTE, LARGE, b""]


def _connect(driver: str, url: str, **options: Any) -> Any:
    if driver == "pymysql":
        return pymysql_connection(url, **options)
    mysqldb = pytest.importorskip("MySQLdb", reason="mysqlclient is not installed")
    return mysqldb.connect(**mysql_parts(url), **options)


@pytest.mark.parametrize("database_url", ["mysql"], indirect=True)
def test_a_file_may_be_larger_than_what_the_server_takes_at_once(database: Database, store: Store) -> None:
    with database.read() as connection:
        packet = connection.scalar(text("SELECT @@max_allowed_packet")) or 0
    body = bytes(range(251)) * ((packet + 4 * 1024 * 1024) // 251)

    enqueue(database, with_files("k", Attachment(body, "film.mp4")))

    assert len(body) > packet
    assert read(store, "k", body) == [body]


# Once, however many emails have it.


@pytest.fixture
def statements(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """Every statement, with its parameters."""
    seen: list[tuple[str, Any]] = []

    def see(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        seen.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", see)
    yield seen
    event.remove(database.engine, "before_cursor_execute", see)


def test_an_email_without_files_asks_nothing_about_files(database: Database, statements: list[tuple[str, Any]]) -> None:
    enqueue(database, email("one"))
    enqueue(database, email("two"), email("three"))

    assert statements
    assert not [statement for statement, _ in statements if "blob" in statement]


def test_a_thousand_emails_with_the_same_file_store_it_once(
    database: Database, store: Store, statements: list[tuple[str, Any]]
) -> None:
    enqueue(database, *(with_files(f"k{number}", LOGO) for number in range(1000)))
    written = len(statements)

    assert counts(store) == (1, 1, 1000)
    assert read(store, "k999", EVERY_BYTE) == [EVERY_BYTE]
    assert written <= 20


def test_one_file_twice_in_one_email_is_stored_once(database: Database, store: Store) -> None:
    enqueue(database, with_files("k", LOGO, Attachment(EVERY_BYTE, "again.png")))

    assert counts(store) == (1, 1, 1)


def test_a_later_email_uses_the_file_of_an_earlier_one_of_the_same_day(database: Database, store: Store) -> None:
    enqueue(database, with_files("first"))
    make_older(database, REUSE_S - 600)
    enqueue(database, with_files("second", LOGO, Attachment(b"another")))
    assert counts(store) == (4, 5, 5)

    make_older(database, 700)
    enqueue(database, with_files("third", LOGO))

    assert counts(store) == (5, 6, 6), "after a day it might be on its way out, and is written anew"
    assert read(store, "second", EVERY_BYTE, b"another") == [EVERY_BYTE, b"another"]
    assert read(store, "third", EVERY_BYTE) == [EVERY_BYTE]


def test_a_transaction_uses_the_files_that_it_has_written_itself(database: Database, store: Store) -> None:
    with database.write() as connection:
        outbox(database.clock).enqueue(connection, with_files("one", LOGO))
        outbox(database.clock).enqueue(connection, with_files("two", LOGO))

    assert counts(store) == (1, 1, 2)


def test_an_email_that_was_written_before_writes_no_file_again(database: Database, store: Store) -> None:
    enqueue(database, with_files("k"))
    before = counts(store)
    make_older(database, 2 * REUSE_S)

    enqueue(database, with_files("k"))
    enqueue(database, with_files("k"), with_files("k"), email("new"))

    assert counts(store) == before


def test_of_the_same_email_twice_in_one_call_the_files_are_used_once(database: Database, store: Store) -> None:
    enqueue(database, with_files("k", LOGO), with_files("k", LOGO))

    assert counts(store) == (1, 1, 1)


def test_another_file_under_a_used_key_is_refused(database: Database, store: Store) -> None:
    enqueue(database, with_files("k", Attachment(b"one", "invoice.pdf")))

    with database.write() as connection:
        with pytest.raises(KeyReused):
            outbox().enqueue(connection, with_files("k", Attachment(b"two", "invoice.pdf")))
        with pytest.raises(KeyReused):
            outbox().enqueue_many(connection, [with_files("new"), with_files("k", Attachment(b"two", "invoice.pdf"))])

    assert (keys(store), counts(store)) == (["k"], (1, 1, 1))


def test_a_file_that_cannot_be_written_takes_its_email_back_and_nothing_else(database: Database, store: Store) -> None:
    class CutOff(Exception):
        pass

    def cut_off(_c: Any, _cursor: Any, statement: str, _parameters: Any, _context: Any, _many: bool) -> None:
        if "email_blob_parts" in statement:
            raise CutOff

    with database.write() as connection:
        outbox().enqueue(connection, email("before"))
        event.listen(connection, "before_cursor_execute", cut_off)
        with pytest.raises(CutOff):
            outbox().enqueue(connection, with_files("k"))
        event.remove(connection, "before_cursor_execute", cut_off)

    assert (keys(store), counts(store)) == (["before"], (0, 0, 0))


def test_the_content_names_the_files_and_holds_no_byte_of_them(database: Database, store: Store) -> None:
    enqueue(database, with_files("k", LOGO, Attachment(LARGE, "large.bin")))

    content = json.loads(store.ledger.story("k").body or "")
    assert [(file["filename"], file["size"]) for file in content["attachments"]] == [
        ("logo.png", len(EVERY_BYTE)),
        ("large.bin", len(LARGE)),
    ]
    assert len(store.ledger.story("k").body or "") < 1000


# Nobody waits for anybody.


@pytest.mark.parametrize("database_url", ["postgresql", "mysql"], indirect=True)
def test_two_transactions_that_bring_the_same_new_files_in_opposite_order_wait_for_nothing(
    database_url: str, store: Store
) -> None:
    one, other = Attachment(b"one", "one.txt"), Attachment(b"other", "other.txt")
    # Both in this one thread: whoever waited for the other one would wait for ever.
    with KINDS["driver"](database_url) as first, KINDS["driver"](database_url) as second:
        _give_up_waiting(first)
        _give_up_waiting(second)
        outbox().enqueue(first.connection, with_files("a", one))
        outbox().enqueue(second.connection, with_files("b", other))
        outbox().enqueue(first.connection, with_files("c", other))
        outbox().enqueue(second.connection, with_files("d", one))
        first.commit()
        second.commit()

    assert [read(store, key, b"one", b"other") for key in "abcd"] == [
        [b"one", None],
        [None, b"other"],
        [None, b"other"],
        [b"one", None],
    ]
    assert counts(store) == (4, 4, 4), "each wrote its own"


def _give_up_waiting(caller: Caller) -> None:
    mysql = "pymysql" in type(caller.connection).__module__
    caller.execute("SET SESSION innodb_lock_wait_timeout = 1" if mysql else "SET lock_timeout = '1s'")
