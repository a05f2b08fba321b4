"""Writing results: one write under way, what arrives meanwhile is the next batch.

A result is never given up: while the database is away it stays here, and is written when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from posthouse.core.lifecycle import Status
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.retry import Backoff
from posthouse.core.sends import Change, SendState
from posthouse.core.settlement import reap
from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.store.queue import Queue, Report
from posthouse.values import value

BATCH_MAX: Final = 500
BACKLOG_MAX: Final = 2000
"""With so many results unwritten nothing more is claimed."""

AWAY_BACKOFF: Final = Backoff(first_s=0.25, max_s=5.0)

log = logging.getLogger("posthouse.worker")

Written = Callable[[Change | None], None]


def nobody_waits(_change: Change | None) -> None:
    """The `written` of a report whose effect nobody needs to hear of."""


@value
class _Entry:
    report: Report
    written: Written
    in_place: bool = False  # of a result that could not be written


class Settler:
    """Runs until it is told to close and everything is written."""

    def __init__(
        self, queue: Queue, access: StoreAccess, worker: int, now: Callable[[], float], chance: random.Random
    ) -> None:
        self._queue = queue
        self._access = access
        self._worker = worker
        self._now = now
        self._chance = chance
        self._entries: deque[_Entry] = deque()
        self._wake = asyncio.Event()
        self._closing = False

    @property
    def backlog(self) -> int:
        """Results that are not written yet."""
        return len(self._entries)

    def add(self, report: Report, written: Written) -> None:
        """Takes a result; `written` is called once with the change that it made."""
        self._entries.append(_Entry(report, written))
        self._wake.set()

    def close(self) -> None:
        """`run` returns as soon as everything is written."""
        self._closing = True
        self._wake.set()

    async def run(self) -> None:
        """Writes whatever is added."""
        failures = 0
        while self._entries or not self._closing:
            if not self._entries:
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = [self._entries[place] for place in range(min(BATCH_MAX, len(self._entries)))]
            try:
                await self._write(batch)
                failures = 0
            except DatabaseUnavailable:
                failures += 1
                await asyncio.sleep(AWAY_BACKOFF.delay_s(failures, self._chance.random()))

    async def _write(self, batch: list[_Entry]) -> None:
        """Writes a batch; one that can't be written for a reason of its own holds up no other."""
        try:
            changes = await self._settle(batch)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            if len(batch) > 1:
                for entry in batch:
                    await self._write([entry])
                return
            log.exception("the result of send %d can't be written", batch[0].report.send_id)
            self._entries.popleft()
            self._write_in_place_of(batch[0], error)
            return
        for entry, change in zip(batch, changes, strict=True):
            self._entries.popleft()
            entry.written(change)

    def _write_in_place_of(self, entry: _Entry, error: Exception) -> None:
        """At least that nobody knows what became of it. If not even that can be written, it stays `sending` and ours:
        nobody sends it again, and after our end it becomes unknown."""
        if entry.in_place:
            return
        report, attempt = entry.report, entry.report.attempt
        verdict = Verdict(
            Outcome.UNKNOWN,
            maybe_accepted=True,
            code="unwritable",
            text=f"its result can't be written: {type(error).__name__}: {error}",
        )
        plain = None if attempt is None else replace(attempt, verdict=verdict)
        began_at = self._now() if attempt is None else attempt.started_at
        decide = partial(_lost, fence=report.fence, began_at=began_at, reason=verdict.text, now=self._now())
        self._entries.append(_Entry(Report(report.send_id, report.fence, decide, plain), entry.written, in_place=True))

    async def _settle(self, batch: list[_Entry]) -> list[Change | None]:
        reports = [entry.report for entry in batch]
        return await self._access.run(self._queue.settle, reports, self._worker, self._now())


def _lost(send: SendState, fence: int, began_at: float, reason: str, now: float) -> Change | None:
    if send.status is not Status.SENDING or send.fence != fence:
        return None
    return replace(reap(send, began_at, now), last_error=reason)
