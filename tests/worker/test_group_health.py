"""Mailbox groups with workers at work: one that pushes back is slowed and comes back by steps, and no other is."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.group_health import CountKey, GroupRoute, HealthPolicy, bucket_of
from posthouse.core.switches import Scope, Switch
from posthouse.worker.alarm import AlarmSettings
from tests.worker.stage import EPOCH, Stage, email, play
from tests.worker.test_alarm import FINE, URL, Listening
from tests.worker.test_pace import most_within

GMAIL = GroupRoute("gmail", "main")
SENT, DEFERRED = EventKind.SENT, EventKind.DEFERRED

SELDOM = {"poll_max": "10s", "sweep": "20s", "heartbeat": "20s", "dead_after": "60s"}

LOOKED_S = 15.0

_numbers = itertools.count()


def mail(stage: Stage, to: str, count: int) -> None:
    """So much mail to a group, due now."""
    stage.enqueue(*(email(f"{to}-{n}", to=f"{to}-{n}@{to}") for n in (next(_numbers) for _ in range(count))))


def sent_at(stage: Stage, to: str) -> list[float]:
    """When each call for a group began, in seconds since the play did."""
    return [one.at - EPOCH for one in stage.apis["main"].ledger.acceptances if one.recipients[0].endswith(to)]


def hear(stage: Stage, to: str, kind: EventKind, number: int, cause: Cause = Cause.NONE) -> None:
    news = [Event(kind, stage.now(), f"{n}@{to}", cause=cause) for n in range(number)]
    stage.store.events.store("main", news, {}, stage.now())


async def both(stage: Stage, count: int) -> None:
    """As much mail to both, of which Gmail puts a third off and Yahoo nothing, once somebody looked for it."""
    for to in ("gmail.com", "yahoo.com"):
        mail(stage, to, count)
    await asyncio.sleep(LOOKED_S)
    for to in ("gmail.com", "yahoo.com"):
        hear(stage, to, EventKind.DELIVERED, count)
    hear(stage, "gmail.com", EventKind.DEFERRED, count // 3, Cause.TOO_FAST)


def slowdowns(stage: Stage) -> dict[GroupRoute, int]:
    return {row.where: row.per_minute for row in stage.store.group_health.slowdowns()}


def set_up(stage: Stage, workers: int = 2, **settings: Any) -> Listening:
    chat = Listening(FINE)
    stage.alarm = AlarmSettings(transport=chat, url=lambda: URL)
    stage.sandbox("main")
    stage.configure({"main": {}}, worker=SELDOM, **settings)
    for _ in range(workers):
        stage.worker()
    return chat


def test_a_group_that_pushes_back_is_slowed_and_comes_back_by_steps_and_another_never_notices() -> None:
    async def scene(stage: Stage) -> None:
        chat = set_up(stage)
        await both(stage, 60)
        await stage.until(lambda: slowdowns(stage), within_s=120)
        pace = slowdowns(stage)[GMAIL]
        assert 15 <= pace <= 30
        (told,) = chat.heard
        assert told.startswith(f"Posthouse: group gmail on main slowed: gmail on main is slowed to {pace} a minute: ")
        assert "33% of 60 were put off or refused within 15 min" in told

        asked_at = stage.at() + 1  # by then every worker knows
        await asyncio.sleep(1)
        await both(stage, 60)
        paces: list[int | None] = [pace]
        while paces[-1] is not None and stage.at() < asked_at + 3600:
            await asyncio.sleep(60)
            paces.append(slowdowns(stage).get(GMAIL))
        assert most_within([at for at in sent_at(stage, "gmail.com") if at >= asked_at], 60.0) <= pace + 1
        assert max(sent_at(stage, "yahoo.com")) < asked_at + LOOKED_S, "as soon as somebody looked"
        assert (len(sent_at(stage, "gmail.com")), len(sent_at(stage, "yahoo.com"))) == (120, 120)
        assert paces[-1] is None
        assert len(set(paces)) >= 3, "at once from the slow pace to all of it"
        assert len(chat.heard) == 2
        assert "gmail on main was slowed for" in chat.heard[1]

    play(scene)


def slow(stage: Stage, per_minute: int) -> None:
    """Gmail has just pushed back twice as much a minute."""
    health, now = stage.store.group_health, stage.now()
    sent, put_off = (CountKey(bucket_of(now), "gmail", "main", kind, Cause.NONE) for kind in (SENT, DEFERRED))
    health.count({sent: 2 * per_minute, put_off: 2 * per_minute})
    health.judge(HealthPolicy(), now)
    assert slowdowns(stage) == {GMAIL: per_minute}


@pytest.mark.parametrize("workers", [1, 3])
def test_a_slow_down_holds_over_all_workers(workers: int) -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage, workers)
        slow(stage, 60)
        mail(stage, "gmail.com", 100)
        mail(stage, "yahoo.com", 100)
        await stage.until(lambda: len(sent_at(stage, "yahoo.com")) == 100, within_s=10)
        await asyncio.sleep(60)
        assert most_within(sent_at(stage, "gmail.com"), 60.0) <= 61
        assert len(sent_at(stage, "gmail.com")) >= 55

    play(scene)


def test_a_slower_rate_and_a_pause_hold_beside_it() -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage, groups={"gmail": {"rate": "20/min"}})
        slow(stage, 60)
        mail(stage, "gmail.com", 100)
        await asyncio.sleep(90)
        assert 25 <= len(sent_at(stage, "gmail.com")) <= 31
        stage.store.switches.pause(Switch(Scope.GROUP, "gmail", "", "grace", stage.now()))
        await asyncio.sleep(2)
        before = len(sent_at(stage, "gmail.com"))
        await asyncio.sleep(60)
        assert len(sent_at(stage, "gmail.com")) == before

    play(scene)


def test_who_ends_it_by_hand_is_obeyed_at_the_next_look() -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage)
        slow(stage, 10)
        mail(stage, "gmail.com", 100)
        await asyncio.sleep(30)
        assert len(sent_at(stage, "gmail.com")) < 10
        stage.store.switches.resume(Scope.GROUP, "gmail", who="grace", now=stage.now())
        await stage.until(lambda: len(sent_at(stage, "gmail.com")) == 100, within_s=15)

    play(scene)


def test_nothing_is_slowed_where_the_settings_say_so_and_all_is_counted() -> None:
    async def scene(stage: Stage) -> None:
        chat = set_up(stage, health={"slow_down": False})
        await both(stage, 60)
        await asyncio.sleep(120)
        assert (slowdowns(stage), chat.heard) == ({}, [])
        counts = stage.store.group_health.totals(stage.now() - 3600)[GMAIL]
        assert (counts.sent, counts.delivered, counts.deferred) == (60, 60, 20)

    play(scene)


def test_what_was_counted_while_the_database_was_away_is_written_when_it_is_back() -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage, workers=1)
        mail(stage, "gmail.com", 50)
        await stage.until(lambda: len(sent_at(stage, "gmail.com")) == 50, within_s=12)
        stage.database.away = True
        await asyncio.sleep(20)
        stage.database.away = False
        await asyncio.sleep(20)
        assert stage.store.group_health.totals(0.0)[GMAIL].sent == 50

    play(scene)


def test_the_policy_is_the_published_one_by_default() -> None:
    assert HealthPolicy().complaints == 0.003
