"""Calls at once over all workers: never more than the route allows, all of them used, shared, and given back."""

from __future__ import annotations

import asyncio
from collections import Counter

from posthouse.core.outcome import Outcome, Verdict
from posthouse.providers.port import OutgoingMessage
from tests.worker.stage import Stage, emails, play

TOTAL = 4
CALL_S = 0.5


class Counting:
    """An answer that takes a while, and how many calls at once there were."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    async def __call__(self, message: OutgoingMessage) -> Verdict:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(CALL_S)
        finally:
            self.running -= 1
        return Verdict(Outcome.ACCEPTED, message_id=f"m-{message.send_id}")


def counting(stage: Stage, count: int, **facts: object) -> Counting:
    """A limited route with mail for it."""
    answer = Counting()
    stage.configure({"main": {}})
    stage.script("main", answer, **({"total_concurrency": TOTAL, "concurrency": 32} | facts))
    stage.enqueue(*emails(count))
    return answer


def shares(stage: Stage) -> Counter[int]:
    """How many sends each worker had the last call of."""
    return Counter(stage.attempts(row["dedupe_key"])[-1]["worker"] for row in stage.rows())


def test_several_workers_together_never_make_more_calls_at_once_than_the_route_allows_and_use_them_all() -> None:
    async def scene(stage: Stage) -> None:
        answer = counting(stage, 120)
        for _ in range(3):
            stage.worker()
        took = await stage.until_status(accepted=120)
        assert answer.most == TOTAL
        assert took < 120 / TOTAL * CALL_S * 1.3, "nearly all of the time all places were in use"

    play(scene)


def test_a_worker_that_comes_later_gets_its_share() -> None:
    async def scene(stage: Stage) -> None:
        answer = counting(stage, 200)
        stage.worker()
        await asyncio.sleep(5)
        stage.worker()
        await stage.until_status(accepted=200)
        assert answer.most == TOTAL
        assert min(shares(stage).values()) > 60

    play(scene)


def test_the_places_of_a_worker_that_was_killed_are_the_others_as_soon_as_it_is_dead() -> None:
    async def scene(stage: Stage) -> None:
        answer = counting(stage, 40)
        first = stage.worker()
        await asyncio.sleep(2)
        first.process.kill()
        answer.running = 0
        stage.worker()
        await stage.until(lambda: stage.statuses().get("accepted", 0) >= 36, within_s=60)
        assert answer.most == TOTAL

    play(scene)


def test_a_worker_that_leaves_gives_its_places_back_at_once() -> None:
    async def scene(stage: Stage) -> None:
        counting(stage, 40)
        first = stage.worker()
        await asyncio.sleep(2)
        second = stage.worker()
        await first.stopped()
        left_at = stage.at()
        await stage.until_status(accepted=40)
        assert stage.at() - left_at < 32 / TOTAL * CALL_S * 1.5 + 2
        assert second.lives

    play(scene)


def test_fewer_places_than_workers_still_serve_all_the_mail() -> None:
    async def scene(stage: Stage) -> None:
        answer = counting(stage, 20, total_concurrency=1)
        for _ in range(3):
            stage.worker()
        await stage.until_status(accepted=20)
        assert answer.most == 1

    play(scene)


def test_a_route_without_a_limit_over_all_workers_asks_the_database_for_no_places() -> None:
    async def scene(stage: Stage) -> None:
        answer = counting(stage, 40, total_concurrency=None, concurrency=8)
        stage.worker()
        stage.worker()
        await stage.until_status(accepted=40)
        assert answer.most > 8, "each worker has its own"

    play(scene)
