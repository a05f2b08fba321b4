"""What SES's events tell, as Amazon SNS hands them over: signed by a certificate of Amazon's, for a topic of ours.

Facts: docs.aws.amazon.com/sns (verifying signatures, message formats) and /ses (event contents), as of 2026.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import Field

from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.http_rules import read_json
from posthouse.errors import ConfigError
from posthouse.providers.amazon_bounces import CAUSES, is_hard
from posthouse.providers.answer_paths import as_id, at, id_at
from posthouse.providers.api_settings import CallSettings, UrlValue
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.webhook import (
    NEEDS_CRYPTOGRAPHY,
    CertificateNeeded,
    Genuine,
    Meaning,
    Refused,
    Unreadable,
    Webhook,
    WebhookCall,
)
from posthouse.providers.webhook_fields import address_at, code_in, meant_by, moment_at, text_at
from posthouse.providers.webhook_settings import Tolerance, WebhookSecrets
from posthouse.providers.webhook_times import off


class SesWebhookSettings(CallSettings):
    """What its events need."""

    url: UrlValue = Field(
        "https://email.{region}.amazonaws.com",
        description=(
            "Where the API is; `{region}` stands for the region. At an address that is not Amazon's, such as that of a "
            "test server, certificates of webhooks are taken from there too."
        ),
    )
    webhook_topics: WebhookSecrets = Field(
        (),
        description=(
            "The ARNs of the SNS topics that its events may come from; the signature says which one a call is of. "
            "Without one its webhooks are refused."
        ),
    )
    webhook_tolerance: Tolerance = Field(
        "2h",  # type: ignore[assignment]
        description="How far the time of a webhook may be from ours. SNS repeats a call for up to an hour.",
    )


def ses_webhook(settings: SesWebhookSettings) -> Webhook:
    """The webhooks of SES, as this route has them."""
    return Webhook(
        setting="webhook_topics",
        secrets=settings.webhook_topics,
        key=_topic,
        verify=partial(verify, tolerance_s=settings.webhook_tolerance, own=_own_host(settings.url)),
        read=read,
    )


def _topic(text: str) -> str:
    try:
        import cryptography  # noqa: F401 - an extra, which only those need who verify
    except ImportError:
        raise ConfigError("", NEEDS_CRYPTOGRAPHY) from None
    if not text.startswith("arn:"):
        raise ConfigError("", "one of them is no ARN of an SNS topic, such as arn:aws:sns:eu-west-1:1234:mail")
    return text


# Whom a call is from


SIGNED: Final[Mapping[str, tuple[str, ...]]] = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
"""What the signature of each `Type` covers, in this order; what is not there is left out."""

_HOST: Final = re.compile(r"sns\.[a-z0-9-]{4,32}\.amazonaws\.com(?:\.cn)?")
_AMAZONS: Final = (".amazonaws.com", ".amazonaws.com.cn")
_CERTIFICATE: Final = re.compile(r"/SimpleNotificationService-[0-9a-f]{8,64}\.pem")


def _own_host(url: str) -> str:
    """The scheme and host of a server that somebody has in Amazon's place; "" for Amazon's own."""
    parts = urlsplit(url)
    return "" if parts.netloc.endswith(_AMAZONS) else f"{parts.scheme}://{parts.netloc}"


def verify(
    call: WebhookCall, topics: Sequence[str], now: float, *, tolerance_s: float, own: str = ""
) -> Genuine | Refused | CertificateNeeded:
    """By the certificate that the call names, which only Amazon's own host may have, or `own`, once all else fits."""
    envelope = read_json(call.body.decode("utf-8", "replace"))
    type_, topic = text_at(envelope, "Type"), text_at(envelope, "TopicArn")
    if type_ not in SIGNED:
        return Refused("it is no message of SNS; switch raw message delivery off, which has no signature")
    if topic not in topics:
        return Refused(f"its topic {topic!r:.200} is none of webhook_topics")
    try:
        moment = moment_at(envelope, "Timestamp")
    except Unreadable as error:
        return Refused(str(error))
    if reason := off(moment, now, tolerance_s):
        return Refused(reason)
    url, visit = text_at(envelope, "SigningCertURL"), text_at(envelope, "SubscribeURL")
    if not _is_trusted(url, _CERTIFICATE, own):
        return Refused("its certificate is not at an address of Amazon's")
    if type_ != "SubscriptionConfirmation":
        return CertificateNeeded(url, partial(_decide, envelope, now, Genuine()))
    if not _is_trusted(visit, re.compile("/"), own):
        return Refused("its SubscribeURL is no address of Amazon's")
    return CertificateNeeded(url, partial(_decide, envelope, now, Genuine(visit=visit)))


def _is_trusted(url: str, path: re.Pattern[str], own: str) -> bool:
    """Whether it leads to SNS and nowhere else: our server calls it (W2: who chooses its address chooses the key)."""
    try:
        parts = urlsplit(url if url.isascii() and url.isprintable() else "")
    except ValueError:
        return False
    host = parts.netloc  # with a port or a name in it, it is none of Amazon's
    amazons = parts.scheme == "https" and bool(_HOST.fullmatch(host))
    return (amazons or (own != "" and f"{parts.scheme}://{host}" == own)) and bool(path.fullmatch(parts.path))


