"""Digests from end to end: what waits for one recipient leaves in one message, whatever happens to its worker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from posthouse.core.routing import RoutePlan
from posthouse.core.switches import Scope, Switch
from posthouse.errors import InvalidEmail
from posthouse.sandbox.ledger import CallResult
from tests.worker.stage import Stage, email, play

WINDOW_S = 20.0
TEMPLATE = {
    "news.subject.txt": "{{ count }} for you",
    "news.txt": "{% for item in items %}{{ item.n }} {% endfor %}",
}


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    for name, words in TEMPLATE.items():
        (tmp_path / name).write_text(words)
    return tmp_path


def configure(stage: Stage, templates: Path, **settings: Any) -> None:
    stage.configure({"main": {}}, {"news": {"combine": "20s", **settings}}, templates=templates)


def tell(stage: Stage, *numbers: int) -> None:
    """One notice each, all to the same person."""
    for n in numbers:
        fields: dict[str, Any] = {"subject": None, "text": None, "template": "news", "variables": {"n": n}}
        stage.enqueue(email(n, to="ada@example.com", type="news", **fields))


def got(stage: Stage) -> list[str]:
    """What was accepted, in its words."""
    return [f"{one.subject}: {(one.body or {})['text']}".strip() for one in stage.apis["main"].ledger.acceptances]


def test_notices_within_the_window_leave_in_one_message_and_do_not_push_it_out(templates: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        configure(stage, templates)
        stage.worker()
        tell(stage, 1)
        for n in (2, 3):
            await asyncio.sleep(8)
            tell(stage, n)
        assert stage.calls_at() == []
        await stage.until(lambda: got(stage), within_s=10)
        assert stage.at() == pytest.approx(WINDOW_S, abs=2)
        assert stage.statuses() == {"accepted": 1, "combined": 2}

        tell(stage, 4)
        await stage.until_status(accepted=2, combined=2, within_s=WINDOW_S + 5)
        assert got(stage) == ["3 for you: 1 2 3", "1 for you: 4"]

    play(scene)


def test_what_waited_behind_a_closed_gate_leaves_in_one_message(templates: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        configure(stage, templates)
        stage.worker()
        stage.store.switches.pause(Switch(Scope.TYPE, "news", "test", "grace", stage.now(), None))
        for n in range(5):
            tell(stage, n)
            await asyncio.sleep(15)
        stage.store.switches.resume(Scope.TYPE, "news", who="grace", now=stage.now())
        await stage.until(lambda: got(stage), within_s=30)
        assert got(stage) == ["5 for you: 0 1 2 3 4"]
        assert stage.statuses() == {"accepted": 1, "combined": 4}

    play(scene)


def test_a_retry_says_what_the_first_try_said(templates: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main", "503:until=21s")
        configure(stage, templates, retry_first="1s")
        stage.worker()
        tell(stage, 1, 2)
        await stage.until(lambda: stage.row("k-1")["attempts"], within_s=WINDOW_S + 10)
        tell(stage, 3)
        await stage.until_status(accepted=2, combined=1, within_s=60)
        assert got(stage) == ["2 for you: 1 2", "1 for you: 3"]

    play(scene)


def test_a_call_whose_answer_was_lost_is_replayed_word_for_word_by_another_worker(templates: Path) -> None:
    async def scene(stage: Stage) -> None:
        api = stage.sandbox("main", "drop-accepted:first=1,per=all")
        configure(stage, templates)
        first = stage.worker()
        tell(stage, 1, 2)
        await stage.until(lambda: got(stage), within_s=WINDOW_S + 10)
        first.process.kill()
        tell(stage, 3)
        stage.worker()
        await stage.until_status(accepted=2, combined=1, within_s=60)
        assert got(stage) == ["2 for you: 1 2", "1 for you: 3"]
        assert [call.result for call in api.ledger.calls].count(CallResult.REPLAYED) == 1

    play(scene)


def test_a_worker_that_dies_between_the_merge_and_the_call_loses_nobody(templates: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        configure(stage, templates)
        tell(stage, 1, 2)
        await asyncio.sleep(WINDOW_S + 1)
        dead = stage.store.control.register("gone", 1, "0")
        stage.store.queue.claim("news", 10, dead, stage.now(), RoutePlan("main", {}, pins=True), WINDOW_S)
        assert stage.statuses() == {"sending": 1, "combined": 1}
        tell(stage, 3)
        stage.worker()
        await stage.until_status(accepted=2, combined=1, within_s=60)
        assert sorted(got(stage)) == ["1 for you: 3", "2 for you: 1 2"]

    play(scene)


def test_a_digest_that_expires_ends_all_that_go_in_it_and_is_told_by_each(templates: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main", "503")
        configure(stage, templates, max_age="10s", max_attempts=1000)
        stage.worker()
        tell(stage, 1, 2)
        await stage.until_status(expired=1, combined=1, within_s=2 * WINDOW_S)
        story = stage.store.ledger.story("k-2")
        assert story.carrier is not None
        assert (story.carrier["dedupe_key"], story.carrier["status"]) == ("k-1", "expired")

    play(scene)


def test_what_would_be_lost_in_a_digest_is_refused_when_it_is_asked_for(templates: Path) -> None:
    async def scene(stage: Stage) -> None:

        stage.sandbox("main")
        configure(stage, templates)
        with pytest.raises(InvalidEmail, match=r"template: is needed.* \(emails of type 'news' are combined\)"):
            stage.enqueue(email(1, type="news"))
        expires = datetime.fromtimestamp(stage.now() + 60, UTC)
        with pytest.raises(InvalidEmail, match=r"expires: .*the type's max_age says when"):
            stage.enqueue(email(1, type="news", subject=None, text=None, template="news", expires=expires))
        assert stage.statuses() == {}

    play(scene)
