"""This worker's own slots on each route: the calls under way, who waits for one to end, and how many sends to claim.

Where calls are so quick that a claim can't keep up with them, a few more are claimed than can start: they begin as
calls end while the next claim is under way. One that waits too long is begun all the same, and then goes another way
or is given back.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from posthouse.core.concurrency import claim_ahead
from posthouse.core.policy import RouteFacts

CLAIM_LEARNT: Final = 0.25
"""How much of the way to the length of the latest claim goes what is thought typical of claims."""

WORTH_A_CLAIM: Final = 16
"""So many sends, at least, make a claim worth its price."""

AHEAD_WAIT_MAX_S: Final = 1.0
"""What was claimed ahead waits for its slot for at most so long; more than a busy machine lets a worker stand still."""

Begin = Callable[[], None]
"""Starts a send, which takes its slot at once where there is one."""


class Slots:
    """Counts calls, and begins what waits for their end.

    Of a route, `allowed` is how many it may have at once just now, `takes_well` how many of them it takes well, and
    `call_s` how long one typically takes; 0 = not known yet.
    """

    def __init__(
        self,
        facts: Mapping[str, RouteFacts],
        allowed: Callable[[str], int],
        takes_well: Callable[[str], int],
        call_s: Callable[[str], float],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._facts = facts
        self._allowed = allowed
        self._takes_well = takes_well
        self._call_s = call_s
        self._claim_s = 0.0
        self._used: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[float, Begin]]] = {name: deque() for name in facts}
        self._stalled: set[str] = set()  # where somebody has waited in vain, and no call has ended since
        self._timer: asyncio.TimerHandle | None = None  # due when the first of those who wait has waited for too long
        self._stopping = False
        self.freed = asyncio.Event()  # set whenever a slot becomes free; whoever waits for it clears it
        self._half_free = asyncio.Event()  # set when of a route at work half is free again
        self._half_claimed: dict[str, int] = {}  # of each such route, while somebody waits for that

    @property
    def used(self) -> int:
        """Calls under way on all routes."""
        return self._used.total()

    def used_on(self, route: str) -> int:
        """Calls under way on one route."""
        return self._used[route]

    def room(self, route: str) -> int:
        """How many calls may start on the route now, whether it takes so many well or not."""
        return max(0, self._allowed(route) - self._used[route]) if route in self._facts else 0

    @contextmanager
    def taken(self, route: str) -> Iterator[None]:
        """One slot, for the duration of a call."""
        self.begin(route)
        try:
            yield
        finally:
            self.end(route)

    def begin(self, route: str) -> None:
        """Takes one slot, until `end`."""
        self._used[route] += 1

    def end(self, route: str) -> None:
        """Gives one slot back: to the one who has waited longest, where somebody does."""
        self._used[route] -= 1
        self._stalled.discard(route)
        waiting = self._waiting[route]
        while waiting and self._at_once(route) > self._used[route]:
            waiting.popleft()[1]()
        self.freed.set()
        if self._claimed(route) <= self._half_claimed.get(route, -1):
            self._half_free.set()

    def when_free(self, route: str, begin: Begin) -> None:
        """Begins as soon as the route has room and nobody waits for it; now where nothing goes that way at all."""
        at_once = 0 if self._stopping or route not in self._facts else self._at_once(route)
        if not at_once or (at_once > self._used[route] and not self._waiting[route]):
            begin()
            return
        self._waiting[route].append((self._loop.time() + AHEAD_WAIT_MAX_S, begin))
        if self._timer is None:
            self._set_timer()

    def stop(self) -> None:
        """Nobody waits any more: who did begins now, and whoever waits for a slot is woken."""
        self._stopping = True
        for waiting in self._waiting.values():
            while waiting:
                waiting.popleft()[1]()
        self.freed.set()

    def _set_timer(self) -> None:
        due = [waiting[0][0] for waiting in self._waiting.values() if waiting]
        self._timer = self._loop.call_at(min(due), self._give_up) if due else None

    def _give_up(self) -> None:
        now = self._loop.time()
        for route, waiting in self._waiting.items():
            while waiting and waiting[0][0] <= now:
                self._stalled.add(route)
                waiting.popleft()[1]()
        self._set_timer()

    # Claiming.

    def claimable(self, route: str, *, ahead: bool) -> int:
        """How many sends to claim for the route now: of many at most half of those that may be claimed of it, so that
        there are calls under way while the other half is claimed. `ahead`: some of them may wait for a slot."""
        may_be = self._may_be_claimed(route) if ahead else self._at_once(route)
        most = max(_half_of_many(may_be), self._facts[route].batch_max)
        return max(0, min(may_be - self._claimed(route), most))

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """For the duration of a claim."""
        began_at = self._loop.time()
        yield
        self._claim_s += CLAIM_LEARNT * (self._loop.time() - began_at - self._claim_s)

    async def gather(self, longest_s: float) -> None:
        """Until half of a route with many at work is free, or all of one with few, so that a claim is worth its price;
        or so long at most."""
        half = {route: self._half(route) for route in self._facts if self._used[route]}
        if not half or any(self._claimed(route) <= claimed for route, claimed in half.items()):
            return
        self._half_free.clear()
        self._half_claimed = half
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._half_free.wait()
        self._half_claimed = {}

    def _half(self, route: str) -> int:
        """How many the route has claimed when half of it is free."""
        may_be = self._may_be_claimed(route)
        return may_be - _half_of_many(may_be)

    def _at_once(self, route: str) -> int:
        return min(self._allowed(route), self._takes_well(route))

    def _may_be_claimed(self, route: str) -> int:
        """How many of the route's sends this worker may have: none ahead where anything holds the route back."""
        at_once = self._at_once(route)
        held_back = at_once < self._takes_well(route) or route in self._stalled
        return at_once if held_back else at_once + claim_ahead(at_once, self._call_s(route), self._claim_s)

    def _claimed(self, route: str) -> int:
        return self._used[route] + len(self._waiting[route])


def _half_of_many(places: int) -> int:
    """Half of them, but so many at least that one claim is worth it; all where they are fewer."""
    return min(places, max(places - places // 2, WORTH_A_CLAIM))
