"""What is claimed, when, and how much of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from posthouse.errors import SchemaError
from tests.worker.stage import EPOCH, Stage, email, emails, play


def test_no_more_is_claimed_than_can_be_started_at_once() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {"concurrency": 3}})
        stage.sandbox("main", "slow=1s")
        stage.enqueue(*emails(30))
        stage.worker()
        await stage.until_status(accepted=30)
        assert {row["fence"] for row in stage.rows()} == {1}, "none was claimed and given back"

    play(scene)


def test_sends_of_an_unknown_type_are_left_alone_and_hold_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}}, {"new": {}})
        stage.sandbox("main")
        stage.enqueue(*emails(5, type="new"))
        stage.enqueue(email("known"))
        newer = stage.config
        stage.configure({"main": {}})
        stage.worker()
        await stage.until_status(accepted=1, pending=5)
        await asyncio.sleep(60)
        assert stage.statuses() == {"accepted": 1, "pending": 5}
        assert {row["fence"] for row in stage.rows() if row["type"] == "new"} == {0}

        stage.worker(newer)
        await stage.until_status(accepted=6)

    play(scene)
    assert caplog.text.count("type 'new' is not configured here") == 1


def test_mail_for_later_is_picked_up_as_soon_as_it_is_due() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main")
        stage.enqueue(email(1, send_at=datetime.fromtimestamp(EPOCH + 100.3, UTC)))
        stage.worker()
        await stage.until_status(accepted=1, within_s=200)
        (called_at,) = stage.calls_at()
        assert 100.3 <= called_at < 100.8

    play(scene)


def test_new_mail_waits_little_more_than_a_second_for_an_idle_worker() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main")
        stage.worker()
        await asyncio.sleep(600)
        for number in range(20):
            stage.enqueue(email(number))
            assert await stage.until_status(accepted=number + 1) < 1.4
            await asyncio.sleep(30 + number / 7)

    play(scene)


def test_a_lane_that_cannot_be_claimed_from_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}}, {"bad": {"priority": "urgent"}})
        stage.sandbox("main")
        claim = stage.store.queue.claim

        def claim_or_raise(lane: str, *args: Any) -> Any:
            if lane == "bad":
                raise RuntimeError("a row that nobody can read")
            return claim(lane, *args)

        monkeypatch.setattr(stage.store.queue, "claim", claim_or_raise)
        stage.enqueue(email("bad", type="bad"), *emails(10))
        worker = stage.worker()
        await stage.until_status(accepted=10, pending=1)
        await asyncio.sleep(600)
        assert worker.lives

        monkeypatch.undo()
        await stage.until_status(accepted=11)
        await worker.stopped()

    play(scene)
    assert "a row that nobody can read" in caplog.text
    assert caplog.text.count("Traceback") < 100, "it is said again from time to time, not with every round"


def test_a_worker_goes_on_after_a_round_that_failed_for_an_unexpected_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main")
        monkeypatch.setattr(stage.store.queue, "due_lanes", _failing(stage.store.queue.due_lanes, times=2))
        stage.enqueue(email(1))
        worker = stage.worker()
        await stage.until_status(accepted=1)
        assert worker.lives

    play(scene)
    assert caplog.text.count("never thought of") >= 2


def test_a_worker_ends_when_the_tables_are_no_longer_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main")
        worker = stage.worker()
        await asyncio.sleep(10)

        def changed() -> None:
            raise SchemaError("the tables are missing or older than this release; run: posthouse migrate")

        monkeypatch.setattr(stage.store.queue, "due_lanes", changed)
        with pytest.raises(SchemaError, match="posthouse migrate"):
            await worker.ended()
        assert stage.store.control.workers() == [], "it has left in good order"

    play(scene)


def _failing(call: Callable[..., Any], times: int) -> Callable[..., Any]:
    left = [RuntimeError("never thought of")] * times

    def fail_first(*args: Any) -> Any:
        if left:
            raise left.pop()
        return call(*args)

    return fail_first
