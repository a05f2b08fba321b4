"""What this worker has claimed: the way to the queue, and the memory of what is ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from posthouse.core.routing import RoutePlan
from posthouse.core.sends import SendState
from posthouse.store.access import StoreAccess
from posthouse.store.queue import DueTime, Queue
from posthouse.store.taking import ClaimedSend


class Claims:
    """Claims for one worker. What was claimed is ours until `settled` says otherwise."""

    def __init__(self, queue: Queue, access: StoreAccess, worker: int, now: Callable[[], float]) -> None:
        self._queue = queue
        self._access = access
        self._worker = worker
        self._now = now
        self._fences: dict[int, int] = {}

    async def due_lanes(self) -> list[DueTime]:
        """Every lane with pending sends. Raises DatabaseUnavailable."""
        return await self._access.run(self._queue.due_lanes)

    async def claim(
        self, lane: str, count: int, routes: RoutePlan, combine_s: float | None = None
    ) -> list[ClaimedSend]:
        """Takes up to `count` due sends of one lane. Raises DatabaseUnavailable; some may be ours all the same then."""
        claimed = await self._access.run(self._queue.claim, lane, count, self._worker, self._now(), routes, combine_s)
        for send in claimed:
            self._fences[send.state.id] = send.state.fence
        return claimed

    async def take_unknown(self, count: int, lease_s: float) -> list[ClaimedSend]:
        """Takes up to `count` unknown sends for one step of finding out. Raises DatabaseUnavailable."""
        return await self._access.run(self._queue.take_unknown, count, self._worker, self._now(), lease_s)

    async def reroute(self, state: SendState, route: str) -> bool:
        """Writes another route for a claimed send; whether it is still ours. Raises DatabaseUnavailable."""
        return await self._access.run(self._queue.reroute, state, route)

    async def leave_out(self, claimed: ClaimedSend, reasons: Mapping[str, str]) -> ClaimedSend | None:
        """The claimed send without some of its recipients; None where it isn't ours any more. Raises
        DatabaseUnavailable."""
        left = await self._access.run(self._queue.leave_out, claimed.state, reasons, self._now())
        return None if left is None else replace(claimed, idempotency_key=left.idempotency_key, body=left.body)

    def settled(self, state: SendState) -> None:
        """The send is not ours any more."""
        if self._fences.get(state.id) == state.fence:
            del self._fences[state.id]

    async def strays(self, older_than_s: float) -> list[SendState]:
        """Sends that the table says are ours and that we never heard of: a claim's answer was lost on its way.

        No call has begun for them. `older_than_s` leaves out what a claim under way may be bringing just now.
        """
        ours = await self._access.run(self._queue.owned_by, self._worker, self._now() - older_than_s)
        return [state for state in ours if self._fences.get(state.id) != state.fence]
