"""Rates and quotas over all workers, counted at the provider: never exceeded, nearly all of it used."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from posthouse.core.suppression import Suppress, SuppressionCause
from posthouse.email import Email
from posthouse.worker import pace
from posthouse.worker.alarm import AlarmSettings
from tests.worker.stage import Stage, email, emails, play
from tests.worker.test_alarm import FINE, URL, Listening


def most_within(times: Sequence[float], seconds: float) -> int:
    """The most events in any window of that length."""
    ordered = sorted(times)
    return max(bisect_right(ordered, begun + seconds - 1e-9) - place for place, begun in enumerate(ordered))


@pytest.mark.parametrize("workers", [1, 4])
def test_no_second_holds_more_than_the_rate_however_many_workers_there_are_and_nearly_all_of_it_is_used(
    workers: int,
) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"rate": "50/second"}})
        stage.enqueue(*emails(300))
        for _ in range(workers):
            stage.worker()
        took = await stage.until_status(accepted=300)
        times = stage.calls_at()
        assert most_within(times, 1.0) <= 51
        assert 300 / took >= 0.95 * 50 - 1

    play(scene)


def test_a_restart_in_mid_window_exceeds_nothing_and_loses_nothing() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"rate": "20/second"}})
        stage.enqueue(*emails(200))
        for _ in range(4):
            running = stage.worker()
            await asyncio.sleep(1.7)
            await running.stopped()
        stage.worker()
        await stage.until_status(accepted=200)
        assert most_within(stage.calls_at(), 1.0) <= 21
        assert set(stage.copies().values()) == {1}

    play(scene)


def test_a_quota_holds_in_every_window_and_people_are_told_before_it_is_used_up() -> None:
    async def scene(stage: Stage) -> None:
        chat = Listening(FINE)
        stage.alarm = AlarmSettings(transport=chat, url=lambda: URL)
        stage.sandbox("main")
        stage.configure({"main": {"quota": "100/min"}})
        stage.enqueue(*emails(250))
        stage.worker()
        stage.worker()
        await asyncio.sleep(30)
        assert stage.statuses() == {"accepted": 100, "pending": 150}
        assert chat.heard == ["Posthouse: quota of route main: 80 % of it is used"]
        await stage.until_status(within_s=300, accepted=250)
        assert most_within(stage.calls_at(), 60) <= 100
        assert {row["attempts"] for row in stage.rows()} == {1}

    play(scene)


NO_SWEEP = {"sweep": "10m"}


def expiring(stage: Stage, *numbers: int, after_s: float) -> list[Email]:
    """Emails that end before their turn comes."""
    expires = datetime.fromtimestamp(stage.now() + after_s, UTC)
    return [email(number, expires=expires) for number in numbers]


def test_what_has_expired_when_its_turn_comes_takes_no_turn_from_what_has_not() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"rate": "6/min"}}, worker=NO_SWEEP)
        stage.enqueue(email(1), *expiring(stage, *range(2, 12), after_s=5), email(12))
        stage.worker()
        took = await stage.until_status(accepted=2, expired=10)
        assert took < 15

    play(scene)


def test_what_has_expired_when_its_turn_comes_takes_nothing_of_a_quota() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"quota": "3/min"}}, worker=NO_SWEEP)
        stage.enqueue(*emails(3), *expiring(stage, *range(10, 20), after_s=5), *(email(n) for n in (20, 21, 22)))
        stage.worker()
        took = await stage.until_status(within_s=200, accepted=6, expired=10)
        assert took < 80

    play(scene)


def test_what_nobody_may_get_takes_nothing_of_a_quota() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"quota": "3/min"}})
        stage.enqueue(*(email(n, to=f"gone-{n}@example.com") for n in range(3)), email(4))
        gone = [Suppress(f"gone-{n}@example.com", SuppressionCause.MANUAL) for n in range(3)]
        stage.store.suppressions.add(gone, stage.now())
        stage.worker()
        await stage.until_status(within_s=10, accepted=1, suppressed=3)

    play(scene)


def test_what_cannot_be_rendered_takes_nothing_of_a_quota() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"quota": "3/min"}})
        stage.enqueue(*(Email(key=f"bad-{n}", to="ada@example.com", template="missing") for n in range(3)), email(4))
        stage.worker()
        await stage.until_status(within_s=10, accepted=1, failed=3)

    play(scene)


def test_where_recipients_count_an_email_with_three_takes_three() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"rate": "30/second", "counts": "recipients"}})
        stage.enqueue(*(email(n, to=[f"{who}-{n}@example.com" for who in "abc"]) for n in range(100)))
        stage.worker()
        stage.worker()
        took = await stage.until_status(accepted=100)
        assert took >= 300 / 30 - 1.5
        assert most_within(stage.calls_at(), 1.0) <= 30 / 3 + 3

    play(scene)


def test_a_burst_goes_at_once_however_slow_the_rate_is() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"rate": "30/min", "burst": 5}})
        stage.enqueue(*emails(10))
        stage.worker()
        await stage.until_status(within_s=60, accepted=10)
        assert most_within(stage.calls_at(), 1.0) == 5
        assert {row["fence"] for row in stage.rows()} == {1}

    play(scene)


@pytest.mark.parametrize("workers", [1, 3])
def test_bulk_has_its_turn_where_a_rate_has_leave_for_one_at_a_time(workers: int) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure(
            {"main": {"rate": "5/second"}}, types={"code": {"priority": "urgent"}, "news": {"priority": "bulk"}}
        )
        stage.enqueue(*(email(f"news-{n}", type="news") for n in range(20)))
        stage.enqueue(*(email(f"code-{n}", type="code") for n in range(50)))
        for _ in range(workers):
            stage.worker()
        await stage.until(lambda: len(stage.copies()) >= 40, within_s=60)
        assert 3 <= sum("news" in reached for reached in stage.copies()) <= 10

    play(scene)


def test_an_unknown_outcome_is_decided_on_in_its_time_though_a_days_quota_is_used_up() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main", "drop-accepted:first=1,per=all")
        stage.configure({"main": {"quota": "1/day"}}, types={"default": {"unknown_wait": "1m", "max_age": "5m"}})
        stage.enqueue(email(1))
        stage.worker()
        await stage.until(lambda: stage.store.ledger.held_unknown() == 1, within_s=400)

    play(scene)


def test_a_service_at_its_limit_slows_no_other() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, services={"greedy": {"rate": "5/second"}})
        stage.enqueue(*(email(f"greedy-{n}", service="greedy") for n in range(100)), *emails(100))
        stage.worker()
        await stage.until(lambda: stage.statuses().get("accepted", 0) >= 100, within_s=2)
        await stage.until_status(within_s=60, accepted=200)
        greedy = [one.at for one in stage.apis["main"].ledger.acceptances if "greedy" in one.recipients[0]]
        assert most_within(greedy, 1.0) <= 6

    play(scene)


def test_a_failover_respects_the_limit_of_the_route_it_comes_to() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main", "401:at=send")
        stage.sandbox("standby")
        stage.configure({"main": {}, "standby": {"rate": "10/second"}})
        stage.enqueue(*emails(100))
        stage.worker()
        stage.worker()
        await stage.until_status(within_s=60, accepted=100)
        assert most_within(stage.calls_at("standby"), 1.0) <= 11

    play(scene)


def test_workers_that_oversleep_begin_no_more_than_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, sleep = random.Random(7), asyncio.sleep

    async def oversleep(seconds: float) -> None:
        await sleep(seconds + (chance.uniform(0.0, 0.2) if chance.random() < 0.2 else 0.0))

    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"rate": "50/second"}})
        stage.enqueue(*emails(600))
        for _ in range(4):
            stage.worker()
        await stage.until_status(accepted=600)
        assert most_within(stage.calls_at(), 1.0) <= 51

    monkeypatch.setattr(pace, "asyncio", SimpleNamespace(sleep=oversleep))
    play(scene)
