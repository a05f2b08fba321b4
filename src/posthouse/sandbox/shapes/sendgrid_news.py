"""SendGrid's Event Webhook: a list of events a call, signed with a key whose public half its user has.

Facts: www.twilio.com/docs/sendgrid/for-developers/tracking-events (event reference, security features), as of 2026.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from posthouse.errors import ConfigError
from posthouse.providers.webhook import NEEDS_CRYPTOGRAPHY
from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.news import News, NewsKind
from posthouse.sandbox.shape import listed, metadata_of
from posthouse.sandbox.telling import Occasion, Teller, WebhookCall, derived, event_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ITEMS_MAX: Final = 100

_EVENTS: Final[Mapping[NewsKind, tuple[str, Mapping[str, Any]]]] = {
    NewsKind.DELIVERED: ("delivered", {}),
    NewsKind.DEFERRED: ("deferred", {"attempt": "1"}),
    NewsKind.BOUNCED: ("bounce", {"type": "bounce", "bounce_classification": "Invalid Address"}),
    NewsKind.FULL: ("bounce", {"type": "blocked", "bounce_classification": "Mailbox Unavailable"}),
    NewsKind.BLOCKED: ("bounce", {"type": "blocked", "bounce_classification": "Reputation"}),
    NewsKind.SUPPRESSED: ("dropped", {"reason": "Bounced Address"}),
    NewsKind.COMPLAINED: ("spamreport", {}),
    NewsKind.OPENED: ("open", {"sg_machine_open": False}),
    NewsKind.CLICKED: ("click", {"url": "https://shop.example/"}),
    NewsKind.UNSUBSCRIBED: ("unsubscribe", {}),
}
_RESPONSES: Final = frozenset({NewsKind.DELIVERED, NewsKind.DEFERRED})


def item(one: Acceptance, news: News) -> dict[str, Any]:
    """An event: what the application gave with the message stands beside what SendGrid says."""
    name, details = _EVENTS[news.kind]
    said: dict[str, Any] = {}
    if news.said is not None:
        field = "response" if news.kind in _RESPONSES else "reason"
        said = {field: news.said.line, "status": news.said.status}
    return {
        **metadata_of(one),
        "email": news.recipient,
        "timestamp": int(one.happened_at(news)),
        "event": name,
        "category": listed((one.body or {}).get("tags")),
        "sg_event_id": event_id(one, news),
        "sg_message_id": f"{one.message_id}.recvd-sandbox-0",
        **said,
        **details,
    }


_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the curve P-256 (SEC 2 section 2.4.2): a private key is a number from 1 to one less."""


@cache
def _private_key(secret: str) -> EllipticCurvePrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, derive_private_key
    except ImportError:
        raise ConfigError("webhook", NEEDS_CRYPTOGRAPHY) from None
    number = int.from_bytes(derived(secret, "sendgrid"), "big")
    return derive_private_key(number % (_ORDER - 1) + 1, SECP256R1())


def _public_key(secret: str) -> str:
    """DER in base64, as SendGrid shows it."""
    key = _private_key(secret).public_key()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return base64.b64encode(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()


def _call(items: Sequence[Any], occasion: Occasion) -> WebhookCall:
    key = _private_key(occasion.secret)
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    body, timestamp = json.dumps(list(items)).encode(), str(int(occasion.now))
    signed = key.sign(timestamp.encode() + body, ECDSA(SHA256()))
    return WebhookCall(
        {
            "content-type": "application/json",
            "x-twilio-email-event-webhook-timestamp": timestamp,
            "x-twilio-email-event-webhook-signature": base64.b64encode(signed).decode(),
        },
        body,
    )


SENDGRID_NEWS: Final = Teller(shown=_public_key, item=item, call=_call, items_max=ITEMS_MAX)
