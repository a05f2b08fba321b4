"""`posthouse plan`: what an outage would leave behind, with and without a database."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import insert

from posthouse.store.database import Database
from posthouse.store.schema import attempts
from tests.cli.conftest import Shell


def test_a_plan_needs_no_configuration(empty_shell: Shell) -> None:
    ran = empty_shell.run("plan", "--arrivals", "100/min", "--outage", "4m", "--capacity", "300/min")

    lines = ran.out.splitlines()
    assert ran.code == 0
    assert lines[1] == "Capacity  300/min, 200/min to spare"
    assert lines[5].startswith("400 │")
    assert [line for line in lines if line.startswith(("Backlog", "Drained", "Oldest", "Expired"))] == [
        "Backlog  400 emails when the outage ends",
        "Drained  2 min later",
        "Oldest   4 min when it is sent",
        "Expired  none",
    ]
    assert max(map(len, lines)) <= 80


def test_the_document_of_plan_is_stable(empty_shell: Shell) -> None:
    told = empty_shell.json(
        *("plan", "--arrivals", "6000/hour", "--capacity", "5/s", "--outage", "4m"),
        *("--pending", "50", "--max-age", "3m"),
    )

    assert told == {
        "arrivals_per_min": 100.0,
        "capacity_per_min": 300.0,
        "outage_s": 240.0,
        "pending": 50,
        "max_age_s": 180.0,
        "backlog": 300,
        "drain_s": 90.0,
        "oldest_s": 180.0,
        "expired": 150,
        "expiring_per_min": 0.0,
    }


def test_what_waits_drains_without_an_outage(empty_shell: Shell) -> None:
    ran = empty_shell.run("plan", "--pending", "600", "--capacity", "300/min")

    assert "Backlog 600 emails now Drained 2 min later" in ran.flat


def test_too_little_capacity_is_told(empty_shell: Shell) -> None:
    args = ("plan", "--arrivals", "100/min", "--capacity", "90/min", "--max-age", "1h")

    told = empty_shell.json(*args)
    words = empty_shell.run(*args).flat
    assert (told["drain_s"], told["expired"], told["expiring_per_min"]) == (None, None, 10.0)
    assert "90/min, 10/min too little" in words
    assert "Drained never" in words
    assert "10/min for ever, once they are 1 h old" in words


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "--arrivals"),
        (("--arrivals", "100/min"), "--capacity"),
        (("--pending", "0", "--capacity", "1/s"), "--arrivals"),
        (("--arrivals", "many", "--capacity", "1/s"), "--arrivals: 'many' is not a rate"),
        (("--arrivals", "1/s", "--capacity", "0/s"), "--capacity: '0/s' allows nothing"),
        (("--arrivals", "1/s", "--capacity", "1/s", "--outage", "4"), "--outage: '4' is not a duration"),
        (("--arrivals", "1/s", "--capacity", "1/s", "--max-age", "0s"), "--max-age: must be above 0"),
        (("--arrivals", "1/s", "--capacity", "1/s", "--pending", "-1"), "--pending"),
    ],
)
def test_what_makes_no_plan_is_refused_with_what_to_do(empty_shell: Shell, args: tuple[str, ...], said: str) -> None:
    ran = empty_shell.run("plan", *args)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "posthouse plan --help" in ran.err


def test_what_is_not_given_is_taken_from_the_database(shell: Shell, opened: Database) -> None:
    for number in range(30):
        shell.send(f"order-{number}")
    noted_accepted(opened, 12)

    told = shell.json("plan", "--from-database", "--outage", "10m")
    words = shell.run("plan", "--from-database", "--outage", "10m").flat

    assert (told["arrivals_per_min"], told["capacity_per_min"], told["pending"]) == (0.5, 12.0, 30)
    assert told["backlog"] == 35
    assert "as in the busiest minute of the last day" in words


def test_what_is_given_wins_over_the_database(shell: Shell, opened: Database) -> None:
    shell.send("order-1")

    told = shell.json("plan", "--from-database", "--arrivals", "7/min", "--capacity", "8/min", "--pending", "9")

    assert (told["arrivals_per_min"], told["capacity_per_min"], told["pending"]) == (7.0, 8.0, 9)
    assert "busiest" not in shell.run("plan", "--from-database", "--capacity", "8/min").out


def test_a_database_that_has_seen_nothing_accepted_knows_no_capacity(shell: Shell) -> None:
    shell.send("order-1")

    ran = shell.run("plan", "--from-database")

    assert ran.code == 2
    assert "nothing was accepted within the last day" in ran.err


def noted_accepted(database: Database, count: int) -> None:
    """Writes attempts of one minute that ended in an acceptance."""
    ended_at = (time.time() - 600) // 60 * 60 + 30
    same = {"via": "send", "route": "main", "started_at": ended_at - 1, "ended_at": ended_at, "outcome": "accepted"}
    with database.write() as connection:
        connection.execute(insert(attempts), [{"send_id": n, "fence": 1, **same} for n in range(count)])
