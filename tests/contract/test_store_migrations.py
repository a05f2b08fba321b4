"""Migrations: from nothing to the tables of this release, however often and by however many at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError

from posthouse.errors import DatabaseUnavailable, SchemaError
from posthouse.store import migrate as migrations
from posthouse.store.database import Database, open_database
from posthouse.store.migrate import VERSION_TABLE, check, head, migrate, version, versions
from posthouse.store.schema import metadata, metadata_of
from posthouse.store.store import Store
from tests.contract.store_support import Bench, race

NewUrl = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> NewUrl:
    """The URL of one more database without any table."""
    if request.param != "sqlite":
        return partial(request.getfixturevalue(request.param).create, migrated=False)
    numbers = iter(range(99))
    return lambda: f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"


@pytest.fixture
def empty(new_url: NewUrl) -> Iterator[Database]:
    """A database without any table."""
    with closing(open_database(new_url(), time.time)) as database:
        yield database


def execute(database: Database, sql: str) -> None:
    with database.write() as connection:
        connection.execute(text(sql))


def migrate_to(database: Database, revision: str) -> None:
    """The tables of an earlier release."""
    with migrations._migrating(database) as connection:
        config = migrations._alembic()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


FIRST_SEND = """
INSERT INTO email_sends
    (dedupe_key, fingerprint, idempotency_key, type, lane, to_address, recipients, status,
     next_try_at, expires_at, created_at, updated_at)
VALUES
    ('k', 'f', 'ik-old', 'receipt', 'receipt', 'ada@example.com', '["ada@example.com"]', 'pending',
     '2026-01-01 00:00:00', '2036-01-01 00:00:00', '2026-01-01 00:00:00', '2026-01-01 00:00:00')
