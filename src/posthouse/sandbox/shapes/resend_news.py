"""Resend's webhooks: one event a call, signed as Svix signs.

Facts: resend.com/docs/webhooks (event types), docs.svix.com (receiving), as of 2026.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from posthouse.providers.standard_webhooks import PREFIX, signature, signing_key
from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.news import News, NewsKind
from posthouse.sandbox.shape import iso, metadata_of
from posthouse.sandbox.telling import Occasion, Teller, WebhookCall, derived

_TYPES: Final[Mapping[NewsKind, str]] = {
    NewsKind.DELIVERED: "email.delivered",
    NewsKind.DEFERRED: "email.delivery_delayed",
    NewsKind.BOUNCED: "email.bounced",
    NewsKind.FULL: "email.bounced",
    NewsKind.BLOCKED: "email.bounced",
    NewsKind.SUPPRESSED: "email.suppressed",
    NewsKind.COMPLAINED: "email.complained",
    NewsKind.OPENED: "email.opened",
    NewsKind.CLICKED: "email.clicked",
}
"""It knows of no unsubscriptions."""

_BOUNCES: Final = {
    NewsKind.BOUNCED: ("Permanent", "General"),
    NewsKind.FULL: ("Transient", "MailboxFull"),
    NewsKind.BLOCKED: ("Transient", "ContentRejected"),
}


def _item(one: Acceptance, news: News) -> dict[str, Any] | None:
    if (type_ := _TYPES.get(news.kind)) is None:
        return None
    data = {
        "email_id": one.message_id,
        "created_at": iso(one.at),
        "from": (one.body or {}).get("from", ""),
        "to": [news.recipient],
        "subject": one.subject,
        "tags": metadata_of(one),
        **_details(news),
    }
    return {"type": type_, "created_at": iso(one.happened_at(news)), "data": data}


def _details(news: News) -> dict[str, Any]:
    if news.kind in _BOUNCES and news.said is not None:
        type_, subtype = _BOUNCES[news.kind]
        line = f"smtp; {news.said.line}"
        return {"bounce": {"type": type_, "subType": subtype, "message": line, "diagnosticCode": [line]}}
    if news.kind is NewsKind.SUPPRESSED:
        return {"suppressed": {"reason": "previous_bounce", "message": "The recipient is on the suppression list."}}
    if news.kind is NewsKind.CLICKED:
        return {"click": {"link": "https://shop.example/"}}
    return {}


def _secret(secret: str) -> str:
    return PREFIX + base64.b64encode(derived(secret, "resend")).decode()


def _call(items: Sequence[Any], occasion: Occasion) -> WebhookCall:
    [item] = items
    body = json.dumps(item).encode()
    call_id, timestamp = f"msg_{occasion.call_id}", str(int(occasion.now))
    signed = signature(signing_key(_secret(occasion.secret)), call_id, timestamp, body)
    return WebhookCall(
        {
            "content-type": "application/json",
            "svix-id": call_id,
            "svix-timestamp": timestamp,
            "svix-signature": signed,
        },
        body,
    )


RESEND_NEWS: Final = Teller(shown=_secret, item=_item, call=_call)
