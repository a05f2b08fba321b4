"""Query plans on a table with a past: every hot statement is a range of its own index, and never a walk or a sort.

The SQL is caught on its way to the driver, so that what is explained is what runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from sqlalchemy import Connection, Integer, String, cast, event, insert, literal, select, text

from posthouse.core.cap_policy import CapPolicy
from posthouse.core.caps import Cap
from posthouse.core.lifecycle import Status
from posthouse.core.policy import Priority
from posthouse.store.database import Database, open_database
from posthouse.store.migrate import migrate
from posthouse.store.schema import Instant, sends
from posthouse.store.store import Store
from tests.conftest import OwnPostgres
from tests.contract.store_support import DAY_S, ROUTES, Bench, accepted, report

FINISHED, OTHER_LANE, FUTURE, FEW = 50_000, 20_000, 20_000, 200
SORTED_ROWS_MAX: Final = 1000
DEDUPE_KEY: Final = "email_sends_dedupe_key"  # the constraint; SQLite names its index itself

Caught = tuple[str, Any]


def _fill(bench: Bench, count: int, prefix: str, **columns: Any) -> None:
    """Many rows by one statement, each with a key and an address of its own."""
    numbers = select(literal(1, Integer).label("i")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.i + 1).where(numbers.c.i < count))
    plain = {
        "fingerprint": "f",
        "idempotency_key": "ik",
        "type": "receipt",
        "lane": "receipt",
        "recipients": "[]",
        "status": "pending",
        "next_try_at": literal(bench.now - 1.0, Instant),
        "expires_at": literal(bench.now + DAY_S, Instant),
        "created_at": literal(bench.now - 1.0, Instant),
        "updated_at": literal(bench.now - 1.0, Instant),
    }
    name = literal(prefix, String) + cast(numbers.c.i, String)
    values = {
        "dedupe_key": name,
        "to_address": name + literal("@example.com", String),
        **{column: value if hasattr(value, "label") else literal(value) for column, value in (plain | columns).items()},
    }
    if columns.get("message_id"):
        values["message_id"] = name
    rows = select(*[value.label(column) for column, value in values.items()])
    with bench.store.database.write() as connection:
        if connection.dialect.name == "mysql":
            mariadb = getattr(connection.dialect, "is_mariadb", False)
            depth = "max_recursive_iterations" if mariadb else "cte_max_recursion_depth"
            connection.execute(text(f"SET SESSION {depth} = {count + 1}"))
        connection.execute(insert(sends).from_select(list(values), rows))


@pytest.fixture(scope="module", params=["sqlite", "sqlite, analysed", "postgresql", "mysql"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A database with many finished, pending and future sends, and a few in every other state."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").create()
    elif request.param == "mysql":
        url = request.getfixturevalue("mysql").create()
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('plans') / 'posthouse.db'}"
    with closing(open_database(url, time.time)) as database:
        migrate(database)
        bench = Bench(Store(database))
        dead = bench.another_worker()
        never = literal(None, Instant)
        _fill(bench, FINISHED, "done-", status="accepted", next_try_at=never, message_id=True)
        _fill(bench, OTHER_LANE, "news-", lane="newsletter", type="newsletter")
        _fill(bench, FUTURE, "future-", next_try_at=literal(bench.now + 3600.0, Instant))
        _fill(bench, FEW, "due-")
        _fill(bench, FEW, "sending-", status="sending", claimed_by=dead, fence=1)
        _fill(bench, FEW, "unknown-", status="unknown", unknown_fence=1, fence=1)
        _fill(bench, FEW, "failed-", status="failed", next_try_at=never)
        _fill(bench, FEW, "waiting-", status="waiting", after_key="done-7")
        _fill(bench, FEW, "over-", expires_at=literal(bench.now - 1.0, Instant))
        if request.param != "sqlite":  # a SQLite file normally is never analysed
            with database.read() as connection:
                table = " TABLE email_sends" if request.param == "mysql" else ""
                connection.execute(text(f"ANALYZE{table}"))
        yield bench


@contextmanager
def catching(database: Database) -> Iterator[list[Caught]]:
    """Every statement on `email_sends` that is run meanwhile, with its parameters; of many alike the first."""
    caught: list[Caught] = []

    def catch(_c: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if "email_sends" in statement:
            caught.append((statement, parameters[0] if many else parameters))

    event.listen(database.engine, "before_cursor_execute", catch)
    try:
        yield caught
    finally:
        event.remove(database.engine, "before_cursor_execute", catch)


@dataclass(frozen=True)
class Plan:
    """What a statement does with `email_sends`: the indexes it uses, and what it should not do."""

    indexes: frozenset[str]
    faults: tuple[str, ...]


def explain(database: Database, caught: Caught) -> Plan:
    with database.read() as connection:
        if database.is_sqlite:
            lines = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {caught[0]}", caught[1]).all()
            return _sqlite_plan([str(line[3]) for line in lines], caught[0])
        if database.dialect == "mysql":
            explained = connection.exec_driver_sql(f"EXPLAIN {caught[0]}", caught[1]).mappings()
            return _mysql_plan([dict(line) for line in explained])
        found = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {caught[0]}", caught[1]).scalar_one()
        return _postgresql_plan(list(_nodes(found[0]["Plan"])))


def _sqlite_plan(lines: list[str], statement: str) -> Plan:
    names = {"email_sends"} | ({"first"} if " AS first" in statement else set())
    reads = [line for line in lines if line.split()[0] in ("SCAN", "SEARCH") and line.split()[1] in names]
    indexes, faults = set(), [line for line in lines if "TEMP B-TREE" in line]
    for line in reads:
        words = line.split()
        if "INDEX" in words:
            indexes.add(words[words.index("INDEX") + 1].replace("sqlite_autoindex_email_sends_1", DEDUPE_KEY))
        elif "PRIMARY KEY" not in line:
            faults.append(line)
    return Plan(frozenset(indexes), tuple(faults))


def _mysql_plan(lines: list[dict[str, Any]]) -> Plan:
    ours = [line for line in lines if line["table"] in ("email_sends", "first")]
    # Hopping from group to group it sorts the groups, which are few, and never the rows.
    sorts = [line for line in lines if "filesort" in line["Extra"] and "index for group-by" not in line["Extra"]]
    faults = [str(line) for line in [*sorts, *ours] if line in sorts or line["type"] in ("ALL", "index")]
    indexes = {key for line in ours for key in str(line["key"]).split(",")}
    return Plan(frozenset(indexes - {"PRIMARY", "None"}), tuple(faults))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _postgresql_plan(nodes: list[dict[str, Any]]) -> Plan:
    faults = [
        json.dumps({name: node[name] for name in ("Node Type", "Plan Rows", "Filter") if name in node})
        for node in nodes
        if (node["Node Type"] == "Seq Scan" and node["Relation Name"] == "email_sends")
        or ("Sort" in node["Node Type"] and node["Plan Rows"] > SORTED_ROWS_MAX)
    ]
    indexes = {node["Index Name"] for node in nodes if node.get("Index Name", "").startswith("email_sends_")}
    return Plan(frozenset(indexes - {"email_sends_pkey"}), tuple(faults))


CAPS: Final = CapPolicy(
    Cap(1_000_000), {"receipt": Cap(1000, shared=False)}, {"newsletter": Priority.BULK, "receipt": Priority.NORMAL}
)

HOT: dict[str, tuple[Callable[[Bench], object], set[str]]] = {
    "claim": (lambda b: b.claim(50), {"email_sends_due"}),
    "claim from a lane that does not exist": (lambda b: b.claim(50, "nothing"), {"email_sends_due"}),
    "due_lanes": (lambda b: b.store.queue.due_lanes(), {"email_sends_due"}),
    "take_unknown": (lambda b: b.store.queue.take_unknown(50, b.worker, b.now, 30.0), {"email_sends_unknown"}),
    "reap": (lambda b: b.store.sweeps.reap(b.beat_at - 1, b.now, b.worker), {"email_sends_claimed"}),
    "reap_all": (lambda b: b.store.sweeps.reap_all(b.now, b.worker), {"email_sends_claimed"}),
    "end_lives": (lambda b: b.store.sweeps.end_lives(b.now - 9), {"email_sends_expiring"}),
    "owned_by": (lambda b: b.store.queue.owned_by(b.worker, b.now), {"email_sends_claimed"}),
    "leave": (lambda b: b.store.control.leave(b.another_worker()), {"email_sends_claimed"}),
    "held_unknown": (lambda b: b.store.ledger.held_unknown(), {"email_sends_unknown"}),
    "failed sends": (lambda b: b.store.ledger.ids(Status.FAILED, None, 100), {"email_sends_failed"}),
    "a key": (lambda b: b.store.ledger.story("done-17"), {DEDUPE_KEY, "email_sends_split", "email_sends_combined"}),
    "who would be shed": (lambda b: b.store.backlog.newest(CAPS, Priority.BULK, 100), {"email_sends_due"}),
    "a campaign": (lambda b: b.store.ledger.find([], None, 20, campaign="spring"), {"email_sends_campaign"}),
    "oldest ended": (lambda b: b.store.retention._purge_sends(b.now - 9 * DAY_S), {"email_sends_ended"}),
}


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_is_a_range_of_its_own_index(bench: Bench, name: str) -> None:
    run, expected = HOT[name]
    with catching(bench.store.database) as caught:
        run(bench)

    assert caught
    plans = [explain(bench.store.database, one) for one in caught]
    assert [fault for plan in plans for fault in plan.faults] == []
    assert set[str]().union(*(plan.indexes for plan in plans)) == expected


# PostgreSQL would rather read a table of which so much is pending as of this one.
@pytest.mark.parametrize("bench", ["sqlite", "sqlite, analysed", "mysql"], indirect=True)
def test_counting_the_backlog_reads_the_due_index_alone(bench: Bench) -> None:
    with catching(bench.store.database) as caught:
        bench.store.backlog.count(CAPS)

    plans = [explain(bench.store.database, one) for one in caught]
    assert [fault for plan in plans for fault in plan.faults] == []
    assert {plan.indexes for plan in plans} == {frozenset({"email_sends_due"})}


def test_reaping_and_ending_touch_no_index_but_their_own_where_there_is_work(bench: Bench) -> None:
    bench.put(3, "r", status="sending", claimed_by=bench.another_worker() + 1, fence=1)
    bench.put(3, "e", expires_at=bench.now - 100)
    with catching(bench.store.database) as caught:
        assert bench.store.sweeps.reap(0.0, bench.now, bench.worker) == 3
        assert bench.store.sweeps.end_lives(bench.now - 50) == 3

    plans = [explain(bench.store.database, one) for one in caught]
    assert [fault for plan in plans for fault in plan.faults] == []
    assert set[str]().union(*(plan.indexes for plan in plans)) == {"email_sends_claimed", "email_sends_expiring"}


def test_combining_looks_for_what_waits_by_its_recipients_and_changes_it_by_primary_key(bench: Bench) -> None:
    _fill(bench, FEW, "notice-", lane="news", type="news", next_try_at=literal(bench.now + 900.0, Instant))
    for key in ("first", "second"):
        bench.enqueue(key, type="news", subject=None, text=None, template="news")
    with catching(bench.store.database) as caught:
        (one,) = bench.store.queue.claim("news", 50, bench.worker, bench.now + 700.0, ROUTES, 600.0)

    assert one.key == "first"
    plans = [explain(bench.store.database, caught_one) for caught_one in caught]
    assert [fault for plan in plans for fault in plan.faults] == []
    assert [plan.indexes for plan in plans if plan.indexes] == [
        {"email_sends_due"},
        {"email_sends_to_address"},
        {"email_sends_combined"},
    ]


def test_settling_goes_by_primary_key_alone(bench: Bench) -> None:
    bench.put(5, "s", lane="settled")
    results = [report(send.state, accepted(), bench.now) for send in bench.claim(5, "settled")]
    with catching(bench.store.database) as caught:
        bench.settle(*results)

    plans = [explain(bench.store.database, one) for one in caught]
    assert plans
    assert {plan.indexes for plan in plans} == {frozenset()}
    assert [fault for plan in plans for fault in plan.faults] == []


def test_settling_goes_by_primary_key_in_a_small_table_that_was_never_analysed_too(postgres: OwnPostgres) -> None:
    with closing(open_database(postgres.create(), time.time)) as database:
        migrate(database)
        bench = Bench(Store(database))
        _fill(bench, 2000, "done-", status="accepted", next_try_at=literal(None, Instant))
        test_settling_goes_by_primary_key_alone(bench)


def test_an_exact_word_is_found_without_a_walk(bench: Bench) -> None:
    with catching(bench.store.database) as caught:
        assert len(bench.store.ledger.find(["done-77"], None, 10)) == 1

    (plan,) = [explain(bench.store.database, one) for one in caught]
    assert {DEDUPE_KEY, "email_sends_message_id", "email_sends_to_address"} <= plan.indexes


def test_the_sweep_of_dependencies_starts_from_the_waiting_sends(bench: Bench) -> None:
    with catching(bench.store.database) as caught:
        bench.store.sweeps.sweep_dependencies(bench.now)

    plan = explain(bench.store.database, caught[0])
    assert "email_sends_waiting" in plan.indexes
    assert not any("Seq Scan" in fault or "SCAN" in fault for fault in plan.faults)


@pytest.mark.parametrize("bench", ["postgresql"], indirect=True)
def test_a_claim_reads_no_more_rows_than_it_takes(bench: Bench) -> None:
    bench.put(60, "reads", lane="reads")
    with catching(bench.store.database) as caught:
        bench.claim(20, "reads")

    with bench.store.database.engine.connect() as connection:
        explained = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {caught[0][0]}", caught[0][1])
        nodes = list(_nodes(explained.scalar_one()[0]["Plan"]))
        connection.rollback()

    scans = [node for node in nodes if node.get("Index Name") == "email_sends_due"]
    assert [scan["Actual Rows"] for scan in scans] == [20]
    assert [node for node in nodes if node.get("Rows Removed by Filter", 0) > 0] == []
