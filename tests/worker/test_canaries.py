"""A quiet standby gets one message now and then, whatever the workers do; and people are told when it doesn't work."""

from __future__ import annotations

import asyncio
from typing import Any

from posthouse.core.lifecycle import Status
from posthouse.core.routing import FOR_EVER, RouteHealth, RouteState
from posthouse.core.switches import Scope, Switch
from posthouse.worker.alarm import AlarmSettings
from tests.worker.stage import Stage, email, play
from tests.worker.test_alarm import FINE, URL, Listening

EVERY_S = 300.0
SOON_S = 30.0


def set_up(stage: Stage, *faults: str, workers: int = 2, **standby: Any) -> Listening:
    """A main route that carries the mail, and a standby that gets canaries; what people are told."""
    chat = Listening(FINE)
    stage.alarm = AlarmSettings(transport=chat, url=lambda: URL)
    asked = {"canary_to": "Ops <ops@example.com>", "canary_every": "5m", **standby}
    slow = {"heartbeat": "60s", "dead_after": "600s", "sweep": "60s", "poll_min": "10s", "poll_max": "10s"}
    stage.configure({"main": {}, "standby": asked}, worker=slow)
    stage.sandbox("main")
    stage.sandbox("standby", *faults)
    for _ in range(workers):
        stage.worker()
    return chat


def made(stage: Stage) -> dict[str, str]:
    """The status of every canary by its key."""
    rows = stage.store.ledger.find(["canary.standby"], None, 1000)
    return {row["dedupe_key"]: row["status"] for row in rows}


def test_a_standby_that_was_quiet_for_long_gets_one_message_whatever_the_number_of_workers() -> None:
    async def scene(stage: Stage) -> None:
        chat = set_up(stage, workers=3)
        await stage.until(lambda: stage.calls_at("standby"), within_s=SOON_S)
        await asyncio.sleep(EVERY_S + 130)
        first, second = stage.calls_at("standby")
        assert EVERY_S <= second - first <= EVERY_S + 120
        assert set(made(stage).values()) == {"accepted"}
        assert set(stage.copies("standby")) == {"ops@example.com"}
        assert stage.apis["standby"].ledger.duplicates == 0
        (caught, *_) = stage.apis["standby"].ledger.acceptances
        assert caught.subject == "Posthouse: the route standby works"
        assert not stage.calls_at("main")
        assert not chat.heard
        assert stage.rows() == [], "nobody who asks for nothing in particular sees them"

    play(scene)


def test_a_route_that_carries_mail_gets_none() -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage, workers=1)
        await stage.until(lambda: stage.calls_at("standby"), within_s=SOON_S)
        stage.store.operations.change_route(
            RouteHealth("main", RouteState.CLOSED, FOR_EVER, "by ada"), who="ada", action="close", detail="", now=0.0
        )
        for number in range(3):
            await asyncio.sleep(EVERY_S * 0.6)
            stage.enqueue(email(number))
        await asyncio.sleep(30)
        assert stage.copies("standby") == {"ops@example.com": 1} | {f"person-{n}@example.com": 1 for n in range(3)}

    play(scene)


def test_when_a_worker_dies_with_a_canary_another_one_makes_no_second_of_the_same_time() -> None:
    async def scene(stage: Stage) -> None:
        set_up(stage, workers=1)
        await stage.until(lambda: made(stage), within_s=SOON_S)
        stage.running[0].process.kill()
        stage.worker()
        stage.worker()
        await asyncio.sleep(240)
        assert len(made(stage)) == 1

    play(scene)


def test_none_is_made_for_a_route_that_a_person_has_closed_or_whose_canaries_are_paused() -> None:
    async def scene(stage: Stage) -> None:
        stage.store.operations.change_route(
            RouteHealth("standby", RouteState.CLOSED, stage.now() + 100, "by ada"),
            who="ada",
            action="close",
            detail="",
            now=stage.now(),
        )
        stage.store.switches.pause(Switch(Scope.TYPE, "canary.standby", who="ada", until=stage.now() + 150))
        chat = set_up(stage)
        await asyncio.sleep(140)
        assert not made(stage)
        await stage.until(lambda: stage.calls_at("standby"), within_s=2 * SOON_S)
        assert not chat.heard

    play(scene)


def test_people_are_told_once_that_the_standby_does_not_work_and_again_after_it_did() -> None:
    async def scene(stage: Stage) -> None:
        chat = set_up(stage, "422:until=500s", "422:from=900s", workers=1)
        await asyncio.sleep(450)
        assert Status.FAILED.value in made(stage).values()
        told = [said for said in chat.heard if "canary standby" in said]
        assert len(told) == 1
        assert "the route does not work, a message by it was not accepted" in told[0]
        await asyncio.sleep(420)
        assert Status.ACCEPTED.value in made(stage).values()
        await asyncio.sleep(700)
        assert len([said for said in chat.heard if "canary standby" in said]) == 2

    play(scene)


def test_a_standby_that_stops_is_told_of_and_what_it_could_not_take_expires() -> None:
    async def scene(stage: Stage) -> None:
        chat = set_up(stage, "401", workers=1)
        await asyncio.sleep(1.5 * EVERY_S)
        assert Status.EXPIRED.value in made(stage).values()
        assert not stage.copies("standby")
        assert len([said for said in chat.heard if "canary standby" in said]) == 1

    play(scene)
