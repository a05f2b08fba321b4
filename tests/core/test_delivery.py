"""What the receiver did, from events in any order, however often."""

from __future__ import annotations

from itertools import permutations

import pytest

from posthouse.core.delivery import Delivery, delivery
from posthouse.core.events import EventKind

STORY = (EventKind.SENT, EventKind.DEFERRED, EventKind.DELIVERED, EventKind.BOUNCED, EventKind.COMPLAINED)


@pytest.mark.parametrize("until", range(1, len(STORY) + 1))
def test_every_order_twice_over_ends_in_the_same(until: int) -> None:
    told = STORY[:until]
    ends = set()
    for order in permutations(told):
        state = Delivery.NONE
        for kind in order * 2:
            state = delivery(state, [kind])
        ends.add(state)
    assert ends == {delivery(Delivery.NONE, told)}


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        ([], Delivery.NONE),
        ([EventKind.SENT], Delivery.NONE),
        ([EventKind.DELIVERED, EventKind.DEFERRED], Delivery.DELIVERED),
        ([EventKind.BOUNCED, EventKind.DELIVERED], Delivery.BOUNCED),
        ([EventKind.CLICKED], Delivery.DELIVERED),
        ([EventKind.UNSUBSCRIBED], Delivery.DELIVERED),
        ([EventKind.COMPLAINED, EventKind.BOUNCED], Delivery.COMPLAINED),
    ],
)
def test_the_worst_or_else_the_furthest_counts(kinds: list[EventKind], state: Delivery) -> None:
    assert delivery(Delivery.NONE, kinds) is state
