"""Filling in the news that never came: providers' own logs are read, and what they tell is taken in like a webhook's.

A log is read stretch by stretch, one call at a time with a pause after each, and never by way of what sends: a log
that fails tells nothing about the route.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from posthouse.config import Config
from posthouse.core.outcome import Verdict
from posthouse.core.policy import TypePolicy
from posthouse.errors import DatabaseUnavailable
from posthouse.providers.logs import LogPage, LogQuestion, OpenLog, TooMuch
from posthouse.providers.port import Provider
from posthouse.providers.webhook import reading_of
from posthouse.store.access import StoreAccess
from posthouse.store.log_cursors import LogCursor
from posthouse.store.store import Store
from posthouse.store.threads import StoreExecutor
from posthouse.worker.alarm import Alarm
from posthouse.worker.pulse import Pulse
from posthouse.worker.trail import CIRCLE, Trail

FIRST_S: Final = 86_400.0
"""So far back a log is read that was never read before."""

STRETCH_S: Final = 3600.0
STRETCH_MIN_S: Final = 10.0
PAGES_MAX: Final = 1000
"""A stretch of more is too long."""

PAUSE_S: Final = 0.25
"""After each call: providers count them, and sending needs them more."""

TOGETHER: Final = 500
"""So many events a transaction: workers want the rows of the same sends."""

KEEP_EVERY_S: Final = 60.0
"""Whoever reads says so that often: much more often than anybody's turn can come."""

LOOK_EVERY_S: Final = 30.0
ALERT_AFTER_S: Final = 3600.0
"""A log may fail for so long before people are told; or for two of its turns."""

log = logging.getLogger("posthouse.worker")


def backfill_every(config: Config) -> dict[str, float]:
    """The routes whose log is read, and how often, in seconds."""
    every = {name: route.backfill_every for name, route in config.routes.items()}
    return {name: seconds for name, seconds in every.items() if seconds is not None}


class LogFailed(Exception):
    """A log can't be read on now. The text says why."""


class TurnTaken(Exception):
    """Somebody else reads the log now, from where it was read to."""

    def __init__(self) -> None:
        super().__init__("somebody else reads it now")


@dataclass(frozen=True, slots=True)
class Filled:
    """What one stretch of a log told. Moments in seconds since 1970."""

    begin: float
    end: float
    until: float  # the pass goes on so far
    told: int  # pieces of news
    new: int  # of them, what nobody had told us


class Backfill:
    """Reads logs. Whatever is read may be read again: it counts once."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        policies: Mapping[str, TypePolicy],
        store: Store,
        access: StoreAccess,
        now: Callable[[], float],
    ) -> None:
        self._providers = providers
        self._policies = policies
        self._store = store
        self._access = access
        self._now = now

    async def read(self, cursor: LogCursor) -> AsyncIterator[Filled]:
        """Reads on from where the cursor stands, and writes down how far it came after each stretch.

        Raises LogFailed, TurnTaken, DatabaseUnavailable; what was read is kept.
        """
        opened = self._providers[cursor.route].log
        if opened is None:
            return
        until = self._now() - opened.log.lag_s
        kept_from = self._now() - opened.log.kept_s
        begin = max(self._now() - FIRST_S if cursor.read_until is None else cursor.read_until, kept_from)
        turn = _Turn(cursor, self._store, self._access, self._now)
        stretch_s = STRETCH_S
        while begin < until:
            end = min(begin + stretch_s, until)
            try:
                counts = await self._stretch(turn, opened, begin, end)
            except LogFailed as error:
                await turn.fail(str(error))
                raise
            if counts is None:
                stretch_s = (end - begin) / 2
                continue
            is_mine = await turn.advance(end)
            yield Filled(begin, end, until, *counts)
            if not is_mine:
                raise TurnTaken
            begin, stretch_s = end, min(stretch_s * 2, STRETCH_S)

    async def _stretch(self, turn: _Turn, opened: OpenLog, begin: float, end: float) -> tuple[int, int] | None:
        """One stretch, taken in, as `Filled` counts; None where the log has too much. Raises LogFailed, TurnTaken."""
        question: LogQuestion | None = opened.log.first(begin, end)
        told = new = 0
        trail = Trail()
        for _ in range(PAGES_MAX):
            if question is None:
                return told, new
            if trail.comes_back(question):
                raise LogFailed(CIRCLE)
            page = await self._ask(turn, opened, question)
            if isinstance(page, TooMuch):
                break
            entries = [*page.entries, *await self._details(turn, opened, page)]
            counts = await self._take_in(turn.route, opened, entries)
            told, new, question = told + counts[0], new + counts[1], page.further
        if end - begin <= STRETCH_MIN_S:
            raise LogFailed(f"it has more of {end - begin:.0f} s than it gives out")
        return None

    async def _details(self, turn: _Turn, opened: OpenLog, page: LogPage) -> Sequence[Any]:
        """What more is told of those messages whose end is not known here."""
        if not page.details:
            return ()
        ours = await self._access.run(self._store.events.without_end, {id_ for id_, _ in page.details})
        entries: list[Any] = []
        for question in (question for id_, question in page.details if id_ in ours):
            detail = await self._ask(turn, opened, question)
            if isinstance(detail, LogPage):
                entries += detail.entries
        return entries

    async def _ask(self, turn: _Turn, opened: OpenLog, question: LogQuestion) -> LogPage | TooMuch:
        answer = await opened.ask(question)
        if isinstance(answer, Verdict):
            raise LogFailed(f"{answer.code} {answer.text or answer.rule or 'no usable answer'}".strip())
        await turn.keep()
        await asyncio.sleep(PAUSE_S)
        return answer

    async def _take_in(self, route: str, opened: OpenLog, entries: Sequence[Any]) -> tuple[int, int]:
        """How many pieces of news that was, and how many of them are new."""
        read, now, new = reading_of(entries, opened.log.read), self._now(), 0
        for reason, items in read.unread_by_reason().items():
            await self._access.run(self._store.events.quarantine, route, items, reason, now)
        for start in range(0, len(read.events), TOGETHER):
            news = read.events[start : start + TOGETHER]
            stored = await self._access.run(self._store.events.store, route, news, self._policies, now)
            new += stored.new
        return len(read.events), new


class _Turn:
    """Whose turn it is to read a log: ours, as long as what is written down goes through."""

    def __init__(self, cursor: LogCursor, store: Store, access: StoreAccess, now: Callable[[], float]) -> None:
        self._cursor = cursor
        self._cursors = store.log_cursors
        self._access = access
        self._now = now

    @property
    def route(self) -> str:
        """Whose log it is."""
        return self._cursor.route

    async def keep(self) -> None:
        """Says that it is still being read, where that was not said for a while. Raises TurnTaken."""
        now = self._now()
        if now - self._cursor.turn_at < KEEP_EVERY_S:
            return
        kept = await self._access.run(self._cursors.keep, self._cursor, now)
        if kept is None:
            raise TurnTaken
        self._cursor = kept

    async def advance(self, read_until: float) -> bool:
        """Writes how far it was read; False where the turn is somebody else's now."""
        advanced = await self._access.run(self._cursors.advance, self._cursor, read_until, self._now())
        self._cursor = advanced or self._cursor
        return advanced is not None

    async def fail(self, error: str) -> None:
        """Writes why it can't be read on."""
        await self._access.run(self._cursors.fail, self._cursor, error, self._now())


