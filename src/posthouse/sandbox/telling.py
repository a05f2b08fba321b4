"""How a provider tells what became of a message: the port of the webhooks that the sandbox makes.

Like a shape, a `Teller` is data and a few pure functions.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.news import News


@dataclass(frozen=True, slots=True)
class WebhookCall:
    """One call to somebody's webhook."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a call is made with, beside what it tells."""

    secret: str  # the sandbox's own, of which each provider's keys are made
    call_id: str  # the same however often the call is repeated
    now: float  # seconds since 1970
    sandbox_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """One provider's webhooks."""

    setting: str = "webhook_secrets"  # of a route
    shown: Callable[[str], str]  # what that setting has to be, by the sandbox's secret; may raise ConfigError
    item: Callable[[Acceptance, News], Any | None]  # None: this provider doesn't tell it
    call: Callable[[Sequence[Any], Occasion], WebhookCall]
    items_max: int = 1  # in one call
    final: Collection[int] = ()  # answers after which it doesn't repeat a call, though they are no success
    greeting: Callable[[Occasion], WebhookCall] | None = None  # comes before all others
    pages: Mapping[str, Callable[[str], bytes]] = field(default_factory=dict)
    """What its calls refer to: what stands at a path of the sandbox, by the sandbox's secret."""


def derived(secret: str, purpose: str) -> bytes:
    """32 octets that nobody guesses who doesn't know `secret`; the same each time."""
    return hmac.digest(secret.encode(), purpose.encode(), sha256)


def event_id(acceptance: Acceptance, news: News) -> str:
    """The sandbox's own name for a piece of news."""
    return f"{acceptance.message_id.partition('@')[0]}-{news.number}"
