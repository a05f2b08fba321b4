"""A provider that says in its headers what still fits: it is believed, by every worker."""

from __future__ import annotations

import asyncio

import pytest

from posthouse.core.outcome import Outcome, Verdict
from posthouse.providers.port import OutgoingMessage
from posthouse.sandbox.ledger import CallResult
from posthouse.sandbox.limit import SendLimit
from tests.worker.stage import Stage, emails, play


@pytest.mark.parametrize("window_s", [1.0, 6.0])
def test_three_workers_keep_within_what_a_provider_says_fits_and_all_is_delivered(window_s: float) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {"concurrency": 4}}, {"default": {"max_attempts": 1}})
        api = stage.sandbox("main", limit=SendLimit(10, window_s))
        stage.enqueue(*emails(60))
        for _ in range(3):
            stage.worker()
        took_s = await stage.until_status(accepted=60, within_s=9 * (window_s + 2))
        assert took_s > 5 * window_s
        windows = round(took_s / window_s) + 1
        assert set(stage.copies().values()) == {1}
        assert {row["failures"] for row in stage.rows()} == {1}, "what was too fast spent nothing"
        in_vain = api.ledger.results[CallResult.TOO_MANY]
        assert in_vain <= 3 * 4 + 3 * windows, "those under way at the start, and one a worker when a window opens"

    play(scene)


def test_an_accepted_call_holds_the_route_for_everybody_without_a_strike() -> None:
    async def scene(stage: Stage) -> None:
        full = {"main": True}

        async def accept(message: OutgoingMessage) -> Verdict:
            await asyncio.sleep(0.01)
            return Verdict(
                Outcome.ACCEPTED, message_id=f"m-{message.send_id}", full_for_s=60.0 if full["main"] else None
            )

        stage.configure({"main": {"concurrency": 2}})
        main = stage.script("main", accept, concurrency=2)
        stage.enqueue(*emails(10))
        stage.worker()
        stage.worker()
        await asyncio.sleep(50)
        begun = len(main.called)
        assert 1 <= begun <= 4, "what was under way when the first answer came"
        health = stage.store.control.route_health()["main"]
        assert (health.strikes, health.is_tripped, health.takes(stage.now())) == (0, False, False)
        full["main"] = False
        took_s = await stage.until_status(accepted=10, within_s=60)
        assert 9 < took_s < 30
        assert {row["attempts"] for row in stage.rows()} == {1}

    play(scene)
