"""The `ses` provider: Amazon SES, API version 2, with whole messages (`SendEmail` with `Content.Raw`).

A message is built by us, as for SMTP, so that every part of it arrives as it was meant; what SES alone knows stands
beside it in the call. SES takes no idempotency key, and can't be asked for a send by our id, which comes back in its
events alone. Facts: botocore's model `sesv2/2019-09-27`, and docs.aws.amazon.com/ses, as of 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final

from pydantic import Field

from posthouse.content import Content
from posthouse.providers.api import Api, Options, Payload, as_json
from posthouse.providers.body import Body
from posthouse.providers.carrying import Mail
from posthouse.providers.limits import (
    local_parts_beyond_ascii,
    metadata_unlike,
    recipients_beyond,
)
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.port import OutgoingMessage
from posthouse.providers.ses_events import SesWebhookSettings
from posthouse.providers.ses_lists import ses_lists
from posthouse.providers.ses_rules import RULES as RULES
from posthouse.providers.sigv4 import sigv4
from posthouse.setting_values import Clash, SecretValue, text_of_form

KIND: Final = "ses"

RECIPIENTS_MAX: Final = 50
MESSAGE_BYTES_MAX: Final = 40_000_000

_TAG: Final = "EmailTag"
"""Where an email's tag stands until it joins the others."""

BODY: Final[Mapping[str, Any]] = {
    # Whom the message is for; what people see of them stands in the message, which has no Bcc.
    "Destination": {"ToAddresses": "{to|email}", "CcAddresses": "{cc|email}", "BccAddresses": "{bcc|email}"},
    "FeedbackForwardingEmailAddress": "{envelope_sender|email}",
    "Content": {"Raw": {"Data": "{mime}"}},
    "EmailTags": "{metadata|pairs:Name,Value}",  # with our id: they come back in events
    _TAG: "{tags|first}",
    "ConfigurationOverrides": {
        "Tracking": {
            "OpenTrackingEnabled": "{track_opens|choose:ENABLED,DISABLED}",
            "ClickTrackingEnabled": "{track_clicks|choose:ENABLED,DISABLED}",
        }
    },
}

_NO_OPTIONS: Final = {
    "Content": "stands in the message itself",
    "FromEmailAddress": "stands in the message itself",
    "ReplyToAddresses": "stands in the message itself",
    _TAG: "belongs into tags",
    "EndpointId": "needs calls to another host, and another signature (SigV4A)",
}

_TAG_FORM: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_TAG_WORDS: Final = "up to 256 letters of ASCII, digits, _ and -"

_Name = Annotated[str, text_of_form(r"[A-Za-z0-9_-]{1,64}", "a name in SES: up to 64 of A-Z, a-z, 0-9, _ and -")]
_Arn = Annotated[str, text_of_form(r"arn:[^\s{}]+", "an ARN such as arn:aws:ses:eu-west-1:1234:identity/shop.example")]
_Region = Annotated[str, text_of_form(r"[a-z]{2,}(-[a-z]+)+-[0-9]+", "a region such as eu-west-1")]
_TagName = Annotated[str, text_of_form(_TAG_FORM.pattern, f"a tag's name: {_TAG_WORDS}")]


