"""Mailgun's webhooks: one event a call, with a signature over a token beside it.

Facts: documentation.mailgun.com (webhooks, event structure, securing webhooks), as of 2026.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from posthouse.providers.mailgun_events import signature
from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.news import News, NewsKind
from posthouse.sandbox.shape import listed, metadata_of
from posthouse.sandbox.telling import Occasion, Teller, WebhookCall, derived, event_id

_FAILED: Final[Mapping[NewsKind, tuple[str, str]]] = {
    NewsKind.DEFERRED: ("temporary", "generic"),
    NewsKind.BOUNCED: ("permanent", "bounce"),
    NewsKind.FULL: ("permanent", "old"),
    NewsKind.BLOCKED: ("permanent", "espblock"),
    NewsKind.SUPPRESSED: ("permanent", "suppress-bounce"),
}
"""The `severity` and `reason` of what it calls `failed`."""


def item(one: Acceptance, news: News) -> dict[str, Any]:
    """An event, as the log has it and a webhook tells it."""
    return {
        **about(one, news.recipient),
        "event": "failed" if news.kind in _FAILED else news.kind.value,
        "id": event_id(one, news),
        "timestamp": one.happened_at(news),
        **_details(news),
    }


def about(one: Acceptance, recipient: str) -> dict[str, Any]:
    """What every event says of its message."""
    body = one.body or {}
    headers = {"message-id": one.message_id, "subject": one.subject, "to": recipient, "from": body.get("from", "")}
    return {
        "recipient": recipient,
        "recipient-domain": recipient.rpartition("@")[2],
        "message": {"headers": headers, "size": one.size},
        "tags": listed(body.get("tags")),
        "user-variables": metadata_of(one),
        "envelope": {"targets": recipient},
        "flags": {"is-test-mode": False},
    }


def _details(news: News) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if news.kind in _FAILED:
        details["severity"], details["reason"] = _FAILED[news.kind]
    if news.said is not None:
        said = f"{news.said.status} {news.said.words}"
        details["delivery-status"] = {"code": news.said.code, "message": said, "description": "", "attempt-no": 1}
    if news.kind is NewsKind.CLICKED:
        details["url"] = "https://shop.example/"
    return details


def _key(secret: str) -> str:
    return derived(secret, "mailgun").hex()


def _call(items: Sequence[Any], occasion: Occasion) -> WebhookCall:
    """A repetition has a token of its own."""
    [one] = items
    timestamp = str(int(occasion.now))
    token = derived(occasion.secret, f"token {occasion.call_id} {occasion.now}").hex()[:50]
    signed = signature(_key(occasion.secret).encode(), timestamp, token).decode()
    beside = {"timestamp": timestamp, "token": token, "signature": signed}
    body = json.dumps({"signature": beside, "event-data": one}).encode()
    return WebhookCall({"content-type": "application/json"}, body)


MAILGUN_NEWS: Final = Teller(shown=_key, item=item, call=_call, final=frozenset({406}))
