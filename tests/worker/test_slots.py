"""A worker's slots: no more calls at once than there are, and none left empty while the next sends are claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.providers.port import OutgoingMessage
from posthouse.worker.slots import AHEAD_WAIT_MAX_S, Slots
from tests.simulation.virtual_time import run
from tests.worker.stage import Stage, emails, play

QUICK_S = 0.001
CALL_S = 0.1
PLACES = 4


class Provider:
    """Answers each call after `takes_s`, and notes how many are under way."""

    def __init__(self) -> None:
        self.takes_s = QUICK_S
        self.under_way = 0
        self.most = 0
        self.answered = 0

    async def __call__(self, _: OutgoingMessage) -> Verdict:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.takes_s)
        self.under_way -= 1
        self.answered += 1
        return Verdict(Outcome.ACCEPTED, code="250")


def staged(stage: Stage) -> Provider:
    stage.configure({"main": {"concurrency": PLACES}})
    provider = Provider()
    stage.script("main", provider, concurrency=PLACES)
    return provider


def test_where_calls_are_quick_the_next_sends_are_there_before_a_slot_is_empty() -> None:
    async def scene(stage: Stage) -> None:
        provider = staged(stage)
        stage.enqueue(*emails(400))
        stage.worker()
        claimed: list[int] = []
        while provider.answered < 400:
            await asyncio.sleep(QUICK_S)
            claimed.append(stage.statuses().get("sending", 0))
        await stage.until_status(accepted=400)
        assert provider.most == PLACES
        assert max(claimed) > PLACES, "none was claimed ahead"
        assert {row["fence"] for row in stage.rows()} == {1}, "none was claimed and given back"

    play(scene)


def test_what_was_claimed_ahead_is_given_back_when_calls_become_slow() -> None:
    async def scene(stage: Stage) -> None:
        provider = staged(stage)
        stage.enqueue(*emails(400))
        stage.worker()
        await stage.until(lambda: provider.answered > 100, 10.0)
        provider.takes_s = 20.0
        await asyncio.sleep(2.0)  # what waited for a slot, and the results of the quick calls, are written
        for _ in range(100):
            assert stage.statuses()["sending"] == PLACES
            await asyncio.sleep(0.1)
        provider.takes_s = QUICK_S
        await stage.until_status(accepted=400)
        assert provider.most == PLACES
        assert {row["attempts"] for row in stage.rows()} == {1}, "what only waited for a slot was not called"

    play(scene)


def test_a_worker_that_is_stopped_gives_back_what_waits_for_a_slot() -> None:
    async def scene(stage: Stage) -> None:
        provider = staged(stage)
        stage.enqueue(*emails(400))
        worker = stage.worker()
        await stage.until(lambda: provider.answered > 100, 10.0)
        provider.takes_s = 2.0
        assert await worker.stopped() < 5.0
        called = provider.answered
        assert stage.statuses() == {"accepted": called, "pending": 400 - called}

    play(scene)


def slots(allowed: int, takes_well: int) -> Slots:
    facts = {"main": RouteFacts("main", concurrency=100)}
    return Slots(facts, lambda _: allowed, lambda _: takes_well, lambda _: CALL_S)


async def at_work(allowed: int, claim_s: float) -> Slots:
    """All slots are used, and claims are known to take so long."""
    pool = slots(allowed, takes_well=40)
    for _ in range(60):
        with pool.claiming():
            await asyncio.sleep(claim_s)
    for _ in range(allowed):
        pool.begin("main")
    return pool


@pytest.mark.parametrize(
    ("claim_s", "allowed", "ahead"),
    [
        (CALL_S / 2, 40, 20),  # as many as end meanwhile
        (CALL_S * 9, 40, 40),  # at most as many again
        (CALL_S / 50, 40, 0),
        (CALL_S, 39, 0),  # something holds the route back
    ],
)
def test_as_many_are_claimed_ahead_as_end_during_a_claim(claim_s: float, allowed: int, ahead: int) -> None:
    async def main() -> None:
        pool = await at_work(allowed, claim_s)
        assert pool.claimable("main", ahead=True) == pytest.approx(ahead, abs=1)

    run(main())


def test_what_needs_leave_is_never_claimed_ahead() -> None:
    async def main() -> None:
        pool = await at_work(allowed=40, claim_s=CALL_S)
        assert pool.claimable("main", ahead=True)
        assert not pool.claimable("main", ahead=False)

    run(main())


def test_who_waits_begins_in_the_order_of_the_claim_and_only_where_the_route_takes_it_well() -> None:
    async def main() -> None:
        pool, begun = slots(allowed=10, takes_well=2), list[int]()

        def begin(number: int) -> Callable[[], None]:
            def taken() -> None:
                pool.begin("main")
                begun.append(number)

            return taken

        for number in range(5):
            pool.when_free("main", begin(number))
        assert begun == [0, 1]
        pool.end("main")
        assert begun == [0, 1, 2]
        pool.when_free("main", begin(5))
        pool.end("main")
        assert begun == [0, 1, 2, 3], "who comes later does not pass by"
        await asyncio.sleep(AHEAD_WAIT_MAX_S)
        assert begun == [0, 1, 2, 3, 4, 5], "nobody waits longer than that"

    run(main())


@pytest.mark.parametrize(("places", "ended"), [(40, 20), (20, 16), (4, 4)])
def test_a_claim_is_worth_it_when_half_of_many_slots_are_free_or_all_of_few(places: int, ended: int) -> None:
    async def main() -> None:
        pool, now = slots(places, takes_well=places), asyncio.get_running_loop().time
        for _ in range(places):
            pool.begin("main")
        gathering = asyncio.create_task(pool.gather(longest_s=60.0))
        for _ in range(ended - 1):
            pool.end("main")
        await asyncio.sleep(30.0)
        assert not gathering.done()
        pool.end("main")
        await gathering
        assert now() == pytest.approx(30.0, abs=0.1)

    run(main())


def test_nobody_waits_for_a_route_that_nothing_goes_by() -> None:
    async def main() -> None:
        pool, begun = slots(allowed=0, takes_well=10), list[str]()
        pool.when_free("main", lambda: begun.append("main"))
        assert begun == ["main"]

    run(main())


def test_a_send_that_is_planned_for_a_route_which_is_no_more_waits_for_no_slot_there() -> None:
    async def main() -> None:
        pool, begun = slots(allowed=1, takes_well=1), list[str]()
        pool.when_free("gone", lambda: begun.append("gone"))
        assert begun == ["gone"]
        assert pool.room("gone") == 0

    run(main())
