"""What a worker does beside sending: it beats, it sweeps, and neither ends with one failure."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest
from sqlalchemy import delete, update

from posthouse.core.events import Event, EventKind
from posthouse.errors import DatabaseUnavailable
from posthouse.store.schema import sends, workers
from tests.worker.stage import EPOCH, Stage, email, emails, play


def _fail(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("never thought of")


def test_sends_of_a_silent_worker_become_unknown_and_are_found_out() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        api = stage.sandbox("main", "slow=5s")
        stage.enqueue(*emails(10))
        dead = stage.worker()
        await stage.until(lambda: len(api.ledger.acceptances) == 10, 10)
        dead.process.kill()
        stage.worker()
        took_s = await stage.until_status(accepted=10)
        assert 15 <= took_s < 30
        assert set(stage.copies().values()) == {1}
        assert [call["code"] for call in stage.attempts("k-0")] == ["worker_died", "200"]

    play(scene)


def test_a_worker_that_was_cut_off_itself_declares_nobody_dead() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main", "slow=25s")
        stage.configure({"main": {"timeout": "40s"}})
        stage.enqueue(*emails(4))
        first, second = stage.worker(), stage.worker()
        await asyncio.sleep(1)
        stage.database.away = True
        await asyncio.sleep(20)
        stage.database.away = False
        await stage.until_status(accepted=4)
        assert {row["attempts"] for row in stage.rows()} == {1}, "nobody took their calls for a dead worker's"
        await first.stopped()
        await second.stopped()

    play(scene)


@pytest.mark.parametrize("broken", ["reap", "end_lives", "sweep_dependencies"])
def test_a_sweep_that_fails_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main", "drop-accepted:first=1,per=all")
        monkeypatch.setattr(stage.store.sweeps, broken, _fail)
        stage.enqueue(email("lost"))
        worker = stage.worker()
        await asyncio.sleep(20)
        assert stage.row("k-lost")["status"] == "accepted", "its replay was made"

        stage.enqueue(email("follows", after="k-lost"))
        stage.enqueue(email("late"))
        gone = {"expires_at": stage.now() - 1, "next_try_at": EPOCH + 9e6}
        with stage.store.database.write() as connection:
            connection.execute(update(sends).where(sends.c.dedupe_key == "k-late").values(**gone))
        await asyncio.sleep(20)
        assert (stage.row("k-follows")["status"] == "accepted") is (broken != "sweep_dependencies")
        assert (stage.row("k-late")["status"] == "expired") is (broken != "end_lives")

        assert worker.lives
        monkeypatch.undo()
        await asyncio.sleep(20)
        assert stage.statuses() == {"accepted": 2, "expired": 1}

    play(scene)
    assert "never thought of" in caplog.text


def test_an_event_that_came_before_the_answer_finds_its_send() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        api = stage.sandbox("main", "slow=3s")
        stage.enqueue(email("early"))
        stage.worker()
        await stage.until(lambda: len(api.ledger.acceptances) == 1, 10)
        taken = api.ledger.acceptances[0]
        told = Event(EventKind.DELIVERED, stage.now(), "person-early@example.com", message_id=taken.message_id)
        assert stage.store.events.store("main", [told], {}, stage.now()).joined == 0

        await stage.until(lambda: stage.row("k-early")["delivery"] == "delivered", 15)

    play(scene)


def test_a_claim_whose_answer_was_lost_is_given_back_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {"idempotency_header": None}}, {"default": {"on_unknown": "hold"}})
        stage.sandbox("main")
        claim = stage.store.queue.claim
        lost: list[Any] = []

        def claim_and_lose_the_answer(*given: Any) -> Any:
            claimed = claim(*given)
            if lost:
                return claimed
            lost.extend(claimed)
            raise DatabaseUnavailable("the answer was lost on its way")

        monkeypatch.setattr(stage.store.queue, "claim", claim_and_lose_the_answer)
        stage.enqueue(*emails(10))
        stage.worker()
        await stage.until_status(sending=10)
        took_s = await stage.until_status(accepted=10, within_s=90)
        assert took_s > 30, "it might still have been on its way"
        assert len(lost) == 10
        assert set(stage.copies().values()) == {1}
        assert {row["attempts"] for row in stage.rows()} == {1}, "no call had begun, so none is recorded"

    play(scene)


def test_a_worker_that_the_table_has_forgotten_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main", "slow=5s")
        stage.enqueue(*emails(3))
        worker = stage.worker()
        await asyncio.sleep(1)
        with stage.store.database.write() as connection:
            connection.execute(delete(workers))
        with pytest.raises(Exception, match="its row is gone from email_workers"):
            await worker.ended()
        assert stage.at() < 20
        assert stage.statuses() == {"accepted": 3}, "its calls ended and were settled"

    play(scene)


def test_a_replay_under_way_ends_before_its_worker_leaves() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main", "drop:first=1,per=all", "slow-not-accepted=8s")
        stage.enqueue(email(1))
        worker = stage.worker()
        await stage.until_status(unknown=1)
        await stage.until(lambda: stage.row("k-1")["fence"] == 2, 60)
        await asyncio.sleep(1)  # of the eight that its replay takes
        took_s = await worker.stopped()
        assert stage.statuses() == {"accepted": 1}
        assert took_s < 10
        assert [call["code"] for call in stage.attempts("k-1")] == ["reset", "200"]

    play(scene)


def test_an_idle_worker_leaves_at_once() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main")
        for number in range(5):
            worker = stage.worker()
            await asyncio.sleep(60 + number / 7)
            assert await worker.stopped() < 0.1

    play(scene)
