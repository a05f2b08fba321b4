"""`posthouse groups` and `faults`, and what a slow-down shows in status, show and resume."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.group_health import BUCKET_S, CountKey, HealthPolicy, bucket_of
from posthouse.core.limits import Rate
from posthouse.core.pace import Limit
from posthouse.core.policy import TypePolicy
from posthouse.core.routing import RoutePlan
from posthouse.core.sends import Attempt, Via
from posthouse.core.settlement import settle
from posthouse.core.smtp_replies import Phase, Reply
from posthouse.core.smtp_rules import judge_reply
from posthouse.store.database import Database
from posthouse.store.queue import Report
from posthouse.store.store import Store
from tests.cli.conftest import Shell


@pytest.fixture
def store(opened: Database) -> Store:
    return Store(opened)


@pytest.fixture
def slow(store: Store) -> Callable[[], None]:
    """Gmail on main took half of a thousand a minute, within the last whole bucket."""

    def slow() -> None:
        now = store.ledger.now()
        kinds = {EventKind.SENT: 5000, EventKind.DELIVERED: 2500, EventKind.DEFERRED: 2500}
        for kind, number in kinds.items():
            store.group_health.count({CountKey(bucket_of(now) - BUCKET_S, "gmail", "main", kind, Cause.NONE): number})
        store.group_health.judge(HealthPolicy(), now)

    return slow


WHY = "gmail on main is slowed to 500 a minute: 50% of 5,000 were put off or refused within 15 min"


def test_where_nothing_was_sent_that_is_said(shell: Shell) -> None:
    assert shell.run("groups").out == "Nothing was sent or heard of within 1 d.\n"
    assert shell.json("groups", "--since", "2h")["groups"] == []
    assert shell.run("groups", "--since", "soon").code == 2


def test_each_group_is_told_by_route_with_its_shares(shell: Shell, slow: Callable[[], None]) -> None:
    slow()
    said = shell.run("groups").flat
    assert "GROUP ROUTE SENT DELIVERED DEFERRED BOUNCED COMPLAINED" in said
    assert "gmail main 5,000 2,500 (50.0%) 2,500 (50.0%) 0 (0.0%) 0 (0.00%)" in said
    assert f"{WHY} posthouse resume --group gmail ends it" in said
    (group,) = shell.json("groups")["groups"]
    assert (group["group"], group["route"], group["sent"], group["pushed_back_share"]) == ("gmail", "main", 5000, 0.5)
    assert (group["slowed"]["per_minute"], group["slowed"]["was_per_minute"]) == (500, 1000)


def test_what_is_slowed_is_seen_in_status_and_needs_a_person(shell: Shell, slow: Callable[[], None]) -> None:
    assert "Slowed" not in shell.run("status").out
    slow()
    assert f"Slowed {WHY}" in shell.run("status").flat
    document = shell.json("status", "--check", code=1)
    (slowed,) = document["slowed"]
    assert (slowed["group"], slowed["signal"]) == ("gmail", "pushed_back")
    (problem,) = document["problems"]
    assert (problem["name"], problem["text"]) == ("slowed", WHY)


def test_a_send_that_waits_for_it_says_so(shell: Shell, store: Store, slow: Callable[[], None]) -> None:
    slow()
    shell.send("a", "ada@gmail.com")
    shell.send("b", "bob@yahoo.com")
    taken = Limit("slow-down of gmail on main", Rate(1, 60.0))
    store.pacing.permit([taken], 1, store.ledger.now())

    assert f"{WHY}; the next fits in" in shell.json("show", "a")["next"]["text"]
    assert "slowed" not in shell.json("show", "b")["next"]["text"]


def test_resume_ends_a_pause_first_and_then_the_slow_down(shell: Shell, slow: Callable[[], None]) -> None:
    slow()
    shell.run("pause", "--group", "gmail")
    first = shell.run("resume", "--group", "gmail").flat
    assert "Group gmail is resumed" in first
    assert f"Still, {WHY}. The same command again ends that too." in first
    second = shell.run("resume", "--group", "gmail", "--by", "grace")
    assert second.flat == "Group gmail is slowed no more, and is left alone for 1 d."
    assert shell.json("status")["slowed"] == []
    third = shell.run("resume", "--group", "gmail")
    assert (third.code, "group gmail is not paused" in third.err) == (1, True)


def test_our_faults_are_told_by_what_was_said_with_an_example(shell: Shell, store: Store) -> None:
    shell.send("receipt-1", "ada@gmail.com")
    key = store.ledger.story("receipt-1").send["idempotency_key"]
    text = "Our system has detected an unusual rate of mail from 192.0.2.{}"
    news = [
        Event(
            EventKind.DEFERRED,
            time.time() - 10 * n,
            f"p{n}@gmail.com" if n else "ada@gmail.com",
            key=None if n else key,
            cause=Cause.TOO_FAST,
            code="421 4.7.28",
            text=text.format(n),
        )
        for n in range(3)
    ]
    refused = Event(
        EventKind.BOUNCED, time.time(), "eve@shop.example", cause=Cause.NOT_AUTHENTIC, text="DMARC \x1b[2J failed"
    )
    full = Event(EventKind.BOUNCED, time.time(), "bob@gmail.com", cause=Cause.MAILBOX_FULL)
    store.events.store("main", [*news, refused, full], {}, time.time())

    document = shell.json("faults")
    assert [(one["group"], one["cause"], one["number"]) for one in document["faults"]] == [
        ("gmail", "too_fast", 3),
        ("other", "not_authentic", 1),
    ]
    said = shell.run("faults")
    assert "3 times gmail on main: too fast, the latest" in said.flat
    assert "421 4.7.28 Our system has detected an unusual rate" in said.flat
    assert "posthouse show receipt-1" in said.flat
    assert "1 time other on main: our SPF, DKIM, DMARC or reverse DNS" in said.flat
    assert "\x1b" not in said.out
    assert shell.run("faults", "--since", "1ms").out.startswith("No receiver has held anything against us")


def test_what_mail_servers_refuse_at_the_call_is_told_alike(shell: Shell, store: Store) -> None:
    over_smtp = '\n[routes.relay]\nprovider = "smtp"\nurl = "smtp://127.0.0.1:25"\n'
    shell.configure(shell.config.read_text() + over_smtp)
    worker = store.control.register("here", 1, "test")
    plan, said = RoutePlan("relay", {}, pins=True), "5.7.26 This mail from {} is unauthenticated"
    for number, name in enumerate(("ada", "bob", "eve")):
        shell.send(name, f"{name}@gmail.com")
        now = store.ledger.now()
        (claimed,) = store.queue.claim("default///gmail", 1, worker, now, plan)
        verdict = judge_reply(Reply(Phase.RCPT, 550, said.format(f"192.0.2.{number}")))
        route = "main" if name == "eve" else "relay"  # on main, a provider with an API answers
        attempt = Attempt(claimed.state.id, claimed.state.fence, route, now, now, verdict, Via.SEND)
        decide = partial(settle, attempt=attempt, policy=TypePolicy("default", routes=()), now=now, chance=0.5)
        store.queue.settle([Report(claimed.state.id, claimed.state.fence, decide, attempt)], worker, now)

    (document,) = shell.json("faults")["faults"]
    assert (document["group"], document["route"], document["cause"], document["number"]) == (
        *("gmail", "relay", "not_authentic", 2),
    )
    assert document["example"] in ("ada", "bob")
    assert "550 at RCPT TO: 5.7.26 This mail from 192.0.2." in shell.run("faults").flat


def test_a_code_that_the_words_have_is_told_once(shell: Shell, store: Store) -> None:
    news = Event(
        EventKind.BOUNCED, time.time(), "ada@gmail.com", cause=Cause.BLOCKED, code="550 5.7.1", text="550 5.7.1 no"
    )
    store.events.store("main", [news], {}, time.time())
    assert shell.run("faults").out.splitlines()[1] == "    550 5.7.1 no"
