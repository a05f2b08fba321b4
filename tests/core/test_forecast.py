"""What an outage leaves behind: examples, and the arithmetic against a simulation of the same."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.forecast import Forecast, Plan, forecast, picture

MINUTE = 60.0


def near(value: float, abs: float | None = None) -> Any:
    return pytest.approx(value, abs=abs)


def a_minute(arrivals: float, capacity: float, *, outage: float = 0.0, pending: int = 0, age: float = math.inf) -> Plan:
    """Rates in a minute, times in minutes."""
    return Plan(arrivals / MINUTE, capacity / MINUTE, outage * MINUTE, pending, age * MINUTE)


# Examples.


def test_an_outage_leaves_what_arrived_and_the_spare_capacity_drains_it() -> None:
    told = forecast(a_minute(100, 300, outage=4))
    assert told.backlog == near(400)
    assert told.drain_s == near(2 * MINUTE)
    assert told.oldest_s == near(4 * MINUTE)
    assert (told.expired, told.expiry) == (near(0), 0)


def test_what_was_pending_is_served_first_and_gets_oldest() -> None:
    told = forecast(a_minute(100, 300, outage=4, pending=600))
    assert told.backlog == near(1000)
    assert told.drain_s == near(5 * MINUTE)
    assert told.oldest_s == near(6 * MINUTE)


def test_a_backlog_drains_without_an_outage_too() -> None:
    told = forecast(a_minute(0, 300, pending=600))
    assert (told.backlog, told.drain_s, told.oldest_s) == (600, near(120), near(120))


def test_nothing_at_all_is_done_at_once() -> None:
    told = forecast(Plan(0, 0))
    assert (told.backlog, told.drain_s, told.oldest_s, told.expired) == (0, 0, 0, 0)


def test_without_spare_capacity_the_backlog_stays() -> None:
    told = forecast(a_minute(100, 100, outage=4))
    assert (told.backlog, told.drain_s) == (near(400), None)
    assert told.oldest_s == near(4 * MINUTE)
    assert forecast(a_minute(100, 100)).drain_s == 0


def test_with_too_little_capacity_the_backlog_grows_for_ever() -> None:
    told = forecast(a_minute(100, 90))
    assert (told.backlog, told.drain_s, told.oldest_s) == (0, None, math.inf)
    assert told.backlog_at(10 * MINUTE) == near(100)
    assert (told.expired, told.expiry) == (0, 0)


def test_with_too_little_capacity_and_a_maximum_age_mail_expires_for_ever() -> None:
    told = forecast(a_minute(100, 90, outage=4, age=30))
    assert (told.drain_s, told.oldest_s, told.expired) == (None, 30 * MINUTE, math.inf)
    assert told.expiry == near(10 / MINUTE)


def test_an_outage_longer_than_the_maximum_age_loses_what_came_first() -> None:
    told = forecast(a_minute(100, 300, outage=4, pending=50, age=3))
    assert told.backlog == near(300)
    assert told.expired == near(150)
    assert told.drain_s == near(1.5 * MINUTE)
    assert told.oldest_s == 3 * MINUTE


def test_what_was_pending_may_expire_while_it_drains() -> None:
    told = forecast(a_minute(100, 300, outage=4, pending=3000, age=10))
    assert told.expired == near(3000 - 6 * 300)
    assert told.oldest_s == near(10 * MINUTE)


def test_a_capacity_of_nothing_expires_everything() -> None:
    told = forecast(a_minute(0, 0, pending=10, age=5))
    assert (told.expired, told.drain_s) == (10, near(5 * MINUTE))
    assert forecast(a_minute(0, 0, pending=10)).drain_s is None


@pytest.mark.parametrize(
    "numbers",
    [(-1, 1, 0, 0, 1), (1, -1, 0, 0, 1), (1, 1, -1, 0, 1), (1, 1, 0, -1, 1), (1, 1, 0, 0, 0), (math.inf, 1, 0, 0, 1)],
)
def test_a_plan_that_makes_no_sense_is_refused(numbers: tuple[float, float, float, int, float]) -> None:
    with pytest.raises(ValueError, match="plan"):
        Plan(*numbers)


# The second opinion.


@dataclass
class Simulation:
    """The same, step by step: a queue of those who wait, each with when it came."""

    plan: Plan
    step_s: float
    now: float = 0.0
    waiting: deque[list[float]] = field(default_factory=deque)  # since when, and how many
    oldest_s: float = 0.0
    expired: float = 0.0

    def __post_init__(self) -> None:
        if self.plan.pending:
            self.waiting.append([0.0, float(self.plan.pending)])

    @property
    def backlog(self) -> float:
        return sum(count for _, count in self.waiting)

    def step(self) -> None:
        self.now += self.step_s
        if self.plan.arrivals:
            self.waiting.append([self.now - self.step_s / 2, self.plan.arrivals * self.step_s])
        while self.waiting and self.now - self.waiting[0][0] >= self.plan.max_age_s:
            self.oldest_s = self.plan.max_age_s
            self.expired += self.waiting.popleft()[1]
        served = self.plan.capacity * min(self.step_s, max(0.0, self.now - self.plan.outage_s))
        while self.waiting and served > 0:
            self.oldest_s = max(self.oldest_s, self.now - self.waiting[0][0])
            part = min(served, self.waiting[0][1])
            served -= part
            self.waiting[0][1] -= part
            if self.waiting[0][1] <= 0:
                self.waiting.popleft()


plans = st.builds(
    Plan,
    arrivals=st.sampled_from([0.0, 0.5, 3.0, 10.0]),
    capacity=st.sampled_from([0.0, 0.4, 3.0, 4.0, 25.0]),
    outage_s=st.sampled_from([0.0, 10.0, 300.0]) | st.floats(1.0, 600.0),
    pending=st.sampled_from([0, 1]) | st.integers(0, 3000),
    max_age_s=st.just(math.inf) | st.floats(10.0, 900.0),
)


@given(plans)
def test_the_arithmetic_and_a_simulation_agree(plan: Plan) -> None:
    told = forecast(plan)
    until_s = min(told.horizon_s, 3000.0)
    simulation = Simulation(plan, step_s := until_s / 400)
    slip = 2 * step_s * (plan.arrivals + plan.capacity) + 1e-6
    for _ in range(400):
        simulation.step()
        around = [told.backlog_at(max(0.0, simulation.now + shift * step_s)) for shift in (-1, 0, 1)]
        assert min(around) - slip <= simulation.backlog <= max(around) + slip
    if told.drain_s is not None and plan.outage_s + told.drain_s < until_s:
        assert simulation.backlog <= slip
        assert simulation.expired == near(told.expired, abs=slip)
        assert simulation.oldest_s == near(told.oldest_s, abs=2 * step_s)
    else:
        assert simulation.oldest_s <= told.oldest_s + 2 * step_s
        assert simulation.expired <= told.expired + slip


@given(plans)
def test_nothing_is_lost_from_sight_and_nothing_waits_before_it_drains_or_after(plan: Plan) -> None:
    told = forecast(plan)
    assert told.backlog == near(told.backlog_at(plan.outage_s))
    if told.drain_s is not None:
        end = plan.outage_s + told.drain_s
        assert told.backlog_at(end * 1.001) == near(0, abs=1e-6)
        assert told.backlog_at(plan.outage_s + 0.9 * told.drain_s) > 0 or told.drain_s == 0


# The picture.


def drawn(told: Forecast, width: int = 40, height: int = 4) -> list[str]:
    return picture(told, width, height, lambda seconds: f"{seconds / MINUTE:.0f}m")


def test_the_picture_shows_the_backlog_rise_and_fall() -> None:
    assert drawn(forecast(a_minute(100, 300, outage=4))) == [
        "400 │                 ▁▃▄▅▇██▆▃▁",
        "    │           ▁▂▄▅▇███████████▆▃",
        "    │     ▁▂▃▅▆████████████████████▆▃",
        "    │▂▃▅▆▇████████████████████████████▅▃",
        "  0 └───────────────────────┴────────────────",
        "     0m                     4m             7m",
    ]


def test_whatever_waits_is_seen_however_little() -> None:
    lines = drawn(forecast(a_minute(1, 1.01, outage=1, pending=100_000)), width=20)
    assert " " not in lines[3].split("│")[1][:17]


@given(plans, st.integers(8, 120), st.integers(1, 30))
def test_a_picture_always_fits(plan: Plan, width: int, height: int) -> None:
    lines = drawn(forecast(plan), width, height)
    margin = lines[-2].index("└") + 1
    assert len(lines) == height + 2
    assert all(len(line) <= margin + width for line in lines)
    assert lines[-1].endswith("m")


def test_an_empty_picture_is_empty() -> None:
    assert drawn(forecast(Plan(0, 1)), width=10, height=1) == ["0 │", "0 └──────────", "   0m      0m"]
