"""`enqueue_async` on every kind of async connection: the email shares the fate of the caller's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from posthouse.email import Email
from posthouse.errors import InvalidEmail, KeyReused, SchemaError
from posthouse.outbox import Enqueued
from posthouse.store.database import Database
from posthouse.store.store import Store
from tests.contract.store_support import email, outbox, wait_until_blocked
from tests.integration.async_callers import ASYNC_KINDS, AsyncCaller, psycopg_async
from tests.integration.enqueue_callers import keys, make_orders, orders

IDS = [f"{name}-{kind.__name__}" for name, kind in ASYNC_KINDS]
every_kind = pytest.mark.parametrize(("database_url", "caller"), ASYNC_KINDS, indirect=True, ids=IDS)


@pytest_asyncio.fixture
async def caller(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[AsyncCaller]:
    """The application's connection, with its transaction begun."""
    make_orders(database_url)
    async with request.param(database_url) as caller:
        yield caller


async def enqueue(caller: AsyncCaller, key: str, **fields: Any) -> Enqueued:
    return await outbox().enqueue_async(caller.connection, email(key, **fields))


async def enqueue_many(caller: AsyncCaller, *emails: Email) -> list[Enqueued]:
    return await outbox().enqueue_many_async(caller.connection, emails)


# Commit and rollback.


@every_kind
async def test_an_email_exists_when_the_callers_transaction_commits(
    caller: AsyncCaller, store: Store, database_url: str
) -> None:
    await caller.order(1)
    enqueued = await enqueue(caller, "order-1", text="Grüße 📬")
    assert keys(store) == []

    await caller.commit()

    story = store.ledger.story("order-1")
    assert (enqueued.id, enqueued.key, enqueued.created) == (story.send["id"], "order-1", True)
    assert "Grüße 📬" in (story.body or "")
    assert orders(database_url) == [1]


@every_kind
async def test_an_email_never_existed_when_the_callers_transaction_rolls_back(
    caller: AsyncCaller, store: Store, database_url: str
) -> None:
    await enqueue(caller, "order-1")
    await caller.order(1)
    await enqueue_many(caller, email("order-2"), email("order-3"))

    await caller.rollback()

    assert (keys(store), orders(database_url)) == ([], [])


@every_kind
async def test_many_emails_may_be_the_first_of_a_transaction_that_rolls_back(caller: AsyncCaller, store: Store) -> None:
    await enqueue_many(caller, *(email(f"order-{n}") for n in range(3)))

    await caller.rollback()

    assert keys(store) == []


@every_kind
async def test_many_emails_are_written_in_chunks_and_in_order(caller: AsyncCaller, store: Store) -> None:
    numbers = range(1100)

    enqueued = await enqueue_many(caller, *(email(f"order-{n}") for n in numbers))
    await caller.commit()

    assert [(item.key, item.created) for item in enqueued] == [(f"order-{n}", True) for n in numbers]
    assert len(keys(store)) == len(numbers)


# The transaction stays usable after a refusal.


@every_kind
async def test_after_a_used_key_with_other_content_the_transaction_goes_on(
    caller: AsyncCaller, store: Store, database_url: str
) -> None:
    first = await enqueue(caller, "used", text="first")

    with pytest.raises(KeyReused) as refused:
        await enqueue(caller, "used", text="another")
    with pytest.raises(KeyReused):
        await enqueue_many(caller, *(email(f"new-{n}") for n in range(600)), email("used", text="another"))
    with pytest.raises(InvalidEmail, match="subject"):
        await enqueue_many(caller, email("good"), email("bad", subject="a\nb"))

    assert refused.value.send_id == first.id
    await caller.order(1)
    again = await enqueue(caller, "used", text="first")
    await caller.commit()
    assert (again.id, again.created) == (first.id, False)
    assert (keys(store), orders(database_url)) == (["used"], [1])
    assert "first" in (store.ledger.story("used").body or "")


@every_kind
async def test_an_email_inside_a_savepoint_goes_with_it(caller: AsyncCaller, store: Store, database_url: str) -> None:
    await caller.order(1)
    await enqueue(caller, "kept")
    await caller.execute("SAVEPOINT the_apps")
    await caller.order(2)
    await enqueue_many(caller, email("gone-1"), email("gone-2"))
    await caller.execute("ROLLBACK TO SAVEPOINT the_apps")
    await enqueue_many(caller, email("after-1"), email("after-2"))
    await caller.commit()

    assert (keys(store), orders(database_url)) == (["after-1", "after-2", "kept"], [1])


@every_kind
async def test_a_failure_inside_many_leaves_nothing_of_them(
    caller: AsyncCaller, store: Store, database_url: str
) -> None:
    if database_url.startswith("sqlite"):
        await caller.execute(
            "CREATE TEMP TRIGGER full BEFORE INSERT ON main.email_sends WHEN new.dedupe_key = 'bad' "
            "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
    else:
        await caller.execute("ALTER TABLE email_sends ADD CONSTRAINT full_disk CHECK (dedupe_key <> 'bad')")

    with pytest.raises(Exception, match="full"):
        await enqueue_many(caller, *(email(f"new-{n}") for n in range(600)), email("bad"))

    if not database_url.startswith("sqlite"):
        await caller.execute("ALTER TABLE email_sends DROP CONSTRAINT full_disk")
    await caller.order(1)
    await caller.commit()
    assert (keys(store), orders(database_url)) == ([], [1])


@every_kind
async def test_missing_tables_are_named_with_the_way_out(caller: AsyncCaller, database: Database) -> None:
    with database.write() as connection:
        connection.execute(text("ALTER TABLE email_sends RENAME TO away"))
    try:
        with pytest.raises(SchemaError, match="posthouse migrate"):
            await enqueue(caller, "k")
        await caller.rollback()
    finally:
        with database.write() as connection:
            connection.execute(text("ALTER TABLE away RENAME TO email_sends"))


# Many at once.


@pytest.mark.parametrize(("database_url", "kind"), ASYNC_KINDS, indirect=["database_url"], ids=IDS)
async def test_of_racing_writers_the_first_one_wins_and_all_hear_of_it(
    database_url: str, store: Store, kind: Any
) -> None:
    async def write(text: str) -> Enqueued | KeyReused:
        async with kind(database_url) as caller:
            try:
                enqueued = await enqueue(caller, "order-1", text=text)
            except KeyReused as refused:
                await caller.rollback()
                return refused
            await caller.commit()
            return enqueued

    results = await asyncio.gather(*(write(f"from {n // 5}") for n in range(10)))

    enqueued = [result for result in results if isinstance(result, Enqueued)]
    ids = {result.send_id if isinstance(result, KeyReused) else result.id for result in results}
    assert len(enqueued) == 5
    assert [result.created for result in enqueued].count(True) == 1
    assert ids == {store.ledger.story("order-1").send["id"]}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_cancelled_call_leaves_none_of_its_emails_and_a_usable_transaction(
    database_url: str, database: Database, store: Store
) -> None:
    make_orders(database_url)
    async with psycopg_async(database_url) as caller:
        await caller.order(1)
        with database.engine.connect() as other:
            outbox().enqueue(other, email("theirs"))  # not yet committed: who wants this key must wait
            waiting = [email(f"mine-{n}") for n in range(600)] + [email("theirs")]
            running = asyncio.create_task(enqueue_many(caller, *waiting))
            await asyncio.to_thread(wait_until_blocked, database.engine)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            other.rollback()
        await enqueue(caller, "after")
        await caller.commit()

    assert (keys(store), orders(database_url)) == (["after"], [1])
