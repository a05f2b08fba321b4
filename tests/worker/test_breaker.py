"""The breaker of a route, shared by all workers: what opens it, who tries it again, and who is told."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.providers.port import OutgoingMessage
from posthouse.worker.alarm import AlarmSettings
from tests.worker.stage import Stage, emails, play
from tests.worker.test_alarm import FINE, URL, Listening


def test_fifty_refused_recipients_in_a_row_leave_it_closed() -> None:
    async def refuse(_: OutgoingMessage) -> Verdict:
        return Verdict(Outcome.REJECTED, subject=Subject.RECIPIENT, code="550", text="no such mailbox")

    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.script("main", refuse)
        stage.enqueue(*emails(50))
        stage.worker()
        await stage.until_status(within_s=30, failed=50)
        assert not any(health.is_tripped for health in stage.store.control.route_health().values())

    play(scene)


@pytest.mark.parametrize("workers", [1, 4])
def test_refused_connections_open_it_for_all_workers_and_people_are_told_though_no_mail_fails(workers: int) -> None:
    async def scene(stage: Stage) -> None:
        chat = Listening(FINE)
        stage.alarm = AlarmSettings(transport=chat, url=lambda: URL)
        stage.configure({"main": {"concurrency": 4}, "standby": {}}, {"default": {"retry_first": "1s"}})
        stage.sandbox("main", "refuse:until=2m")
        stage.sandbox("standby")
        stage.enqueue(*emails(200))
        for _ in range(workers):
            stage.worker()
        await stage.until_status(within_s=60, accepted=200)
        assert len(stage.copies("standby")) == 200
        assert len(chat.heard) == 1
        assert "route main: its provider fails" in chat.heard[0]
        tried = sum(attempt["route"] == "main" for row in stage.rows() for attempt in stage.attempts(row["dedupe_key"]))
        assert tried <= 5 + 4 * workers + 10, "and then it was left alone, but for a probe now and then"
        assert {row["failures"] for row in stage.rows()} == {1}, "the outage spent no attempt"

    play(scene)


def test_one_call_at_a_time_finds_out_whether_the_provider_is_back_and_then_traffic_returns() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}}, {"default": {"retry_first": "1s"}})
        stage.sandbox("main", "503:until=3m")
        stage.enqueue(*emails(100))
        for _ in range(3):
            stage.worker()
        await stage.until_status(within_s=900, accepted=100)
        calls = stage.calls_at()
        probes = [at for at in calls if 30 < at < 180]
        assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(probes)), probes
        assert set(stage.copies().values()) == {1}

    play(scene)


def test_a_worker_that_dies_while_it_probes_keeps_nobody_from_it() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {"timeout": "4s", "connect_timeout": "2s"}}, {"default": {"retry_first": "1s"}})
        stage.sandbox("main", "503:until=20s", "slow=3s:from=20s,until=5m")
        stage.enqueue(*emails(20))
        first = stage.worker()
        await stage.until(
            lambda: any(at > 20 for at in stage.calls_at()) or stage.apis["main"].ledger.calls, within_s=60
        )
        await asyncio.sleep(25)
        first.process.kill()
        stage.worker()
        await stage.until(lambda: stage.statuses().get("accepted", 0) >= 19, within_s=600)

    play(scene)
