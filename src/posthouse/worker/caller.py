"""Making one call for one send, and handing on what it means: to the settler, and to the route's health."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from functools import partial

from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.policy import TypePolicy
from posthouse.core.refusals import RefusalStreak, Suspects, judge, judge_alone
from posthouse.core.sends import Attempt, Change, Via
from posthouse.core.settlement import revive, settle
from posthouse.providers.port import OutgoingMessage, Provider
from posthouse.store.queue import Report
from posthouse.store.taking import ClaimedSend
from posthouse.worker.group_watch import GroupWatch
from posthouse.worker.routes import Routes
from posthouse.worker.settler import Settler, Written, nobody_waits

log = logging.getLogger("posthouse.worker")


class Caller:
    """Makes calls. Every call that began ends in a report to the settler, whatever happens to it."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        policies: Mapping[str, TypePolicy],
        routes: Routes,
        settler: Settler,
        groups: GroupWatch,
        now: Callable[[], float],
        chance: random.Random,
    ) -> None:
        self.providers = providers
        self.policies = policies
        self._routes = routes
        self._settler = settler
        self._groups = groups
        self._now = now
        self._chance = chance
        self._refused_fences: dict[int, int] = {}
        self._streaks: dict[str, RefusalStreak] = {}
        self._suspects: dict[str, Suspects] = {}

    async def call(
        self, claimed: ClaimedSend, route: str, message: OutgoingMessage, via: Via, written: Written
    ) -> None:
        """One call on one route, in a slot that its caller holds, to its end."""
        started_at = self._now()
        verdict = await self._verdict(route, message)
        ended_at = self._now()
        verdict, revived = self._judge(claimed, route, verdict)
        attempt = Attempt(claimed.state.id, claimed.state.fence, route, started_at, ended_at, verdict, via)
        self._settler.add(self._report(claimed, attempt), written)
        self._groups.note(claimed.lane, route, verdict, ended_at)
        for report in revived:
            self._settler.add(report, nobody_waits)
        for each in (verdict, *(remainder.verdict for remainder in verdict.remainders)):
            await self._routes.note(route, each, ended_at - started_at, ended_at, self._chance.random())

    def _judge(self, claimed: ClaimedSend, route: str, verdict: Verdict) -> tuple[Verdict, list[Report]]:
        """The verdict as it counts after those before it, and the earlier sends to revive."""
        if verdict.outcome is Outcome.ACCEPTED and not (self._streaks.get(route) or self._suspects.get(route)):
            return verdict, []  # nearly always
        self._suspects[route], verdict = judge_alone(self._suspects.get(route, Suspects()), claimed.state.id, verdict)
        streak, verdict, revived = judge(self._streaks.get(route, RefusalStreak()), claimed.state.id, verdict)
        self._streaks[route] = streak
        self._refused_fences[claimed.state.id] = claimed.state.fence
        decide: Callable[..., Change | None] = partial(revive, reason=verdict.text, now=self._now())
        reports = [Report(send_id, self._refused_fences[send_id], decide) for send_id in revived]
        alike = {send_id for streak in self._streaks.values() for send_id in streak.send_ids}
        self._refused_fences = {send_id: fence for send_id, fence in self._refused_fences.items() if send_id in alike}
        return verdict, reports

    async def _verdict(self, route: str, message: OutgoingMessage) -> Verdict:
        try:
            return await self.providers[route].send(message)
        except asyncio.CancelledError:
            # Only a shutdown that ran out of grace cancels a call; it may have been accepted.
            return Verdict(
                Outcome.UNKNOWN, maybe_accepted=True, code="cut_off", text="the worker was stopped in mid-call"
            )
        except Exception as error:
            log.exception("a fault in the provider of route %s, send %d", route, message.send_id)
            return Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="fault", text=f"{type(error).__name__}: {error}")

    def _report(self, claimed: ClaimedSend, attempt: Attempt) -> Report:
        policy = self.policies[claimed.state.type]
        decide: Callable[..., Change | None] = partial(
            settle, attempt=attempt, policy=policy, now=attempt.ended_at, chance=self._chance.random()
        )
        return Report(attempt.send_id, attempt.fence, decide, attempt)