def _decide(envelope: Any, now: float, genuine: Genuine, certificate: bytes) -> Genuine | Refused:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256
    from cryptography.x509 import load_pem_x509_certificate

    digest = {"1": SHA1(), "2": SHA256()}.get(text_at(envelope, "SignatureVersion"))  # noqa: S303  # Amazon's choice
    try:
        read = load_pem_x509_certificate(certificate)
        signature = base64.b64decode(text_at(envelope, "Signature"), validate=True)
    except (ValueError, binascii.Error):
        return Refused("its certificate or its signature can't be read")
    key = read.public_key()
    if digest is None or not isinstance(key, RSAPublicKey):
        return Refused("its signature is of no known kind")
    if not read.not_valid_before_utc.timestamp() <= now <= read.not_valid_after_utc.timestamp():
        return Refused("its certificate is not valid now")
    try:
        key.verify(signature, signed_text(envelope), PKCS1v15(), digest)
    except InvalidSignature:
        return Refused("its signature is not by its certificate")
    return genuine


def signed_text(envelope: Any) -> bytes:
    """The bytes that SNS signs: names and values, each on a line."""
    names = SIGNED[envelope["Type"]]
    pairs = [(name, envelope[name]) for name in names if isinstance(envelope.get(name), str)]
    return "".join(f"{name}\n{value}\n" for name, value in pairs).encode("utf-8", "replace")


# What it tells


KINDS: Final[Mapping[str, Meaning]] = {
    "Send": Meaning(EventKind.SENT),
    "Delivery": Meaning(EventKind.DELIVERED),
    "DeliveryDelay": Meaning(EventKind.DEFERRED, Cause.OTHER),
    "Bounce": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "Complaint": Meaning(EventKind.COMPLAINED),
    "Reject": Meaning(EventKind.BOUNCED, Cause.CONTENT),
    "Rendering Failure": Meaning(EventKind.BOUNCED, Cause.CONTENT),
    "Open": Meaning(EventKind.OPENED),
    "Click": Meaning(EventKind.CLICKED),
    "Subscription": Meaning(EventKind.UNSUBSCRIBED),
}
"""By `eventType`, or `notificationType` where an identity reports without a configuration set."""

PLACES: Final[Mapping[str, tuple[str, str]]] = {
    "Send": ("mail", ""),
    "Delivery": ("delivery", "recipients"),
    "DeliveryDelay": ("deliveryDelay", "delayedRecipients"),
    "Bounce": ("bounce", "bouncedRecipients"),
    "Complaint": ("complaint", "complainedRecipients"),
    "Reject": ("mail", ""),
    "Rendering Failure": ("mail", ""),
    "Open": ("open", ""),
    "Click": ("click", ""),
    "Subscription": ("subscription", ""),
}
"""Where each has its time, and the recipients it is about, where it names them."""

DELAYS: Final[Mapping[str, Cause]] = {
    "MailboxFull": Cause.MAILBOX_FULL,
    "SpamDetected": Cause.BLOCKED,
    "RecipientServerError": Cause.UNREACHABLE,
    "IPFailure": Cause.BLOCKED,
}
"""By `deliveryDelay.delayType`."""


def read(item: Any, _: Mapping[str, str]) -> Iterator[Event]:
    """One event for each recipient that it names. What SNS says for itself is no news."""
    meant_by(SIGNED, item, "Type")
    if item["Type"] != "Notification":
        return
    event = read_json(text_at(item, "Message"))
    if not isinstance(event, dict):
        if "Successfully validated" in text_at(item, "Message"):  # SES tries a new topic out, in words
            return
        raise Unreadable("its Message is no JSON")
    kind = "eventType" if "eventType" in event else "notificationType"
    meaning, (place, among) = meant_by(KINDS, event, kind), meant_by(PLACES, event, kind)
    if (
        meaning.kind is EventKind.UNSUBSCRIBED
        and at(event, "subscription.newTopicPreferences.unsubscribeAll") is not True
    ):
        return
    if at(event, "complaint.complaintSubType") == "OnAccountSuppressionList":  # nobody complained: it was not sent
        meaning = Meaning(EventKind.BOUNCED, Cause.LISTED)
    for recipient in _recipients(event, f"{place}.{among}" if among else "mail.destination", named=bool(among)):
        yield _event(item, event, meaning, moment_at(event, f"{place}.timestamp"), recipient)


def _recipients(event: Any, place: str, *, named: bool) -> list[Any]:
    """Those that the event names; else the only one that the message went to, or somebody of several."""
    found = at(event, place)
    listed = found if isinstance(found, list) else []
    return listed if listed and (named or len(listed) == 1) else [""]


def _event(item: Any, event: Any, meaning: Meaning, moment: float, recipient: Any) -> Event:
    address = address_at({"at": recipient}, "at") or address_at(recipient, "emailAddress")
    said = text_at(recipient, "diagnosticCode") or text_at(event, "delivery.smtpResponse") or _why(event)
    subtype = text_at(event, "bounce.bounceSubType")
    cause = CAUSES.get(subtype) or DELAYS.get(text_at(event, "deliveryDelay.delayType")) or meaning.cause
    id_ = id_at(item, "MessageId")
    return Event(
        meaning.kind,
        moment,
        recipient=address,
        key=_our_id(event),
        message_id=id_at(event, "mail.messageId"),
        provider_event_id=id_ and as_id(f"{id_} {address}".strip()),
        cause=cause,
        hard=is_hard(text_at(event, "bounce.bounceType"), subtype),
        code=code_in(said, text_at(recipient, "status")),
        text=said,
        url=text_at(event, "click.link"),
    )


def _why(event: Any) -> str:
    places = ("reject.reason", "failure.errorMessage", "complaint.complaintFeedbackType")
    return next((text for place in places if (text := text_at(event, place))), "")


def _our_id(event: Any) -> str | None:
    """Among the message's tags, each of which may have several values."""
    tags = at(event, "mail.tags")
    values = tags.get(OUR_ID) if isinstance(tags, dict) else None
    return as_id(values[0]) if isinstance(values, list) and values else None