"""
"""A send as the first release wrote it."""


def definitions(database: Database) -> set[tuple[Any, ...]]:
    """Every table, column, index and constraint of ours, as the database itself describes it."""
    if database.is_sqlite:
        # By its effect, not by its text: the column and constraint lists in CREATE TABLE stand in another order.
        queries = [
            'SELECT m.name, c.name, c.type, c."notnull", c.dflt_value, c.pk FROM sqlite_master m, '
            "pragma_table_info(m.name) c WHERE m.type = 'table'",
            "SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
            'SELECT m.name, i."unique", i.origin, group_concat(c.name) FROM sqlite_master m, '
            "pragma_index_list(m.name) i, pragma_index_info(i.name) c WHERE m.type = 'table' GROUP BY m.name, i.name",
            "SELECT name, 'autoincrement' FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'",
        ]
    elif database.dialect == "mysql":
        queries = [
            "SELECT table_name, column_name, column_type, is_nullable, column_default, collation_name, extra "
            "FROM information_schema.columns WHERE table_schema = database()",
            "SELECT table_name, index_name, non_unique, seq_in_index, column_name "
            "FROM information_schema.statistics WHERE table_schema = database()",
            "SELECT table_name, engine, table_collation FROM information_schema.tables WHERE table_schema = database()",
        ]
    else:
        queries = [
            "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default "
            "FROM information_schema.columns WHERE table_schema = 'public'",
            "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE connamespace = 'public'::regnamespace",
        ]
    with database.read() as connection:
        rows = [tuple(row) for query in queries for row in connection.execute(text(query))]
    return {row for row in rows if row[0].startswith("email_") and row[0] != VERSION_TABLE}


def test_a_new_database_gets_every_table_and_this_releases_version(empty: Database) -> None:
    assert version(empty) is None

    assert migrate(empty) == head()

    assert version(empty) == head()
    check(empty)
    with empty.read() as connection:
        names = set(inspect(connection).get_table_names())
    assert names - {"sqlite_sequence"} == {*metadata.tables, VERSION_TABLE}


def test_the_versions_and_the_last_of_them_are_what_alembic_finds_in_the_files() -> None:
    scripts = ScriptDirectory.from_config(migrations._alembic())

    assert versions() == [script.revision for script in reversed(list(scripts.walk_revisions()))]
    assert head() == scripts.get_current_head()


def test_the_tables_version_is_what_alembic_reads_there(empty: Database) -> None:
    for bring in (lambda: None, lambda: migrate_to(empty, "0001"), lambda: migrate(empty)):
        bring()

        with empty.read() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert version(empty) == context.get_current_revision()


def test_migrating_leads_to_what_the_models_say(empty: Database) -> None:
    migrate(empty)

    with empty.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata_of(empty.dialect)) == []


def test_migrating_leads_to_the_very_tables_and_partial_indexes_of_the_models(new_url: NewUrl) -> None:
    with (
        closing(open_database(new_url(), time.time)) as migrated,
        closing(open_database(new_url(), time.time)) as created,
    ):
        migrate(migrated)
        with created.write() as connection:
            metadata_of(created.dialect).create_all(connection)

        assert definitions(migrated) == definitions(created)
        assert migrated.dialect == "mysql" or any("'pending'" in str(row) for row in definitions(migrated))


def test_migrating_again_changes_nothing_and_loses_nothing(empty: Database) -> None:
    migrate(empty)
    bench = Bench(Store(empty))
    bench.enqueue("k")
    before = definitions(empty), bench.row("k")

    assert migrate(empty) == head()

    assert (definitions(empty), bench.row("k")) == before


def test_the_first_releases_sends_are_sent_by_this_one(empty: Database) -> None:
    migrate_to(empty, "0001")
    execute(empty, FIRST_SEND)

    assert migrate(empty) == head()

    check(empty)
    (claimed,) = Bench(Store(empty)).claim()
    assert (claimed.key, claimed.idempotency_key) == ("k", "ik-old")


@pytest.mark.parametrize("new_url", ["mysql"], indirect=True)
def test_an_upgrade_that_was_interrupted_between_two_steps_goes_on_from_there(new_url: NewUrl) -> None:
    with (
        closing(open_database(new_url(), time.time)) as whole,
        closing(open_database(new_url(), time.time)) as interrupted,
    ):
        migrate(whole)
        migrate(interrupted)
        execute(interrupted, "DROP TABLE email_blob_parts, email_blob_uses")
        execute(interrupted, "DROP INDEX email_blobs_digest ON email_blobs")
        execute(interrupted, f"UPDATE {VERSION_TABLE} SET version_num = '0001'")

        assert migrate(interrupted) == head()

        assert definitions(interrupted) == definitions(whole)


def test_several_may_migrate_at_once(new_url: NewUrl) -> None:
    url = new_url()
    databases = [open_database(url, time.time) for _ in range(6)]

    assert race([partial(migrate, database) for database in databases]) == [head()] * 6

    check(databases[0])
    for database in databases:
        database.close()


def test_several_may_open_a_new_sqlite_file_at_once(tmp_path: Path) -> None:
    for number in range(100):  # of a hundred, five or so come to the change of the journal at the very same time
        url = f"sqlite:///{tmp_path / f'new-{number}.db'}"
        databases = [open_database(url, time.time) for _ in range(6)]

        assert race([partial(version, database) for database in databases]) == [None] * 6

        for database in databases:
            database.close()


def test_a_migration_that_fails_leaves_nothing_behind(empty: Database) -> None:
    execute(empty, "CREATE TABLE email_workers (id integer)")  # in the way

    with pytest.raises((DatabaseUnavailable, DBAPIError), match="already exists"):
        migrate(empty)

    assert version(empty) is None
    if empty.dialect == "mysql":  # it commits every table by itself: the next migration goes on from there
        execute(empty, "DROP TABLE email_workers")
        assert migrate(empty) == head()
        return
    with empty.read() as connection:
        assert set(inspect(connection).get_table_names()) == {"email_workers"}


def test_the_applications_own_migrations_are_left_alone(empty: Database) -> None:
    execute(empty, "CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)")
    execute(empty, "INSERT INTO alembic_version VALUES ('the-apps-own')")
    execute(empty, "CREATE TABLE orders (id integer)")

    migrate(empty)

    with empty.read() as connection:
        assert connection.scalars(text("SELECT version_num FROM alembic_version")).all() == ["the-apps-own"]
        assert "orders" in inspect(connection).get_table_names()


def test_a_database_without_tables_is_refused_with_the_way_out(empty: Database) -> None:
    with pytest.raises(SchemaError, match="no Posthouse tables; run: posthouse migrate"):
        check(empty)


def test_tables_of_an_older_release_are_refused_with_the_way_out(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(empty)
    found = head()
    monkeypatch.setattr(migrations, "head", lambda: "9999")

    with pytest.raises(SchemaError, match=f"at version {found}, this release needs 9999; run: posthouse migrate"):
        check(empty)


def test_tables_of_a_newer_release_are_refused_with_the_way_out(empty: Database) -> None:
    migrate(empty)
    execute(empty, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")

    with pytest.raises(
        SchemaError, match=f"at version 9999, newer than this release \\({head()}\\); upgrade posthouse"
    ):
        check(empty)


def test_a_migration_refuses_tables_of_a_newer_release(empty: Database) -> None:
    migrate(empty)
    execute(empty, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")

    with pytest.raises(SchemaError, match="newer than this release"):
        migrate(empty)


def test_the_store_says_what_to_do_when_its_tables_are_missing(empty: Database) -> None:
    store = Store(empty)

    for call in (store.queue.due_lanes, store.ledger.open_counts, lambda: store.control.register("here", 1, "test")):
        with pytest.raises(SchemaError, match="posthouse migrate"):
            call()


def test_the_store_says_what_to_do_when_a_column_is_missing(empty: Database) -> None:
    migrate(empty)
    execute(empty, "ALTER TABLE email_workers DROP COLUMN version")
    control = Store(empty).control

    for call in (control.workers, lambda: control.register("here", 1, "test")):
        with pytest.raises(SchemaError, match="posthouse migrate"):
            call()


def test_a_server_that_is_not_there_is_an_unavailable_database_not_a_missing_table(tmp_path: Path) -> None:
    for url in (
        f"sqlite:///{tmp_path}/no/such/folder/x.db",
        "postgresql://nobody@127.0.0.1:1/nothing",
        "mysql://nobody@127.0.0.1:1/nothing",
    ):
        with closing(open_database(url, time.time)) as database, pytest.raises(DatabaseUnavailable):
            version(database)
