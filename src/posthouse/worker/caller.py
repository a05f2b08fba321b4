"""Making one call for one send or several, and handing on what it means: to the settler, and to the route's health."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What a call is made for: one send, and who hears of what became of it."""

    claimed: ClaimedSend
    message: OutgoingMessage
    via: Via
    written: Written


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

    async def call(self, route: str, *calls: Call) -> list[Call]:
        """One call on one route for all of these, to its end; whoever makes it holds a slot for each.

        Gives those for whom it means nothing, though they were certainly not accepted: each is to be sent by itself.
        """
        started_at = self._now()
        verdicts = await self._verdicts(route, [call.message for call in calls])
        ended_at = self._now()
        apart = [call for call, verdict in zip(calls, verdicts, strict=True) if verdict is None]
        told = [(call, verdict) for call, verdict in zip(calls, verdicts, strict=True) if verdict is not None]
        for each in self._judged(route, told, started_at, ended_at):
            chance, shared = self._chance.random(), len(calls) > 1
            await self._routes.note(route, each, ended_at - started_at, ended_at, chance, shared=shared)
        if apart:
            log.warning(
                "route %s: %d of the %d sends of one call go by themselves; it was refused as a whole, or had no room",
                *(route, len(apart), len(calls)),
            )
        return apart

    def _judged(
        self, route: str, told: list[tuple[Call, Verdict]], started_at: float, ended_at: float
    ) -> Iterable[Verdict]:
        """Hands on what a call means for each of its sends; what it says about the route."""
        told.sort(key=lambda each: each[1].outcome is not Outcome.ACCEPTED)
        judged = []
        for call, verdict in told:
            judged.append(self._settle(call, route, verdict, started_at, ended_at))
            if len(told) > 1 and told[0][1].outcome is Outcome.ACCEPTED:
                self._judge(told[0][0].claimed, route, told[0][1])  # a refusal beside it is the message's own affair
        return _news(judged)

    def _settle(self, call: Call, route: str, verdict: Verdict, started_at: float, ended_at: float) -> Verdict:
        """Hands on what a call means for one send, and for earlier ones; how it counts."""
        state = call.claimed.state
        verdict, revived = self._judge(call.claimed, route, verdict)
        attempt = Attempt(state.id, state.fence, route, started_at, ended_at, verdict, call.via)
        self._settler.add(self._report(call.claimed, attempt), call.written)
        self._groups.note(call.claimed.lane, route, verdict, ended_at)
        for report in revived:
            self._settler.add(report, nobody_waits)
        return verdict

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

    async def _verdicts(self, route: str, messages: Sequence[OutgoingMessage]) -> Sequence[Verdict | None]:
        provider = self.providers[route]
        try:
            if len(messages) == 1:
                return [await provider.send(messages[0])]
            return _one_for_each(messages, await provider.send_together(messages))
        except asyncio.CancelledError:
            # Only a shutdown that ran out of grace cancels a call; it may have been accepted.
            lost = Verdict(
                Outcome.UNKNOWN, maybe_accepted=True, code="cut_off", text="the worker was stopped in mid-call"
            )
        except Exception as error:
            ids = ", ".join(str(message.send_id) for message in messages)
            log.exception("a fault in the provider of route %s, send %s", route, ids)
            lost = Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="fault", text=f"{type(error).__name__}: {error}")
        return [lost] * len(messages)

    def _report(self, claimed: ClaimedSend, attempt: Attempt) -> Report:
        policy = self.policies[claimed.state.type]
        decide: Callable[..., Change | None] = partial(
            settle, attempt=attempt, policy=policy, now=attempt.ended_at, chance=self._chance.random()
        )
        return Report(attempt.send_id, attempt.fence, decide, attempt)


def _one_for_each(messages: Sequence[OutgoingMessage], verdicts: Sequence[Verdict | None]) -> Sequence[Verdict | None]:
    if len(verdicts) != len(messages):
        raise ValueError(f"{len(verdicts)} verdicts for {len(messages)} messages")
    return verdicts


def _news(verdicts: Sequence[Verdict]) -> Iterable[Verdict]:
    """What one call says about its route: each thing once, however many messages it says it of."""
    if len(verdicts) == 1 and not verdicts[0].remainders:
        return verdicts
    every = (each for verdict in verdicts for each in (verdict, *(left.verdict for left in verdict.remainders)))
    return {(each.outcome, each.subject, each.code, each.rule): each for each in every}.values()
