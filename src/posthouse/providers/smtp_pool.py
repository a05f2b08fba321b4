"""The connections of one route in this process: never more at once than allowed, used again, closed when idle."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final

from posthouse.core.smtp_replies import Phase
from posthouse.providers.smtp_session import Session, SessionOpener, within
from posthouse.providers.smtp_wire import Refused, Wire

GOODBYE_S: Final = 2.0
"""The longest wait for the answer to QUIT."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How many connections, and how long each is kept."""

    connections: int
    max_messages: int  # on one connection
    idle_close_s: float


class SessionPool:
    """Lends sessions, and counts connections: each from the attempt to make it until it is gone, so that the server
    never sees more of them than allowed."""

    def __init__(self, opener: SessionOpener, limits: PoolLimits) -> None:
        self._opener = opener
        self._limits = limits
        self._allowed = limits.connections
        self._open = 0
        self._freed = asyncio.Event()  # set when a connection is gone, a session idle, or more are allowed
        self._idle: dict[Session, float] = {}  # and since when, by the loop's clock; the latest used one is last
        self._expiry: asyncio.TimerHandle | None = None  # due when the first of them has been idle for too long
        self._parting: set[asyncio.Task[None]] = set()
        self._closings = 0  # a session lent before the pool was closed is not kept after it
        self._lent: dict[Session, int] = {}

    async def take(self, deadline: float, *, fresh: bool = False) -> Session:
        """A session, an idle one if there is one. Raises Refused and Broken.

        `fresh` makes a new one and throws the idle ones away: one that was found dead speaks for all.
        """
        session = self._from_idle(fresh)
        if session is None and self._open >= self._allowed:
            session = await self._freed_one(deadline, fresh)
        session = session or await self._new(deadline)
        self._lent[session] = self._closings
        return session

    async def _freed_one(self, deadline: float, fresh: bool) -> Session | None:
        """Waits until a session is idle, or None: a connection may be made."""
        session = None
        async with within(deadline, lambda: Phase.CONNECT):
            while session is None and self._open >= self._allowed:
                self._freed.clear()
                await self._freed.wait()
                session = self._from_idle(fresh)
        return session

    def _from_idle(self, fresh: bool) -> Session | None:
        while self._idle:
            session, _ = self._idle.popitem()
            if session.wire.usable and not fresh:
                return session
            session.wire.abort()
        return None

    async def _new(self, deadline: float) -> Session:
        self._open += 1
        try:
            wire = await self._opener.connect(deadline)
        except BaseException:
            self._count_gone()
            raise
        wire.gone.add_done_callback(lambda _: self._count_gone())
        try:
            return await self._opener.let_in(wire, deadline)
        except Refused:
            self._part(wire)
            raise
        except BaseException:  # a cancelled call leaves no connection behind either
            wire.abort()
            raise

    def _count_gone(self) -> None:
        self._open -= 1
        self._freed.set()

    def give_back(self, session: Session) -> None:
        """Keeps it for the next message, or closes it politely where it has done its share, or there are too many."""
        lent_at = self._lent.pop(session)
        used_up = session.transactions >= self._limits.max_messages or not self._limits.idle_close_s
        too_many = self._open > self._allowed
        if used_up or too_many or lent_at != self._closings or not session.wire.usable:
            self._part(session.wire)
            return
        session.wire.until(math.inf)
        self._idle[session] = session.wire.now()
        if self._expiry is None:
            self._expire()
        self._freed.set()

    def end(self, session: Session, *, politely: bool) -> None:
        """Takes it out of use: what it would say next can't be trusted, or the server wants it closed."""
        del self._lent[session]
        if politely:
            self._part(session.wire)
        else:
            session.wire.abort()

    def _expire(self) -> None:
        """Closes what has been idle for too long; and looks again when the next one will have been."""
        loop, self._expiry = asyncio.get_running_loop(), None
        for session, since in list(self._idle.items()):
            if loop.time() < since + self._limits.idle_close_s:
                self._expiry = loop.call_at(since + self._limits.idle_close_s, self._expire)
                return
            del self._idle[session]
            self._part(session.wire)

    def _part(self, wire: Wire) -> None:
        task = asyncio.get_running_loop().create_task(wire.part(GOODBYE_S))
        self._parting.add(task)
        task.add_done_callback(self._parting.discard)

    async def limit(self, connections: int) -> int:
        """From now on at most so many. Idle ones beyond are closed; how many are open all the same."""
        self._allowed = min(connections, self._limits.connections)
        for session in list(self._idle)[: max(0, self._open - len(self._parting) - self._allowed)]:
            del self._idle[session]
            self._part(session.wire)
        await self._until_parted()
        self._freed.set()
        return self._open

    async def close(self) -> None:
        """Closes what is idle now, and what is lent as soon as it comes back. The pool may be used again."""
        self.retire()
        await self._until_parted()

    def retire(self) -> None:
        """The same without waiting: what comes after is let in anew."""
        self._closings += 1
        idle, self._idle = self._idle, {}
        for session in idle:
            self._part(session.wire)

    async def _until_parted(self) -> None:
        if self._parting:
            await asyncio.wait(self._parting)
