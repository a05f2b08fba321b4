"""Sends that go by one call: those of one lane that are ready for the same route in the same moment.

A moment is one pass of the event loop, so nobody waits: the sends of one claim come to their calls in one pass, and
what would come later has a moment of its own. Urgent sends share with nobody: a call for many takes longer.

Each send keeps what it came with: its slot, its place among all workers, its leave, its fence, and later its own
attempt. So a call for several takes as many slots as it has messages. No limit has to know of batches, none is larger
than what all limits have given leave for, and whoever has to be sent by itself after all has a slot already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from posthouse.core.policy import Priority, RouteFacts, TypePolicy
from posthouse.worker.caller import Call, Caller

MayBegin = Callable[[], bool]
"""Asked right before the call; where it says no, it has settled the send."""


@dataclass(slots=True)
class Batch:
    """Calls that become one."""

    route: str
    alone: MayBegin | None = None  # of a send that shares its call with nobody
    calls: dict[Call, MayBegin] = field(default_factory=dict)  # in the order in which they came
    made: asyncio.Future[list[Call]] | None = None  # once it has begun; gives those that are to be sent apart


class Batches:
    """Stands between the sends that are ready and the one who calls."""

    def __init__(self, caller: Caller, policies: Mapping[str, TypePolicy], facts: Mapping[str, RouteFacts]) -> None:
        self._caller = caller
        self._policies = policies
        self._facts = facts
        self._open: dict[tuple[str, str], Batch] = {}  # by route and lane: those that may still be joined

    async def join(self, route: str, call: Call, may_begin: MayBegin) -> Batch:
        """The batch by which a send goes, perhaps alone. Where this raises CancelledError, it goes by none.

        Whoever has joined calls `made` at once, without waiting for anything.
        """
        if not self._shares(route, call):
            return Batch(route, may_begin)
        place = route, call.claimed.lane
        batch = self._open.setdefault(place, Batch(route))
        batch.calls[call] = may_begin
        if len(batch.calls) == self._facts[route].batch_max:
            del self._open[place]
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if batch.made is None:
                del batch.calls[call]
                raise  # else the call has begun for this one too, and says what became of it
        if self._open.get(place) is batch:
            del self._open[place]
        return batch

    def _shares(self, route: str, call: Call) -> bool:
        if self._facts[route].batch_max == 1:
            return False
        return self._policies[call.claimed.state.type].priority is not Priority.URGENT

    async def made(self, batch: Batch, call: Call) -> bool:
        """Makes the batch's call, once for all who are in it. False: this send is to go by itself, with new leave.

        The first one makes it, and cuts it off for all where it is cancelled; only a shutdown does that, to all alike.
        """
        if batch.alone is not None:
            if batch.alone():
                await self._caller.call(batch.route, call)
            return True
        if batch.made is not None:
            return call not in await asyncio.shield(batch.made)
        batch.made = asyncio.get_running_loop().create_future()
        apart: list[Call] = []
        try:
            going = [one for one, may_begin in batch.calls.items() if may_begin()]
            apart = await self._caller.call(batch.route, *going) if going else []
        finally:
            batch.made.set_result(apart)
        return call not in apart
