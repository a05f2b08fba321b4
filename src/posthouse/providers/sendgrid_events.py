"""What SendGrid's Event Webhook tells: a list of events a call, signed with a key of which we have the public half.

Facts: www.twilio.com/docs/sendgrid/for-developers/tracking-events (event reference, security features), as of 2026.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from posthouse.core.events import Cause, Event, EventKind
from posthouse.errors import ConfigError
from posthouse.providers.answer_paths import as_id, at, id_at
from posthouse.providers.api_settings import ApiSettings
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.webhook import NEEDS_CRYPTOGRAPHY, Genuine, Meaning, Refused, Webhook, WebhookCall
from posthouse.providers.webhook_fields import address_at, code_in, meant_by, moment_at, text_at
from posthouse.providers.webhook_settings import Tolerance, WebhookSecrets
from posthouse.providers.webhook_times import stale

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

SIGNATURE: Final = "x-twilio-email-event-webhook-signature"
TIMESTAMP: Final = "x-twilio-email-event-webhook-timestamp"

_ENTRY_PART = re.compile(r"\.(?=filter|recv)")


class SendgridWebhookSettings(ApiSettings):
    """What its webhooks need."""

    webhook_secrets: WebhookSecrets = Field(
        (),
        description=(
            "The verification keys of its signed event webhooks, as SendGrid shows them: each `env:NAME` or "
            "`file:PATH`, several while they are rotated. Without one its webhooks are refused."
        ),
    )
    webhook_tolerance: Tolerance = Field(
        "25h",  # type: ignore[assignment]
        description=(
            "How far the time of a webhook's signature may be from ours. SendGrid repeats a call for a day, perhaps "
            "under its first signature; what comes twice counts once."
        ),
    )


KINDS: Final[Mapping[str, Meaning | None]] = {
    "processed": Meaning(EventKind.SENT),
    "deferred": Meaning(EventKind.DEFERRED, Cause.OTHER),
    "delivered": Meaning(EventKind.DELIVERED),
    "bounce": Meaning(EventKind.BOUNCED, Cause.OTHER, hard=True),
    "dropped": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "open": Meaning(EventKind.OPENED),
    "click": Meaning(EventKind.CLICKED),
    "spamreport": Meaning(EventKind.COMPLAINED),
    "unsubscribe": Meaning(EventKind.UNSUBSCRIBED),
    "group_unsubscribe": Meaning(EventKind.UNSUBSCRIBED),
    "group_resubscribe": None,
    "account_status_change": None,
}
"""None: not about a message of ours."""

BLOCKED: Final = Meaning(EventKind.BOUNCED, Cause.BLOCKED)
"""A bounce of the type `blocked`: the receiver's policy, not the address."""

BOUNCES: Final[Mapping[str, Meaning]] = {
    "invalid address": Meaning(EventKind.BOUNCED, Cause.NO_MAILBOX, hard=True),
    "mailbox unavailable": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "content": Meaning(EventKind.BOUNCED, Cause.CONTENT),
    "reputation": BLOCKED,
    "frequency": Meaning(EventKind.BOUNCED, Cause.TOO_FAST),
    "technical": Meaning(EventKind.BOUNCED, Cause.UNREACHABLE),
}
"""How `bounce_classification` begins, in small letters; any other says no more than the event itself."""

DROPS: Final[Mapping[str, Meaning]] = {
    "bounced address": Meaning(EventKind.BOUNCED, Cause.LISTED, hard=True),
    "unsubscribed address": Meaning(EventKind.BOUNCED, Cause.LISTED),
    "spam reporting address": Meaning(EventKind.BOUNCED, Cause.LISTED),
    "unsubscribed group": Meaning(EventKind.BOUNCED, Cause.LISTED),
    "invalid smtpapi header": Meaning(EventKind.BOUNCED, Cause.CONTENT),
    "invalid": Meaning(EventKind.BOUNCED, Cause.NO_MAILBOX, hard=True),
    "spam content": Meaning(EventKind.BOUNCED, Cause.CONTENT),
}
"""How `reason` begins, in small letters, where SendGrid didn't even try: the first that fits."""


def sendgrid_webhook(settings: SendgridWebhookSettings) -> Webhook:
    """SendGrid's webhooks, as this route has them."""
    return Webhook(
        secrets=settings.webhook_secrets,
        key=public_key,
        verify=partial(verify, tolerance_s=settings.webhook_tolerance),
        read=read,
    )


def public_key(text: str) -> EllipticCurvePublicKey:
    """The key that SendGrid shows: DER in base64, or PEM. Raises ConfigError."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
        from cryptography.hazmat.primitives.serialization import load_der_public_key
    except ImportError:
        raise ConfigError("", NEEDS_CRYPTOGRAPHY) from None
    encoded = "".join(line for line in text.splitlines() if not line.startswith("-----"))
    try:
        key = load_der_public_key(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        raise ConfigError("", "one of them is no verification key as SendGrid shows it")
    return key


def verify(
    call: WebhookCall, keys: Sequence[EllipticCurvePublicKey], now: float, *, tolerance_s: float
) -> Genuine | Refused:
    """ECDSA with SHA-256 over the timestamp and the body, with nothing between them."""
    timestamp = call.headers.get(TIMESTAMP, "")
    if reason := stale(timestamp, now, tolerance_s):
        return Refused(reason)
    try:
        signature = base64.b64decode(call.headers.get(SIGNATURE, ""), validate=True)
    except (binascii.Error, ValueError):
        signature = b""
    if any(_signed(key, signature, timestamp.encode() + call.body) for key in keys):
        return Genuine()
    return Refused("its signature is by none of webhook_secrets")


def _signed(key: EllipticCurvePublicKey, signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        key.verify(signature, signed, ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def read(item: Any, _: Mapping[str, str]) -> Iterator[Event]:
    """One event of the list. Our metadata stands beside SendGrid's own members."""
    meaning = meant_by(KINDS, item, "event")
    if meaning is None:
        return
    meaning = _more_precisely(item, meaning)
    said = text_at(item, "reason") or text_at(item, "response")
    yield Event(
        meaning.kind,
        moment_at(item, "timestamp"),
        recipient=address_at(item, "email"),
        key=id_at(item, OUR_ID),
        message_id=message_id_of(at(item, "sg_message_id")),
        provider_event_id=as_id(at(item, "sg_event_id")),
        cause=meaning.cause,
        hard=meaning.hard,
        code=code_in(said, text_at(item, "status")),
        text=said,
        url=text_at(item, "url") if meaning.kind is EventKind.CLICKED else "",
    )


def _more_precisely(item: Any, meaning: Meaning) -> Meaning:
    event = at(item, "event")
    if event == "dropped":
        return _by_beginning(DROPS, text_at(item, "reason"), meaning)
    if event != "bounce":
        return meaning
    blocked = at(item, "type") == "blocked"
    meaning = _by_beginning(BOUNCES, text_at(item, "bounce_classification"), BLOCKED if blocked else meaning)
    return replace(meaning, hard=meaning.hard and not blocked)


def _by_beginning(table: Mapping[str, Meaning], words: str, otherwise: Meaning) -> Meaning:
    return next((meant for begin, meant in table.items() if words.lower().startswith(begin)), otherwise)


def message_id_of(entry_id: object) -> str | None:
    """The id of the whole call, as the answer to it has it: in entries and events more of it follows."""
    found = as_id(entry_id)
    return found and _ENTRY_PART.split(found, maxsplit=1)[0]
