"""What Mailgun's webhooks tell: one event a call. The signature covers a token, and nothing of what is told.

Facts: documentation.mailgun.com (webhooks, event structure, securing webhooks), as of 2026.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final

from pydantic import Field

from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.http_rules import read_json
from posthouse.providers.answer_paths import at, id_at
from posthouse.providers.api_settings import ApiSettings
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.webhook import Genuine, Meaning, Refused, Webhook, WebhookCall
from posthouse.providers.webhook_fields import address_at, code_in, id_within, meant_by, moment_at, text_at
from posthouse.providers.webhook_settings import Tolerance, WebhookSecrets
from posthouse.providers.webhook_times import stale


class MailgunWebhookSettings(ApiSettings):
    """What its webhooks need."""

    webhook_secrets: WebhookSecrets = Field(
        (),
        description=(
            "The account's HTTP webhook signing key: `env:NAME` or `file:PATH`, several while it is rotated. Without "
            "one its webhooks are refused."
        ),
    )
    webhook_tolerance: Tolerance = Field(
        "9h",  # type: ignore[assignment]
        description=(
            "How far the time of a webhook's signature may be from ours. Mailgun repeats a call for eight hours, "
            "perhaps under its first signature; a signature counts for one call alone."
        ),
    )


KINDS: Final[Mapping[str, Meaning | None]] = {
    "accepted": Meaning(EventKind.SENT),
    "delivered": Meaning(EventKind.DELIVERED),
    "failed": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "rejected": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "complained": Meaning(EventKind.COMPLAINED),
    "unsubscribed": Meaning(EventKind.UNSUBSCRIBED),
    "opened": Meaning(EventKind.OPENED),
    "clicked": Meaning(EventKind.CLICKED),
    "stored": None,
    "list_member_uploaded": None,
    "list_member_upload_error": None,
    "list_uploaded": None,
}
"""By `event`. None: not about a message of ours."""

PERMANENT: Final[Mapping[str, Meaning]] = {
    "bounce": Meaning(EventKind.BOUNCED, Cause.OTHER, hard=True),
    "suppress-bounce": Meaning(EventKind.BOUNCED, Cause.LISTED, hard=True),
    "suppress-complaint": Meaning(EventKind.BOUNCED, Cause.LISTED),
    "suppress-unsubscribe": Meaning(EventKind.BOUNCED, Cause.LISTED),
    "espblock": Meaning(EventKind.BOUNCED, Cause.BLOCKED),
    "old": Meaning(EventKind.BOUNCED, Cause.EXPIRED),
}
"""By `reason`, of a message that is given up; any other says no more than the event itself."""

TEMPORARY: Final[Mapping[str, Meaning]] = {
    "greylisted": Meaning(EventKind.DEFERRED, Cause.GREYLISTED),
    "espblock": Meaning(EventKind.DEFERRED, Cause.BLOCKED),
    "old": PERMANENT["old"],  # it was tried for hours, and was given up just now
}
"""By `reason`, of one that will be tried again."""

DEFERRED: Final = Meaning(EventKind.DEFERRED, Cause.OTHER)


def mailgun_webhook(settings: MailgunWebhookSettings) -> Webhook:
    """Mailgun's webhooks, as this route has them."""
    return Webhook(
        secrets=settings.webhook_secrets,
        key=str.encode,
        verify=partial(verify, tolerance_s=settings.webhook_tolerance),
        read=read,
    )


def verify(call: WebhookCall, keys: Sequence[bytes], now: float, *, tolerance_s: float) -> Genuine | Refused:
    """HMAC with SHA-256 over timestamp and token, which stand beside the event in the body."""
    signed = at(read_json(call.body.decode("utf-8", "replace")), "signature")
    timestamp, token, given = (text_at(signed, name) for name in ("timestamp", "token", "signature"))
    if reason := stale(timestamp, now, tolerance_s):
        return Refused(reason)
    if token and any(hmac.compare_digest(signature(key, timestamp, token), _bytes(given)) for key in keys):
        return Genuine(token)
    return Refused("its signature is by none of webhook_secrets")


def signature(key: bytes, timestamp: str, token: str) -> bytes:
    """What Mailgun writes beside both, in hexadecimal digits."""
    return hmac.digest(key, _bytes(timestamp + token), sha256).hex().encode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def read(item: Any, _: Mapping[str, str]) -> Iterator[Event]:
    """The event of one call."""
    meaning = meant_by(KINDS, item, "event-data.event")
    if meaning is None:
        return
    if at(item, "event-data.event") == "failed":
        meaning = _failed(item, meaning)
    said = text_at(item, "event-data.delivery-status.message") or text_at(
        item, "event-data.delivery-status.description"
    )
    event_id, happened_at = id_at(item, "event-data.id"), moment_at(item, "event-data.timestamp")
    yield Event(
        meaning.kind,
        happened_at,
        recipient=address_at(item, "event-data.recipient"),
        key=id_within(item, "event-data.user-variables", OUR_ID),
        message_id=id_at(item, "event-data.message.headers.message-id"),
        provider_event_id=event_id and f"{event_id} {happened_at:.6f}",  # an id is the only one of its day
        cause=meaning.cause,
        hard=meaning.hard,
        code=code_in(text_at(item, "event-data.delivery-status.code"), said),
        text=said or text_at(item, "event-data.reject.reason"),
        url=text_at(item, "event-data.url"),
    )


def _failed(item: Any, meaning: Meaning) -> Meaning:
    temporary = at(item, "event-data.severity") == "temporary"
    table, otherwise = (TEMPORARY, DEFERRED) if temporary else (PERMANENT, meaning)
    return table.get(text_at(item, "event-data.reason"), otherwise)
