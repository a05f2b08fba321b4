"""Caps on what waits: when a type or the outbox is full, who is refused, and what makes room.

A full queue is better noticed where the email is asked for than by its recipient days later. What is refused raises
`QueueFull` in the application's transaction, where it can still be dealt with. Urgent mail is never refused; bulk is
refused first, so that of a cap that all share the last fifth is kept for normal mail.

Counting is dear, so `pending` comes from whoever counts now and then; the cap may be passed by what comes between. Once
refused, a priority stays refused until a tenth of its room is free again: hand back what `admit` said last time.

Where the settings allow it (`sheds`), mail of a higher priority makes room instead of being refused: lower ones are
cancelled, with a reason, so that they stay visible; only those for which no call was made. The newest go first. They
are last in the line: in a queue that doesn't drain in time they are the ones that would expire, while the oldest are
served next; whoever asked for them asked while it was full already; and at their end of the index no worker claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from posthouse.core.lanes import ORDER
from posthouse.core.lifecycle import Happening, Status
from posthouse.core.policy import Priority
from posthouse.core.sends import Change, SendState


class Admission(StrEnum):
    """What becomes of a new email."""

    ACCEPT = "accept"
    REFUSE = "refuse"  # QueueFull, in the application's transaction
    SHED_LOWER = "shed_lower"  # accepted; `to_shed` says what has to go


@dataclass(frozen=True, slots=True)
class Cap:
    """At most so many pending sends."""

    count: int
    sheds: bool = False  # higher priorities make room for themselves
    shared: bool = True  # by all priorities, as the outbox is; a type has only one


BULK_ROOM: Final = 0.8
"""How much of a shared cap bulk may use."""

ROOM_AGAIN: Final = 0.9
"""Once refused, a priority is accepted again when only so much of its room is in use."""


def admit(
    cap: Cap, pending: Mapping[Priority, int], priority: Priority, *, count: int = 1, refusing: bool = False
) -> Admission:
    """Whether `count` more of a priority are accepted; `refusing`: they were not, the last time."""
    if cap.sheds and to_shed(cap, pending, priority, count=count):
        return Admission.SHED_LOWER
    in_use = sum(pending.values()) + count
    if priority is Priority.URGENT or in_use <= _room(cap, priority, refusing):
        return Admission.ACCEPT
    return Admission.REFUSE


def _room(cap: Cap, priority: Priority, refusing: bool) -> int:
    part = BULK_ROOM if cap.shared and priority is Priority.BULK else 1.0
    return max(1, int(cap.count * part * (ROOM_AGAIN if refusing else 1.0)))


def to_shed(cap: Cap, pending: Mapping[Priority, int], priority: Priority, *, count: int = 1) -> dict[Priority, int]:
    """How many of each lower priority have to go so that `count` more of this one fit, the lowest first.

    Empty where all of the lower ones together are too few, except for urgent mail, which comes in all the same.
    """
    surplus = sum(pending.values()) + count - cap.count
    gone: dict[Priority, int] = {}
    for lower in reversed(ORDER[ORDER.index(priority) + 1 :]):
        part = min(max(surplus, 0), pending.get(lower, 0))
        gone |= {lower: part} if part else {}
        surplus -= part
    return gone if surplus <= 0 or priority is Priority.URGENT else {}


def overdrawn(cap: Cap, pending: Mapping[Priority, int]) -> dict[Priority, int]:
    """How many of each priority have to go now, the lowest first: no more than there is mail of higher ones.

    Whoever shed for more than that would cancel mail that nobody else needs the room of: a cap is passed by a little
    wherever counting is late.
    """
    higher = sum(pending.values())
    surplus = higher - cap.count if cap.sheds else 0
    gone: dict[Priority, int] = {}
    for lower in reversed(ORDER[1:]):
        here = pending.get(lower, 0)
        higher -= here
        part = min(max(surplus, 0), here, higher)
        gone |= {lower: part} if part else {}
        surplus -= part
    return gone


def shed(send: SendState, reason: str) -> Change | None:
    """Ends a send that makes room, unless a call was made for it, or is being made."""
    if send.status is not Status.PENDING or send.attempts or send.unresolved:
        return None
    return Change(Happening.SHED, Status.CANCELLED, None, last_error=reason)
