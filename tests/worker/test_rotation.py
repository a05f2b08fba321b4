"""A credential that the provider does not take any more, and its replacement: nothing is lost, nobody has to act."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from posthouse.core.routing import RouteState
from posthouse.worker.alarm import AlarmSettings
from tests.worker.stage import Stage, emails, play
from tests.worker.test_alarm import FINE, URL, Listening

SOON_S = 4.0
"""A look at the file, a round of claiming, and a call."""


def refused(stage: Stage, key: Path, **settings: Any) -> None:
    """A route whose key is an old one, ten emails, and two workers that have been refused for minutes."""
    key.write_text("old-key-1")
    route = {"auth": "bearer", "api_key": f"file:{key}", "concurrency": 4, **settings}
    stage.configure({"main": route}, {"default": {"max_attempts": 1}})
    stage.sandbox("main", api_key="new-key-2")
    stage.enqueue(*emails(10))
    stage.worker()
    stage.worker()


def is_stopped(stage: Stage) -> bool:
    health = stage.store.control.route_health().get("main")
    return health is not None and health.state is RouteState.STOPPED


def test_the_new_key_is_used_as_soon_as_it_is_there_by_all_workers_and_nothing_is_lost(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        chat, key = Listening(FINE), tmp_path / "key"
        stage.alarm = AlarmSettings(transport=chat, url=lambda: URL)
        refused(stage, key)
        await asyncio.sleep(100)
        assert stage.statuses() == {"pending": 10}
        waits = stage.store.control.route_health()["main"].held_until - stage.now()
        key.write_text("new-key-2")
        took_s = await stage.until_status(accepted=10, within_s=SOON_S + 10)
        assert min(stage.calls_at()[-10:]) < 100 + SOON_S, f"its next try was due in {waits} s"
        assert took_s < SOON_S + 10
        assert set(stage.copies().values()) == {1}
        assert {row["failures"] for row in stage.rows()} == {1}
        assert len(chat.heard) == 1

    play(scene)


def test_a_replacement_that_is_wrong_too_is_tried_by_few_calls_and_the_right_one_then(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        key = tmp_path / "key"
        refused(stage, key)
        await asyncio.sleep(60)
        before = len(stage.calls_at())
        key.write_text("")
        await asyncio.sleep(5)
        key.write_text("mistyped-3")
        await asyncio.sleep(5)
        assert len(stage.calls_at()) - before <= 4, "one or two a worker"
        assert is_stopped(stage)
        key.write_text("new-key-2")
        await stage.until_status(accepted=10, within_s=SOON_S + 10)

    play(scene)


def test_a_replacement_that_comes_while_the_database_is_away_counts_when_it_is_back(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        key = tmp_path / "key"
        refused(stage, key)
        await asyncio.sleep(100)
        stage.database.away = True
        key.write_text("new-key-2")
        await asyncio.sleep(5)
        stage.database.away = False
        await stage.until_status(accepted=10, within_s=SOON_S + 12)

    play(scene)


def test_a_worker_that_was_refused_nothing_itself_sees_the_replacement_too(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        key = tmp_path / "key"
        refused(stage, key)
        await asyncio.sleep(60)
        for worker in stage.running:
            worker.process.kill()
        stage.worker()
        await asyncio.sleep(40)
        key.write_text("new-key-2")
        await stage.until(lambda: not is_stopped(stage), within_s=SOON_S)
        assert not stage.statuses().get("failed")

    play(scene)


def test_a_key_that_is_replaced_before_it_is_refused_stops_nothing(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        key = tmp_path / "key"
        refused(stage, key)
        key.write_text("new-key-2")
        await stage.until_status(accepted=10, within_s=30)
        stage.apis["main"].api_key = "newer-key-3"
        key.write_text("newer-key-3")
        await asyncio.sleep(2)
        before = len(stage.calls_at())
        stage.enqueue(*emails(20)[10:])
        await stage.until_status(accepted=20, within_s=30)
        assert len(stage.calls_at()) - before == 10
        assert not is_stopped(stage)

    play(scene)
