"""The `resend` provider: Resend's email API. It dedupes by an idempotency key, and can't be asked by our id.

Facts: resend.com/docs (api-reference/emails, dashboard/emails/idempotency-keys, api-reference/errors), as of 2026.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator
from functools import partial
from pathlib import PurePath
from typing import Final

from pydantic import Field

from posthouse.attachment import Attachment
from posthouse.content import StoredFile
from posthouse.core.answers import Answer, Rule, said
from posthouse.core.outcome import Outcome, Subject
from posthouse.providers.api import Api, Options
from posthouse.providers.api_settings import UrlValue
from posthouse.providers.auth import bearer
from posthouse.providers.body import Body
from posthouse.providers.carrying import Mail
from posthouse.providers.limits import metadata_unlike, recipients_beyond, size_beyond
from posthouse.providers.resend_events import ResendWebhookSettings
from posthouse.providers.resend_lists import resend_lists

KIND: Final = "resend"

KEY_LIFETIME_S: Final = 24 * 3600.0
RECIPIENTS_MAX: Final = 50
SIZE_MAX: Final = 40_000_000

BODY: Final = {
    "from": "{from}",
    "to": "{to}",
    "cc": "{cc}",
    "bcc": "{bcc}",
    "reply_to": "{reply_to}",
    "subject": "{subject}",
    "text": "{text}",
    "html": "{html}",
    "headers": "{headers}",
    "attachments": "{attachments|object:filename,content,content_type,content_id}",
    "tags": "{metadata|pairs}",  # its tags have names and values, and come back in webhooks
}

_TAG: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")

_TYPES: Final = mimetypes.MimeTypes()  # Python's own table, the same on every machine


class ResendSettings(ResendWebhookSettings):
    """`[routes.NAME]` with `provider = "resend"`."""

    url: UrlValue = Field("https://api.resend.com", description="Where the API is.")
    check_file_names: bool = Field(
        True,
        description=(
            "Refuse an email with a file whose name doesn't end as its content type says, such as `data.txt` with "
            "`text/csv`: Resend was seen to take such messages and drop them without a word."
        ),
    )


def resend_api(settings: ResendSettings) -> Api:
    """Resend's API, as this route uses it."""
    return Api(
        kind=KIND,
        url=settings.at("/emails"),
        auth=bearer(settings.api_key),
        body=Body(BODY),
        ignore=settings.ignore,
        refuses=partial(_refusals, settings),
        key_header="Idempotency-Key",
        key_lifetime_s=KEY_LIFETIME_S,
        rules=RULES,
        message_id="id",
        lists=resend_lists(settings.at),
        health_url=settings.health_url,
    )


def _refusals(settings: ResendSettings, mail: Mail, _: Options) -> Iterator[str]:
    yield from recipients_beyond(mail, RECIPIENTS_MAX)
    yield from size_beyond(mail, SIZE_MAX)
    yield from metadata_unlike(mail, _TAG, "up to 256 letters of ASCII, digits, _ and -")
    for file in mail.attachments:
        if settings.check_file_names and not _fits(file):
            yield f"attachments: {file.filename} doesn't end as {file.content_type} does (check_file_names)"


def _fits(file: StoredFile | Attachment) -> bool:
    """Whether the name fits the type, as far as both are known. A file without a name gets one that does."""
    kind = file.content_type.partition(";")[0].strip()
    by_name = _TYPES.guess_type(file.filename)[0]
    endings = _TYPES.guess_all_extensions(kind)
    if not file.filename or not endings or by_name == kind or PurePath(file.filename).suffix.lower() in endings:
        return True
    return by_name is None and kind == "application/octet-stream"


def _named(*names: str) -> re.Pattern[str]:
    """In the answer's own member: within another member's text its quotes would be escaped."""
    return said(rf'"name"\s*:\s*"(?:{"|".join(names)})"')


def _said(name: str, message: str = "") -> str:
    return f'{{"statusCode":400,"name":"{name}","message":"{message}"}}'


_SOURCE: Final = "resend.com/docs/api-reference/errors"

