"""Canaries: single messages through a route on which nothing was accepted for long, so that a standby is known to work.

They are sends like any other, of a type that leads to that route alone. A canary's key is made of the route and the
slot of time, so that of many workers one makes it, whatever happens to them or to a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.address import Address
from posthouse.config import CANARY_TYPES, Config
from posthouse.core.lifecycle import OPEN, Status
from posthouse.core.policy import RETRY_BACKOFF, OnUnknown, TypePolicy
from posthouse.core.retry import Backoff
from posthouse.core.routing import RouteHealth, RouteState

ACCEPTED_LAG_S: Final = 60.0
"""So much older may `last_accepted_at` be than the last acceptance."""

SLOTS_LOOKED_AT: Final = 10
UNKNOWN_WAIT_S: Final = 60.0
ATTEMPTS_MAX: Final = 1000  # its life ends it, not this


@dataclass(frozen=True, slots=True)
class Canary:
    """What one route asks for."""

    route: str
    to: Address
    every_s: float

    @property
    def type(self) -> str:
        """The type of its sends, which no configuration may name."""
        return f"{CANARY_TYPES}{self.route}"

    def keys(self, now: float) -> list[str]:
        """The keys of the latest slots, the present one's first."""
        slot = int(now // self.every_s)
        return [f"canary-{self.route}-{slot - back}" for back in range(SLOTS_LOOKED_AT)]


@dataclass(frozen=True, slots=True)
class Sent:
    """One canary, as the ledger has it."""

    key: str
    status: Status
    created_at: float
    expires_at: float
    last_error: str | None = None


def canaries(config: Config) -> tuple[Canary, ...]:
    """Those that are configured."""
    return tuple(
        Canary(name, route.canary_to, route.canary_every)
        for name, route in config.routes.items()
        if route.canary_to is not None and route.canary_every is not None
    )


def canary_policies(config: Config) -> dict[str, TypePolicy]:
    """The types of canaries. A second copy of one harms nobody."""
    return {
        canary.type: TypePolicy(
            name=canary.type,
            routes=(canary.route,),
            max_age_s=canary.every_s,
            max_attempts=ATTEMPTS_MAX,
            backoff=Backoff(RETRY_BACKOFF.first_s, canary.every_s / 10),
            on_unknown=OnUnknown.RESEND,
            unknown_wait_s=UNKNOWN_WAIT_S,
        )
        for canary in canaries(config)
    }


def is_due(canary: Canary, health: RouteHealth, sent: Sequence[Sent], now: float) -> bool:
    """Whether one is to be made now: the route was quiet, nobody keeps it closed, and no other is under way.

    One that is failing gets a canary too: without mail nobody would find out that it is back.
    """
    if health.closed(now) or any(one.status in OPEN or one.key == canary.keys(now)[0] for one in sent):
        return False
    quiet_s = None if health.last_accepted_at is None else now - health.last_accepted_at
    return quiet_s is None or not -ACCEPTED_LAG_S <= quiet_s < canary.every_s + ACCEPTED_LAG_S


def failing(canary: Canary, health: RouteHealth, sent: Sequence[Sent], now: float) -> str | None:
    """Why the route is known not to work, where a canary since its last acceptance shows it."""
    if health.closed(now):
        return None
    for one in sent:
        if one.created_at > (health.last_accepted_at or 0.0) and (why := _why(one, health, now)) is not None:
            return f"the route does not work, a message by it was not accepted: {why}"
    return None


def _why(one: Sent, health: RouteHealth, now: float) -> str | None:
    """Why one was not accepted; None where it was, still may be, or was withdrawn by a person."""
    if one.status in OPEN and now < one.expires_at:
        if health.state is RouteState.STOPPED:
            return health.reason
        return health.reason if health.is_tripped else None
    if one.status in (Status.FAILED, Status.EXPIRED, *OPEN):
        return one.last_error or "its time ended"
    return None
