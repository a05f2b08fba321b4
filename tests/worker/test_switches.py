"""Kill switches: obeyed within a second by every worker and on every path, at no cost to the mail that waits."""

from __future__ import annotations

import asyncio

import pytest

from posthouse.core.routing import FOR_EVER, RouteHealth, RouteState
from posthouse.core.switches import Scope, Switch
from tests.worker.stage import Stage, email, emails, play
from tests.worker.test_pace import most_within


def pause(stage: Stage, scope: Scope, value: str = "", for_s: float | None = None) -> float:
    """Pauses now; when that was."""
    until = None if for_s is None else stage.now() + for_s
    stage.store.switches.pause(Switch(scope, value, "test", "grace", stage.now(), until))
    return stage.at()


def resume(stage: Stage, scope: Scope, value: str = "") -> float:
    stage.store.switches.resume(scope, value, who="grace", now=stage.now())
    return stage.at()


def busy(stage: Stage, count: int = 2000) -> None:
    """Eight workers with much to do."""
    stage.sandbox("main", "slow=300ms")
    stage.configure({"main": {"concurrency": 8}}, {"newsletter": {"priority": "bulk"}, "code": {"priority": "urgent"}})
    stage.enqueue(*(email(n, type="newsletter", service="shop") for n in range(count)))
    for _ in range(8):
        stage.worker()


@pytest.mark.parametrize(
    ("scope", "value"),
    [(Scope.ALL, ""), (Scope.TYPE, "newsletter"), (Scope.SERVICE, "shop"), (Scope.LANE, "newsletter/shop")],
)
def test_eight_busy_workers_obey_within_a_second_and_what_waits_loses_nothing(scope: Scope, value: str) -> None:
    async def scene(stage: Stage) -> None:
        busy(stage)
        await asyncio.sleep(2)
        paused_at = pause(stage, scope, value)
        await asyncio.sleep(5)
        assert any(at < paused_at for at in stage.calls_at())
        assert max(stage.calls_at()) < paused_at + 1.0
        assert {row["attempts"] for row in stage.rows() if row["status"] == "pending"} == {0}
        assert set(stage.statuses()) == {"accepted", "pending"}, "what was under way has ended"

    play(scene)


def test_other_mail_goes_on() -> None:
    async def scene(stage: Stage) -> None:
        busy(stage, 500)
        pause(stage, Scope.TYPE, "newsletter")
        await asyncio.sleep(1)
        stage.enqueue(email("now", type="code"))
        await stage.until(lambda: stage.row("k-now")["status"] == "accepted", within_s=2)

    play(scene)


def test_what_is_resumed_comes_back_slowly_and_then_all_of_it() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, {"newsletter": {}})
        pause(stage, Scope.TYPE, "newsletter")
        stage.enqueue(*emails(500, type="newsletter"))
        stage.worker()
        stage.worker()
        await asyncio.sleep(2)
        assert stage.calls_at() == []
        resumed_at = resume(stage, Scope.TYPE, "newsletter")
        await stage.until_status(within_s=120, accepted=500)
        early = [at for at in stage.calls_at() if at < resumed_at + 5]
        assert len(early) > 20
        assert most_within(early, 1.0) <= 16
        assert max(stage.calls_at()) < resumed_at + 35, "at the first pace it would take 50 s"

    play(scene)


def test_a_pause_with_an_end_ends_by_itself() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}})
        paused_at = pause(stage, Scope.ALL, for_s=30)
        stage.enqueue(*emails(5))
        stage.worker()
        await stage.until_status(within_s=60, accepted=5)
        assert min(stage.calls_at()) >= paused_at + 30

    play(scene)


def test_mail_expires_while_it_is_paused_as_it_would_have() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, {"code": {"max_age": "20s"}})
        pause(stage, Scope.TYPE, "code")
        stage.enqueue(email(1, type="code"))
        stage.worker()
        await stage.until_status(within_s=60, expired=1)
        resume(stage, Scope.TYPE, "code")
        await asyncio.sleep(10)
        assert stage.calls_at() == []

    play(scene)


def test_a_replay_obeys_too() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main", "drop:until=3s")
        stage.configure({"main": {"idempotency_lifetime": "1h"}}, worker={"sweep": "1s"})
        stage.enqueue(*emails(5))
        stage.worker()
        await asyncio.sleep(1)
        paused_at = pause(stage, Scope.ALL)
        await asyncio.sleep(30)
        assert max(stage.calls_at()) < paused_at + 1.0
        assert stage.statuses() == {"unknown": 5}
        resume(stage, Scope.ALL)
        await stage.until_status(within_s=200, accepted=5)

    play(scene)


def test_no_replay_takes_a_closed_route_though_nothing_else_is_due() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main", "drop-accepted:first=1,per=all")
        stage.configure({"main": {}}, {"default": {"unknown_wait": "10m"}})
        stage.enqueue(email(1))
        stage.worker()
        await stage.until(lambda: stage.statuses() == {"unknown": 1}, within_s=10)
        closed = RouteHealth("main", RouteState.CLOSED, FOR_EVER, "by grace")
        stage.store.operations.change_route(closed, who="grace", action="close route", detail="", now=stage.now())
        await asyncio.sleep(60)
        assert len(stage.calls_at()) == 1
        stage.store.operations.change_route(
            RouteHealth("main"), who="grace", action="open route", detail="", now=stage.now()
        )
        await stage.until_status(within_s=60, accepted=1)

    play(scene)
