"""Enqueue on connections to MariaDB and MySQL as applications have set them up."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pymysql
import pymysql.cursors
import pytest
from sqlalchemy import text

from posthouse.errors import KeyReused, UnsupportedConnection
from posthouse.store.store import Store
from tests.contract.store_support import LONG_S, email, outbox, wait_until_blocked
from tests.integration.enqueue_callers import (
    keys,
    make_orders,
    mysql_parts,
    mysqlclient,
    orders,
    pymysql_connection,
)

pytestmark = pytest.mark.parametrize("database_url", ["mysql"], indirect=True)


def test_mysqlclient_shares_the_fate_of_its_transaction(database_url: str, store: Store) -> None:
    make_orders(database_url)
    with mysqlclient(database_url) as caller:
        caller.order(1)
        first = outbox().enqueue(caller.connection, email("kept", text="Grüße 📬"))
        with pytest.raises(KeyReused):
            outbox().enqueue_many(caller.connection, [email("gone"), email("kept", text="another")])
        outbox().enqueue_many(caller.connection, [email("kept-📬"), email("KEPT")])
        caller.commit()
        caller.order(2)
        outbox().enqueue(caller.connection, email("gone"))
        caller.rollback()
        again = outbox().enqueue(caller.connection, email("kept", text="Grüße 📬"))

    assert (again.id, first.created, again.created) == (first.id, True, False)
    assert keys(store) == ["KEPT", "kept", "kept-📬"]
    assert "Grüße 📬" in (store.ledger.story("kept").body or "")
    assert orders(database_url) == [1]


def _connect(driver: str, url: str, **options: Any) -> Any:
    if driver == "pymysql":
        return pymysql_connection(url, **options)
    mysqldb = pytest.importorskip("MySQLdb", reason="mysqlclient is not installed")
    return mysqldb.connect(**mysql_parts(url), **options)


DRIVERS = pytest.mark.parametrize("driver", ["pymysql", "mysqlclient"])


@DRIVERS
def test_a_connection_in_autocommit_is_taken_in_a_transaction_only(
    database_url: str, store: Store, driver: str
) -> None:
    with closing(_connect(driver, database_url, autocommit=True)) as connection:
        with pytest.raises(UnsupportedConnection, match="autocommit mode and no transaction is open"):
            outbox().enqueue(connection, email("refused"))
        connection.begin()
        outbox().enqueue(connection, email("kept"))
        connection.commit()
        connection.begin()
        outbox().enqueue_many(connection, [email("gone-1"), email("gone-2")])
        connection.rollback()

    assert keys(store) == ["kept"]


@DRIVERS
@pytest.mark.parametrize("charset", ["utf8mb4", "utf8mb3", "latin1"])
def test_the_character_set_of_the_callers_connection_loses_nothing(
    database_url: str, store: Store, driver: str, charset: str
) -> None:
    emails = [
        email(f"{name}-ключ-📬", to="Ädä 📬 <ada@exämple.com>", text="Grüße 📬", tags=["📬"], metadata={"ключ": "📬"})
        for name in ("one", "two", "three")
    ]
    options = {"charset": "utf8" if (driver, charset) == ("pymysql", "utf8mb3") else charset}
    with closing(_connect(driver, database_url, **options)) as connection:
        first = outbox().enqueue(connection, emails[0])
        outbox().enqueue_many(connection, emails)
        again = outbox().enqueue(connection, emails[0])
        connection.commit()

    assert (first.created, again.created, again.id) == (True, False, first.id)
    assert keys(store) == sorted(one.key for one in emails)
    story = store.ledger.story("two-ключ-📬")
    assert (story.send["tags"], story.send["metadata"]) == ('["📬"]', '{"ключ": "📬"}')
    assert "Grüße 📬" in (story.body or "")
    assert "Ädä 📬" in (story.body or "")


@DRIVERS
def test_the_sessions_time_zone_of_the_caller_moves_nothing(database_url: str, store: Store, driver: str) -> None:
    moment = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
    with closing(_connect(driver, database_url, init_command="SET time_zone = '+09:00'")) as connection:
        outbox().enqueue(connection, email("k", send_at=moment))
        outbox().enqueue(connection, email("now"))
        connection.commit()

    assert store.ledger.story("k").send["next_try_at"] == moment.timestamp()
    send = store.ledger.story("now").send
    assert [send["next_try_at"], send["created_at"]] == pytest.approx([time.time()] * 2, abs=5)


@pytest.mark.parametrize("sql_mode", ["", "ANSI,NO_BACKSLASH_ESCAPES,TRADITIONAL"])
def test_the_sql_mode_of_the_caller_changes_nothing(database_url: str, store: Store, sql_mode: str) -> None:
    awkward = "it's \"quoted\" \\n \\' 100 % 📬"
    with closing(pymysql_connection(database_url, init_command=f"SET sql_mode = '{sql_mode}'")) as connection:
        outbox().enqueue_many(connection, [email(f"k\\'{n}", text=awkward, tags=['"\\']) for n in range(3)])
        connection.commit()

    assert len(keys(store)) == 3
    story = store.ledger.story("k\\'1")
    assert story.send["tags"] == '["\\"\\\\"]'
    assert 'it\'s \\"quoted\\"' in (story.body or "")


def test_a_connection_may_have_its_own_kind_of_cursor(database_url: str, store: Store) -> None:
    with closing(pymysql_connection(database_url, cursorclass=pymysql.cursors.SSDictCursor)) as connection:
        first = outbox().enqueue(connection, email("k"))
        again = outbox().enqueue(connection, email("k"))
        connection.commit()

    assert (first.id, again.created, keys(store)) == (again.id, False, ["k"])


def test_a_cursor_is_refused(database_url: str) -> None:
    with (
        closing(pymysql_connection(database_url)) as connection,
        pytest.raises(UnsupportedConnection, match="Cursor"),
    ):
        outbox().enqueue(connection.cursor(), email("k"))


def test_a_snapshot_taken_before_somebody_elses_commit_hides_no_used_key(database_url: str, store: Store) -> None:
    with closing(pymysql_connection(database_url)) as connection:
        with connection.cursor() as cursor:
            # From 11.6.2 on MariaDB refuses such a transaction instead, as PostgreSQL does.
            cursor.execute("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")
            if cursor.fetchall():
                cursor.execute("SET SESSION innodb_snapshot_isolation = OFF")
            cursor.execute("SELECT count(*) FROM email_sends")
        with store.database.write() as other:
            theirs = outbox().enqueue(other, email("k"))

        mine = outbox().enqueue(connection, email("k"))
        with pytest.raises(KeyReused):
            outbox().enqueue(connection, email("k", text="another"))
        connection.commit()

    assert (mine.id, mine.created) == (theirs.id, False)


@pytest.fixture
def new_index(store: Store) -> None:
    """What earlier tests deleted stands in the index for a while, marked, and InnoDB locks it as if it were there."""
    with store.database.write() as connection:
        connection.execute(text("TRUNCATE TABLE email_sends"))


@pytest.mark.usefixtures("new_index")
def test_an_open_transaction_keeps_nobody_elses_new_keys_waiting(database_url: str, store: Store) -> None:
    with closing(pymysql_connection(database_url)) as first:
        outbox().enqueue(first, email("m"))
        outbox().enqueue_many(first, [email("k"), email("t")])
        with store.database.write() as other:  # its lock time-out is 5 s
            for key in ("a", "l", "n", "z"):
                assert outbox().enqueue(other, email(key)).created
            assert outbox().enqueue_many(other, [email("b"), email("s"), email("zz")])[2].created
        first.commit()

    assert keys(store) == ["a", "b", "k", "l", "m", "n", "s", "t", "z", "zz"]


@pytest.mark.usefixtures("new_index")
def test_a_writer_that_waits_for_a_key_keeps_nobody_else_waiting(database_url: str, store: Store) -> None:
    def late() -> bool:
        with closing(pymysql_connection(database_url)) as third:
            created = outbox().enqueue_many(third, [email("before"), email("k")])[1].created
            third.commit()
            return created

    with ThreadPoolExecutor(1) as thread, closing(pymysql_connection(database_url)) as first:
        outbox().enqueue(first, email("k"))
        waiting = thread.submit(late)
        try:
            wait_until_blocked(store.database.engine)
            # Keys that sort after it: InnoDB keeps the gap before a key that is waited for.
            with store.database.write() as other:  # its lock time-out is 5 s
                assert outbox().enqueue(other, email("other")).created
                assert outbox().enqueue_many(other, [email("more-1"), email("more-2")])[1].created
        finally:
            first.commit()
        assert not waiting.result(LONG_S)

    assert keys(store) == ["before", "k", "more-1", "more-2", "other"]
