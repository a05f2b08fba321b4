"""Adaptive concurrency, against providers that are queues: it finds what they take, and stays there."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.concurrency import FAILED, QUICK_S, SAMPLES_MIN, SHRUNK, Adaptive, ended, tells
from posthouse.core.outcome import Outcome, Subject, Verdict
from tests.core.strategies import NOW

MAXIMUM: Final = 100
SERVICE_S: Final = 0.1

Service = Callable[[random.Random], float]


def constant(_chance: random.Random) -> float:
    return SERVICE_S


def exponential(chance: random.Random) -> float:
    return chance.expovariate(1 / SERVICE_S)


def long_tailed(chance: random.Random) -> float:
    return SERVICE_S * math.exp(chance.gauss(0.0, 1.0))


def of_two_kinds(chance: random.Random) -> float:
    return 5 * SERVICE_S if chance.random() < 0.4 else SERVICE_S / 2


@dataclass
class Provider:
    """Works on `servers` calls at once, first come first served; each further one can make all of them slower.

    One worker calls it as often as its limit allows, or `demand` does.
    """

    servers: int
    service: Service = constant
    slows: float = 0.0  # by so much for each call that waits
    state: Adaptive | None = field(default_factory=Adaptive)  # None: always MAXIMUM calls at once
    demand: int = MAXIMUM
    now: float = NOW
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    waiting: deque[float] = field(default_factory=deque)  # since when
    working: list[tuple[float, float]] = field(default_factory=list)  # until when, asked when
    latencies: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    @property
    def in_flight(self) -> int:
        return len(self.waiting) + len(self.working)

    @property
    def allowed(self) -> int:
        return MAXIMUM if self.state is None else self.state.allowed(MAXIMUM)

    def run(self, seconds: float) -> Provider:
        """The same provider after so long, with what was seen in that time."""
        end, self.latencies, self.limits = self.now + seconds, [], []
        while self.now < end:
            while self.in_flight < min(self.allowed, self.demand):
                self.waiting.append(self.now)
                self._work()
            self._end_one()
        return self

    def _work(self) -> None:
        while self.waiting and len(self.working) < self.servers:
            takes_s = self.service(self.chance) * (1 + self.slows * max(0, self.in_flight - self.servers))
            heapq.heappush(self.working, (self.now + takes_s, self.waiting.popleft()))

    def _end_one(self) -> None:
        self.now, asked_at = self.working[0]
        latency_s = self.now - asked_at
        if self.state is not None:
            self.state = ended(self.state, latency_s, True, self.in_flight, self.now, MAXIMUM)
            self.limits.append(self.state.limit)
        heapq.heappop(self.working)
        self.latencies.append(latency_s)
        self._work()

    def mean_s(self) -> float:
        return sum(self.latencies) / len(self.latencies)


def rate(provider: Provider, seconds: float) -> float:
    return len(provider.latencies) / seconds


@pytest.mark.parametrize("servers", [2, 10, 40])
@pytest.mark.parametrize("service", [constant, exponential])
def test_it_finds_what_a_provider_can_work_on_and_little_waits_there(servers: int, service: Service) -> None:
    provider = Provider(servers, service).run(30).run(60)
    assert rate(provider, 60) >= 0.85 * servers / SERVICE_S
    assert provider.mean_s() <= 2.2 * SERVICE_S
    assert max(provider.limits) <= 4 * servers + 4


def test_without_it_calls_wait_at_the_provider_for_nothing() -> None:
    fixed = Provider(10, state=None).run(30).run(60)
    adaptive = Provider(10).run(30).run(60)
    assert fixed.mean_s() >= 5 * adaptive.mean_s()
    assert rate(adaptive, 60) >= 0.95 * rate(fixed, 60)


def test_a_provider_that_hurry_makes_slower_gets_more_done_without_hurry() -> None:
    fixed = Provider(10, slows=0.02, state=None).run(30).run(60)
    adaptive = Provider(10, slows=0.02).run(30).run(60)
    assert rate(adaptive, 60) >= 2 * rate(fixed, 60)


@pytest.mark.parametrize("service", [constant, exponential, long_tailed, of_two_kinds])
def test_a_route_whose_latency_is_naturally_noisy_keeps_all_its_calls(service: Service) -> None:
    provider = Provider(10_000, service, demand=32).run(60).run(240)
    calls = sum(limit >= 30 for limit in provider.limits) / len(provider.limits)
    assert calls >= 0.9


def test_all_calls_are_allowed_within_seconds() -> None:
    provider = Provider(10_000).run(10)
    assert provider.limits[-1] == MAXIMUM


@pytest.mark.parametrize("times", [4, 40])
def test_a_provider_that_becomes_slower_by_itself_is_not_taken_for_overloaded(times: int) -> None:
    provider = Provider(10_000, exponential, demand=32).run(30)
    provider.service = lambda chance: times * exponential(chance)
    provider.run(30 * times).run(30 * times)
    assert sorted(provider.limits)[len(provider.limits) // 10] >= 25


def test_a_provider_that_becomes_faster_again_is_noticed() -> None:
    provider = Provider(10, lambda chance: 5 * exponential(chance)).run(120)
    provider.service = exponential
    provider.run(60).run(60)
    assert rate(provider, 60) >= 0.9 * 10 / SERVICE_S
    assert provider.mean_s() <= 2.2 * SERVICE_S


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    provider = Provider(10_000, demand=3).run(60)
    assert max(provider.limits) <= 4


def told(state: Adaptive, latencies: list[float], in_flight: int, now: float = NOW) -> Adaptive:
    for latency_s in latencies:
        now += latency_s
        state = ended(state, latency_s, True, in_flight, now, MAXIMUM)
    return state


SETTLED: Final = Adaptive(limit=32.0, baseline_s=0.1, doubles=False)


def test_a_single_slow_call_changes_nothing() -> None:
    usual = [0.1] * (SAMPLES_MIN - 1)
    for _ in range(20):
        assert told(SETTLED, [*usual, 60.0] * 2, 32).limit > SETTLED.limit


def test_one_slow_window_is_chance_and_two_are_not() -> None:
    slow = [0.25] * SAMPLES_MIN
    assert told(SETTLED, slow, 32).limit == SETTLED.limit
    assert told(SETTLED, slow * 2, 32).limit == pytest.approx(SHRUNK * 32)


def test_calls_that_end_within_a_moment_are_never_slow() -> None:
    quick = Adaptive(limit=32.0, baseline_s=QUICK_S / 20, doubles=False)
    assert told(quick, [QUICK_S * 0.9] * SAMPLES_MIN * 6, 32).limit > quick.limit
    assert told(quick, [QUICK_S * 1.1] * SAMPLES_MIN * 2, 32).limit == pytest.approx(SHRUNK * 32)


def test_it_shrinks_from_what_is_in_use() -> None:
    assert told(SETTLED, [0.25] * SAMPLES_MIN * 2, 10).limit == pytest.approx(SHRUNK * 10)


def test_calls_that_failed_together_shrink_it_once() -> None:
    state = SETTLED
    for place in range(32):
        state = ended(state, 15.0, False, 32 - place, NOW + place / 100, MAXIMUM)
    assert state.limit == pytest.approx(FAILED * 32)
    assert ended(state, 15.0, False, 25, NOW + 16, MAXIMUM).limit == pytest.approx(FAILED * FAILED * 32)


def test_calls_that_had_begun_before_it_shrank_say_nothing_about_it_now() -> None:
    shrunk = ended(SETTLED, 15.0, False, 32, NOW, MAXIMUM)
    assert ended(shrunk, 5.0, True, 31, NOW + 1, MAXIMUM) == shrunk


def test_calls_that_several_share_make_it_grow_however_long_they_take_and_shrink_it_when_they_fail() -> None:
    state, now = replace(SETTLED, limit=10.0), NOW
    for _ in range(SAMPLES_MIN * 4):
        now += 1.0
        state = ended(state, 0.9, True, 32, now, MAXIMUM, shared=True)
    assert state.limit > 10.0
    assert state.baseline_s == SETTLED.baseline_s
    assert ended(state, 0.9, False, 32, now + 1, MAXIMUM, shared=True).limit < state.limit


@given(
    st.integers(1, 100),
    st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans(), st.integers(1, 200), st.floats(-1.0, 50.0)), max_size=300),
)
def test_it_always_stays_between_one_and_what_is_configured(
    maximum: int, calls: list[tuple[float, bool, int, float]]
) -> None:
    state, now = Adaptive(), NOW
    for latency_s, ok, in_flight, passed in calls:
        now += passed
        state = ended(state, latency_s, ok, in_flight, now, maximum)
        assert 1 <= state.allowed(maximum) <= maximum
        assert 1.0 <= state.limit <= maximum


def test_a_configured_maximum_that_was_lowered_is_obeyed_at_once() -> None:
    assert SETTLED.allowed(5) == 5


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict(Outcome.ACCEPTED), True),
        (Verdict(Outcome.THROTTLED), False),
        (Verdict(Outcome.UNKNOWN, maybe_accepted=True, subject=Subject.ROUTE, code="timeout"), False),
        (Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="cut_off"), None),  # our own shutdown
        (Verdict(Outcome.REJECTED), None),  # refused in no time
        (Verdict(Outcome.TRANSIENT, subject=Subject.ROUTE, code="connect_refused"), None),  # the breaker's business
        (Verdict(Outcome.MISCONFIGURED), None),
    ],
)
def test_only_acceptances_are_timed_and_only_signs_of_hurry_shrink(verdict: Verdict, expected: bool | None) -> None:
    assert tells(verdict) is expected


def test_an_unhurried_window_teaches_a_lower_baseline_fast_and_a_higher_one_slowly() -> None:
    lower = told(SETTLED, [0.05] * SAMPLES_MIN, 32).baseline_s
    higher = told(SETTLED, [0.15] * SAMPLES_MIN, 32).baseline_s
    assert SETTLED.baseline_s - lower > 10 * (higher - SETTLED.baseline_s) > 0


def test_a_route_that_takes_one_call_at_a_time_gets_a_new_baseline_all_the_same() -> None:
    provider = Provider(10, demand=1).run(60)
    provider.service = lambda _chance: 9 * SERVICE_S
    provider.run(600)
    assert provider.state is not None
    assert provider.state.baseline_s > 4.5 * SERVICE_S
