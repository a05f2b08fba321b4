"""Providers that fail for many minutes: no mail is lost by it, no attempt is spent, no copy too many is made."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from posthouse.errors import InvalidEmail
from tests.worker.stage import EPOCH, Stage, email, emails, play


@pytest.mark.parametrize(
    "fault",
    ["refuse:until=10m", "503:until=10m", "429:until=10m", "429:retry-after=60,until=10m", "401:until=10m"],
)
def test_an_outage_of_ten_minutes_costs_no_attempt(fault: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {"concurrency": 5}}, {"default": {"max_attempts": 2, "retry_max": "2m"}})
        stage.sandbox("main", fault)
        stage.enqueue(*emails(40))
        stage.worker()
        await asyncio.sleep(590)
        assert set(stage.statuses()) <= {"pending", "sending"}
        assert {row["failures"] for row in stage.rows()} == {0}
        assert not stage.copies()
        took_s = await stage.until_status(accepted=40, within_s=600)
        assert took_s < 10 + 330, "soon after the outage: the longest pause of a stopped route is five minutes"
        assert set(stage.copies().values()) == {1}

    play(scene)


def test_what_expires_during_an_outage_is_never_sent() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}}, {"code": {"max_age": "5m"}})
        stage.sandbox("main", "503:until=6m")
        stage.enqueue(*emails(5, type="code"), email("receipt"))
        stage.worker()
        took_s = await stage.until_status(expired=5, pending=1, within_s=400)
        assert 300 <= took_s < 307
        await stage.until_status(expired=5, accepted=1, within_s=400)
        await asyncio.sleep(60)
        assert set(stage.copies()) == {"person-receipt@example.com"}

    play(scene)


def test_a_stopped_route_is_tried_by_one_call_at_a_time_until_the_new_key_is_there(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        key = tmp_path / "key"
        key.write_text("old-key-1")
        stage.configure(
            {"main": {"auth": "bearer", "api_key": f"file:{key}", "concurrency": 10}}, {"default": {"max_attempts": 1}}
        )
        stage.sandbox("main", api_key="new-key-2")
        stage.enqueue(*emails(50))
        stage.worker()
        await asyncio.sleep(1)
        first = len(stage.calls_at())
        assert 1 <= first <= 10, "the calls that were under way when it was refused"
        await asyncio.sleep(900)
        tries = stage.calls_at()[first:]
        pauses = [after - before for before, after in pairwise(tries)]
        assert len(tries) >= 4, "it goes on trying"
        assert min(pauses) > 7, "one at a time, with a pause after each"
        assert stage.statuses() == {"pending": 50}

        key.write_text("new-key-2")
        await stage.until_status(accepted=50, within_s=330)
        assert set(stage.copies().values()) == {1}
        assert {row["failures"] for row in stage.rows()} == {1}, "the accepted call is the only one that counts"

    play(scene)


def test_a_wrong_answer_that_everybody_gets_stops_the_route_and_fails_nobody() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {"concurrency": 2}})
        stage.sandbox("main", "422:until=10m")
        stage.enqueue(*emails(30))
        stage.worker()
        await asyncio.sleep(590)
        assert stage.statuses() == {"pending": 30}
        await stage.until_status(accepted=30, within_s=600)

    play(scene)


def test_the_other_route_takes_over_and_gives_back() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}, "standby": {}}, {"default": {"retry_first": "1s"}})
        stage.sandbox("main", "refuse:until=2m")
        stage.sandbox("standby")
        stage.enqueue(*emails(20))
        stage.worker()
        await stage.until_status(accepted=20, within_s=60)
        assert len(stage.copies("standby")) == 20
        await asyncio.sleep(120)
        stage.enqueue(email("later"))
        await stage.until_status(accepted=21, within_s=60)
        assert set(stage.copies("main")) == {"person-later@example.com"}

    play(scene)


def test_a_database_outage_of_ten_minutes_keeps_the_results_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {"concurrency": 5, "idempotency_header": None}})
        stage.sandbox("main", "slow=2s")
        stage.enqueue(*emails(20))
        stage.worker()
        await stage.until(lambda: len(stage.copies()) == 5, 10)
        stage.database.away = True
        await asyncio.sleep(600)
        assert len(stage.calls_at()) == 5, "no call was started"
        stage.database.away = False
        await stage.until_status(accepted=20)
        assert {row["attempts"] for row in stage.rows()} == {1}
        assert set(stage.copies().values()) == {1}

    play(scene)
    assert caplog.text.count("no call is started and every result is kept") == 1
    assert caplog.text.count("the database is back after 60") == 1


def test_the_clock_of_the_machine_decides_nothing() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {}})
        stage.sandbox("main")
        stage.enqueue(email(1))
        stage.worker()
        await stage.until_status(accepted=1)
        assert EPOCH <= stage.row("k-1")["accepted_at"] < EPOCH + 10, "the worker's loop began at 0, far from it"

    play(scene)


def test_mail_goes_only_by_routes_that_may_send_for_its_sender_even_when_they_are_down() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.sandbox("standby", "refuse:until=2m")
        stage.configure({"main": {"sender_domains": ["shop.example"]}, "standby": {}})
        stage.enqueue(
            email("ours", sender="orders@mail.shop.example"),
            email("other", sender="a@elsewhere.example"),
            email("nobody's"),
        )
        stage.worker()
        await asyncio.sleep(60)
        assert set(stage.copies("main")) == {"person-ours@example.com"}
        await stage.until_status(within_s=900, accepted=3)
        assert set(stage.copies("standby")) == {"person-other@example.com", "person-nobody's@example.com"}

    play(scene)


def test_an_email_that_no_route_may_send_is_refused_when_it_is_enqueued() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {"sender_domains": ["shop.example"]}})
        with pytest.raises(InvalidEmail, match=r"sends for shop\.example, not for a@elsewhere\.example"):
            stage.enqueue(email("other", sender="a@elsewhere.example"))
        with pytest.raises(InvalidEmail, match=r"not for shop@example\.com"):
            stage.enqueue(email("default"))

    play(scene)
