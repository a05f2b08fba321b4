"""Routes that are taken out of the configuration while mail still depends on them."""

from __future__ import annotations

import asyncio

import pytest

from tests.worker.stage import Stage, email, emails, play


def test_mail_that_failed_for_certain_on_a_removed_route_takes_another() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"old": {}})
        stage.sandbox("old", "503")
        stage.enqueue(*emails(5))
        worker = stage.worker()
        await stage.until(lambda: len(stage.calls_at("old")) >= 5, 30)
        await worker.stopped()
        assert {row["route"] for row in stage.rows()} == {"old"}

        stage.configure({"new": {}})
        stage.sandbox("new")
        stage.worker()
        await stage.until_status(accepted=5)
        assert set(stage.copies("new").values()) == {1}

    play(scene)


@pytest.mark.parametrize(
    ("on_unknown", "reason"),
    [
        ("hold", "nobody could say whether it was accepted, and the type says hold"),
        ("resend", "its type no longer uses its route, old"),
    ],
)
def test_mail_that_a_removed_route_may_have_accepted_is_held_and_never_handed_to_another(
    on_unknown: str, reason: str
) -> None:
    async def scene(stage: Stage) -> None:
        types = {"default": {"on_unknown": on_unknown, "unknown_wait": "5s"}}
        stage.configure({"old": {"idempotency_header": None}}, types)
        stage.sandbox("old", "drop-accepted")
        stage.enqueue(email("lost"))
        worker = stage.worker()
        await stage.until_status(unknown=1)
        await worker.stopped()

        stage.configure({"new": {}}, types)
        stage.sandbox("new")
        stage.enqueue(email("fresh"))
        stage.worker()
        await stage.until_status(unknown=1, accepted=1)
        await stage.until(stage.store.ledger.held_unknown, 60)
        assert stage.row("k-lost")["last_error"] == reason
        await asyncio.sleep(300)
        assert set(stage.copies("new")) == {"person-fresh@example.com"}

    play(scene)


def test_mail_that_was_to_be_resent_on_a_route_since_removed_is_held() -> None:
    async def scene(stage: Stage) -> None:
        types = {"default": {"on_unknown": "resend", "unknown_wait": "0s", "max_attempts": 50}}
        stage.configure({"old": {"idempotency_header": None}}, types)
        stage.sandbox("old", "drop-accepted:first=1,per=all", "503")
        stage.enqueue(email("lost"))
        worker = stage.worker()
        await stage.until(lambda: stage.row("k-lost")["maybe_duplicate"], 60)
        await stage.until(lambda: len(stage.calls_at("old")) >= 2, 60)
        await worker.stopped()
        assert stage.row("k-lost")["status"] in ("pending", "unknown")

        stage.configure({"new": {}}, types)
        stage.sandbox("new")
        stage.worker()
        await stage.until(stage.store.ledger.held_unknown, 3600)
        assert not stage.copies("new")

    play(scene)


def test_mail_of_a_type_whose_routes_are_all_gone_waits_for_a_worker_that_has_one() -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"old": {}}, {"special": {"routes": ["old"]}})
        stage.sandbox("old", "refuse:until=1m")
        stage.enqueue(*emails(3, type="special"))
        before = stage.config
        stage.configure({"new": {}})
        stage.sandbox("new")
        stage.worker()
        await asyncio.sleep(120)
        assert stage.statuses() == {"pending": 3}

        stage.worker(before)
        await stage.until_status(accepted=3, within_s=120)
        assert set(stage.copies("old").values()) == {1}

    play(scene)
