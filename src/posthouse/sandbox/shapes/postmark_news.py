"""Postmark's webhooks: one event a call, with a password, since Postmark signs nothing.

Facts: postmarkapp.com/developer/webhooks and /api/bounce-api, as of 2026.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.news import News, NewsKind
from posthouse.sandbox.shape import iso, listed, metadata_of
from posthouse.sandbox.telling import Occasion, Teller, WebhookCall, derived, event_id

BOUNCES: Final[Mapping[NewsKind, tuple[str, int]]] = {
    NewsKind.DEFERRED: ("Transient", 2),
    NewsKind.BOUNCED: ("HardBounce", 1),
    NewsKind.FULL: ("SoftBounce", 4096),
    NewsKind.BLOCKED: ("Blocked", 100_006),
    NewsKind.COMPLAINED: ("SpamComplaint", 512),
}
"""Its `Type` and `TypeCode`. What goes to an inactive address is refused at once, so nothing is told of it later."""

_MAKES_INACTIVE: Final = frozenset({NewsKind.BOUNCED, NewsKind.COMPLAINED})


def item(one: Acceptance, news: News) -> dict[str, Any] | None:
    """What a webhook tells, and a list has."""
    at = iso(one.happened_at(news))
    if news.kind in BOUNCES:
        record_type = "SpamComplaint" if news.kind is NewsKind.COMPLAINED else "Bounce"
        return {**_common(one, record_type), **_bounce(one, news, at)}
    if (of_kind := _OTHERS.get(news.kind)) is None:
        return None
    record_type, time, more = of_kind
    said = {"Details": news.said.line} if news.said is not None else {}
    return {**_common(one, record_type), "Recipient": news.recipient, time: at, **said, **more}


_OTHERS: Final[Mapping[NewsKind, tuple[str, str, Mapping[str, Any]]]] = {
    NewsKind.DELIVERED: ("Delivery", "DeliveredAt", {}),
    NewsKind.OPENED: ("Open", "ReceivedAt", {"FirstOpen": True}),
    NewsKind.CLICKED: ("Click", "ReceivedAt", {"OriginalLink": "https://shop.example/", "ClickLocation": "HTML"}),
    NewsKind.UNSUBSCRIBED: (
        "SubscriptionChange",
        "ChangedAt",
        {"SuppressSending": True, "Origin": "Recipient", "SuppressionReason": "ManualSuppression"},
    ),
}


def stream_of(one: Acceptance) -> str:
    """The message stream that it belongs to."""
    return str((one.body or {}).get("MessageStream", "outbound"))


def tag_of(one: Acceptance) -> str:
    """Its only tag, or none."""
    return str(next(iter(listed((one.body or {}).get("tags"))), ""))


def _common(one: Acceptance, record_type: str) -> dict[str, Any]:
    return {
        "RecordType": record_type,
        "MessageID": one.message_id,
        "MessageStream": stream_of(one),
        "Tag": tag_of(one),
        "Metadata": metadata_of(one),
        "ServerID": 1,
    }


def _bounce(one: Acceptance, news: News, at: str) -> dict[str, Any]:
    type_, type_code = BOUNCES[news.kind]
    return {
        "ID": zlib.crc32(event_id(one, news).encode()),
        "Type": type_,
        "TypeCode": type_code,
        "Name": type_,
        "Description": "What this type means in general.",
        "Details": f"smtp;{news.said.line}" if news.said is not None else "",
        "Email": news.recipient,
        "From": (one.body or {}).get("from", ""),
        "BouncedAt": at,
        "Inactive": news.kind in _MAKES_INACTIVE,
        "CanActivate": news.kind is not NewsKind.COMPLAINED,
        "DumpAvailable": False,
        "Subject": one.subject,
    }


def _password(secret: str) -> str:
    return derived(secret, "postmark").hex()


def _call(items: Sequence[Any], occasion: Occasion) -> WebhookCall:
    [one] = items
    credentials = base64.b64encode(f"posthouse:{_password(occasion.secret)}".encode()).decode()
    headers = {"content-type": "application/json", "authorization": f"Basic {credentials}"}
    return WebhookCall(headers, json.dumps(one).encode())


POSTMARK_NEWS: Final = Teller(shown=_password, item=item, call=_call, final=frozenset({403}))
