"""What Postmark's webhooks tell: one event a call, let in by a password, since Postmark signs nothing.

Facts: postmarkapp.com/developer/webhooks and /api/bounce-api (bounce types), as of 2026.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import Field

from posthouse.address import fold
from posthouse.core.events import Cause, Event, EventKind
from posthouse.providers.answer_paths import at, id_at
from posthouse.providers.api_settings import ApiSettings
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.webhook import Genuine, Meaning, Refused, Webhook, WebhookCall
from posthouse.providers.webhook_fields import address_at, code_in, id_within, meant_by, moment_at, text_at
from posthouse.providers.webhook_settings import WebhookSecrets


class PostmarkWebhookSettings(ApiSettings):
    """What its webhooks need."""

    webhook_secrets: WebhookSecrets = Field(
        (),
        description=(
            "The passwords that let its webhooks in, as `https://posthouse:PASSWORD@…` or as basic auth: each "
            "`env:NAME` or `file:PATH`, several while they are rotated. Without one its webhooks are refused."
        ),
    )


TIMES: Final[Mapping[str, str]] = {
    "Delivery": "DeliveredAt",
    "Bounce": "BouncedAt",
    "SpamComplaint": "BouncedAt",
    "Open": "ReceivedAt",
    "Click": "ReceivedAt",
    "SubscriptionChange": "ChangedAt",
}
"""Where an event of each `RecordType` says when it happened."""

KINDS: Final[Mapping[str, Meaning]] = {
    "Delivery": Meaning(EventKind.DELIVERED),
    "SpamComplaint": Meaning(EventKind.COMPLAINED),
    "Open": Meaning(EventKind.OPENED),
    "Click": Meaning(EventKind.CLICKED),
}

_AUTO_REPLY: Final = Meaning(EventKind.DELIVERED, Cause.AUTO_REPLY)  # somebody's program has answered it

BOUNCES: Final[Mapping[str, Meaning | None]] = {
    "HardBounce": Meaning(EventKind.BOUNCED, Cause.OTHER, hard=True),
    "BadEmailAddress": Meaning(EventKind.BOUNCED, Cause.NO_MAILBOX, hard=True),
    "SoftBounce": Meaning(EventKind.BOUNCED, Cause.OTHER),  # it was tried again, and has been given up
    "Transient": Meaning(EventKind.DEFERRED, Cause.OTHER),
    "DnsError": Meaning(EventKind.DEFERRED, Cause.UNREACHABLE),
    "Blocked": Meaning(EventKind.BOUNCED, Cause.BLOCKED),
    "SpamNotification": Meaning(EventKind.BOUNCED, Cause.CONTENT),
    "VirusNotification": Meaning(EventKind.BOUNCED, Cause.CONTENT),
    "DMARCPolicy": Meaning(EventKind.BOUNCED, Cause.NOT_AUTHENTIC),
    "ManuallyDeactivated": Meaning(EventKind.BOUNCED, Cause.LISTED),
    "TemplateRenderingFailed": Meaning(EventKind.BOUNCED, Cause.CONTENT),
    "SMTPApiError": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "Unconfirmed": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "Unknown": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "SpamComplaint": Meaning(EventKind.COMPLAINED),
    "Unsubscribe": Meaning(EventKind.UNSUBSCRIBED),
    "AutoResponder": _AUTO_REPLY,
    "AddressChange": _AUTO_REPLY,
    "ChallengeVerification": _AUTO_REPLY,
    "Subscribe": None,
    "OpenRelayTest": None,
    "InboundError": None,
}
"""By `Type`. None: not about a message of ours."""


def postmark_webhook(settings: PostmarkWebhookSettings) -> Webhook:
    """Postmark's webhooks, as this route has them."""
    asked_for = 'Basic realm="webhooks"'
    return Webhook(secrets=settings.webhook_secrets, key=str.encode, verify=verify, read=read, challenge=asked_for)


def verify(call: WebhookCall, keys: Sequence[bytes], _now: float) -> Genuine | Refused:
    """By the password alone: the user's name is for the people who set it up."""
    scheme, _, credentials = call.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return Refused("it has no password")
    try:
        given = base64.b64decode(credentials, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        given = b""
    if any(hmac.compare_digest(given, key) for key in keys):
        return Genuine()
    return Refused("its password is none of webhook_secrets")


def read(item: Any, _: Mapping[str, str]) -> Iterator[Event]:
    """The event of one call."""
    time = meant_by(TIMES, item, "RecordType")
    meaning = _meaning(item)
    if meaning is None:
        return
    said = text_at(item, "Details") or text_at(item, "Description")
    recipient = address_at(item, "Recipient") or address_at(item, "Email")
    yield Event(
        meaning.kind,
        moment_at(item, time),
        recipient=recipient,
        key=id_within(item, "Metadata", OUR_ID),
        message_id=id_at(item, "MessageID"),
        provider_event_id=_event_id(item, recipient),
        cause=meaning.cause,
        hard=meaning.hard or _made_inactive(item, meaning),
        code=code_in(said),
        text=said,
        url=text_at(item, "OriginalLink"),
    )


def _event_id(item: Any, recipient: str) -> str | None:
    """A bounce has one. A message is delivered to a recipient once, whatever time is told of it where."""
    if bounce_id := id_at(item, "ID"):
        return f"bounce {bounce_id}"
    message_id = id_at(item, "MessageID")
    delivered = at(item, "RecordType") == "Delivery" and message_id and recipient
    return f"delivery {message_id} {fold(recipient)}" if delivered else None


def _meaning(item: Any) -> Meaning | None:
    if at(item, "RecordType") == "Bounce":
        return meant_by(BOUNCES, item, "Type")
    if at(item, "RecordType") == "SubscriptionChange":
        # Postmark lists addresses for bounces and complaints too, and tells of those by themselves.
        asked_for = at(item, "SuppressSending") is True and at(item, "Origin") == "Recipient"
        by_hand = at(item, "SuppressionReason") == "ManualSuppression"
        return Meaning(EventKind.UNSUBSCRIBED) if asked_for and by_hand else None
    return meant_by(KINDS, item, "RecordType")


def _made_inactive(item: Any, meaning: Meaning) -> bool:
    """Whether Postmark itself takes the address for bad after this bounce."""
    return meaning.kind is EventKind.BOUNCED and meaning.cause is not Cause.LISTED and at(item, "Inactive") is True
