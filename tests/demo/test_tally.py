"""What one side comes to: counted from its checkouts and the provider's ledger alone."""

from __future__ import annotations

from posthouse.demo.provider import Acceptance
from posthouse.demo.scenario import Scenario
from posthouse.demo.shop import Checkout, customer, order_of
from posthouse.demo.tally import Tally, tally

SCENARIO = Scenario(orders=4, hour_s=36.0, outage_min=5.0, timeouts=1, seed=1)
"""A real second is 100 story seconds; the outage ends at 15 s; more than 0.4 s is slow, more than 0.6 s is delayed."""

BEGAN_AT = 1000.0


def counted(checkouts: list[tuple[float, float]], acceptances: list[tuple[int, float]]) -> Tally:
    """Checkouts as (second of the hour, how long), numbered from 1; acceptances as (order, second of the hour)."""
    return tally(
        SCENARIO,
        BEGAN_AT,
        [Checkout(number, BEGAN_AT + at, took_s) for number, (at, took_s) in enumerate(checkouts, 1)],
        [Acceptance(order, BEGAN_AT + at) for order, at in acceptances],
    )


def test_an_order_without_an_acceptance_is_lost() -> None:
    assert counted([(1, 0.1), (2, 0.1), (3, 0.1)], [(1, 1.1), (3, 3.1)]).lost == 1


def test_every_acceptance_of_an_order_beyond_its_first_is_a_duplicate() -> None:
    counts = counted([(1, 0.1), (2, 0.1)], [(1, 1.1), (1, 1.2), (2, 2.1), (1, 5.0)])
    assert (counts.duplicates, counts.lost) == (2, 0)


def test_a_duplicate_does_not_make_up_for_a_loss() -> None:
    counts = counted([(1, 0.1), (2, 0.1)], [(1, 1.1), (1, 1.2)])
    assert (counts.duplicates, counts.lost) == (1, 1)


def test_a_checkout_is_slow_beyond_two_story_seconds_of_waiting() -> None:
    assert counted([(1, 0.39), (2, 0.41), (3, 3.0)], []).slow_checkouts == 2


def test_an_email_is_delayed_by_its_first_acceptance() -> None:
    assert counted([(1, 0.1), (2, 0.1), (3, 0.1)], [(1, 1.5), (1, 9.0), (2, 2.7), (3, 3.61)]).delayed == 2


def test_the_backlog_peaks_when_most_orders_are_without_their_email() -> None:
    placed = [(1.0, 0.1), (2.0, 0.1), (3.0, 0.1), (4.0, 0.1)]
    assert counted(placed, [(1, 1.1), (2, 3.5), (3, 3.6), (4, 4.1)]).backlog_peak == 2
    assert counted(placed, []).backlog_peak == 4


def test_it_is_drained_when_the_last_order_from_before_the_outages_end_has_its_email() -> None:
    placed = [(14.0, 0.1), (14.9, 0.1), (15.5, 0.1)]
    assert round(counted(placed, [(1, 14.1), (2, 15.3), (3, 19.0)]).drain_s, 6) == 30.0


def test_nothing_to_drain_takes_no_time() -> None:
    assert counted([(14.0, 0.1)], [(1, 14.1)]).drain_s == 0.0
    assert counted([], []).drain_s == 0.0


def test_the_ledger_knows_an_order_by_its_customer() -> None:
    assert order_of(customer(1042)) == 1042
