"""From a claim to a call, or to the reason why there is none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from posthouse.content import Content
from posthouse.core.sends import Change, SendState, Via
from posthouse.core.settlement import end_life, refuse, release, suppress
from posthouse.core.suppression import why_not
from posthouse.errors import DatabaseUnavailable
from posthouse.store.queue import Report
from posthouse.store.taking import ClaimedSend
from posthouse.worker.batches import Batch, Batches
from posthouse.worker.caller import Call, Caller
from posthouse.worker.claims import Claims
from posthouse.worker.files import Files, Loan
from posthouse.worker.gates import Gates
from posthouse.worker.pace import Pace, Slot
from posthouse.worker.pulse import Pulse
from posthouse.worker.rendering import NO_FILES, CannotRender, Renderer
from posthouse.worker.routes import Routes
from posthouse.worker.settler import Settler
from posthouse.worker.suppressed import FRESH_S, SuppressionCheck

NO_SLOT_WAIT_S: Final = 0.2
"""When a send can go only to a route that is busy or held, it is given back for at least this long."""

GIVEN_BACK_MAX_S: Final = 15.0
"""And for at most this long, whatever the route's health says: a person may open it at any moment."""

NOT_READ_WAIT_S: Final = 10.0
"""When the database is away before a call began."""

log = logging.getLogger("posthouse.worker")

Ready = TypeVar("Ready")


class _Held:
    """What a send holds until its call has ended: from its start on a slot on its planned route, so that the next
    claim counts what is really free, and perhaps files."""

    __slots__ = ("_loan", "_route", "_routes")

    def __init__(self, routes: Routes, planned: str | None) -> None:
        self._routes = routes
        self._route: str | None = None
        self._loan: Loan | None = None
        if planned is not None:
            self.slot_on_one_of((planned,))

    def slot_on_one_of(self, routes: Sequence[str]) -> str | None:
        """The route of its slot: the first of these that has room; None where none has, and then it has no slot."""
        for route in routes:
            if route == self._route:
                return route
            if self._routes.room(route):
                self._move(route)
                return route
        self._move(None)
        return None

    def files(self, loan: Loan) -> Mapping[str, bytes]:
        """The files that were lent for it."""
        self._loan = loan
        return loan.files

    def give_back(self) -> None:
        """Everything."""
        self._move(None)
        if self._loan is not None:
            self._loan.give_back()
            self._loan = None

    def _move(self, route: str | None) -> None:
        if self._route is not None:
            self._routes.slots.end(self._route)
        self._route = route
        if route is not None:
            self._routes.slots.begin(route)


