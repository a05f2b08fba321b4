"""Calls at once on one route over all worker processes: so many places, which the workers share.

A worker holds places before it uses them, and tells the others through the database. It is given what is free, up to
its fair share; one that holds more than its share while others go short gives the rest back as its calls end. So the
sum is never exceeded, a worker alone has them all, and none is kept out for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holding:
    """What one worker holds of a route's places, and how many it could use."""

    worker: int
    places: int
    wanted: int


@dataclass(frozen=True, slots=True)
class Grant:
    """What a worker may hold from now on, and what its fair share is, to which it shrinks when it can."""

    places: int
    fair: int


def grant(total: int, mine: Holding, others: Sequence[Holding]) -> Grant:
    """The places for one worker: what it holds already it keeps, even where that is more than its share."""
    free = total - sum(other.places for other in others)
    fair = _fair_share(total, mine, others)
    return Grant(max(mine.places, min(mine.wanted, fair, free)), fair)


def _fair_share(total: int, mine: Holding, others: Sequence[Holding]) -> int:
    """Equal parts, what one can't use going to the others; a remainder goes to the workers that came first."""
    hungry = sorted((holding for holding in (mine, *others) if holding.wanted > 0), key=lambda h: (h.wanted, -h.worker))
    left = total
    for place, holding in enumerate(hungry):
        share = min(holding.wanted, left // (len(hungry) - place))
        if holding.worker == mine.worker:
            return share
        left -= share
    return 0
