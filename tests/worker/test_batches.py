"""Sends that share a call: each has what it would have had alone, and nobody waits for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from posthouse.core.policy import Priority, RouteFacts, TypePolicy
from posthouse.core.sends import Via
from posthouse.core.switches import Scope
from posthouse.providers.port import OutgoingMessage
from posthouse.sandbox.api import Exchange
from posthouse.sandbox.replies import Refusal, plain_reply
from posthouse.sandbox.shapes import OWN
from posthouse.store.taking import ClaimedSend
from posthouse.worker.batches import Batches
from posthouse.worker.caller import Call, Caller
from posthouse.worker.settler import nobody_waits
from tests.providers.postmark_sandbox import PostmarkSandbox
from tests.worker.stage import EPOCH, Stage, email, emails, play
from tests.worker.test_pace import most_within
from tests.worker.test_switches import pause

POSTMARK: Mapping[str, object] = {
    "provider": "postmark",
    "url": "https://postmark.example",
    "api_key": "k",
    "auth": None,
    "idempotency_header": None,
    "look_up_lag": "30s",
    "concurrency": 50,
}


class RefusesWhole(PostmarkSandbox):
    """Refuses a whole batch for one message in it, and says not which."""

    def _take_all(self, messages: Sequence[Mapping[str, Any]], now: float) -> Exchange:
        if any("rejected" in message["To"] for message in messages):
            return Exchange(plain_reply(OWN.refused(Refusal(422, "invalid_json"))))
        return super()._take_all(messages, now)


def postmark(
    stage: Stage, *faults: str, kind: type[PostmarkSandbox] = PostmarkSandbox, **settings: object
) -> PostmarkSandbox:
    """The stage with a route that shares calls, and its server."""
    api = stage.sandbox("main", *faults, kind=kind)
    assert isinstance(api, PostmarkSandbox)
    types = {"default": {"retry_first": "1s"}, "code": {"priority": "urgent"}, "newsletter": {"priority": "bulk"}}
    stage.configure({"main": {**POSTMARK, **settings}}, types)
    return api


def sizes(api: PostmarkSandbox) -> list[int]:
    return [size for _, size in api.handed_in]


def each_has_one_copy(stage: Stage, count: int) -> bool:
    return set(stage.copies().values()) == {1} and len(stage.copies()) == count


def test_a_hundred_go_by_few_calls_and_each_has_its_own_id_and_attempt() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage)
        stage.enqueue(*emails(100))
        stage.worker()
        await stage.until_status(accepted=100)
        assert max(sizes(api)) > 20
        assert len(sizes(api)) < 10
        assert each_has_one_copy(stage, 100)
        for row in stage.rows():
            taken = api.ledger.by_id(row["message_id"])
            assert taken is not None
            assert taken.recipients == (row["to_address"],)
            assert len(stage.attempts(row["dedupe_key"])) == 1

    play(scene)


@pytest.mark.parametrize(("batch", "concurrency", "most"), [(1, 50, 1), (7, 50, 7), (500, 20, 20)])
def test_no_call_has_more_messages_than_the_route_takes_or_calls_may_be_under_way(
    batch: int, concurrency: int, most: int
) -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, batch=batch, concurrency=concurrency)
        stage.enqueue(*emails(100))
        stage.worker()
        await stage.until_status(accepted=100)
        assert max(sizes(api)) == most
        assert each_has_one_copy(stage, 100)

    play(scene)


@pytest.mark.parametrize("kind", [PostmarkSandbox, RefusesWhole])
def test_one_poison_message_among_a_hundred_fails_alone(kind: type[PostmarkSandbox]) -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, kind=kind)
        stage.enqueue(*emails(50), email("poison", to="rejected@example.com"), *emails(99)[50:])
        stage.worker()
        await stage.until_status(accepted=99, failed=1, within_s=10)
        assert each_has_one_copy(stage, 99)
        assert {len(stage.attempts(row["dedupe_key"])) for row in stage.rows()} == {1}
        assert stage.row("k-poison")["status"] == "failed"
        assert max(sizes(api)) > 20

    play(scene)


@pytest.mark.parametrize("fault", ["drop-accepted", "stall-accepted", "truncated", "malformed", "500-accepted"])
def test_a_batch_whose_answer_is_lost_is_asked_about_message_by_message(fault: str) -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, f"{fault}:first=1,per=all,at=send")
        stage.enqueue(*emails(30))
        stage.worker()
        await stage.until(lambda: stage.statuses().get("unknown") == 30, within_s=20)
        assert sizes(api) == [30]
        await stage.until_status(accepted=30, within_s=200)
        assert sizes(api) == [30], "nothing was sent again"
        assert each_has_one_copy(stage, 30)
        assert not any(row["maybe_duplicate"] for row in stage.rows())

    play(scene)


def test_a_batch_that_was_lost_on_its_way_is_found_missing_and_goes_out_once() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, "drop:first=1,per=all,at=send")
        stage.enqueue(*emails(30))
        stage.worker()
        await stage.until_status(accepted=30, within_s=200)
        assert sum(sizes(api)) == 60
        assert each_has_one_copy(stage, 30)

    play(scene)


def test_a_call_that_is_refused_as_a_whole_costs_nobody_an_attempt_and_each_goes_by_itself() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, "413:first=1,per=all,at=send")
        stage.enqueue(*emails(30))
        stage.worker()
        await stage.until_status(accepted=30, within_s=5)
        assert sizes(api) == [30, *[1] * 30]
        assert {row["attempts"] for row in stage.rows()} == {1}

    play(scene)


def test_what_goes_by_itself_after_all_has_leave_of_its_own() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, kind=RefusesWhole, rate="20/second", burst=10)
        stage.enqueue(email("poison", to="rejected@example.com"), *emails(60))
        stage.worker()
        await stage.until_status(accepted=60, failed=1, within_s=30)
        times = [at for at, size in api.handed_in for _ in range(size)]
        assert max(sizes(api)) > 1
        assert most_within(times, 1.0) <= 20
        assert each_has_one_copy(stage, 60)

    play(scene)


def test_a_rate_holds_for_messages_however_many_share_a_call() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, rate="100/second", burst=30)
        stage.enqueue(*emails(300))
        stage.worker()
        stage.worker()
        await stage.until_status(accepted=300, within_s=30)
        assert max(sizes(api)) > 1
        assert most_within(stage.calls_at(), 1.0) <= 101

    play(scene)


def test_places_over_all_workers_are_counted_in_messages() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, "slow=1s", total_concurrency=12)
        stage.enqueue(*emails(60))
        for _ in range(3):
            stage.worker()
        await stage.until_status(accepted=60, within_s=60)
        times = [at for at, size in api.handed_in for _ in range(size)]
        assert most_within(times, 0.9) <= 12
        assert max(sizes(api)) > 1

    play(scene)


def test_a_pause_holds_for_batches() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, "slow=300ms", concurrency=20)
        stage.enqueue(*emails(1000))
        stage.worker()
        await asyncio.sleep(2)
        paused_at = pause(stage, Scope.ALL)
        await asyncio.sleep(5)
        assert max(at - EPOCH for at, _ in api.handed_in) < paused_at + 1.0
        assert set(stage.statuses()) == {"accepted", "pending"}

    play(scene)


def test_an_urgent_code_goes_at_once_and_alone() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, "slow=200ms")
        stage.enqueue(*emails(2000, type="newsletter"))
        stage.worker()
        await asyncio.sleep(2)
        asked_at = stage.now()
        stage.enqueue(email("code-1", type="code"), email("code-2", type="code"))
        await stage.until(lambda: stage.row("k-code-2")["status"] == "accepted", within_s=2)
        alone = [at for at, size in api.handed_in if size == 1 and at > asked_at]
        assert len(alone) >= 2
        assert stage.row("k-code-1")["accepted_at"] - asked_at < 1.0

    play(scene)


def test_a_message_that_is_alone_goes_by_the_call_for_one() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage)
        stage.worker()
        for number in range(3):
            stage.enqueue(email(number))
            await asyncio.sleep(3)
        assert sizes(api) == [1, 1, 1]
        assert stage.statuses() == {"accepted": 3}

    play(scene)


def test_a_failed_call_is_one_failure_to_the_breaker_however_many_shared_it() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, "500:first=4,per=all,at=send", concurrency=30)
        stage.enqueue(*emails(120))
        stage.worker()
        await stage.until(lambda: sum(sizes(api)) >= 120, within_s=20)
        await asyncio.sleep(1)
        assert not any(health.is_tripped for health in stage.store.control.route_health().values())
        await stage.until_status(accepted=120, within_s=200)
        assert each_has_one_copy(stage, 120)

    play(scene)


def test_refusals_alike_beside_an_acceptance_are_no_fault_of_the_route() -> None:
    async def scene(stage: Stage) -> None:
        postmark(stage)
        poison = [email(f"p-{number}", to=f"rejected+{number}@example.com") for number in range(20)]
        stage.enqueue(*emails(10), *poison, *(email(number) for number in range(10, 20)))
        stage.worker()
        await stage.until_status(accepted=20, failed=20, within_s=5)
        assert not stage.store.control.route_health()

    play(scene)


def test_the_same_refusal_for_a_whole_batch_stops_the_route_and_burns_no_mail() -> None:
    async def scene(stage: Stage) -> None:
        postmark(stage, "422:until=20s,per=recipient,first=9")
        stage.enqueue(*emails(30))
        stage.worker()
        await asyncio.sleep(3)
        assert stage.statuses() == {"pending": 30}
        await stage.until_status(accepted=30, within_s=300)

    play(scene)


def test_a_worker_that_is_killed_in_mid_call_loses_and_doubles_nothing() -> None:
    async def scene(stage: Stage) -> None:
        postmark(stage, "slow=3s:until=10s")
        stage.enqueue(*emails(80))
        first = stage.worker()
        await asyncio.sleep(1)
        first.process.kill()
        stage.worker()
        await stage.until_status(accepted=80, within_s=400)
        assert each_has_one_copy(stage, 80)

    play(scene)


def test_a_worker_that_has_to_leave_in_mid_call_says_so_of_each() -> None:
    async def scene(stage: Stage) -> None:
        api = postmark(stage, "stall-accepted:until=30s", timeout="60s")
        stage.configure({"main": {**POSTMARK, "timeout": "60s"}}, worker={"shutdown_grace": "3s"})
        stage.enqueue(*emails(30))
        worker = stage.worker()
        await asyncio.sleep(2)
        assert await worker.stopped() < 4
        assert {stage.attempts(row["dedupe_key"])[0]["code"] for row in stage.rows()} == {"cut_off"}
        stage.worker()
        await stage.until_status(accepted=30, within_s=300)
        assert each_has_one_copy(stage, 30)
        assert sizes(api) == [30]

    play(scene)


# The gathering itself, with calls that are only counted.


class Counting:
    """Stands for the caller: makes no call."""

    def __init__(self) -> None:
        self.made: list[list[str]] = []
        self.cut_off = False
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def call(self, _route: str, *calls: Call) -> list[Call]:
        self.made.append([call.claimed.key for call in calls])
        self.began.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cut_off = True  # which the caller reports for each
        return []


class Gathering:
    """Sends on their way through `Batches`, each in a task of its own."""

    def __init__(self, batch_max: int = 50) -> None:
        self.caller = Counting()
        policies = {
            "default": TypePolicy("default", ("main",)),
            "code": TypePolicy("code", ("main",), priority=Priority.URGENT),
        }
        facts = {"main": RouteFacts("main", batch_max=batch_max), "single": RouteFacts("single")}
        self._batches = Batches(cast(Caller, self.caller), policies, facts)
        self.asked: list[str] = []

    def start(self, key: str, type_: str = "default", route: str = "main", gate: bool = True) -> asyncio.Task[bool]:
        state = SimpleNamespace(type=type_)
        claimed = cast(ClaimedSend, SimpleNamespace(key=key, state=state, lane=type_))
        call = Call(claimed, cast(OutgoingMessage, None), Via.SEND, nobody_waits)

        def may_begin() -> bool:
            self.asked.append(key)
            return gate

        async def send() -> bool:
            return await self._batches.made(await self._batches.join(route, call, may_begin), call)

        return asyncio.create_task(send())


async def test_those_who_are_ready_in_one_moment_share_a_call_and_the_next_ones_have_theirs() -> None:
    gathering = Gathering()
    await asyncio.gather(*(gathering.start(key) for key in "abc"))
    await asyncio.gather(*(gathering.start(key) for key in "de"))
    assert gathering.caller.made == [["a", "b", "c"], ["d", "e"]]


async def test_lanes_and_urgent_sends_and_routes_that_take_one_share_with_nobody() -> None:
    gathering = Gathering()
    await asyncio.gather(
        gathering.start("a"),
        gathering.start("code-1", "code"),
        gathering.start("code-2", "code"),
        gathering.start("b"),
        gathering.start("single-1", route="single"),
        gathering.start("single-2", route="single"),
    )
    assert sorted(gathering.caller.made) == [["a", "b"], ["code-1"], ["code-2"], ["single-1"], ["single-2"]]


async def test_a_full_call_leaves_and_the_rest_has_another() -> None:
    gathering = Gathering(batch_max=2)
    await asyncio.gather(*(gathering.start(key) for key in "abcde"))
    assert sorted(gathering.caller.made) == [["a", "b"], ["c", "d"], ["e"]]


async def test_every_gate_is_asked_right_before_the_call_and_who_may_not_begin_stays_out() -> None:
    gathering = Gathering()
    await asyncio.gather(gathering.start("a"), gathering.start("b", gate=False), gathering.start("c"))
    assert gathering.asked == ["a", "b", "c"]
    assert gathering.caller.made == [["a", "c"]]


async def test_nobody_is_called_where_no_gate_is_open() -> None:
    gathering = Gathering()
    await asyncio.gather(gathering.start("a", gate=False), gathering.start("b", gate=False))
    assert gathering.caller.made == []


async def test_who_is_cancelled_before_the_call_is_in_none_and_the_others_go() -> None:
    gathering = Gathering()
    tasks = [gathering.start(key) for key in "abc"]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert tasks[0].cancelled()
    assert gathering.caller.made == [["b", "c"]]


async def test_who_is_cancelled_in_the_moment_of_the_call_goes_with_it() -> None:
    gathering = Gathering()
    tasks = [gathering.start(key) for key in "abc"]
    await asyncio.sleep(0)
    tasks[2].cancel()  # of which it hears when the first has begun the call for all
    assert await asyncio.gather(*tasks) == [True, True, True]
    assert gathering.caller.made == [["a", "b", "c"]]


async def test_when_all_are_cancelled_in_mid_call_it_is_cut_off_and_nobody_is_given_back() -> None:
    gathering = Gathering()
    gathering.caller.may_end.clear()
    tasks = [gathering.start(key) for key in "abc"]
    await gathering.caller.began.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert gathering.caller.made == [["a", "b", "c"]]
    assert gathering.caller.cut_off
