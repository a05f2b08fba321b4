"""Finding out what became of unknown sends: one step for each that is due, by the plan of `core.reconcile`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from posthouse.core.lifecycle import Status
from posthouse.core.outcome import Found, LookUp, Outcome, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.core.reconcile import Plan, Resolver, learned, plan, resent, waited
from posthouse.core.sends import Attempt, Change, SendState, Via
from posthouse.errors import DatabaseUnavailable
from posthouse.providers.port import OutgoingMessage
from posthouse.store.queue import Report
from posthouse.store.taking import ClaimedSend
from posthouse.worker.caller import Call, Caller
from posthouse.worker.claims import Claims
from posthouse.worker.files import Files
from posthouse.worker.gates import Gates
from posthouse.worker.pace import Pace
from posthouse.worker.pulse import Pulse
from posthouse.worker.rendering import CannotRender, Renderer
from posthouse.worker.routes import HEALTH_AGE_MAX_S, Routes
from posthouse.worker.settler import Settler, nobody_waits
from posthouse.worker.suppressed import SuppressionCheck

STEPS_AT_ONCE: Final = 50
LEASE_MARGIN_S: Final = 30.0
BUSY_WAIT_S: Final = 2.0
"""How soon to come back to a send whose route is held or busy."""

log = logging.getLogger("posthouse.worker")


class Reconciler:
    """Takes unknown sends whose time has come. A step never raises for what a provider does."""

    def __init__(
        self,
        claims: Claims,
        caller: Caller,
        routes: Routes,
        pace: Pace,
        gates: Gates,
        settler: Settler,
        renderer: Renderer,
        files: Files,
        check: SuppressionCheck,
        pulse: Pulse,
        now: Callable[[], float],
        chance: random.Random,
    ) -> None:
        self._claims = claims
        self._caller = caller
        self._routes = routes
        self._pace = pace
        self._gates = gates
        self._settler = settler
        self._renderer = renderer
        self._files = files
        self._check = check
        self._pulse = pulse
        self._now = now
        self._chance = chance
        self._stopping = False

    def stop(self) -> None:
        """Takes no more sends; the steps under way end."""
        self._stopping = True

    async def sweep(self) -> int:
        """One step for every unknown send that is due; how many steps. Raises DatabaseUnavailable."""
        lease_s = LEASE_MARGIN_S + max((facts.timeout_s for facts in self._routes.facts.values()), default=0.0)
        steps = 0
        while self._pulse.may_start and not self._stopping:
            taken = await self._claims.take_unknown(STEPS_AT_ONCE, lease_s)
            if taken:
                await self._routes.refresh(HEALTH_AGE_MAX_S)
                await self._gates.refresh()
            await asyncio.gather(*(self._step(send) for send in taken))
            steps += len(taken)
            if len(taken) < STEPS_AT_ONCE:
                break
        return steps

    async def _step(self, taken: ClaimedSend) -> None:
        state = taken.state
        policy = self._caller.policies.get(state.type)
        if policy is None:
            return  # a worker that knows the type takes it when our lease is over
        facts = self._routes.facts.get(state.route or "")
        chosen = plan(state, facts, policy, self._now())
        if facts is not None and chosen.resolver is Resolver.REPLAY and await self._is_stopped(taken):
            facts = replace(facts, key_lifetime_s=0.0)  # a replay may be the call that gets through
            chosen = plan(state, facts, policy, self._now())
        if facts is not None and chosen.resolver in (Resolver.REPLAY, Resolver.LOOK_UP):
            await self._ask(taken, facts, chosen)
        elif chosen.resolver is Resolver.RESEND:
            log.warning("send %d (%s) is sent again: %s", state.id, taken.key, chosen.reason)
            self._report(state, partial(resent, now=self._now()))
        else:
            if chosen.resolver is Resolver.HOLD:
                log.error("send %d (%s) is held: %s; posthouse resolve", state.id, taken.key, chosen.reason)
            self._report(state, partial(waited, at=chosen.at, reason=chosen.reason))

    async def _is_stopped(self, taken: ClaimedSend) -> bool:
        """Whether some recipient must not get it; where nobody can say that now, the step itself finds out why."""
        try:
            content = self._renderer.content(taken.body, taken.state.type, taken.idempotency_key)
            return bool(await self._check.stopped(taken.state.type, content))
        except (CannotRender, DatabaseUnavailable):
            return False

    async def _ask(self, taken: ClaimedSend, facts: RouteFacts, chosen: Plan) -> None:
        """Replays or looks up, where the route is free to be asked."""
        state, now = taken.state, self._now()
        self._routes.want(facts.name)
        with suppress(DatabaseUnavailable):
            await self._routes.begin_probes()
        closed = chosen.resolver is Resolver.REPLAY and self._gates.closing(taken.lane)
        if closed or not self._routes.room(facts.name):
            self._report(state, partial(waited, at=now + BUSY_WAIT_S, reason=chosen.reason))
            return
        try:
            with self._routes.slots.taken(facts.name):
                await self._ask_now(taken, facts, chosen)
        except CannotRender as error:
            self._report(state, partial(waited, at=None, reason=f"it can't be asked about: {error}"))
        except DatabaseUnavailable:
            self._report(state, partial(waited, at=now + BUSY_WAIT_S, reason=chosen.reason))

    async def _ask_now(self, taken: ClaimedSend, facts: RouteFacts, chosen: Plan) -> None:
        """Raises CannotRender, DatabaseUnavailable, both before anything was asked."""
        state = taken.state
        content = self._renderer.content(taken.body, state.type, taken.idempotency_key)
        async with self._files.of(state.id, content) as files:
            message = self._renderer.message(state.id, taken.idempotency_key, content, taken.date, files)
            if chosen.resolver is Resolver.REPLAY:
                slot = await self._pace.ask_one(taken.lane, facts.name)
                again_at = await self._pace.wait(slot, len(message.recipients))
                if again_at is None and not await self._check.is_clear(state.type, content):
                    again_at = self._now() + BUSY_WAIT_S
                if again_at is not None:
                    await self._pace.give_back_slot(slot)
                    self._report(state, partial(waited, at=again_at, reason=chosen.reason))
                    return
                await self._caller.call(facts.name, Call(taken, message, Via.REPLAY, nobody_waits))
            else:
                asked_at = self._now()
                answer = await self._look_up(facts, message)
                self._report_look_up(taken, facts, answer, asked_at)

    async def _look_up(self, facts: RouteFacts, message: OutgoingMessage) -> LookUp:
        try:
            return await self._caller.providers[facts.name].look_up(message)
        except Exception as error:
            log.exception("a fault in the look-up of route %s, send %d", facts.name, message.send_id)
            return LookUp(Found.UNSURE, text=f"{type(error).__name__}: {error}")

    def _report_look_up(self, taken: ClaimedSend, facts: RouteFacts, answer: LookUp, asked_at: float) -> None:
        state, now = taken.state, self._now()
        decide: Callable[..., Change | None] = partial(
            learned,
            fence=state.fence,
            answer=answer,
            route=facts,
            policy=self._caller.policies[state.type],
            asked_at=asked_at,
            now=now,
            chance=self._chance.random(),
        )
        attempt = Attempt(state.id, state.fence, facts.name, asked_at, now, _as_verdict(answer), Via.LOOK_UP)
        self._settler.add(Report(state.id, state.fence, decide, attempt), nobody_waits)

    def _report(self, state: SendState, decide: Callable[[SendState], Change]) -> None:
        self._settler.add(Report(state.id, state.fence, partial(_while_unknown, decide=decide)), nobody_waits)


def _while_unknown(send: SendState, decide: Callable[[SendState], Change]) -> Change | None:
    return decide(send) if send.status is Status.UNKNOWN else None


def _as_verdict(answer: LookUp) -> Verdict:
    """The look-up's line in the time-line of attempts."""
    code = f"look_up_{answer.found}"
    if answer.found is Found.ACCEPTED:
        return Verdict(Outcome.ACCEPTED, code=code, text=answer.text, message_id=answer.message_id)
    return Verdict(Outcome.UNKNOWN, maybe_accepted=True, code=code, text=answer.text)
