"""Caps at the way in: what is refused when much waits, by whom it was counted, and what a refusal leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import event

from posthouse.address import Address
from posthouse.core.cap_policy import Backlog, CapPolicy
from posthouse.core.caps import Cap
from posthouse.core.policy import Priority, TypePolicy
from posthouse.errors import QueueFull
from posthouse.outbox import Outbox
from posthouse.store.admission import COUNT_EVERY_S, READ_EVERY_S, STALE_S
from posthouse.store.database import Database
from posthouse.store.schema import backlog
from posthouse.store.store import Store
from tests.contract.store_support import Bench, email, new_key
from tests.integration.async_callers import ASYNC_KINDS, AsyncCaller
from tests.integration.enqueue_callers import KINDS, Caller, keys, make_orders, orders

BULK, NORMAL, URGENT = Priority.BULK, Priority.NORMAL, Priority.URGENT
PRIORITIES = {"newsletter": BULK, "digest": BULK, "receipt": NORMAL, "code": URGENT}
POLICIES = {name: TypePolicy(name, routes=(), priority=priority) for name, priority in PRIORITIES.items()}
TEN = CapPolicy(Cap(10), {"digest": Cap(2, shared=False)}, PRIORITIES)


on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database can do in another way."""


class Clock:
    """Real time, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


class Application:
    """One process of an application."""

    def __init__(self, database: Database, caps: CapPolicy = TEN) -> None:
        self.clock = Clock()
        self.outbox = Outbox(
            POLICIES, {}, sender=Address("shop@example.com"), clock=self.clock, new_key=new_key, caps=caps
        )
        self._database = database

    def ask(self, type_: str, *asked: str) -> None:
        """Emails of one type, in one transaction."""
        with self._database.write() as connection:
            self.outbox.enqueue_many(connection, [email(key, type=type_) for key in asked])

    def is_refused(self, type_: str, *asked: str) -> bool:
        try:
            self.ask(type_, *asked)
        except QueueFull:
            return True
        return False

    def later(self, by_s: float = COUNT_EVERY_S) -> None:
        """Time for it to look again."""
        self.clock.ahead_s += by_s


@pytest.fixture
def app(database: Database) -> Application:
    return Application(database)


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store)


def names(count: int, prefix: str = "k") -> list[str]:
    return [f"{prefix}-{n}" for n in range(count)]


def test_without_any_worker_bulk_is_refused_first_then_normal_and_urgent_never(app: Application, store: Store) -> None:
    app.ask("newsletter", *names(8))
    with pytest.raises(QueueFull, match=r"8 sends are pending and outbox\.max_pending is 10") as refused:
        app.ask("newsletter", "one-more")
    app.ask("receipt", "r1", "r2")
    assert app.is_refused("receipt", "r3")
    app.ask("code", *names(5, "code"))

    full = refused.value
    assert (full.setting, full.max_pending, full.pending, full.priority) == ("outbox.max_pending", 10, 8, "bulk")
    assert len(keys(store)) == 15


@on_sqlite
def test_one_by_one_it_is_full_at_the_same_point(app: Application) -> None:
    accepted = [not app.is_refused("newsletter", f"k-{n}") for n in range(12)]
    assert accepted == [True] * 8 + [False] * 4


@on_sqlite
def test_what_other_processes_wrote_is_known_a_few_seconds_later(
    database: Database, open_another: Callable[[], Database]
) -> None:
    one, other = Application(database), Application(open_another())
    one.ask("newsletter", "a")
    other.ask("newsletter", *names(7, "b"))
    one.later()
    assert one.is_refused("newsletter", "c")


@on_sqlite
def test_what_has_left_makes_room_again_but_not_for_one_more_at_a_time(
    app: Application, bench: Bench, database: Database
) -> None:
    app.ask("newsletter", *names(8))
    assert app.is_refused("newsletter", "more")
    bench.claim(1, "newsletter")
    app.later()
    assert app.is_refused("newsletter", "more"), "a tenth of its room has to be free again"
    bench.claim(1, "newsletter")
    app.later()
    app.ask("newsletter", "more")


@on_sqlite
def test_before_it_refuses_it_counts_again(app: Application, bench: Bench) -> None:
    app.ask("newsletter", *names(8))
    bench.claim(8, "newsletter")
    app.later()
    app.ask("newsletter", *names(8, "more"))


def test_a_key_that_is_there_already_is_never_refused(app: Application) -> None:
    app.ask("newsletter", *names(8))
    app.ask("newsletter", *names(8))
    assert app.is_refused("newsletter", "k-1", "new")


@on_sqlite
def test_many_at_once_fit_all_together_or_not_at_all(app: Application, store: Store) -> None:
    assert app.is_refused("newsletter", *names(9))
    assert keys(store) == []
    app.ask("newsletter", *names(7))


@on_sqlite
def test_a_type_has_a_cap_of_its_own(app: Application) -> None:
    app.ask("digest", "d1", "d2")
    with pytest.raises(QueueFull, match=r"types\.digest\.max_pending is 2"):
        app.ask("digest", "d3")
    app.ask("newsletter", "n1")


def test_what_the_workers_counted_is_believed_while_they_live(app: Application, bench: Bench) -> None:
    turn = bench.beat_at
    table = bench.store.backlog
    assert table.take_turn(turn)
    table.write(TEN, Backlog({BULK: 8}, {}), turn)
    assert app.is_refused("newsletter", "k") is False, "before it refuses it counts by itself, and nothing is there"

    other = Application(bench.store.database)
    table.write(TEN, Backlog({BULK: 1}, {}), turn)
    bench.put(20, lane="newsletter", type="newsletter")
    other.ask("newsletter", "unseen")
    other.later(READ_EVERY_S)
    table.write(TEN, Backlog({BULK: 21}, {}), turn)
    other.later(STALE_S + 1)
    assert other.is_refused("newsletter", "seen")


@pytest.fixture
def statements(database: Database) -> Iterator[list[str]]:
    seen: list[str] = []

    def see(_c: Any, _cursor: Any, statement: str, _parameters: Any, _context: Any, _many: bool) -> None:
        seen.append(statement)

    event.listen(database.engine, "before_cursor_execute", see)
    yield seen
    event.remove(database.engine, "before_cursor_execute", see)


def asked_about(statements: list[str]) -> int:
    """How many statements there were about the backlog."""
    return sum("email_backlog" in one or "count(*)" in one for one in statements)


@on_sqlite
def test_without_a_cap_nothing_is_asked_and_with_one_once_a_second(database: Database, statements: list[str]) -> None:
    plain = Application(database, CapPolicy(priorities=PRIORITIES))
    plain.ask("newsletter", "a")
    assert asked_about(statements) == 0

    capped = Application(database)
    capped.ask("newsletter", "b")
    first = asked_about(statements)
    for number in range(20):
        capped.ask("receipt" if number == 7 else "code", f"c{number}")
    assert first > 0
    assert asked_about(statements) == first, "urgent mail asks for nothing, and the others not so soon again"


@pytest.mark.parametrize("database_url", ["postgresql", "mysql"], indirect=True)
def test_no_enqueue_waits_for_a_worker_that_counts(app: Application, database: Database) -> None:
    with database.write() as worker:
        worker.execute(backlog.insert().values(name="turn", pending=0, counted_at=time.time()))
        app.ask("newsletter", "k")


@pytest.fixture(params=KINDS)
def caller(request: pytest.FixtureRequest, database_url: str) -> Iterator[Caller]:
    make_orders(database_url)
    with KINDS[request.param](database_url) as caller:
        yield caller


def test_a_refusal_leaves_the_callers_transaction_as_it_was(
    caller: Caller, app: Application, store: Store, database_url: str
) -> None:
    caller.order(1)
    app.outbox.enqueue_many(caller.connection, [email(key, type="newsletter") for key in names(8)])
    with pytest.raises(QueueFull):
        app.outbox.enqueue_many(caller.connection, [email(f"n{n}", type="newsletter") for n in range(3)])
    app.outbox.enqueue(caller.connection, email("behind", type="receipt"))
    caller.commit()

    assert orders(database_url) == [1]
    assert keys(store) == sorted([*names(8), "behind"])


@pytest_asyncio.fixture
async def awaited(request: pytest.FixtureRequest, database_url: str) -> Any:
    make_orders(database_url)
    async with request.param(database_url) as caller:
        yield caller


@pytest.mark.parametrize(("database_url", "awaited"), ASYNC_KINDS, indirect=True)
async def test_the_same_on_an_async_connection(
    awaited: AsyncCaller, app: Application, store: Store, database_url: str
) -> None:
    await awaited.order(1)
    await app.outbox.enqueue_many_async(awaited.connection, [email(key, type="newsletter") for key in names(8)])
    with pytest.raises(QueueFull):
        await app.outbox.enqueue_async(awaited.connection, email("n", type="newsletter"))
    await app.outbox.enqueue_async(awaited.connection, email("r", type="receipt"))
    await awaited.commit()

    assert orders(database_url) == [1]
    assert "r" in keys(store)
    assert "n" not in keys(store)