class SesSettings(SesWebhookSettings):
    """`[routes.NAME]` with `provider = "ses"`."""

    region: _Region = Field(
        description="The region in which the identities are verified, such as `eu-west-1`.",
    )
    access_key_id: SecretValue = Field(
        description="The access key's id: `env:NAME` or `file:PATH`. Read like the secret key."
    )
    secret_access_key: SecretValue = Field(
        description=(
            "The secret that signs our calls: `env:NAME` or `file:PATH`. Read at the first call, and again after the "
            "key was refused."
        )
    )
    session_token: SecretValue | None = Field(
        None, description="What belongs to a temporary key: `env:NAME` or `file:PATH`. Read like the secret key."
    )
    configuration_set: _Name | None = Field(
        None, description="The configuration set of every message. Without one, SES reports no events."
    )
    identity_arn: _Arn | None = Field(
        None, description="The ARN of another account's identity, whose policy lets us send from its addresses."
    )
    feedback_identity_arn: _Arn | None = Field(
        None, description="The same for the address that an email's `envelope_sender` names."
    )
    tenant: _Name | None = Field(None, description="The tenant that the messages belong to.")
    contact_list: _Name | None = Field(
        None, description="The contact list in which SES keeps who unsubscribes from these messages."
    )
    contact_topic: _Name | None = Field(None, description="The topic of `contact_list` that they belong to.")
    tag_name: _TagName = Field(
        "tag",
        description="The name of the message tag that an email's tag goes into.",
    )
    keeps_message_id: bool = Field(
        False,
        description=(
            "Whether the Message-ID that an email has of its own is kept; SES writes its own, as far as is known. "
            "With `false` such an email is refused."
        ),
    )

    def clashes(self) -> Iterator[Clash]:
        """A topic without its list, and our own name for something else."""
        yield from super().clashes()
        if self.contact_topic is not None and self.contact_list is None:
            yield "contact_topic", "needs contact_list"
        if self.tag_name == OUR_ID:
            yield "tag_name", f"our own id goes out as {OUR_ID}; take another name"

    def at(self, path: str) -> str:
        """An address of the API in the region."""
        return super().at(path).replace("{region}", self.region)


def ses_api(settings: SesSettings) -> Api:
    """SES in one region. Raises ConfigError where the package that signs is not installed."""
    return Api(
        kind=KIND,
        url=settings.at("/v2/email/outbound-emails"),
        auth=sigv4("ses", settings.region, settings.access_key_id, settings.secret_access_key, settings.session_token),
        body=Body({**BODY, **_constants(settings)}),
        ignore=settings.ignore,
        encode=partial(_encode, settings),
        refuses=partial(_refusals, settings),
        rules=RULES,
        message_id="MessageId",
        lists=ses_lists(settings.at),
        health_url=settings.health_url,
    )


def _constants(settings: SesSettings) -> dict[str, Any]:
    """What every call of the route has."""
    of_list = {"ContactListName": settings.contact_list, "TopicName": settings.contact_topic}
    given = {
        "FromEmailAddressIdentityArn": settings.identity_arn,
        "FeedbackForwardingEmailAddressIdentityArn": settings.feedback_identity_arn,
        "ConfigurationSetName": settings.configuration_set,
        "TenantName": settings.tenant,
        "ListManagementOptions": _present(of_list) or None,
    }
    return _present(given)


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _encode(settings: SesSettings, fields: Any, message: OutgoingMessage) -> Payload:
    """An email's tag is one more message tag."""
    if (tag := fields.pop(_TAG, None)) is not None:
        fields["EmailTags"] = [*fields["EmailTags"], {"Name": settings.tag_name, "Value": tag}]
    return as_json(fields, message)


def _refusals(settings: SesSettings, mail: Mail, options: Options) -> Iterator[str]:
    yield from recipients_beyond(mail, RECIPIENTS_MAX)
    yield from local_parts_beyond_ascii(mail)
    if isinstance(mail, Content) and mail.encoded_size > MESSAGE_BYTES_MAX:
        yield f"content: about {mail.encoded_size:,} bytes as it is sent; SES takes {MESSAGE_BYTES_MAX:,}"
    yield from metadata_unlike(mail, _TAG_FORM, _TAG_WORDS)
    yield from _refused_tags(settings, mail)
    if not settings.keeps_message_id and "message_id" not in settings.ignore and _names_itself(mail):
        yield "message_id: this route takes none (keeps_message_id = false)"
    yield from (f"options.{name}: {why}" for name, why in _NO_OPTIONS.items() if name in options)


def _refused_tags(settings: SesSettings, mail: Mail) -> Iterator[str]:
    yield from (f"tags: this provider takes {_TAG_WORDS} alone" for tag in mail.tags if not _TAG_FORM.fullmatch(tag))
    if mail.tags and settings.tag_name in mail.metadata:
        yield f"metadata.{settings.tag_name}: the email's tag goes out under this name (tag_name)"


def _names_itself(mail: Mail) -> bool:
    """Whoever is left of an email that others have already goes without its id rather than without a copy."""
    return mail.message_id is not None and not mail.envelope_to
