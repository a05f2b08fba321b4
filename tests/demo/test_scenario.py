"""What is played: how fast, when, and which faults."""

from __future__ import annotations

import random

import pytest

from posthouse.demo.scenario import HOUR_S, TIMEOUT_S, Scenario
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import Call, CallKind, Fault, FaultPlan, Per


def scenario(
    orders: int = 6000, hour_s: float = 30.0, outage_min: float = 4.0, timeouts: int = 150, seed: int = 1
) -> Scenario:
    return Scenario(orders, hour_s, outage_min, timeouts, seed)


def faults(played: Scenario) -> list[Fault]:
    return [parse_fault(text) for text in played.faults()]


def test_an_hour_in_half_a_minute_runs_120_times_as_fast_and_its_waits_5_times() -> None:
    played = scenario()
    assert played.pace == 120
    assert played.real(240) == 2.0
    assert played.real_wait(TIMEOUT_S) == 3.0
    assert played.concurrency == 32 * 24


def test_an_hour_that_takes_an_hour_is_not_compressed_at_all() -> None:
    played = scenario(hour_s=HOUR_S)
    assert (played.pace, played.wait_pace, played.concurrency) == (1.0, 1.0, 32)


def test_no_time_limit_is_ever_so_short_that_a_busy_computer_would_break_it() -> None:
    assert min(scenario(hour_s=hour).real_wait(TIMEOUT_S) for hour in (2, 5, 30, 600, 3600)) >= 3.0


def test_orders_come_by_chance_over_the_whole_hour_and_a_seed_replays_them() -> None:
    arrivals = scenario().arrivals()
    assert len(arrivals) == 6000
    assert arrivals == sorted(arrivals) == scenario().arrivals()
    assert arrivals != scenario(seed=2).arrivals()
    assert arrivals[0] < 0.5
    assert 29.5 < arrivals[-1] < 30.0
    assert sum(10 <= at < 12 for at in arrivals) == pytest.approx(400, abs=80)


def test_every_fault_has_the_outage_as_its_window() -> None:
    assert {(fault.target.from_s, fault.target.until_s) for fault in faults(scenario())} == {(10.0, 12.0)}


@pytest.mark.parametrize("outage_min", [0.5, 4.0, 30.0, 50.0])
def test_an_outage_lies_within_the_hour(outage_min: float) -> None:
    played = scenario(outage_min=outage_min)
    assert 0 < played.outage_from_s < played.outage_until_s < HOUR_S
    assert played.outage_until_s - played.outage_from_s == outage_min * 60


def test_the_calls_of_the_outage_meet_as_many_late_answers_as_were_asked_for() -> None:
    for seed in range(50):
        plan, chance = FaultPlan(faults(scenario())), random.Random(seed)
        hits = [plan.draw(Call(CallKind.SEND), 11.0, chance) for _ in range(400)]
        assert sum(fault is not None and fault.target.per is Per.ALL for fault in hits) == 150, f"seed {seed}"
        assert None not in hits, "every call of the outage meets some fault"


def test_late_answers_come_after_the_time_limit_and_slow_ones_before_it() -> None:
    late, _, slow = faults(scenario())
    assert slow.effect.delay_s < scenario().real_wait(TIMEOUT_S) < late.effect.delay_s
    assert late.effect.accepted
    assert slow.effect.accepted


def test_without_late_answers_no_such_fault_is_there() -> None:
    assert scenario(timeouts=0).late_fault is None
    assert len(faults(scenario(timeouts=0))) == 2


def test_more_late_answers_than_the_outage_has_calls_still_leave_room_for_the_other_faults() -> None:
    assert sum(fault.target.share for fault in faults(scenario(timeouts=100_000))[:2]) < 1.0
