"""What a message type asks for: the plain values that the deciding functions take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from posthouse.config import Config, TypeSettings
from posthouse.core.retry import Backoff


class OnUnknown(StrEnum):
    """What to do with a send whose outcome nobody could find out within `unknown_wait_s`."""

    RESEND = "resend"  # at least once: send it again, marked maybe_duplicate
    HOLD = "hold"  # at most once: a person decides with `posthouse resolve`


class Priority(StrEnum):
    """How urgent a type is against the others."""

    URGENT = "urgent"  # somebody is waiting for it: codes, reset links
    NORMAL = "normal"  # receipts, notices
    BULK = "bulk"  # newsletters: after everything else, but never starved


class Failover(StrEnum):
    """What to do when the first route of a type may not be used."""

    AUTOMATIC = "automatic"  # the next one takes over by itself
    MANUAL = "manual"  # its mail waits, until a person closes the route: then the next one takes over


class Category(StrEnum):
    """What kind of mail a type is: decides suppression, and how long its content is kept."""

    SECURITY = "security"  # its content is deleted in the write that accepts it
    TRANSACTIONAL = "transactional"  # something the recipient did asked for it
    MARKETING = "marketing"  # needs consent


SHARES: Final = 10_000
"""The whole that a standby's share is a part of."""

RETRY_BACKOFF: Final = Backoff(first_s=5.0, max_s=600.0)


@dataclass(frozen=True, slots=True)
class TypePolicy:
    """One message type, as the deciding functions see it. Times in seconds."""

    name: str
    routes: tuple[str, ...]
    category: Category = Category.TRANSACTIONAL
    priority: Priority = Priority.NORMAL
    max_age_s: float = 3 * 86400.0
    max_attempts: int = 10
    backoff: Backoff = RETRY_BACKOFF
    on_unknown: OnUnknown = OnUnknown.HOLD
    unknown_wait_s: float = 3600.0
    unknown_may_change_route: bool = False
    failover: Failover = Failover.AUTOMATIC
    cooldown_s: float = 0.0  # between two emails of one family
    standby_share: int = 0  # so many of 10,000 sends try the standby first, so that it is known to work
    combine_s: float | None = None  # how long sends to one recipient are gathered to go out as one; None: not at all
    unsubscribe_link: bool = False  # whether its messages have a link by which people unsubscribe


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """What the deciding functions need to know of one route. Times in seconds."""

    name: str
    key_lifetime_s: float = 0.0  # how long the provider dedupes an idempotency key; 0 = it doesn't
    can_look_up: bool = False  # whether it can be asked for a send by our key
    look_up_lag_s: float = 0.0  # how long after a call a look-up's "no" means nothing
    timeout_s: float = 15.0  # the longest that one call takes
    concurrency: int = 32  # calls at once in one worker process
    total_concurrency: int | None = None  # the same over all of them; None: no limit but each one's own
    kind: str = ""  # its provider's name
    bounce_address: str = ""  # of each send's own, with `{id}`; empty: bounces say in other ways which send
    batch_max: int = 1  # the most messages that share one call


REPLAY_BACKOFF: Final = Backoff(first_s=2.0, max_s=120.0)
"""Waits between the tries to resolve one unknown outcome."""


def type_policies(config: Config) -> dict[str, TypePolicy]:
    """The policies of every configured type."""
    return {name: _policy(name, settings, config) for name, settings in config.types.items()}


def _policy(name: str, settings: TypeSettings, config: Config) -> TypePolicy:
    category = Category(settings.category)
    linked = category is Category.MARKETING and settings.unsubscribe is not False
    return TypePolicy(
        name=name,
        routes=settings.routes or tuple(config.routes),
        category=category,
        priority=Priority(settings.priority),
        max_age_s=settings.max_age,
        max_attempts=settings.max_attempts,
        backoff=Backoff(settings.retry_first, min(settings.retry_max, settings.max_age / 10)),
        on_unknown=OnUnknown(settings.on_unknown),
        unknown_wait_s=settings.unknown_wait,
        unknown_may_change_route=settings.unknown_may_change_route,
        failover=Failover(settings.failover),
        cooldown_s=settings.cooldown or 0.0,
        standby_share=round(settings.standby_share * SHARES),
        combine_s=settings.combine,
        unsubscribe_link=linked and config.web.has_unsubscribe_links,
    )
