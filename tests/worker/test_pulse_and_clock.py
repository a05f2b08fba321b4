"""When a worker may start calls, when it may judge others, and what time it is."""

from __future__ import annotations

import pytest

from posthouse.worker.clock import ANSWER_MAX_S, DatabaseClock
from posthouse.worker.pulse import Pulse

DEAD_AFTER_S = 16.0


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def beating(pulse: Pulse, hands: Hands, seconds: float) -> None:
    """A beat every two seconds."""
    until = hands.at + seconds
    while hands.at < until:
        hands.at += 2.0
        pulse.beat(hands.at)


def test_a_worker_that_cannot_say_that_it_lives_stops_starting_calls_long_before_it_is_taken_for_dead() -> None:
    hands = Hands()
    pulse = Pulse(DEAD_AFTER_S, hands)
    beating(pulse, hands, 60)

    hands.at += DEAD_AFTER_S / 2 - 0.1
    assert pulse.may_start
    hands.at += 0.2
    assert not pulse.may_start
    pulse.beat(hands.at)
    assert pulse.may_start


def test_nobody_is_judged_before_a_worker_was_in_touch_for_as_long_as_the_dead_were_silent() -> None:
    hands = Hands()
    pulse = Pulse(DEAD_AFTER_S, hands)
    assert not pulse.may_judge

    beating(pulse, hands, DEAD_AFTER_S - 2)
    assert not pulse.may_judge
    beating(pulse, hands, 2)
    assert pulse.may_judge


def test_a_worker_that_was_cut_off_starts_its_watch_anew() -> None:
    hands = Hands()
    pulse = Pulse(DEAD_AFTER_S, hands)
    beating(pulse, hands, 60)
    assert pulse.may_judge

    hands.at += DEAD_AFTER_S / 2 + 0.1
    pulse.beat(hands.at)
    assert not pulse.may_judge
    beating(pulse, hands, DEAD_AFTER_S)
    assert pulse.may_judge


def test_a_late_beat_that_was_begun_earlier_takes_nothing_back() -> None:
    hands = Hands()
    pulse = Pulse(DEAD_AFTER_S, hands)
    pulse.beat(hands.at + 5)
    pulse.beat(hands.at + 3)
    hands.at += 5 + DEAD_AFTER_S / 2 - 0.1
    assert pulse.may_start


def test_the_clock_is_the_databases_between_two_answers() -> None:
    hands = Hands()
    clock = DatabaseClock(hands)
    assert clock.correct(1000.0, 1000.2, 5_000_000.0)
    hands.at = 1010.1
    assert clock.now() == pytest.approx(5_000_010.0)


def test_an_answer_that_took_long_does_not_move_the_clock() -> None:
    hands = Hands()
    clock = DatabaseClock(hands)
    clock.correct(1000.0, 1000.0, 5_000_000.0)
    assert not clock.correct(1000.0, 1000.0 + ANSWER_MAX_S + 0.1, 7_000_000.0)
    assert clock.now() == pytest.approx(5_000_000.0)


def test_a_lasting_jump_of_the_databases_clock_is_followed() -> None:
    hands = Hands()
    clock = DatabaseClock(hands)
    clock.correct(1000.0, 1000.0, 5_000_000.0)
    assert clock.correct(1003.0, 1003.0, 4_996_403.0)
    hands.at = 1003.0
    assert clock.now() == pytest.approx(4_996_403.0)


def test_nobody_reads_the_clock_before_it_was_set() -> None:
    with pytest.raises(AssertionError, match="before the database told the time"):
        DatabaseClock(Hands()).now()
