"""The connections of one route in this process: never more at once than allowed, used again, closed when idle."""

from __future__ import annotations

import asyncio
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
    """Lends sessions. A session that is closed politely keeps its place until the server has let go of it, so that
    the server never sees more connections than allowed."""

    def __init__(self, opener: SessionOpener, limits: PoolLimits) -> None:
        self._opener = opener
        self._limits = limits
        self._places = asyncio.Semaphore(limits.connections)
        self._idle: dict[Session, asyncio.TimerHandle] = {}  # the latest used one is last
        self._parting: set[asyncio.Task[None]] = set()
        self._closings = 0  # a session lent before the pool was closed is not kept after it
        self._lent: dict[Session, int] = {}

    async def take(self, deadline: float, *, fresh: bool = False) -> Session:
        """A session, an idle one if there is one. Raises Refused and Broken.

        `fresh` makes a new one and throws the idle ones away: one that was found dead speaks for all.
        """
        async with within(deadline, lambda: Phase.CONNECT):
            await self._places.acquire()
        try:
            session = self._from_idle(fresh) or await self._opener.open(deadline)
        except BaseException:
            self._places.release()
            raise
        self._lent[session] = self._closings
        return session

    def _from_idle(self, fresh: bool) -> Session | None:
        while self._idle:
            session, timer = self._idle.popitem()
            timer.cancel()
            if session.wire.usable and not fresh:
                return session
            session.wire.abort()
        return None

    def give_back(self, session: Session) -> None:
        """Keeps it for the next message, or closes it politely where it has done its share."""
        lent_at = self._lent.pop(session)
        used_up = session.transactions >= self._limits.max_messages or not self._limits.idle_close_s
        if not session.wire.usable:
            session.wire.abort()
            self._places.release()
        elif used_up or lent_at != self._closings:
            self._part(session, frees_place=True)
        else:
            loop = asyncio.get_running_loop()
            self._idle[session] = loop.call_later(self._limits.idle_close_s, self._expire, session)
            self._places.release()

    def end(self, session: Session, *, politely: bool) -> None:
        """Takes it out of use: what it would say next can't be trusted, or the server wants it closed."""
        del self._lent[session]
        if politely and session.wire.usable:
            self._part(session, frees_place=True)
        else:
            session.wire.abort()
            self._places.release()

    def _expire(self, session: Session) -> None:
        del self._idle[session]
        self._part(session, frees_place=False)

    def _part(self, session: Session, *, frees_place: bool) -> None:
        task = asyncio.get_running_loop().create_task(session.part(GOODBYE_S))
        self._parting.add(task)
        task.add_done_callback(self._parting.discard)
        if frees_place:
            task.add_done_callback(lambda _: self._places.release())

    async def close(self) -> None:
        """Closes what is idle now, and what is lent as soon as it comes back. The pool may be used again."""
        self._closings += 1
        idle, self._idle = self._idle, {}
        for session, timer in idle.items():
            timer.cancel()
            self._part(session, frees_place=False)
        if self._parting:
            await asyncio.wait(self._parting)
