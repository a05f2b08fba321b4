"""Suppressions at enqueue: the caller's transaction goes on, and the send says why it goes nowhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import event

from posthouse.address import Address
from posthouse.core.policy import Category, TypePolicy
from posthouse.core.suppression import Suppress, SuppressionCause, SuppressionPolicy
from posthouse.outbox import Enqueued, Outbox
from posthouse.store.database import Database
from posthouse.store.store import Store
from tests.contract.store_support import ROUTES, email, new_key
from tests.integration.async_callers import ASYNC_KINDS, AsyncCaller
from tests.integration.enqueue_callers import KINDS, make_orders, orders

POLICIES = {
    "receipt": TypePolicy("receipt", routes=()),
    "newsletter": TypePolicy("newsletter", routes=(), category=Category.MARKETING),
}
ADA = "ada ß📬".replace(" ", ".") + "@example.com"


def outbox(*, at_enqueue: bool = True) -> Outbox:
    return Outbox(
        POLICIES,
        {},
        sender=Address("shop@example.com"),
        clock=time.time,
        new_key=new_key,
        suppression=SuppressionPolicy(at_enqueue=at_enqueue),
    )


def suppress(store: Store, *addresses: str, cause: str = "manual", **fields: Any) -> None:
    wishes = [
        Suppress(Address(each).folded, SuppressionCause(cause), **{"who": "grace", "reason": "said „no“ ß📬"} | fields)
        for each in addresses
    ]
    store.suppressions.add(wishes, time.time())


def enqueue(database: Database, *emails: Any, at_enqueue: bool = True) -> list[Enqueued]:
    with database.write() as connection:
        return outbox(at_enqueue=at_enqueue).enqueue_many(connection, emails)


def test_an_email_that_nobody_may_get_is_written_as_suppressed_and_says_why(database: Database, store: Store) -> None:
    suppress(store, ADA)

    (done,) = enqueue(database, email("k", to=ADA.upper().replace("SS", "ß")))

    assert done.created
    assert done.suppressed.startswith("not sent: ")
    assert "was suppressed on " in done.suppressed
    assert " by grace (said „no“ ß📬); unsuppress with: posthouse unsuppress " in done.suppressed
    row = store.ledger.story("k").send
    assert (row["status"], row["next_try_at"], row["last_error"]) == ("suppressed", None, done.suppressed)
    worker = store.control.register("here", 1, "test")
    assert store.queue.claim("receipt", 10, worker, time.time() + 60, ROUTES) == []


def test_the_others_of_a_batch_are_none_the_worse(database: Database, store: Store) -> None:
    suppress(store, "ada@example.com", cause="unsubscribe")
    suppress(store, "bob@example.com", until=time.time() - 1)
    done = enqueue(
        database,
        email("sent"),
        email("news", type="newsletter"),
        email("bob", to="bob@example.com"),
        email("both", type="newsletter", to=["ada@example.com", "bob@example.com"]),
        email("later", type="newsletter", after="sent"),
    )
    assert [bool(each.suppressed) for each in done] == [False, True, False, False, True]
    statuses = {row["dedupe_key"]: row["status"] for row in store.ledger.find([], None, 10)}
    assert statuses == {
        "sent": "pending",
        "news": "suppressed",
        "bob": "pending",
        "both": "pending",  # the worker leaves out whoever must not get it
        "later": "suppressed",
    }


def test_a_key_that_was_there_before_stays_as_it_is(database: Database, store: Store) -> None:
    enqueue(database, email("k"))
    suppress(store, "ada@example.com")
    (again,) = enqueue(database, email("k"))
    assert (again.created, again.suppressed) == (False, "")
    assert store.ledger.story("k").send["status"] == "pending"


@pytest.fixture
def asked(database: Database) -> list[str]:
    """Every statement about suppressions, and every change of a send."""
    told: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "email_suppressions" in statement or statement.startswith("UPDATE email_sends"):
            told.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    return told


def test_it_costs_one_statement_a_batch_and_none_where_it_is_not_asked_for(
    database: Database, store: Store, asked: list[str]
) -> None:
    enqueue(database, *(email(f"k-{n}", to=f"p{n}@example.com") for n in range(400)))
    assert len(asked) == 1
    enqueue(database, email("k-0", to="p0@example.com"))
    assert len(asked) == 1, "nothing new was written"
    asked.clear()
    suppress(store, "ada@example.com")
    asked.clear()
    (done,) = enqueue(database, email("k"), at_enqueue=False)
    assert (asked, done.suppressed, store.ledger.story("k").send["status"]) == ([], "", "pending")


def test_very_many_suppressed_ones_are_written_in_a_few_statements(
    database: Database, store: Store, asked: list[str]
) -> None:
    names = [f"p{n}@example.com" for n in range(1100)]
    suppress(store, *names)
    asked.clear()
    done = enqueue(database, *(email(name, to=name) for name in names))
    assert all(name in each.suppressed for name, each in zip(names, done, strict=True))
    assert len(asked) <= 6
    assert store.ledger.open_counts()["pending"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_callers_transaction_goes_on_whatever_its_connection(kind: str, store: Store, database_url: str) -> None:
    suppress(store, ADA)
    make_orders(database_url)
    with KINDS[kind](database_url) as caller:
        caller.order(1)
        done = outbox().enqueue(caller.connection, email("k", to=ADA))
        caller.order(2)
        caller.commit()
    assert "ß📬" in done.suppressed
    assert orders(database_url) == [1, 2]
    assert store.ledger.story("k").send["last_error"] == done.suppressed


@pytest_asyncio.fixture
async def awaited(request: pytest.FixtureRequest, database_url: str) -> Any:
    make: Callable[..., Any] = request.param
    async with make(database_url) as caller:
        yield caller


@pytest.mark.parametrize(("database_url", "awaited"), ASYNC_KINDS, indirect=True)
async def test_the_same_on_an_async_connection(awaited: AsyncCaller, store: Store) -> None:
    suppress(store, ADA)
    done = await outbox().enqueue_async(awaited.connection, email("k", to=ADA))
    await awaited.commit()
    assert store.ledger.story("k").send["status"] == "suppressed"
    assert done.suppressed
