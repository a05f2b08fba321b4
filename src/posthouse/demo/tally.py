"""What one side of the demo comes to, from its checkouts and its provider's ledger. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posthouse.demo.provider import Acceptance
from posthouse.demo.scenario import DELAYED_S, SLOW_CHECKOUT_S, Scenario
from posthouse.demo.shop import Checkout


@dataclass(frozen=True, slots=True)
class Tally:
    """The figures of one side."""

    orders: int
    slow_checkouts: int
    duplicates: int  # emails that an order's customer got beyond the first
    lost: int  # orders whose email the provider never accepted
    delayed: int
    backlog_peak: int  # the most orders at one moment whose email was not accepted yet
    drain_s: float  # story seconds from the outage's end until every order placed before it had its email accepted


def tally(
    scenario: Scenario, began_at: float, checkouts: Sequence[Checkout], acceptances: Sequence[Acceptance]
) -> Tally:
    """Counts. `began_at` is when the hour began, in seconds since 1970."""
    first = _first_acceptances(acceptances)
    placed = {checkout.order: checkout.at for checkout in checkouts}
    waited = {order: first[order] - at for order, at in placed.items() if order in first}
    outage_ended_at = began_at + scenario.real(scenario.outage_until_s)
    drained_at = max((first[order] for order in waited if placed[order] <= outage_ended_at), default=outage_ended_at)
    return Tally(
        orders=len(checkouts),
        slow_checkouts=sum(checkout.took_s > scenario.real_wait(SLOW_CHECKOUT_S) for checkout in checkouts),
        duplicates=len(acceptances) - len(first),
        lost=len(placed) - len(waited),
        delayed=sum(wait_s > scenario.real(DELAYED_S) for wait_s in waited.values()),
        backlog_peak=_backlog_peak(placed, first),
        drain_s=max(0.0, drained_at - outage_ended_at) * scenario.pace,
    )


def _first_acceptances(acceptances: Sequence[Acceptance]) -> dict[int, float]:
    first: dict[int, float] = {}
    for acceptance in acceptances:
        first[acceptance.order] = min(acceptance.at, first.get(acceptance.order, acceptance.at))
    return first


def _backlog_peak(placed: Mapping[int, float], first: Mapping[int, float]) -> int:
    steps = sorted([(at, 1) for at in placed.values()] + [(at, -1) for at in first.values()])
    peak = backlog = 0
    for _, step in steps:
        backlog += step
        peak = max(peak, backlog)
    return peak
