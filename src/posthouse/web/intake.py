"""Takes in what providers tell: everything is stored before anybody is told that it was. Blocking calls alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from posthouse.core.policy import TypePolicy
from posthouse.providers.webhook import Genuine, Reading, Refused, Webhook, WebhookCall, reading
from posthouse.store.store import Store

TOGETHER: Final = 500
"""So many events a transaction: workers want the rows of the same sends."""


class Intake:
    """The store's side of every webhook. Whatever is handed in may be handed in again."""

    def __init__(self, store: Store, policies: Mapping[str, TypePolicy]) -> None:
        self._store = store
        self._policies = policies

    def take(self, route: str, webhook: Webhook, call: WebhookCall, genuine: Genuine) -> Reading | Refused:
        """Stores what a genuine call tells. Raises DatabaseUnavailable."""
        now = self._store.ledger.now()
        token = genuine.token
        if token is not None and not self._store.webhook_tokens.comes_with(route, token, call.body, now):
            return Refused("its token came with another body before")
        told = reading(webhook, call)
        for reason, items in told.unread_by_reason().items():
            self._store.events.quarantine(route, items, reason, now)
        for start in range(0, len(told.events), TOGETHER):
            self._store.events.store(route, told.events[start : start + TOGETHER], self._policies, now)
        return told
