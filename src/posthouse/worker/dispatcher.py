"""Claiming what can be started at once, and starting it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from posthouse.config import WorkerSettings
from posthouse.content import Content
from posthouse.core.lanes import DueLane, Share, share, type_of
from posthouse.core.policy import TypePolicy
from posthouse.core.routing import RoutePlan, candidates
from posthouse.core.sends import Change, SendState, Via
from posthouse.core.settlement import end_life, refuse, release
from posthouse.errors import DatabaseUnavailable, PosthouseError
from posthouse.providers.port import OutgoingMessage
from posthouse.store.queue import DueTime, Report
from posthouse.store.taking import ClaimedSend
from posthouse.worker.caller import Caller
from posthouse.worker.claims import Claims
from posthouse.worker.files import Files
from posthouse.worker.pulse import Pulse
from posthouse.worker.rendering import CannotRender, Renderer
from posthouse.worker.routes import Routes
from posthouse.worker.settler import BACKLOG_MAX, Settler

HEALTH_AGE_MAX_S: Final = 1.0
LANES_AGE_MAX_S: Final = 0.5
"""While lanes keep filling their share, they are looked for anew only this often."""

NO_SLOT_WAIT_S: Final = 0.2
"""When a send can go only to a route that is busy or held, it is given back for at least this long."""

FAULT_WAIT_S: Final = 10.0
"""How long a lane, or everything, rests after a fault that nobody has thought of; and a send that the database could
not tell all about."""

log = logging.getLogger("posthouse.worker")


class Dispatcher:
    """Runs until it is stopped; calls that are under way then go on."""

    def __init__(
        self,
        claims: Claims,
        caller: Caller,
        routes: Routes,
        settler: Settler,
        renderer: Renderer,
        files: Files,
        pulse: Pulse,
        settings: WorkerSettings,
        now: Callable[[], float],
        chance: random.Random,
    ) -> None:
        self._claims = claims
        self._caller = caller
        self._routes = routes
        self._settler = settler
        self._renderer = renderer
        self._files = files
        self._pulse = pulse
        self._settings = settings
        self._now = now
        self._chance = chance
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._lanes: list[DueTime] = []
        self._lanes_read_at: float | None = None
        self._rounds = 0
        self._idle_rounds = 0
        self._unknown_types: set[str] = set()
        self._rests_until: dict[str, float] = {}  # lanes that could not be claimed from

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The calls that are under way."""
        return self._tasks

    def stop(self) -> None:
        """Claims nothing more."""
        self._stopping = True
        self._routes.freed.set()

    async def run(self) -> None:
        """Rounds of claiming, as fast as slots become free, slower and slower while there is nothing to do."""
        while not self._stopping:
            self._routes.freed.clear()
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
        if self._stopping or wait_s <= 0:
            return
        spread = wait_s * (0.8 + 0.4 * self._chance.random())
        try:
            async with asyncio.timeout(spread):
                await self._routes.freed.wait()
        except TimeoutError:
            return

    async def _round(self) -> float:
        """Claims once from every lane that has a share; how long to wait before the next round."""
        if not self._pulse.may_start or self._settler.backlog > BACKLOG_MAX:
            return self._settings.poll_max
        await self._routes.refresh(HEALTH_AGE_MAX_S)
        await self._read_lanes()
        self._rounds += 1
        claimed = full = 0
        for part, plan in self._shares():
            got = await self._claim(part, plan)
            claimed += got
            full += got == part.count
            if got < part.count:
                self._lanes_read_at = None
        return self._next_wait(claimed, full)

    def _next_wait(self, claimed: int, full: int) -> float:
        if full:
            self._idle_rounds = 0
            return 0.0
        if claimed or self._routes.used:
            self._idle_rounds = 0
        else:
            self._idle_rounds += 1
        longest = min(self._settings.poll_max, self._settings.poll_min * 2.0 ** min(self._idle_rounds, 8))
        now = self._now()
        coming = [lane.at - now for lane in self._lanes if lane.at > now]
        return min([longest, *(max(at, 0.01) for at in coming)])

    async def _read_lanes(self) -> None:
        at, now = asyncio.get_running_loop().time(), self._now()
        known = self._lanes_read_at is not None and at - self._lanes_read_at < LANES_AGE_MAX_S
        if not known or all(lane.at > now for lane in self._lanes):
            self._lanes = await self._claims.due_lanes()
            self._lanes_read_at = at

    def _shares(self) -> list[tuple[Share, RoutePlan]]:
        """What to claim, and on which routes: the due lanes of each route divide its free slots."""
        now = self._now()
        by_route: dict[str, list[DueLane]] = {}
        plans: dict[str, RoutePlan] = {}
        for lane in self._lanes:
            due = lane.at <= now and self._rests_until.get(lane.lane, now) <= now
            policy = self._policy(lane.lane) if due else None
            plan = None if policy is None else self._routes.plan(policy)
            if policy is None or plan is None:
                continue
            plans[lane.lane] = plan
            free = self._routes.free(plan.first)
            by_route.setdefault(plan.first, []).append(DueLane(lane.lane, policy.priority, lane.at, free))
        parts = [part for lanes in by_route.values() for part in share(lanes, lanes[0].capacity, self._rounds)]
        return [(part, plans[part.lane]) for part in parts]

    def _policy(self, lane: str) -> TypePolicy | None:
        """The lane's type; a type that this release doesn't know is left alone, another worker may know it."""
        type_ = type_of(lane)
        policy = self._caller.policies.get(type_)
        if policy is None and type_ not in self._unknown_types:
            self._unknown_types.add(type_)
            log.warning("type %r is not configured here; its sends are left to workers that know it", type_)
        return policy

    async def _claim(self, part: Share, plan: RoutePlan) -> int:
        try:
            claimed = await self._claims.claim(part.lane, part.count, plan)
        except PosthouseError:
            raise
        except Exception:
            log.exception("lane %s can't be claimed from; it rests for %.0f s", part.lane, FAULT_WAIT_S)
            self._rests_until[part.lane] = self._now() + FAULT_WAIT_S
            return 0
        for send in claimed:
            self._start(self._dispatch(send))
        if claimed:
            await asyncio.sleep(0)  # each takes its slot now, so that the next claim counts what is really free
        return len(claimed)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dispatch(self, claimed: ClaimedSend) -> None:
        """From a claim to a call, or to the reason why there is none."""
        state = claimed.state
        async with AsyncExitStack() as held:  # until the call has ended
            try:
                prepared = await self._prepare(claimed, held)
            except CannotRender as error:
                self._settle(state, partial(refuse, reason=str(error)))
            except DatabaseUnavailable:
                self._settle(state, partial(release, again_at=self._now() + FAULT_WAIT_S))
            except asyncio.CancelledError:  # a shutdown that ran out of grace
                self._settle(state, partial(release, again_at=self._now()))
                raise
            except Exception as error:
                log.exception("send %d (%s) can't be prepared", state.id, claimed.key)
                self._settle(state, partial(refuse, reason=f"it can't be prepared: {type(error).__name__}: {error}"))
            else:
                if prepared is not None:
                    route, message = prepared
                    await self._caller.call(claimed, route, message, Via.SEND, partial(self._written, state))

    async def _prepare(self, claimed: ClaimedSend, held: AsyncExitStack) -> tuple[str, OutgoingMessage] | None:
        """The route and the message of a call that may begin now; None where it may not, and then that is settled.

        The route's slot and the message's files are `held`. Raises CannotRender, DatabaseUnavailable.
        """
        state = claimed.state
        content = self._renderer.content(claimed.body)
        able = self._able(state, content)
        if not self._may_begin(state, able):
            return None
        route = next((name for name in able if self._routes.free(name)), None)
        if route is None:
            self._settle(state, partial(release, again_at=self._now() + NO_SLOT_WAIT_S))
            return None
        held.enter_context(self._routes.slot(route))
        if route != state.route and not await self._claims.reroute(state, route):
            self._claims.settled(state)  # somebody else has it now
            return None
        files = await held.enter_async_context(self._files.of(state.id, content))
        message = self._renderer.message(state.id, claimed.idempotency_key, content, claimed.date, files)
        return (route, message) if self._may_begin(state, (route,)) else None

    def _able(self, state: SendState, content: Content) -> Sequence[str]:
        """Those of the routes that the send may take which can carry it, its planned one first. Raises CannotRender."""
        routes = candidates(state, self._caller.policies[state.type])
        if len(routes) == 1:
            return routes  # an only route says itself what it can't carry
        planned_first = sorted(routes, key=lambda name: name != state.route)
        able = [name for name in planned_first if not self._caller.providers[name].refusals(content)]
        if not able:
            raise CannotRender("none of its type's routes can carry it")
        return able

    def _may_begin(self, state: SendState, routes: Sequence[str]) -> bool:
        """Whether a call on one of the routes may begin now. If not, the send has ended or is given back."""
        now = self._now()
        if state.expires_at <= now:
            self._settle(state, end_life)
        elif self._stopping or not self._pulse.may_start:
            self._settle(state, partial(release, again_at=now))
        elif (opens_at := self._routes.opens_at(routes)) > now:
            self._settle(state, partial(release, again_at=max(opens_at, now + NO_SLOT_WAIT_S)))
        else:
            return True
        return False

    def _settle(self, state: SendState, decide: Callable[[SendState], Change | None]) -> None:
        self._settler.add(Report(state.id, state.fence, decide), partial(self._written, state))

    def _written(self, state: SendState, _change: Change | None) -> None:
        self._claims.settled(state)
