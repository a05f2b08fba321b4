"""How many sends may start, and when, where several limits hold at once: of the route, the service, the mailbox group.

A worker asks before it claims, and claims no more than it is permitted. What it does not use it gives back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from posthouse.core.limits import Rate, Reservation, follow, give_back, reserve, spend
from posthouse.core.quotas import Parts, Quota, opens_at, take, used, warning
from posthouse.core.quotas import give_back as give_back_quota

HORIZON_S: Final = 0.1
"""Slots are given away no further ahead: what is claimed for them may have to wait for so long."""

AGAIN_S: Final = 0.9 * HORIZON_S
"""So long before the next slot whoever got none asks again: as soon as it can be had, or somebody who happened to ask
a moment later would get it, whatever their priorities."""

LATE_MAX_S: Final = 0.25
"""A slot that could not be used within this time of its own is let go: later ones are others'."""

SLACK_SHARE: Final = 0.03
"""A start may be late by this part of a second, or of a shorter time that the rate is counted in; it costs as much.
One that is later still comes close to others' slots, and costs a slot more: see `pay_for_lateness`."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit that all workers share, by the name of its row: a rate, a quota, or both."""

    name: str
    rate: Rate | None = None
    quota: Quota | None = None
    by_recipient: bool = False  # what counts are recipients, not messages
    why: str = ""  # in words, where it is no setting


@dataclass(frozen=True, slots=True)
class LimitState:
    """One row of `email_limits`."""

    tat: float = 0.0
    parts: Parts = ()
    warned_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to start `count` sends, each at its own time."""

    count: int
    reservations: tuple[Reservation, ...]
    taken_at: float
    next_at: float  # when more may be had, where there was less than was wanted

    def start_at(self, place: int) -> float:
        """When the send at `place`, from 0 on, may start; never before the leave for it, whatever burst is allowed."""
        return max([self.taken_at, *(reservation.start_at(place) for reservation in self.reservations)])

    def up_to(self, place: int) -> Permit:
        """The permit as if what is after `place` had been given back."""
        after = self.count - 1 - place
        return replace(self, count=place + 1, reservations=tuple(one.without(after) for one in self.reservations))

    @property
    def starts(self) -> list[float]:
        """When each of them may start."""
        return [self.start_at(place) for place in range(self.count)]


def permit(
    limits: Sequence[Limit], states: Mapping[str, LimitState], want: int, now: float
) -> tuple[Permit, dict[str, LimitState], list[str]]:
    """As many of `want` as every limit allows, the states after it, and the names of quotas to warn about."""
    granted, next_at = want, now
    for limit in limits:
        allowed, again_at = _allowed(limit, states[limit.name], granted, now)
        if allowed < granted:
            granted, next_at = allowed, max(next_at, again_at)
    given = _reserved(limits if granted else (), states, granted, now, next_at)
    tats = iter(reservation.tat for reservation in given.reservations)
    changed: dict[str, LimitState] = {}
    warnings: list[str] = []
    for limit in limits if granted else ():
        state = states[limit.name]
        if limit.rate is not None:
            state = replace(state, tat=next(tats))
        if limit.quota is not None:
            before = used(state.parts, now, limit.quota)
            state = replace(state, parts=take(state.parts, now, granted, limit.quota)[1])
            if warning(before, before + granted, limit.quota, state.warned_at, now):
                state = replace(state, warned_at=now)
                warnings.append(limit.name)
        changed[limit.name] = state
    return given, changed, warnings


def _reserved(
    limits: Sequence[Limit], states: Mapping[str, LimitState], granted: int, now: float, next_at: float
) -> Permit:
    """The permit. What a slower limit puts off is late by the slots of the others, and pushes on what follows there."""
    rates = [(limit.rate, states[limit.name].tat) for limit in limits if limit.rate is not None]
    reservations = tuple(reserve(tat, now, granted, rate, HORIZON_S) for rate, tat in rates)
    given = Permit(granted, reservations, now, next_at)
    starts = given.starts
    followed = tuple(
        replace(reservation, tat=follow(tat, starts, rate))
        for reservation, (rate, tat) in zip(reservations, rates, strict=True)
    )
    return replace(given, reservations=followed)


def _allowed(limit: Limit, state: LimitState, want: int, now: float) -> tuple[int, float]:
    """How many this limit allows, and when it allows more."""
    allowed, again_at = want, now
    if limit.rate is not None:
        reservation = reserve(state.tat, now, allowed, limit.rate, HORIZON_S)
        if reservation.granted < allowed:
            allowed, again_at = reservation.granted, reservation.next_at - AGAIN_S
    if limit.quota is not None:
        granted, _ = take(state.parts, now, allowed, limit.quota)
        if granted < allowed:
            allowed, again_at = granted, max(again_at, opens_at(state.parts, now, limit.quota))
    return allowed, again_at


def in_the_way(limits: Sequence[Limit], states: Mapping[str, LimitState], now: float) -> tuple[Limit, float] | None:
    """The limit that lets nothing start for the longest time, and when it does again; None where one may start now."""
    nothing = LimitState()
    waits = [(limit, *_allowed(limit, states.get(limit.name, nothing), 1, now)) for limit in limits]
    return max(((limit, at) for limit, allowed, at in waits if not allowed), key=lambda wait: wait[1], default=None)


def return_unused(
    limits: Sequence[Limit], states: Mapping[str, LimitState], given: Permit, unused: int
) -> dict[str, LimitState]:
    """The states without the last `unused` sends of a permit."""
    reservations = iter(given.reservations)
    changed = {}
    for limit in limits:
        state = states[limit.name]
        if limit.rate is not None:
            state = replace(state, tat=give_back(state.tat, next(reservations), unused))
        if limit.quota is not None:
            state = replace(state, parts=give_back_quota(state.parts, given.taken_at, unused, limit.quota))
        changed[limit.name] = state
    return changed


def spend_more(
    limits: Sequence[Limit], states: Mapping[str, LimitState], extra: int, now: float
) -> dict[str, LimitState] | None:
    """The states after `extra` recipients beyond the sends themselves; None where a quota has no room for them.

    One message's recipients go out at once, whatever the rate; those after it wait for as long as they would have.
    """
    changed = {}
    for limit in limits:
        if not limit.by_recipient:
            continue
        state = states[limit.name]
        if limit.rate is not None:
            state = replace(state, tat=spend(state.tat, now, extra, limit.rate))
        if limit.quota is not None:
            granted, parts = take(state.parts, now, extra, limit.quota)
            if granted < extra:
                return None
            state = replace(state, parts=parts)
        changed[limit.name] = state
    return changed


def late_for(limits: Sequence[Limit], start_at: float, now: float) -> dict[str, Rate]:
    """The rates for which a start comes later than they have paid for, by the names of their limits."""
    return {
        limit.name: limit.rate for limit in limits if limit.rate is not None and now - start_at > limit.rate.slack_s
    }


def pay_for_lateness(
    limits: Sequence[Limit], states: Mapping[str, LimitState], start_at: float, now: float
) -> dict[str, LimitState]:
    """The states after a start that comes later than its slot: it takes the place of one that would follow.

    So what begins within the time that a rate is counted in stays the same, however busy the machine that is late.
    """
    return {
        name: replace(states[name], tat=spend(states[name].tat, now, 1, rate))
        for name, rate in late_for(limits, start_at, now).items()
    }
