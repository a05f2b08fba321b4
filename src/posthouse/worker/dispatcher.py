"""Claiming what can be started at once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from posthouse.config import WorkerSettings
from posthouse.core.lanes import DueLane, Share, share, type_of
from posthouse.core.policy import TypePolicy
from posthouse.core.routing import RoutePlan
from posthouse.errors import DatabaseUnavailable, PosthouseError
from posthouse.store.queue import DueTime
from posthouse.store.taking import ClaimedSend
from posthouse.worker.claims import Claims
from posthouse.worker.gates import Gates
from posthouse.worker.pace import Pace
from posthouse.worker.pulse import Pulse
from posthouse.worker.routes import HEALTH_AGE_MAX_S, Routes
from posthouse.worker.settler import BACKLOG_MAX, Settler
from posthouse.worker.starter import Starter

LANES_AGE_MIN_S: Final = 0.1
LANES_AGE_MAX_S: Final = 0.5
LANES_READ_SHARE: Final = 0.05
"""While lanes keep filling their share, so much of the time, at most, goes into looking for new ones."""

GATHER_S: Final = 0.005
"""Slots that become free within this time are filled by one claim, unless half are free before: a row costs the
database little, a claim much."""

PACED_WAIT_MAX_S: Final = 5.0
"""A lane without leave rests for at most this long: others may give back what they had."""

FAULT_WAIT_S: Final = 10.0
"""How long a lane, or everything, rests after a fault that nobody has thought of; and a send that the database could
not tell all about."""

log = logging.getLogger("posthouse.worker")


class Dispatcher:
    """Runs until it is stopped; calls that are under way then go on."""

    def __init__(
        self,
        claims: Claims,
        starter: Starter,
        policies: Mapping[str, TypePolicy],
        routes: Routes,
        pace: Pace,
        gates: Gates,
        settler: Settler,
        pulse: Pulse,
        settings: WorkerSettings,
        now: Callable[[], float],
        chance: random.Random,
    ) -> None:
        self._claims = claims
        self._starter = starter
        self._policies = policies
        self._routes = routes
        self._slots = routes.slots
        self._pace = pace
        self._gates = gates
        self._settler = settler
        self._pulse = pulse
        self._settings = settings
        self._now = now
        self._chance = chance
        self._stopping = False
        self._lanes: list[DueTime] = []
        self._lanes_known_until = 0.0  # by the loop's clock
        self._rounds = 0  # in which something was claimed: a turn that came to nothing is no turn
        self._idle_rounds = 0
        self._unknown_types: set[str] = set()
        self._rests_until: dict[str, float] = {}  # lanes that nothing may be claimed from before

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The calls that are under way."""
        return self._starter.tasks

    def stop(self) -> None:
        """Claims nothing more."""
        self._stopping = True
        self._starter.stop()
        self._slots.stop()

    async def run(self) -> None:
        """Rounds of claiming, as fast as slots become free, slower and slower while there is nothing to do."""
        while not self._stopping:
            self._slots.freed.clear()
            try:
                wait_s = await self._round()
            except DatabaseUnavailable:
                wait_s = self._settings.poll_max
            except PosthouseError:
                raise  # the tables are not ours any more: this worker is of no use
            except Exception:
                log.exception("a round of claiming failed; the next one is in %.0f s", FAULT_WAIT_S)
                wait_s = FAULT_WAIT_S
            await self._wait(wait_s)

    async def _wait(self, wait_s: float) -> None:
        """Until a slot becomes free, or this long at most; spread, so that many workers don't ask at once."""
        if wait_s <= GATHER_S:
            await self._slots.gather(wait_s)
            return
        if self._stopping:
            return
        spread = wait_s * (0.8 + 0.4 * self._chance.random())
        try:
            async with asyncio.timeout(spread):
                await self._slots.freed.wait()
        except TimeoutError:
            return

    async def _round(self) -> float:
        """Claims once from every lane that has a share; how long to wait before the next round."""
        if not self._pulse.may_start or self._settler.backlog > BACKLOG_MAX:
            return self._settings.poll_max
        await self._read_lanes()
        if not (self._slots.used or any(self._is_due(lane) for lane in self._lanes)):
            return self._next_wait(0, 0)
        await self._routes.refresh(HEALTH_AGE_MAX_S)
        await self._gates.refresh()
        claimed = full = 0
        shares = self._shares()
        if await self._routes.begin_probes():
            shares = self._shares()
        for part, plan in shares:
            got = await self._claim(part, plan)
            claimed += got
            full += got == part.count
        if full < len(shares) or not shares:
            self._lanes_known_until = 0.0
        self._rounds += claimed > 0
        return self._next_wait(claimed, full)

    def _next_wait(self, claimed: int, full: int) -> float:
        if full:
            self._idle_rounds = 0
            return GATHER_S
        if claimed or self._slots.used:
            self._idle_rounds = 0
        else:
            self._idle_rounds += 1
        longest = min(self._settings.poll_max, self._settings.poll_min * 2.0 ** min(self._idle_rounds, 8))
        now = self._now()
        moments = [*(lane.at for lane in self._lanes), *self._rests_until.values()]
        coming = [at - now for at in moments if at > now]
        return min([longest, *(max(at, 0.01) for at in coming)])

    async def _read_lanes(self) -> None:
        time, now = asyncio.get_running_loop().time, self._now()
        began_at = time()
        if began_at >= self._lanes_known_until or all(lane.at > now for lane in self._lanes):
            self._lanes = await self._claims.due_lanes()
            took = time() - began_at
            self._lanes_known_until = began_at + min(max(took / LANES_READ_SHARE, LANES_AGE_MIN_S), LANES_AGE_MAX_S)

    def _is_due(self, lane: DueTime) -> bool:
        now = self._now()
        return lane.at <= now and self._rests_until.get(lane.lane, now) <= now

    def _shares(self) -> list[tuple[Share, RoutePlan]]:
        """What to claim, and on which routes: the due lanes of each route divide its free slots."""
        by_route: dict[str, list[tuple[DueTime, TypePolicy]]] = {}
        plans: dict[str, RoutePlan] = {}
        for lane in self._lanes:
            policy = self._policy(lane.lane) if self._is_due(lane) and not self._gates.closing(lane.lane) else None
            plan = None if policy is None else self._routes.plan(policy)
            if policy is None or plan is None:
                continue
            plans[lane.lane] = plan
            by_route.setdefault(plan.first, []).append((lane, policy))
        parts = [part for route, lanes in by_route.items() for part in self._shares_of(route, lanes)]
        return [(part, plans[part.lane]) for part in parts]

    def _shares_of(self, route: str, lanes: list[tuple[DueTime, TypePolicy]]) -> list[Share]:
        """Nothing is claimed ahead beside what needs leave: that is leave for a moment, and doesn't wait for a slot."""
        free = self._routes.free(route, ahead=not any(self._pace.limits(lane.lane, route) for lane, _ in lanes))
        due = [DueLane(lane.lane, policy.priority, lane.at, free) for lane, policy in lanes]
        return share(due, free, self._rounds)

    def _policy(self, lane: str) -> TypePolicy | None:
        """The lane's type; a type that this release doesn't know is left alone, another worker may know it."""
        type_ = type_of(lane)
        policy = self._policies.get(type_)
        if policy is None and type_ not in self._unknown_types:
            self._unknown_types.add(type_)
            log.warning("type %r is not configured here; its sends are left to workers that know it", type_)
        return policy

    async def _claim(self, part: Share, plan: RoutePlan) -> int:
        """Claims what there is leave for, and starts it; how much it was."""
        leave = await self._pace.ask(part.lane, plan.first, part.count)
        asked_at = self._now()
        claimed: Sequence[ClaimedSend] = ()
        if leave.count:
            with self._slots.claiming():
                claimed = await self._claimed(part.lane, leave.count, plan)
        paced, now = 0, self._now()
        for send in claimed:
            goes = send.state.route == plan.first and send.state.expires_at > now
            begin = partial(self._starter.start, send, asked_at, leave.slot(paced) if goes else None)
            self._slots.when_free(send.state.route or plan.first, begin)
            paced += goes
        await self._pace.give_back(leave, leave.count - paced)
        if paced == leave.count < part.count:
            self._rest(part.lane, min(leave.next_at, self._now() + PACED_WAIT_MAX_S))
        return len(claimed)

    async def _claimed(self, lane: str, count: int, plan: RoutePlan) -> Sequence[ClaimedSend]:
        try:
            return await self._claims.claim(lane, count, plan, self._policies[type_of(lane)].combine_s)
        except PosthouseError:
            raise
        except Exception:
            log.exception("lane %s can't be claimed from; it rests for %.0f s", lane, FAULT_WAIT_S)
            self._rest(lane, self._now() + FAULT_WAIT_S)
            return ()

    def _rest(self, lane: str, until: float) -> None:
        now = self._now()
        self._rests_until = {name: at for name, at in self._rests_until.items() if at > now} | {lane: until}
