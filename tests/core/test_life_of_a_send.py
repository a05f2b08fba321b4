"""One send through everything at once: dead workers, late results, lost answers, look-ups, lapsing keys.

The deciding functions are the real ones; the row, the workers and the providers are a few lines each. The
providers know the truth, and the promise is checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from posthouse.core.lifecycle import OPEN, TRANSITIONS, Status
from posthouse.core.outcome import Found, LookUp, Outcome, Verdict
from posthouse.core.policy import OnUnknown, RouteFacts, TypePolicy
from posthouse.core.reconcile import Resolver, learned, plan, resent, waited
from posthouse.core.routing import route_plan
from posthouse.core.sends import Attempt, Change, SendState, Via
from posthouse.core.settlement import end_life, reap, release, settle
from tests.core.strategies import NOW, ROUTES

LEASE_MARGIN_S = 30.0

SAYS_ACCEPTED = Verdict(Outcome.ACCEPTED)
LOST = Verdict(Outcome.UNKNOWN, maybe_accepted=True)
BROKEN = Verdict(Outcome.TRANSIENT, maybe_accepted=True)
REJECTED = Verdict(Outcome.REJECTED)
NOT_NOW = (
    Verdict(Outcome.THROTTLED, spends_attempt=False, retry_after_s=20.0),
    Verdict(Outcome.TRANSIENT),
    Verdict(Outcome.TRANSIENT, spends_attempt=False),
    Verdict(Outcome.MISCONFIGURED, spends_attempt=False),
)


@dataclass
class Call:
    """One call under way. The provider acts on it within the time limit, whatever becomes of the caller."""

    attempt: Attempt
    acts_at: float
    takes_it: bool
    acted: bool = False


@dataclass
class Provider:
    """The truth about one route."""

    facts: RouteFacts
    copies: list[float] = field(default_factory=list)  # when each was accepted

    def knows_key(self, now: float) -> bool:
        return any(now < at + self.facts.key_lifetime_s for at in self.copies)

    def act(self, call: Call) -> None:
        call.acted = True
        if call.takes_it and not self.knows_key(call.acts_at):
            self.copies.append(call.acts_at)

    def answers(self, call: Call) -> list[Verdict]:
        """What the caller may be told."""
        if call.takes_it:
            return [SAYS_ACCEPTED, LOST, BROKEN]
        return [*NOT_NOW, LOST, BROKEN, *([] if self.knows_key(call.acts_at) else [REJECTED])]

    def look_ups(self, now: float) -> list[Found]:
        """What it may say about the send now."""
        if any(at + self.facts.look_up_lag_s <= now for at in self.copies):
            return [Found.ACCEPTED, Found.UNSURE]
        return [Found.MISSING, Found.UNSURE, *([Found.ACCEPTED] if self.copies else [])]


class LifeOfASend(RuleBasedStateMachine):
    """Rules are what may happen; the invariants are the promise."""

    @initialize(
        key_lifetimes_s=st.tuples(*[st.sampled_from([0.0, 300.0, 3600.0])] * 2),
        can_look_up=st.tuples(st.booleans(), st.booleans()),
        lag_s=st.sampled_from([0.0, 40.0]),
        on_unknown=st.sampled_from(OnUnknown),
        unknown_wait_s=st.sampled_from([0.0, 60.0]),
        may_change=st.booleans(),
        max_attempts=st.sampled_from([1, 3, 10]),
        life_s=st.sampled_from([300.0, 86_400.0]),
    )
    def enqueue(
        self,
        key_lifetimes_s: tuple[float, float],
        can_look_up: tuple[bool, bool],
        lag_s: float,
        on_unknown: OnUnknown,
        unknown_wait_s: float,
        may_change: bool,
        max_attempts: int,
        life_s: float,
    ) -> None:
        self.now = NOW
        self.policy = TypePolicy(
            "receipt",
            routes=ROUTES[:2],
            on_unknown=on_unknown,
            unknown_wait_s=unknown_wait_s,
            unknown_may_change_route=may_change,
            max_attempts=max_attempts,
        )
        self.providers = {
            name: Provider(RouteFacts(name, lifetime_s, lookable, lag_s, timeout_s=15.0))
            for name, lifetime_s, lookable in zip(self.policy.routes, key_lifetimes_s, can_look_up, strict=True)
        }
        self.send = SendState(1, "receipt", Status.PENDING, 0, 0, 0, NOW + life_s)
        self.next_try_at: float | None = NOW
        self.claimed_at = NOW
        self.calls: list[Call] = []
        self.route_of: dict[int, str] = {}  # by the call's fence

    def apply(self, change: Change | None, attempt: Attempt | None = None) -> None:
        """Writes a change as the store does."""
        if change is None:
            return
        assert TRANSITIONS[self.send.status, change.happening] is change.status
        self.next_try_at = change.next_try_at
        self.send = replace(
            self.send,
            status=change.status,
            attempts=self.send.attempts + (attempt is not None),
            failures=self.send.failures + change.spends_attempt,
            route=attempt.route if attempt is not None else self.send.route,
            unknown_since=change.unknown_since,
            unknown_fence=change.unknown_fence,
            maybe_duplicate=self.send.maybe_duplicate or change.maybe_duplicate,
            message_id=change.message_id or self.send.message_id,
        )

    def due(self, status: Status) -> bool:
        return self.send.status is status and self.next_try_at is not None and self.next_try_at <= self.now

    def begin(self, route: str, via: Via, data: st.DataObject) -> None:
        assert self.now < self.send.expires_at
        self.route_of[self.send.fence] = route
        if self.send.unknown_fence is not None and not self.policy.unknown_may_change_route:
            assert route == self.route_of[self.send.unknown_fence]
        timeout_s = self.providers[route].facts.timeout_s
        attempt = Attempt(1, self.send.fence, route, self.now, self.now, LOST, via)
        acts_at = self.now + data.draw(st.sampled_from([0.0, timeout_s / 2, timeout_s]), "acts after")
        self.calls.append(Call(attempt, acts_at, data.draw(st.booleans(), "provider takes it")))

    @rule(seconds=st.sampled_from([1.0, 10.0, 60.0, 600.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for call in sorted(self.calls, key=lambda call: call.acts_at):
            if not call.acted and call.acts_at <= self.now:
                self.providers[call.attempt.route].act(call)

    @precondition(lambda self: self.due(Status.PENDING))
    @rule(data=st.data())
    def a_dispatcher_claims_it(self, data: st.DataObject) -> None:
        plan = route_plan(self.policy, {}, self.now)
        route = None if plan is None else plan.next_route(self.send)
        self.send = replace(self.send, status=Status.SENDING, fence=self.send.fence + 1, route=route)
        self.claimed_at = self.now
        if self.send.expires_at <= self.now:
            self.apply(end_life(self.send))
        elif route is None or data.draw(st.booleans(), "held back"):
            self.apply(release(self.send, self.now))
        else:
            self.begin(route, Via.SEND, data)

    @precondition(lambda self: any(call.acted for call in self.calls))
    @rule(data=st.data(), chance=st.sampled_from([0.0, 0.9]))
    def a_result_arrives_however_late(self, data: st.DataObject, chance: float) -> None:
        call = data.draw(st.sampled_from([call for call in self.calls if call.acted]), "call")
        self.calls.remove(call)
        verdict = data.draw(st.sampled_from(self.providers[call.attempt.route].answers(call)), "verdict")
        attempt = replace(call.attempt, ended_at=self.now, verdict=verdict)
        self.apply(settle(self.send, attempt, self.policy, self.now, chance), attempt)

    @precondition(lambda self: self.send.status is Status.SENDING)
    @rule()
    def its_worker_is_declared_dead(self) -> None:
        self.apply(reap(self.send, self.claimed_at, self.now))

    @precondition(lambda self: self.due(Status.UNKNOWN))
    @rule(data=st.data())
    def a_reconciler_takes_it(self, data: st.DataObject) -> None:
        facts = self.providers[self.send.route or ""].facts
        self.send = replace(self.send, fence=self.send.fence + 1)
        self.next_try_at = self.now + facts.timeout_s + LEASE_MARGIN_S
        made = plan(self.send, facts, self.policy, self.now)
        if made.resolver is Resolver.REPLAY:
            self.begin(facts.name, Via.REPLAY, data)
        elif made.resolver is Resolver.LOOK_UP:
            found = data.draw(st.sampled_from(self.providers[facts.name].look_ups(self.now)), "found")
            self.apply(learned(self.send, self.send.fence, LookUp(found), facts, self.policy, self.now, self.now, 0.5))
        elif made.resolver is Resolver.RESEND:
            self.apply(resent(self.send, self.now))
        else:
            self.apply(waited(self.send, made.at, made.reason))

    @precondition(lambda self: self.send.status is Status.PENDING and self.send.expires_at <= self.now)
    @rule()
    def its_life_ends(self) -> None:
        self.apply(end_life(self.send))

    @property
    def copies(self) -> int:
        return sum(len(provider.copies) for provider in self.providers.values())

    @invariant()
    def an_open_send_is_somebodys(self) -> None:
        if self.send.status in OPEN:
            owned = self.send.status is Status.SENDING or self.next_try_at is not None
            assert owned or self.send.status is Status.UNKNOWN  # held for a person, who sees it

    @invariant()
    def a_second_copy_is_marked_and_happens_only_where_the_type_allows_it(self) -> None:
        if self.copies > 1:
            assert self.send.maybe_duplicate
            assert self.policy.on_unknown is OnUnknown.RESEND

    @invariant()
    def nothing_that_was_accepted_is_called_unsent(self) -> None:
        if self.send.status in (Status.FAILED, Status.EXPIRED):
            assert not self.copies

    @invariant()
    def what_was_called_accepted_was_accepted(self) -> None:
        if self.send.status is Status.ACCEPTED:
            assert self.copies

    def teardown(self) -> None:
        """In the end every call has had its effect, and what was said must still be true."""
        if hasattr(self, "calls"):
            self.time_passes(100.0)
            self.a_second_copy_is_marked_and_happens_only_where_the_type_allows_it()
            self.nothing_that_was_accepted_is_called_unsent()


def test_the_promise_holds_through_everything_that_can_happen_to_one_send() -> None:
    run_state_machine_as_test(
        LifeOfASend, settings=settings(max_examples=300, stateful_step_count=40, deadline=None, print_blob=True)
    )