class BackfillWatch:
    """Reads each route's log every so often; of all workers, one at a time. `every` is in seconds, by route."""

    def __init__(
        self,
        every: Mapping[str, float],
        backfill: Backfill,
        store: Store,
        access: StoreAccess,
        alarm: Alarm,
        pulse: Pulse,
        now: Callable[[], float],
    ) -> None:
        self._every = every
        self._backfill = backfill
        self._store = store
        self._access = access
        self._alarm = alarm
        self._pulse = pulse
        self._now = now

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            for route in self._every:
                try:
                    await self.look(route)
                except DatabaseUnavailable:
                    pass  # said once already; the cursor stands where it stood
                except Exception:
                    log.exception("the log of route %s can't be read; the next turn tries again", route)
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, route: str) -> None:
        """One pass, if it is due and nobody else makes it. Raises DatabaseUnavailable."""
        if not self._pulse.may_start:
            return
        cursor = await self._access.run(self._store.log_cursors.take_turn, route, self._now(), self._every[route])
        if cursor is None:
            return
        new = 0
        try:
            async for filled in self._backfill.read(cursor):
                new += filled.new
        except LogFailed as error:
            await self._tell(route, error)
        except TurnTaken:
            pass  # by a person, or after a long sleep of this machine
        if new:
            log.warning("the log of route %s had %d events that no webhook had brought", route, new)

    async def _tell(self, route: str, error: LogFailed) -> None:
        log.warning("the log of route %s: %s", route, error)
        cursor = await self._access.run(self._store.log_cursors.of, route)
        failing_s = 0.0 if cursor is None or cursor.failing_since is None else self._now() - cursor.failing_since
        if failing_s >= max(ALERT_AFTER_S, 2 * self._every[route]):
            said = f"it can't be read for {failing_s / 3600:.1f} h, and news that was missed is not filled in: {error}"
            self._alarm.sound(f"log of {route}", said, quiet_s=86_400.0)


async def read_now(
    route: str,
    provider: Provider,
    policies: Mapping[str, TypePolicy],
    store: Store,
    executor: StoreExecutor,
    now: Callable[[], float],
    since: float | None,
    tell: Callable[[Filled], None],
) -> None:
    """One pass on a person's demand, who takes the turn from whatever worker has it. Raises as `Backfill.read`."""
    access = StoreAccess(executor, asyncio.get_running_loop().time, "no log is read")
    try:
        cursor = await access.run(store.log_cursors.seize_turn, route, now(), since)
        async for filled in Backfill({route: provider}, policies, store, access, now).read(cursor):
            tell(filled)
    finally:
        await provider.close()
