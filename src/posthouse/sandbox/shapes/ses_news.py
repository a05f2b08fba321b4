"""What SES publishes through Amazon SNS: signed by a certificate that stands at an address of the sandbox.

Facts: docs.aws.amazon.com/sns (verifying signatures, message formats) and /ses (event contents), as of 2026.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from posthouse.errors import ConfigError
from posthouse.providers.ses_events import signed_text
from posthouse.providers.webhook import NEEDS_CRYPTOGRAPHY
from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.news import News, NewsKind
from posthouse.sandbox.shape import iso, metadata_of
from posthouse.sandbox.telling import Occasion, Teller, WebhookCall

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

TOPIC: Final = "arn:aws:sns:eu-west-1:000000000000:sandbox"
CERTIFICATE_PATH: Final = "/SimpleNotificationService-00000000000000000000000000000000.pem"

_TYPES: Final[Mapping[NewsKind, str]] = {
    NewsKind.DELIVERED: "Delivery",
    NewsKind.DEFERRED: "DeliveryDelay",
    NewsKind.BOUNCED: "Bounce",
    NewsKind.FULL: "Bounce",
    NewsKind.BLOCKED: "Bounce",
    NewsKind.SUPPRESSED: "Bounce",
    NewsKind.COMPLAINED: "Complaint",
    NewsKind.OPENED: "Open",
    NewsKind.CLICKED: "Click",
    NewsKind.UNSUBSCRIBED: "Subscription",
}
_BOUNCES: Final = {
    NewsKind.BOUNCED: ("Permanent", "General"),
    NewsKind.FULL: ("Transient", "MailboxFull"),
    NewsKind.BLOCKED: ("Transient", "ContentRejected"),
    NewsKind.SUPPRESSED: ("Permanent", "Suppressed"),
}


def _item(one: Acceptance, news: News) -> dict[str, Any]:
    mail = {
        "timestamp": iso(one.at),
        "messageId": one.message_id,
        "source": one.envelope_sender or (one.body or {}).get("from", ""),
        "destination": list(one.recipients),
        "headers": [{"name": "Subject", "value": one.subject}],
        "tags": {name: [value] for name, value in metadata_of(one).items()},
    }
    return {"eventType": _TYPES[news.kind], "mail": mail, **_details(one, news)}


def _details(one: Acceptance, news: News) -> dict[str, Any]:
    at, who = {"timestamp": iso(one.happened_at(news))}, {"emailAddress": news.recipient}
    line = news.said.line if news.said is not None else ""
    failed = {**who, "action": "failed", "status": news.said.status if news.said else "", "diagnosticCode": line}
    if news.kind in _BOUNCES:
        type_, subtype = _BOUNCES[news.kind]
        return {"bounce": {**at, "bounceType": type_, "bounceSubType": subtype, "bouncedRecipients": [failed]}}
    others: dict[NewsKind, dict[str, Any]] = {
        NewsKind.DELIVERED: {"delivery": {**at, "recipients": [news.recipient], "smtpResponse": line}},
        NewsKind.DEFERRED: {
            "deliveryDelay": {**at, "delayType": "TransientCommunicationFailure", "delayedRecipients": [failed]},
        },
        NewsKind.COMPLAINED: {
            "complaint": {**at, "complainedRecipients": [who], "complaintFeedbackType": "abuse"},
        },
        NewsKind.OPENED: {"open": at},
        NewsKind.CLICKED: {"click": {**at, "link": "https://shop.example/"}},
        NewsKind.UNSUBSCRIBED: {
            "subscription": {**at, "source": "UnsubscribeHeader", "newTopicPreferences": {"unsubscribeAll": True}}
        },
    }
    return others[news.kind]


@cache
def _key(secret: str) -> RSAPrivateKey:
    """Made anew in each run: nobody but the certificate has to know it."""
    try:
        from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    except ImportError:
        raise ConfigError("webhook", NEEDS_CRYPTOGRAPHY) from None
    del secret  # which tells one key from another
    return generate_private_key(65537, 2048)


@cache
def _certificate(secret: str) -> bytes:
    """In PEM. It never ends."""
    key = _key(secret)
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sandbox")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(datetime(2000, 1, 1, tzinfo=UTC)).not_valid_after(
        datetime(2100, 1, 1, tzinfo=UTC)
    )
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def _topic(secret: str) -> str:
    _key(secret)
    return TOPIC


def _call(items: Sequence[Any], occasion: Occasion) -> WebhookCall:
    [item] = items
    return _signed({"Type": "Notification", "Message": json.dumps(item)}, occasion)


def _greeting(occasion: Occasion) -> WebhookCall:
    """Asks whether the topic may be subscribed. The sandbox doesn't wait for the answer."""
    address = f"{occasion.sandbox_url}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=sandbox"
    asks = {"Type": "SubscriptionConfirmation", "Message": "Visit SubscribeURL.", "SubscribeURL": address}
    return _signed({**asks, "Token": "sandbox"}, occasion)


def _signed(envelope: Mapping[str, str], occasion: Occasion) -> WebhookCall:
    whole = {
        **envelope,
        "MessageId": occasion.call_id,
        "TopicArn": TOPIC,
        "Timestamp": datetime.fromtimestamp(occasion.now, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "SignatureVersion": "2",
        "SigningCertURL": occasion.sandbox_url + CERTIFICATE_PATH,
    }
    key = _key(occasion.secret)
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    signed = base64.b64encode(key.sign(signed_text(whole), PKCS1v15(), SHA256())).decode()
    headers = {"content-type": "text/plain; charset=UTF-8", "x-amz-sns-message-type": whole["Type"]}
    return WebhookCall(headers, json.dumps({**whole, "Signature": signed}).encode())


SES_NEWS: Final = Teller(
    setting="webhook_topics",
    shown=_topic,
    item=_item,
    call=_call,
    greeting=_greeting,
    final=frozenset(range(400, 500)) - {429},
    pages={CERTIFICATE_PATH: _certificate},
)
