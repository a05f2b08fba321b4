"""What is particular to MariaDB and MySQL: which servers will do, how sessions are set, which errors mean what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pymysql
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import ProgrammingError as SqlProgrammingError

from posthouse.errors import ConfigError, DatabaseUnavailable, SchemaError
from posthouse.store.database import Database, open_database, translate
from posthouse.store.migrate import check, migrate
from posthouse.store.mysql import refuse_old_server, server_of
from posthouse.store.store import Store
from tests.contract.store_support import CODE, LONG_S, ROUTES, Bench, Pause, accepted, email, outbox, race, report

on_mysql = pytest.mark.parametrize("database_url", ["mysql"], indirect=True)

GOOD = [
    "10.6.0-MariaDB",
    "10.11.6-MariaDB-0+deb12u1-log",
    "5.5.5-10.11.6-MariaDB",
    "11.8.2-MariaDB",
    "8.0.14",
    "8.0.36-0ubuntu0.22.04.1",
    "8.4.3",
    "9.1.0",
]
OLD = {
    "10.5.27-MariaDB": "MariaDB 10.5.27 is too old",
    "5.5.5-10.3.39-MariaDB-log": "MariaDB 10.3.39 is too old",
    "5.7.44-log": "MySQL 5.7.44 is too old",
    "8.0.11": "MySQL 8.0.11 is too old",
    "something else": "of an unknown version is too old",
}


@pytest.mark.parametrize("version", GOOD)
def test_a_server_that_can_pass_by_locked_rows_will_do(version: str) -> None:
    refuse_old_server(version)


@pytest.mark.parametrize("version", OLD)
def test_an_older_server_is_refused_with_what_is_needed(version: str) -> None:
    with pytest.raises(ConfigError, match=OLD[version]) as refused:
        refuse_old_server(version)

    assert "SKIP LOCKED" in str(refused.value)
    assert "MariaDB 10.6 or MySQL 8.0.14" in str(refused.value)


def test_mariadb_and_mysql_are_told_apart() -> None:
    assert server_of("10.11.6-MariaDB").is_mariadb
    assert not server_of("8.0.36").is_mariadb


@on_mysql
def test_an_old_server_is_refused_by_the_worker_and_by_migrate(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.store.migrate._MYSQL_VERSION", text("SELECT '5.7.44'"))

    for start in (check, migrate):
        with pytest.raises(ConfigError, match=r"MySQL 5\.7\.44 is too old"):
            start(database)


@on_mysql
def test_our_sessions_are_in_utc_strict_and_never_wait_for_long(database: Database) -> None:
    names = ("time_zone", "sql_mode", "innodb_lock_wait_timeout", "lock_wait_timeout", "character_set_client")
    with database.write() as connection:
        values = [connection.scalar(text(f"SELECT @@session.{name}")) for name in names]

    assert values[0] == "+00:00"
    assert "STRICT_ALL_TABLES" in str(values[1])
    assert values[2:] == [5, 5, "utf8mb4"]


@on_mysql
def test_a_statement_that_takes_too_long_is_ended_and_is_an_unavailable_database(database: Database) -> None:
    def take_long() -> None:
        with database.write() as connection:
            mariadb = getattr(connection.dialect, "is_mariadb", False)
            limit = "max_statement_time = 0.05" if mariadb else "max_execution_time = 50"
            connection.execute(text(f"SET SESSION {limit}"))
            connection.execute(text("SELECT count(*) FROM information_schema.columns a, information_schema.columns b"))

    with pytest.raises(DatabaseUnavailable):
        take_long()


@pytest.mark.parametrize("url", ["mysql://u@127.0.0.1/x", "mariadb://u@127.0.0.1/x", "mariadb+pymysql://u@h/x"])
def test_either_name_in_the_url_means_the_same_store(url: str) -> None:
    database = open_database(url, lambda: 0.0)

    assert (database.dialect, database.engine.driver) == ("mysql", "pymysql")


def test_mysqlclient_is_used_when_it_is_named() -> None:
    pytest.importorskip("MySQLdb", reason="mysqlclient is not installed")

    assert open_database("mysql+mysqldb://u@127.0.0.1/x", lambda: 0.0).engine.driver == "mysqldb"


def test_a_driver_that_nobody_tested_is_refused() -> None:
    with pytest.raises(ConfigError, match="driver mysqlconnector is not supported"):
        open_database("mysql+mysqlconnector://u@127.0.0.1/x", lambda: 0.0)


def _error(number: int) -> DBAPIError:
    return OperationalError("SELECT 1", None, pymysql.err.OperationalError(number, "said"))


@pytest.mark.parametrize("number", [1040, 1205, 1213, 1290, 1969, 2003, 2006, 2013, 3024])
def test_deadlocks_lost_connections_and_time_limits_are_an_unavailable_database_so_that_loops_try_again(
    number: int,
) -> None:
    assert isinstance(translate(_error(number)), DatabaseUnavailable)


@pytest.mark.parametrize("number", [1054, 1146])
def test_a_missing_table_or_column_names_the_way_out(number: int) -> None:
    assert isinstance(translate(_error(number)), SchemaError)


@pytest.mark.parametrize("number", [1050, 1064, 1142, 1366, 1406])
def test_a_statement_that_is_wrong_is_no_reason_to_try_again(number: int) -> None:
    error = _error(number)

    assert translate(error) is error
    wrong = SqlProgrammingError("SELECT 1", None, pymysql.err.ProgrammingError(number, "said"))
    assert translate(wrong) is wrong


@on_mysql
def test_a_claim_waits_for_no_other_claim_and_gets_other_rows(
    bench: Bench, open_another: Callable[[], Database]
) -> None:
    ids = bench.put(20)
    other = Store(open_another())
    pause = Pause(other.database)

    with pause.running(lambda: other.queue.claim("receipt", 8, 7, bench.now, ROUTES)) as claiming:
        # The other's rows are locked until it commits; waiting for them would end in the lock time-out.
        mine = [send.state.id for send in bench.claim(8)]
        pause.go()
        theirs = [send.state.id for send in claiming.result(LONG_S)]

    assert (theirs, mine) == (ids[:8], ids[8:16])


@on_mysql
def test_nothing_waits_for_what_an_application_has_not_committed(
    bench: Bench, open_another: Callable[[], Database]
) -> None:
    # A table as small as this is where a server is tempted to walk it, and to lock all of it.
    bench.enqueue("k", type="one-time-code")
    with open_another().engine.begin() as applications:
        applications.execute(text("INSERT INTO email_contents (send_id, body) VALUES (999999, '{}')"))
        outbox().enqueue(applications, email("theirs", type="one-time-code"))

        claimed = bench.claim_one("one-time-code")
        bench.settle(report(claimed, accepted(), bench.now, policy=CODE))
        applications.rollback()

    story = bench.store.ledger.story("k")
    assert (story.send["status"], story.body) == ("accepted", None)


@on_mysql
def test_several_workers_claim_and_settle_at_once_without_a_deadlock(
    bench: Bench, open_another: Callable[[], Database]
) -> None:
    bench.put(400)
    stores = [Store(open_another()) for _ in range(4)]

    def drain(store: Store, worker: int) -> int:
        sent = 0
        while claimed := store.queue.claim("receipt", 20, worker, bench.now, ROUTES):
            store.queue.settle([report(send.state, accepted(), bench.now) for send in claimed], worker, bench.now)
            sent += len(claimed)
        return sent

    assert sum(race([partial(drain, store, 100 + n) for n, store in enumerate(stores)])) == 400