class Starter:
    """Starts claimed sends, each as a task of its own. Every claim ends in a report to the settler."""

    def __init__(
        self,
        claims: Claims,
        caller: Caller,
        batches: Batches,
        routes: Routes,
        pace: Pace,
        gates: Gates,
        settler: Settler,
        renderer: Renderer,
        files: Files,
        check: SuppressionCheck,
        pulse: Pulse,
        now: Callable[[], float],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._claims = claims
        self._caller = caller
        self._batches = batches
        self._routes = routes
        self._pace = pace
        self._gates = gates
        self._settler = settler
        self._renderer = renderer
        self._files = files
        self._check = check
        self._pulse = pulse
        self._now = now
        self._stopping = False
        self.tasks: set[asyncio.Task[None]] = set()  # the calls that are under way

    def stop(self) -> None:
        """Begins no call any more: what is not under way is given back."""
        self._stopping = True

    def start(self, claimed: ClaimedSend, asked_at: float, slot: Slot | None) -> None:
        """Takes a send that was claimed with what was known at `asked_at` to its end. `slot` is its leave to go by its
        planned route; None where it needs one."""
        held = _Held(self._routes, claimed.state.route)
        task = self._loop.create_task(self._dispatch(claimed, asked_at, slot, held))
        self.tasks.add(task)
        task.add_done_callback(partial(self._ended, held))

    def _ended(self, held: _Held, task: asyncio.Task[None]) -> None:
        held.give_back()
        self.tasks.discard(task)

    async def _dispatch(self, claimed: ClaimedSend, asked_at: float, slot: Slot | None, held: _Held) -> None:
        """From a claim to a call, or to the reason why there is none. Leave that no call needed is given back."""
        route = await self._go(claimed, asked_at, slot, held)
        if slot is not None and route != claimed.state.route:
            held.give_back()
            await self._pace.give_back_slot(slot)

    async def _go(self, claimed: ClaimedSend, asked_at: float, slot: Slot | None, held: _Held) -> str | None:
        """The route of the send's call, after that; None where there was a reason to make none."""
        prepared = await self._unless_in_vain(claimed, self._prepare(claimed, asked_at, slot, held))
        if prepared is None:
            return None
        batch, call = prepared
        if not await self._batches.made(batch, call) and await self._unless_in_vain(
            claimed, self._may_go_by_itself(batch.route, call)
        ):
            await self._caller.call(batch.route, call)
        return batch.route

    async def _unless_in_vain(self, claimed: ClaimedSend, preparing: Coroutine[Any, Any, Ready]) -> Ready | None:
        """What was prepared for a call; None where it could not be, and then that is settled."""
        state = claimed.state
        try:
            return await preparing
        except CannotRender as error:
            self._settle(state, partial(refuse, reason=str(error)))
        except DatabaseUnavailable:
            self._settle(state, partial(release, again_at=self._now() + NOT_READ_WAIT_S))
        except asyncio.CancelledError:  # a shutdown that ran out of grace
            self._settle(state, partial(release, again_at=self._now()))
            raise
        except Exception as error:
            log.exception("send %d (%s) can't be prepared", state.id, claimed.key)
            self._settle(state, partial(refuse, reason=f"it can't be prepared: {type(error).__name__}: {error}"))
        return None

    async def _prepare(
        self, claimed: ClaimedSend, asked_at: float, slot: Slot | None, held: _Held
    ) -> tuple[Batch, Call] | None:
        """A call, perhaps without some recipients, and the batch by which it goes; None where it may not begin, and
        then that is settled.

        The route's slot and the message's files are `held`. Raises CannotRender, DatabaseUnavailable.
        """
        state = claimed.state
        content = self._content(claimed)
        able = self._able(state, content)
        if not self._may_begin(claimed, able):
            return None
        route = held.slot_on_one_of(able)
        if route is None:
            self._settle(state, partial(release, again_at=self._now() + NO_SLOT_WAIT_S))
            return None
        if claimed.to_check or self._now() - asked_at > FRESH_S:
            asked_at = self._now()
            spared = await self._spare(claimed, content)
            if spared is None:
                return None
            claimed, content = spared
        if route != state.route and not await self._claims.reroute(state, route):
            self._claims.settled(state)  # somebody else has it now
            return None
        files = held.files(await self._files.lend(state.id, content)) if content.files else NO_FILES
        message = self._renderer.message(state.id, claimed.idempotency_key, content, claimed.date, files)
        own = slot if route == state.route else None
        if not await self._on_time(claimed, route, own, len(message.recipients)):
            return None
        if self._now() - asked_at > FRESH_S and not await self._still_clear(claimed, content):
            return None
        call = Call(claimed, message, Via.SEND, partial(self._written, state))
        return await self._batches.join(route, call, partial(self._may_begin, claimed, (route,))), call

    async def _may_go_by_itself(self, route: str, call: Call) -> bool:
        """Whether a second call may begin: it needs leave of its own. If not, that is settled."""
        claimed = call.claimed
        if not await self._on_time(claimed, route, None, len(call.message.recipients)):
            return False
        clear = await self._still_clear(claimed, self._content(claimed))
        return clear and self._may_begin(claimed, (route,))

    def _content(self, claimed: ClaimedSend) -> Content:
        """What it goes out with. Raises CannotRender."""
        return self._renderer.content(claimed.body, claimed.state.type, claimed.idempotency_key)

    async def _still_clear(self, claimed: ClaimedSend, content: Content) -> bool:
        """Whether all may still get it after a wait. If not, the send is given back: its next claim sees to it."""
        clear = await self._check.is_clear(claimed.state.type, content)
        if not clear:
            self._settle(claimed.state, partial(release, again_at=self._now()))
        return clear

    async def _spare(self, claimed: ClaimedSend, content: Content) -> tuple[ClaimedSend, Content] | None:
        """The send without those who must not get it; None where that is nobody's any more, and then that is settled.

        One of which an earlier call is open goes to nobody: to leave somebody out would make another message of it.
        """
        state = claimed.state
        stopped = await self._check.stopped(state.type, content)
        if not stopped:
            return claimed, content
        if state.unresolved or len(stopped) == len(content.recipients):
            self._settle(state, partial(suppress, reason=why_not(stopped)))
            return None
        left = await self._claims.leave_out(claimed, {each: why_not({each: why}) for each, why in stopped.items()})
        if left is None:
            self._claims.settled(state)  # somebody else has it now
            return None
        return left, self._content(left)

    async def _on_time(self, claimed: ClaimedSend, route: str, slot: Slot | None, recipients: int) -> bool:
        """Waits for the moment when the call may begin. If there is none, the send is given back."""
        slot = slot or await self._pace.ask_one(claimed.lane, route)
        again_at = await self._pace.wait(slot, recipients)
        if again_at is not None:
            self._settle(claimed.state, partial(release, again_at=again_at))
        return again_at is None

    def _able(self, state: SendState, content: Content) -> Sequence[str]:
        """Those of the routes that the send may take which can carry it, its planned one first. Raises CannotRender."""
        routes = self._routes.candidates(state, self._caller.policies[state.type])
        if len(routes) == 1:
            return routes  # an only route says itself what it can't carry
        planned_first = sorted(routes, key=lambda name: name != state.route)
        able = [name for name in planned_first if not self._caller.providers[name].refusals(content)]
        if not able:
            raise CannotRender("none of its type's routes can carry it")
        return able

    def _may_begin(self, claimed: ClaimedSend, routes: Sequence[str]) -> bool:
        """Whether a call on one of the routes may begin now. If not, the send has ended or is given back."""
        state, now = claimed.state, self._now()
        if state.expires_at <= now:
            self._settle(state, end_life)
        elif self._stopping or not self._pulse.may_start or self._gates.closing(claimed.lane):
            self._settle(state, partial(release, again_at=now))
        elif not self._routes.any_takes(routes):
            self._settle(state, partial(release, again_at=self._wait_until(routes)))
        else:
            return True
        return False

    def _wait_until(self, able: Sequence[str]) -> float:
        """When to look at a send again that found no route; soon enough that a person's word counts before long."""
        now = self._now()
        return min(max(self._routes.opens_at(able), now + NO_SLOT_WAIT_S), now + GIVEN_BACK_MAX_S)

    def _settle(self, state: SendState, decide: Callable[[SendState], Change | None]) -> None:
        self._settler.add(Report(state.id, state.fence, decide), partial(self._written, state))

    def _written(self, state: SendState, _change: Change | None) -> None:
        self._claims.settled(state)
