"""What the receiver did with a message, derived from the events alone: the same in whatever order, however often."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from posthouse.core.events import EventKind


class Delivery(StrEnum):
    """The worst, or else the furthest, that is known. Accepted is not delivered."""

    NONE = "none"  # nothing was heard
    DEFERRED = "deferred"  # the receiver put it off
    DELIVERED = "delivered"  # the receiver's server took it
    BOUNCED = "bounced"  # it was refused, or came back, even after a server had taken it
    COMPLAINED = "complained"  # the recipient called it spam


_SAYS: Final = {
    EventKind.SENT: Delivery.NONE,
    EventKind.DEFERRED: Delivery.DEFERRED,
    EventKind.DELIVERED: Delivery.DELIVERED,
    EventKind.OPENED: Delivery.DELIVERED,
    EventKind.CLICKED: Delivery.DELIVERED,
    EventKind.UNSUBSCRIBED: Delivery.DELIVERED,
    EventKind.BOUNCED: Delivery.BOUNCED,
    EventKind.COMPLAINED: Delivery.COMPLAINED,
}

ORDER: Final = tuple(Delivery)
"""Each outweighs what stands before it."""


def delivery(known: Delivery, kinds: Iterable[EventKind]) -> Delivery:
    """What is known with these events added: the greatest, so that order and repetition change nothing."""
    return max((known, *(_SAYS[kind] for kind in kinds)), key=ORDER.index)