RULES: Final = (
    Rule(
        name="a quota is used up",
        statuses=frozenset({429}),
        says=_named("daily_quota_exceeded", "monthly_quota_exceeded"),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source=f"{_SOURCE}: daily_quota_exceeded, monthly_quota_exceeded",
        matches=(Answer(429, _said("daily_quota_exceeded")), Answer(429, _said("monthly_quota_exceeded"))),
        not_matches=(Answer(429, _said("rate_limit_exceeded")), Answer(400, _said("daily_quota_exceeded"))),
    ),
    Rule(
        name="the key is refused",
        statuses=frozenset({400, 401, 403}),
        says=said(
            r'"name"\s*:\s*"(?:missing_api_key|invalid_api_key|restricted_api_key)"'
            r'|"message"\s*:\s*"API key is invalid'
        ),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source=f"{_SOURCE}: missing_api_key, invalid_api_key, restricted_api_key; newer: said in the message",
        matches=(
            Answer(401, _said("missing_api_key")),
            Answer(401, _said("restricted_api_key")),
            Answer(403, _said("invalid_api_key")),
            Answer(401, _said("validation_error", "API key is invalid")),
            Answer(400, _said("validation_error", "API key is invalid")),
        ),
        not_matches=(Answer(400, _said("validation_error", "The subject is invalid")),),
    ),
    Rule(
        name="our domain is not verified, or the account is in test mode",
        statuses=frozenset({403}),
        says=_named("validation_error"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source=f"{_SOURCE}: validation_error under 403",
        matches=(
            Answer(403, _said("validation_error", "The shop.example domain is not verified.")),
            Answer(403, _said("validation_error", "You can only send testing emails to your own email address.")),
        ),
        not_matches=(Answer(422, _said("validation_error")), Answer(403, "<html>blocked</html>")),
    ),
    Rule(
        name="a recipient's address is not one",
        statuses=frozenset({400, 422}),
        says=said(r'"message"\s*:\s*"(?:[^"\\]|\\.)*\binvalid \W{0,2}(?:to|cc|bcc)\b'),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source=f"{_SOURCE}: where it names to, cc or bcc",
        matches=(
            Answer(422, _said("validation_error", "Invalid `to` field. The email address needs a domain.")),
            Answer(422, _said("invalid_parameter", "Invalid `cc` field.")),
        ),
        not_matches=(
            Answer(422, _said("validation_error", "Invalid `from` field.")),
            Answer(422, _said("missing_required_field", "Missing `to` field.")),
        ),
    ),
    Rule(
        name="the message is refused",
        statuses=frozenset({400, 422}),
        says=_named(
            "invalid_attachment",
            "invalid_from_address",
            "invalid_access",
            "invalid_parameter",
            "invalid_region",
            "missing_required_fields?",
        ),
        outcome=Outcome.REJECTED,
        source=f"{_SOURCE}: invalid_attachment, invalid_from_address, missing_required_field and others",
        matches=(
            Answer(422, _said("invalid_attachment", "Attachment must have either a `content` or `path`.")),
            Answer(422, _said("invalid_from_address", "Invalid `from` field.")),
            Answer(422, _said("invalid_access")),
            Answer(422, _said("invalid_parameter")),
            Answer(422, _said("invalid_region")),
            Answer(422, _said("missing_required_field", "Missing `to` field.")),
            Answer(422, _said("missing_required_fields")),
        ),
        not_matches=(Answer(400, _said("invalid_idempotency_key")), Answer(500, _said("application_error"))),
    ),
    Rule(
        name="the message is refused as a danger",
        statuses=frozenset({451}),
        says=_named("security_error"),
        outcome=Outcome.REJECTED,
        source=f"{_SOURCE}: security_error",
        matches=(Answer(451, _said("security_error", "We may have found a security issue with the request.")),),
        not_matches=(Answer(451, ""), Answer(422, _said("security_error"))),
    ),
)
"""Asked before the general rules, which know what Resend says about idempotency keys, rates and its own faults."""
