"""The connections of one route in this process: never more at once than allowed, used again, closed when idle.

A connection counts from the moment it is being made until it is gone. One that is closed politely counts until the
server has said goodbye: until then the server counts it too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from posthouse.core.smtp_replies import Phase
from posthouse.providers.smtp_session import Session, SessionOpener, within

GOODBYE_S: Final = 2.0
"""The longest wait for the answer to QUIT."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How many connections, and how long each is kept."""

    connections: int
    max_messages: int  # on one connection
    idle_close_s: float


class SessionPool:
    """Lends sessions."""

    def __init__(self, opener: SessionOpener, limits: PoolLimits) -> None:
        self._opener = opener
        self._limits = limits
        self._allowed = limits.connections
        self._open = 0
        self._idle: dict[Session, asyncio.TimerHandle] = {}  # the latest used one is last
        self._lent: dict[Session, int] = {}
        self._parting: set[asyncio.Task[None]] = set()
        self._closings = 0  # a session lent before the pool was closed is not kept after it
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, deadline: float, *, fresh: bool = False) -> Session:
        """A session, an idle one if there is one. Raises Refused and Broken.

        `fresh` makes a new one and throws the idle ones away: one that was found dead speaks for all.
        """
        if fresh:
            while self._idle:
                self._abort(self._take_idle())
        async with within(deadline, lambda: Phase.CONNECT):
            await self._room()
        session = self._usable_idle() or await self._new(deadline)
        self._lent[session] = self._closings
        return session

    async def _room(self) -> None:
        """Waits until a session is idle, or a new one may be made."""
        while not self._idle and self._open >= self._allowed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():  # the news was for somebody who still waits
                    self._tell()
                raise

    def _tell(self) -> None:
        """Lets the next who waits look again."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _new(self, deadline: float) -> Session:
        self._open += 1
        try:
            return await self._opener.open(deadline)
        except BaseException:
            self._gone()
            raise

    def _usable_idle(self) -> Session | None:
        while self._idle:
            session = self._take_idle()
            if session.wire.usable:
                return session
            self._abort(session)
        return None

    def _take_idle(self) -> Session:
        session, timer = self._idle.popitem()
        timer.cancel()
        return session

    def give_back(self, session: Session) -> None:
        """Keeps it for the next message, or closes it politely where it has done its share."""
        lent_at = self._lent.pop(session)
        used_up = session.transactions >= self._limits.max_messages or not self._limits.idle_close_s
        if not session.wire.usable:
            self._abort(session)
        elif used_up or lent_at != self._closings or self._open > self._allowed:
            self._part(session)
        else:
            loop = asyncio.get_running_loop()
            self._idle[session] = loop.call_later(self._limits.idle_close_s, self._expire, session)
            self._tell()

    def end(self, session: Session, *, politely: bool) -> None:
        """Takes it out of use: what it would say next can't be trusted, or the server wants it closed."""
        del self._lent[session]
        if politely and session.wire.usable:
            self._part(session)
        else:
            self._abort(session)

    def _expire(self, session: Session) -> None:
        del self._idle[session]
        self._part(session)

    def _abort(self, session: Session) -> None:
        session.wire.abort()
        self._gone()

    def _part(self, session: Session) -> None:
        task = asyncio.get_running_loop().create_task(session.part(GOODBYE_S))
        self._parting.add(task)
        task.add_done_callback(self._parted)

    def _parted(self, task: asyncio.Task[None]) -> None:
        self._parting.discard(task)
        self._gone()

    def _gone(self) -> None:
        self._open -= 1
        self._tell()

    async def limit(self, connections: int) -> int:
        """From now on at most so many. Idle ones beyond are closed; how many are open all the same."""
        self._allowed = min(connections, self._limits.connections)
        for session in list(self._idle)[: max(0, self._open - len(self._parting) - self._allowed)]:
            self._idle.pop(session).cancel()
            self._part(session)
        await self._until_parted()
        for _ in self._waiting.copy():
            self._tell()
        return self._open

    async def close(self) -> None:
        """Closes what is idle now, and what is lent as soon as it comes back. The pool may be used again."""
        self._closings += 1
        while self._idle:
            self._part(self._take_idle())
        await self._until_parted()

    async def _until_parted(self) -> None:
        if self._parting:
            await asyncio.wait(self._parting)
