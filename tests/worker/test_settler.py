"""Results are written in batches, kept while the database is away, and hold up no other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pytest

from posthouse.core.sends import Change
from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.store.queue import Report
from posthouse.worker.settler import BATCH_MAX, Settler
from tests.simulation.virtual_time import run
from tests.worker.stage import Stage, emails, play

WRITE_S = 0.1


class Recording:
    """A queue and its executor: every write takes WRITE_S; `trouble` may make one fail."""

    def __init__(self, trouble: Callable[[Sequence[int]], Exception | None] = lambda ids: None) -> None:
        self.batches: list[list[int]] = []
        self._trouble = trouble

    def settle(self, batch: Sequence[Report], worker: int, now: float) -> list[Change | None]:
        ids = [report.send_id for report in batch]
        if (error := self._trouble(ids)) is not None:
            raise error
        self.batches.append(ids)
        return [None] * len(batch)

    async def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(WRITE_S)
        return call(*args, **kwargs)

    def settler(self) -> Settler:
        now = asyncio.get_running_loop().time
        return Settler(self, StoreAccess(self, now, "nothing is sent"), 1, now, random.Random(1))  # type: ignore[arg-type]


def note(written: list[int], number: int, _: Change | None) -> None:
    written.append(number)


def report(send_id: int) -> Report:
    return Report(send_id, 1, lambda state: None)


def test_what_arrives_during_a_write_is_the_next_batch() -> None:
    async def main() -> list[list[int]]:
        queue = Recording()
        written: list[int] = []
        settler = queue.settler()
        settling = asyncio.create_task(settler.run())
        for number in range(10):
            settler.add(report(number), partial(note, written, number))
            await asyncio.sleep(WRITE_S / 4)
        settler.close()
        await settling
        assert written == list(range(10))
        return queue.batches

    batches = run(main())
    assert batches[0] == [0]
    assert list(chain(*batches)) == list(range(10))
    assert 3 <= len(batches) <= 5


def test_a_batch_has_its_limit() -> None:
    async def main() -> list[int]:
        queue = Recording()
        settler = queue.settler()
        for number in range(2 * BATCH_MAX + 1):
            settler.add(report(number), lambda _: None)
        settler.close()
        await settler.run()
        return [len(batch) for batch in queue.batches]

    assert run(main()) == [BATCH_MAX, BATCH_MAX, 1]


def test_results_are_kept_while_the_database_is_away_and_written_once() -> None:
    async def main() -> list[list[int]]:
        back_at = 60.0

        def away(_: Sequence[int]) -> Exception | None:
            return DatabaseUnavailable("away") if asyncio.get_running_loop().time() < back_at else None

        queue = Recording(away)
        written: list[int] = []
        settler = queue.settler()
        settling = asyncio.create_task(settler.run())
        for number in range(20):
            settler.add(report(number), partial(note, written, number))
            await asyncio.sleep(1)
        assert settler.backlog == 20
        settler.close()
        await settling
        assert asyncio.get_running_loop().time() < back_at + 6, "it did not wait much longer than the outage"
        assert written == list(range(20))
        return queue.batches

    assert run(main()) == [list(range(20))]


def test_a_result_that_cannot_be_written_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[int]:
        queue = Recording(lambda ids: ValueError("unstorable") if 7 in ids else None)
        settler = queue.settler()
        for number in range(20):
            settler.add(report(number), lambda _: None)
        settler.close()
        await settler.run()
        return list(chain(*queue.batches))

    assert sorted(run(main())) == [number for number in range(20) if number != 7]
    assert "the result of send 7 can't be written" in caplog.text


def test_an_outage_in_the_middle_of_a_poisoned_batch_loses_nothing() -> None:
    async def main() -> list[int]:
        def trouble(ids: Sequence[int]) -> Exception | None:
            if 7 in ids:
                return ValueError("unstorable")
            now = asyncio.get_running_loop().time()
            return DatabaseUnavailable("away") if 1.0 < now < 30.0 else None

        queue = Recording(trouble)
        settler = queue.settler()
        for number in range(20):
            settler.add(report(number), lambda _: None)
        settler.close()
        await settler.run()
        return list(chain(*queue.batches))

    assert sorted(run(main())) == [number for number in range(20) if number != 7]


def test_a_send_whose_result_cannot_be_written_becomes_unknown_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": {"idempotency_header": None}}, {"default": {"unknown_wait": "0s"}})
        stage.sandbox("main")
        stage.enqueue(*emails(20))
        poisoned = stage.row("k-7")["id"]
        settle = stage.store.queue.settle

        def settle_or_raise(batch: Sequence[Report], *args: Any) -> Any:
            if any(
                entry.send_id == poisoned and entry.attempt and entry.attempt.verdict.code == "200" for entry in batch
            ):
                raise ValueError("unstorable")
            return settle(batch, *args)

        monkeypatch.setattr(stage.store.queue, "settle", settle_or_raise)
        worker = stage.worker()
        await stage.until_status(accepted=19, unknown=1)
        await stage.until(stage.store.ledger.held_unknown, 30)
        assert stage.row("k-7")["status"] == "unknown"
        (attempt,) = stage.attempts("k-7")
        assert (attempt["outcome"], attempt["text"]) == (
            "unknown",
            "its result can't be written: ValueError: unstorable",
        )
        assert worker.lives
        assert set(stage.copies().values()) == {1}

    play(scene)
    assert "can't be written" in caplog.text
