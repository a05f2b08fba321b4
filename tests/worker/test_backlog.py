"""Caps with workers at work: they count for whoever enqueues, tell people, and make room where the settings say so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from posthouse.core.switches import Scope, Switch
from posthouse.email import Email
from posthouse.errors import DatabaseUnavailable, QueueFull
from posthouse.outbox import Outbox
from posthouse.store.admission import COUNT_EVERY_S
from posthouse.worker.alarm import AlarmSettings
from tests.worker.stage import Stage, email, play
from tests.worker.test_alarm import FINE, URL, Listening

TYPES = {"newsletter": {"priority": "bulk"}, "code": {"priority": "urgent"}}


def set_up(stage: Stage, **outbox: object) -> Listening:
    """Nothing leaves, because everything is paused."""
    chat = Listening(FINE)
    stage.alarm = AlarmSettings(quiet_s=900.0, transport=chat, url=lambda: URL)
    stage.configure({"main": {}}, TYPES, outbox=outbox)
    stage.sandbox("main")
    stage.store.switches.pause(Switch(Scope.ALL, "", "test", "grace", stage.now()))
    return chat


def news(*numbers: int) -> list[Email]:
    return [email(f"news-{number}", type="newsletter", campaign="spring") for number in numbers]


def test_people_are_told_once_that_it_is_full_and_each_process_refuses_by_the_workers_count() -> None:
    async def scene(stage: Stage) -> None:
        chat = set_up(stage, max_pending=100)
        for _ in range(2):
            stage.worker()
        stage.enqueue(*news(*range(79)))
        await asyncio.sleep(7)
        assert chat.heard == []
        stage.enqueue(*news(79))
        await asyncio.sleep(14)
        assert chat.heard == [
            "Posthouse: outbox: 80 sends are pending, outbox.max_pending is 100: bulk mail is refused"
        ]
        with pytest.raises(QueueFull, match="80 sends are pending"):
            stage.enqueue(*news(80))
        stage.enqueue(email("receipt"), email("code", type="code"))

    play(scene)


def test_room_comes_back_when_the_mail_leaves() -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage, max_pending=10)
        shop = stage.outbox()
        stage.worker()
        stage.enqueue(*news(*range(8)), into=shop)
        with pytest.raises(QueueFull):
            stage.enqueue(*news(8), into=shop)
        stage.store.switches.resume(Scope.ALL, "", who="grace", now=stage.now())
        await stage.until_status(accepted=8, within_s=30)
        await asyncio.sleep(COUNT_EVERY_S)
        stage.enqueue(*news(8), into=shop)

    play(scene)


def test_the_last_in_the_line_make_room_for_more_urgent_mail_and_say_so() -> None:
    async def scene(stage: Stage) -> None:
        chat = set_up(stage, max_pending=100, when_full="shed")
        shop = stage.outbox()
        for _ in range(2):
            stage.worker()
        stage.enqueue(*news(*range(80)), into=shop)
        await asyncio.sleep(1)
        fill(stage, shop, 50)
        stage.enqueue(*[email(f"code-{n}", type="code") for n in range(10)], into=shop)
        await asyncio.sleep(14)

        assert stage.statuses() == {"pending": 100, "cancelled": 40}
        gone = [row for row in stage.rows() if row["status"] == "cancelled"]
        assert {row["dedupe_key"] for row in gone} == {f"k-news-{n}" for n in range(40, 80)}
        assert {row["last_error"] for row in gone} == {
            "shed: the outbox was full, and more urgent mail needed the room"
        }
        assert any("40 bulk sends were cancelled: outbox.max_pending is reached" in heard for heard in chat.heard)

    play(scene)


def test_a_shedding_whose_answer_was_lost_is_not_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage, max_pending=100, when_full="shed")
        shed = stage.store.backlog.shed
        lost: list[int | None] = []

        def shed_and_lose_the_answer(ids: Sequence[int], reason: str, turn: float, now: float) -> int | None:
            ended = shed(ids, reason, turn, now)
            lost.append(ended)
            if len(lost) == 1:
                raise DatabaseUnavailable("the answer was lost on its way")
            return ended

        monkeypatch.setattr(stage.store.backlog, "shed", shed_and_lose_the_answer)
        shop = stage.outbox()
        stage.enqueue(*news(*range(80)), into=shop)
        fill(stage, shop, 50)
        stage.worker()
        await asyncio.sleep(14)
        assert lost == [30]
        assert stage.statuses() == {"pending": 100, "cancelled": 30}

    play(scene)


def fill(stage: Stage, shop: Outbox, count: int) -> None:
    stage.enqueue(*[email(f"receipt-{n}") for n in range(count)], into=shop)


def test_bulk_that_is_too_much_by_itself_is_refused_and_never_cancelled() -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage)
        stage.enqueue(*news(*range(210)))  # before there was a cap
        set_up(stage, max_pending=100, when_full="shed")
        stage.worker()
        await asyncio.sleep(7)
        assert stage.statuses() == {"pending": 210}
        with pytest.raises(QueueFull):
            stage.enqueue(*news(999))

    play(scene)


def test_shedding_beside_workers_that_send_loses_and_doubles_nothing() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {"concurrency": 1}}, TYPES, outbox={"max_pending": 40, "when_full": "shed"})
        stage.sandbox("main", "slow=500ms")
        shop = stage.outbox()
        stage.enqueue(*news(*range(32)), into=shop)
        for _ in range(3):
            stage.worker()
        for number in range(4):
            stage.enqueue(*[email(f"{number}-{n}") for n in range(10)], into=shop)
            await asyncio.sleep(1)
        await stage.until(lambda: set(stage.statuses()) == {"accepted", "cancelled"}, within_s=60)

        assert set(stage.copies().values()) == {1}
        assert stage.statuses()["accepted"] == len(stage.copies())
        cancelled = [row for row in stage.rows() if row["status"] == "cancelled"]
        assert {(row["type"], row["attempts"]) for row in cancelled} == {("newsletter", 0)}

    play(scene)


def test_a_campaign_is_held_by_its_name_and_the_others_are_not() -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage)
        stage.store.switches.resume(Scope.ALL, "", who="grace", now=stage.now())
        stage.store.switches.pause(Switch(Scope.CAMPAIGN, "spring", "", "grace", stage.now()))
        stage.worker()
        stage.enqueue(*news(1, 2), email("other", type="newsletter", campaign="summer"), email("none"))
        await stage.until_status(pending=2, accepted=2)
        assert {row["lane"] for row in stage.rows() if row["status"] == "pending"} == {"newsletter//spring"}
        stage.store.switches.resume(Scope.CAMPAIGN, "spring", who="grace", now=stage.now())
        await stage.until_status(accepted=4)

    play(scene)
