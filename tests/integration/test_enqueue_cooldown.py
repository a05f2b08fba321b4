"""Cooldowns: one email of a family at a time, whatever the race, and nothing left behind by what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import update

from posthouse.address import Address
from posthouse.core.policy import TypePolicy
from posthouse.errors import KeyReused, TooSoon
from posthouse.outbox import Enqueued, Outbox
from posthouse.store.database import Database
from posthouse.store.retention import FAMILIES_KEPT_S, Limits, Retention
from posthouse.store.schema import families
from posthouse.store.store import Store
from tests.contract.store_support import Bench, Pause, email, new_key, race, wait_until_blocked
from tests.integration.async_callers import ASYNC_KINDS, AsyncCaller
from tests.integration.enqueue_callers import KINDS, Caller, keys, make_orders, orders

COOLDOWN_S = 30.0
POLICIES = {
    "code": TypePolicy("code", routes=(), cooldown_s=COOLDOWN_S),
    "link": TypePolicy("link", routes=(), cooldown_s=COOLDOWN_S),
    "receipt": TypePolicy("receipt", routes=()),
}
ADA = "code:ada ß📬"


def outbox() -> Outbox:
    return Outbox(POLICIES, {}, sender=Address("shop@example.com"), clock=time.time, new_key=new_key)


def code(key: str, family: str | None = ADA, **more: Any) -> Any:
    return email(key, **{"type": "code", "family": family, **more})


def ask(database: Database, *asked: Any) -> list[Enqueued]:
    with database.write() as connection:
        return outbox().enqueue_many(connection, asked)


def age(database: Database, by_s: float) -> None:
    """Makes every cooldown so much older."""
    with database.write() as connection:
        connection.execute(update(families).values(last_at=time.time() - by_s))


def test_a_second_code_has_to_wait_and_the_page_can_say_how_long(database: Database, store: Store) -> None:
    ask(database, code("a"))
    with pytest.raises(TooSoon, match=r"next one may be in (30|29) s \(types.code.cooldown\)") as refused:
        ask(database, code("b"))

    told = refused.value
    assert (told.type, told.family) == ("code", ADA)
    assert COOLDOWN_S - 10 < told.again_in_s <= COOLDOWN_S
    assert abs(told.again_at - datetime.now(UTC) - timedelta(seconds=told.again_in_s)) < timedelta(seconds=1)
    assert keys(store) == ["a"]


def test_after_the_cooldown_another_one_begins(database: Database) -> None:
    ask(database, code("a"))
    age(database, COOLDOWN_S - 5)
    with pytest.raises(TooSoon) as refused:
        ask(database, code("b"))
    assert 0 < refused.value.again_in_s <= 5
    age(database, COOLDOWN_S + 0.01)
    ask(database, code("b"))
    with pytest.raises(TooSoon):
        ask(database, code("c"))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_same_key_again_is_no_second_email(database: Database) -> None:
    ask(database, code("a"))
    assert [one.created for one in ask(database, code("a"), code("a"))] == [False, False]
    with pytest.raises(KeyReused):
        ask(database, code("a", text="something else"))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_repetition_does_not_begin_the_cooldown_anew(database: Database) -> None:
    ask(database, code("a"))
    age(database, COOLDOWN_S + 1)
    ask(database, code("a"))
    ask(database, code("b"))


def test_another_family_another_type_and_no_family_are_not_held_up(database: Database) -> None:
    others = [code("d", family=None), code("e", family=None), code("f", type="receipt"), code("g", type="receipt")]
    ask(database, code("a"), code("b", family="code:ADA ß📬"), code("c", type="link"), *others)
    ask(database, code("h", family="Code:ada ß📬"))


def test_two_of_a_family_in_one_call_are_refused_together(database: Database, store: Store) -> None:
    with pytest.raises(TooSoon):
        ask(database, code("a"), code("x", family="other"), code("b"))
    assert keys(store) == []
    ask(database, code("a"))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_rolled_back_email_begins_no_cooldown(database: Database) -> None:
    with database.engine.connect() as connection:
        outbox().enqueue(connection, code("a"))
        connection.rollback()
    ask(database, code("b"))


def test_a_database_whose_clock_was_set_back_refuses_nobody_for_long(database: Database) -> None:
    ask(database, code("a"))
    age(database, -3600)
    ask(database, code("b"))


def test_of_many_at_once_one_gets_through(database: Database, open_another: Callable[[], Database]) -> None:
    def one(number: int, own: Database) -> bool:
        try:
            ask(own, code(f"k{number}"))
        except TooSoon:
            return False
        return True

    databases = [open_another() for _ in range(6)]
    assert sum(race([partial(one, number, own) for number, own in enumerate(databases)])) == 1


@pytest.mark.parametrize("database_url", ["postgresql", "mysql"], indirect=True)
@pytest.mark.parametrize("known", [False, True], ids=["a new family", "a known one"])
def test_the_second_waits_for_the_first_and_then_hears_of_it(
    database: Database, open_another: Callable[[], Database], known: bool
) -> None:
    if known:
        ask(database, code("before"))
        age(database, 3600)
    first, second = open_another(), open_another()
    pause = Pause(first)
    with pause.running(lambda: ask(first, code("a"))):

        def late() -> str:
            with pytest.raises(TooSoon):
                ask(second, code("b"))
            return "refused"

        def let_go() -> str:
            wait_until_blocked(database.engine)
            pause.go()
            return "let go"

        assert race([late, let_go]) == ["refused", "let go"]


@pytest.fixture(params=KINDS)
def caller(request: pytest.FixtureRequest, database_url: str) -> Iterator[Caller]:
    make_orders(database_url)
    with KINDS[request.param](database_url) as caller:
        yield caller


def test_what_is_refused_leaves_the_callers_transaction_as_it_was(
    caller: Caller, store: Store, database_url: str
) -> None:
    caller.order(1)
    outbox().enqueue(caller.connection, code("a"))
    with pytest.raises(TooSoon):
        outbox().enqueue(caller.connection, code("b"))
    outbox().enqueue(caller.connection, code("c", family="another"))
    caller.commit()

    assert orders(database_url) == [1]
    assert keys(store) == ["a", "c"]
    with store.database.read() as connection:
        rows = connection.execute(families.select().order_by(families.c.dedupe_key)).all()
    assert [(row.family, row.dedupe_key) for row in rows] == [(ADA, "a"), ("another", "c")]


@pytest_asyncio.fixture
async def awaited(request: pytest.FixtureRequest, database_url: str) -> Any:
    make_orders(database_url)
    async with request.param(database_url) as caller:
        yield caller


@pytest.mark.parametrize(("database_url", "awaited"), ASYNC_KINDS, indirect=True)
async def test_the_same_on_an_async_connection(awaited: AsyncCaller, store: Store) -> None:
    await outbox().enqueue_async(awaited.connection, code("a"))
    with pytest.raises(TooSoon):
        await outbox().enqueue_async(awaited.connection, code("b"))
    await awaited.commit()
    assert keys(store) == ["a"]


def test_families_that_have_cooled_down_are_forgotten_after_a_day(store: Store) -> None:
    ask(store.database, code("a"), code("b", family="other"))
    limits = Limits(contents_s=9e8, attempts_s=9e8, raw_answers_s=9e8, sends_s=9e8)
    now = Bench(store).beat_at

    def left(at: float) -> int:
        Retention(store.database).purge(limits, at)
        with store.database.read() as connection:
            return len(connection.execute(families.select()).all())

    assert left(now + FAMILIES_KEPT_S - 60) == 2
    assert left(now + FAMILIES_KEPT_S + 60) == 0
    ask(store.database, code("c"))
