"""What Resend's webhooks tell: signed by Svix, one event a call.

Facts: resend.com/docs/webhooks (event types, verifying), docs.svix.com (receiving), as of 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from pydantic import Field

from posthouse.core.events import Cause, Event, EventKind
from posthouse.providers import standard_webhooks
from posthouse.providers.amazon_bounces import CAUSES, is_hard
from posthouse.providers.answer_paths import as_id, at, id_at
from posthouse.providers.api_settings import ApiSettings
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.webhook import Meaning, Webhook
from posthouse.providers.webhook_fields import address_at, code_in, id_within, meant_by, moment_at, text_at
from posthouse.providers.webhook_settings import Tolerance, WebhookSecrets


class ResendWebhookSettings(ApiSettings):
    """What its webhooks need."""

    webhook_secrets: WebhookSecrets = Field(
        (),
        description=(
            "The signing secrets of its webhooks, `whsec_…`: each `env:NAME` or `file:PATH`, several while they are "
            "rotated. Without one its webhooks are refused."
        ),
    )
    webhook_tolerance: Tolerance = Field(
        "5m",  # type: ignore[assignment]
        description="How far the time of a webhook's signature may be from ours. Each repetition is signed anew.",
    )


KINDS: Final[Mapping[str, Meaning | None]] = {
    "email.sent": Meaning(EventKind.SENT),
    "email.scheduled": Meaning(EventKind.SENT),
    "email.delivered": Meaning(EventKind.DELIVERED),
    "email.delivery_delayed": Meaning(EventKind.DEFERRED, Cause.OTHER),
    "email.bounced": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "email.failed": Meaning(EventKind.BOUNCED, Cause.OTHER),
    "email.suppressed": Meaning(EventKind.BOUNCED, Cause.LISTED),
    "email.complained": Meaning(EventKind.COMPLAINED),
    "email.opened": Meaning(EventKind.OPENED),
    "email.clicked": Meaning(EventKind.CLICKED),
    "email.received": None,
    "contact.created": None,
    "contact.updated": None,
    "contact.deleted": None,
    "domain.created": None,
    "domain.updated": None,
    "domain.deleted": None,
}
"""None: not about a message of ours."""

DETAILS: Final = ("data.bounce", "data.suppressed", "data.failed")


def resend_webhook(settings: ResendWebhookSettings) -> Webhook:
    """Resend's webhooks, as this route has them."""
    return Webhook(
        secrets=settings.webhook_secrets,
        key=standard_webhooks.signing_key,
        verify=partial(standard_webhooks.verify, tolerance_s=settings.webhook_tolerance),
        read=read,
    )


def read(item: Any, headers: Mapping[str, str]) -> Iterator[Event]:
    """The event of one call. Which of several recipients it is about, Resend doesn't say."""
    meaning = meant_by(KINDS, item, "type")
    if meaning is None:
        return
    said = " ".join(filter(None, (_said(item, place) for place in DETAILS)))
    subtype = text_at(item, "data.bounce.subType")
    yield Event(
        meaning.kind,
        moment_at(item, "created_at"),
        recipient=_only_recipient(item),
        key=_our_id(item),
        message_id=id_at(item, "data.email_id"),
        provider_event_id=as_id(headers.get("svix-id") or headers.get("webhook-id")),
        cause=CAUSES.get(subtype, meaning.cause),
        hard=_hard(item, subtype),
        code=code_in(said),
        text=said,
        url=text_at(item, "data.click.link"),
    )


def _said(item: Any, place: str) -> str:
    """What the receiver said, which is a list; else what Resend says."""
    diagnostics = at(item, f"{place}.diagnosticCode")
    said = [line for line in diagnostics if isinstance(line, str)] if isinstance(diagnostics, list) else []
    return " ".join(said) or text_at(item, f"{place}.message") or text_at(item, f"{place}.reason")


def _only_recipient(item: Any) -> str:
    to = at(item, "data.to")
    return address_at(item, "data.to.0") if isinstance(to, list) and len(to) == 1 else ""


def _our_id(item: Any) -> str | None:
    """Among the tags, which are an object, or a list of names with values as they were sent."""
    tags = at(item, "data.tags")
    if not isinstance(tags, list):
        return id_within(item, "data.tags", OUR_ID)
    return next((id_at(tag, "value") for tag in tags if at(tag, "name") == OUR_ID), None)


def _hard(item: Any, subtype: str) -> bool:
    bounced_before = text_at(item, "data.suppressed.reason") == "previous_bounce"
    return bounced_before or is_hard(text_at(item, "data.bounce.type"), subtype)
