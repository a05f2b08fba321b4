"""The `sendgrid` provider: SendGrid's Mail Send API, version 3.

It takes no idempotency key, and can't be asked for a send by our id: a look-up reads the log of one recipient and
compares our id in each entry. Facts: docs/providers/sendgrid.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from pydantic import Field

from posthouse.core.answers import Answer, Rule, said
from posthouse.core.outcome import Found, LookUp, Outcome, Subject
from posthouse.providers.answer_paths import as_id, at
from posthouse.providers.api import Api, Options, Payload, as_json
from posthouse.providers.api_settings import UrlValue
from posthouse.providers.auth import bearer
from posthouse.providers.body import Body, encoded
from posthouse.providers.carrying import Mail
from posthouse.providers.limits import size_beyond
from posthouse.providers.look_ups import LookUpSteps, Question, asked_from_s, spellings
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.port import OutgoingMessage
from posthouse.providers.sendgrid_events import SendgridWebhookSettings, message_id_of
from posthouse.providers.sendgrid_lists import sendgrid_lists
from posthouse.providers.sendgrid_log import sendgrid_log
from posthouse.setting_values import Duration, PositiveDuration, text_of_form

KIND: Final = "sendgrid"

TAGS_MAX: Final = 10
METADATA_BYTES_MAX: Final = 10_000
OUR_ID_BYTES: Final = 64  # what our own id may take of them
MESSAGE_BYTES_MAX: Final = 30_000_000

OPENED_MAX: Final = 20
"""So many entries of a list are opened; among more, a send is not looked for."""

_RESERVED_HEADERS: Final = frozenset({"x-sg-id", "x-sg-eid"})

_EVENT_FIELDS: Final = frozenset(
    "email timestamp event smtp-id sg_event_id sg_message_id category reason status response attempt ip tls useragent "
    "url url_offset type bounce_classification asm_group_id send_at pool sg_machine_open sg_content_type".split()
)
"""Metadata stands beside these in every event, so that one of the same name would replace what the event says."""

BODY: Final = Body(
    {
        "personalizations": [{"to": "{to}", "cc": "{cc}", "bcc": "{bcc}"}],
        "from": "{from}",
        "reply_to_list": "{reply_to}",
        "subject": "{subject}",
        "content": [
            {"type": "text/plain", "value": "{text}"},
            "{amp|object:type,value}",
            {"type": "text/html", "value": "{html}"},
        ],
        "attachments": "{attachments|object:filename,content,type,content_id,disposition}",
        "headers": "{headers}",
        "categories": "{tags}",
        "custom_args": "{metadata}",
        "tracking_settings": {
            "open_tracking": {"enable": "{track_opens}"},
            "click_tracking": {"enable": "{track_clicks}"},
        },
    },
    "object",
)


class SendgridSettings(SendgridWebhookSettings):
    """`[routes.NAME]` with `provider = "sendgrid"`."""

    url: UrlValue = Field(
        "https://api.sendgrid.com", description="Where the API is; `https://api.eu.sendgrid.com` for the EU."
    )
    subuser: Annotated[str, text_of_form(r"[\x21-\x7e]+", "a user's name in ASCII, without spaces")] | None = Field(
        None, description="The subuser that a parent account's key sends for."
    )
    keeps_message_id: bool = Field(
        True,
        description=(
            "Whether the Message-ID that an email has of its own is kept; SendGrid doesn't say so. With `false` such "
            "an email is refused."
        ),
    )
    look_up: Literal["logs", "none"] = Field(
        "logs",
        description=(
            "Where to ask for a send whose answer was lost: in the Email Logs (the key needs that permission), or "
            "nowhere."
        ),
    )
    look_up_lag: Duration = Field(
        "15m",  # type: ignore[assignment]
        description="How long after a call the logs may not have the message yet; SendGrid names no time.",
    )
    look_up_kept: PositiveDuration = Field(
        "30d",  # type: ignore[assignment]
        description="How long the logs are kept: about an older send their no means nothing.",
    )


RULES: Final = (
    Rule(
        name="the account's credits are used up",
        statuses=frozenset({401, 403}),
        says=said("maximum credits exceeded"),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SendGrid 401: the plan's quota, with the status of a wrong key",
        matches=(Answer(401, '{"errors":[{"message":"Maximum credits exceeded","field":null,"help":null}]}'),),
        not_matches=(Answer(401, '{"errors":[{"message":"The provided authorization grant is invalid"}]}'),),
    ),
    Rule(
        name="the sender is not verified",
        statuses=frozenset({400, 403}),
        says=said("verified sender identity"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SendGrid 403, field `from`",
        matches=(
            Answer(403, '{"errors":[{"message":"The from address does not match a verified Sender Identity."}]}'),
        ),
        not_matches=(Answer(403, '{"errors":[{"message":"access forbidden"}]}'),),
    ),
    Rule(
        name="the recipient is refused",
        statuses=frozenset({400}),
        says=said(r'"field"\s*:\s*"personalizations\.\d+\.(?:to|cc|bcc)\b'),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source="SendGrid 400, a field within `personalizations`",
        matches=(
            Answer(400, '{"errors":[{"message":"not a valid address","field":"personalizations.0.to.0.email"}]}'),
            Answer(400, '{"errors":[{"message":"not a valid address","field":"personalizations.0.bcc.3.email"}]}'),
        ),
        not_matches=(
            Answer(400, '{"errors":[{"message":"not a valid address","field":"from.email"}]}'),
            Answer(400, '{"errors":[{"message":"too long","field":"personalizations.0.subject"}]}'),
        ),
    ),
    Rule(
        name="the wrong region",
        statuses=frozenset({451}),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SendGrid 451, data residency: `url` is that of another region",
        matches=(Answer(451, '{"errors":[{"message":"not here"}]}'), Answer(451, "")),
        not_matches=(Answer(403, ""),),
    ),
    Rule(
        name="out of service, and nobody says since when",
        statuses=frozenset({503}),
        outcome=Outcome.TRANSIENT,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="SendGrid promises for no 5xx that the message was not queued before",
        matches=(Answer(503, '{"errors":[{"message":"unavailable"}]}'), Answer(503, "")),
        not_matches=(Answer(500, ""), Answer(429, "")),
    ),
)
"""Asked before the general ones."""


def sendgrid_api(settings: SendgridSettings) -> Api:
    """The API of one account."""
    carried = {"message_id"} if settings.keeps_message_id else set()  # in `headers`, see `_encode`
    steps = LookUpSteps(first=partial(_first_step, settings), lag_s=settings.look_up_lag, kept_s=settings.look_up_kept)
    return Api(
        kind=KIND,
        url=settings.at("/v3/mail/send"),
        auth=bearer(settings.api_key),
        headers={"On-Behalf-Of": settings.subuser} if settings.subuser else {},
        body=BODY,
        ignore=settings.ignore | carried,
        encode=partial(_encode, settings),
        refuses=_refuses,
        rules=RULES,
        message_id="header:x-message-id",
        look_up=steps if settings.look_up == "logs" else None,
        log=sendgrid_log(settings.at, settings.look_up_kept),
        lists=sendgrid_lists(settings.at),
        health_url=settings.health_url,
    )


def _encode(settings: SendgridSettings, fields: Any, message: OutgoingMessage) -> Payload:
    """A Message-ID goes among the headers; words without a character, which SendGrid refuses, are left out.

    Options may have put anything into either place.
    """
    headers, content = fields.get("headers", {}), fields.get("content")
    if message.message_id is not None and settings.keeps_message_id and isinstance(headers, dict):
        fields = {**fields, "headers": {**headers, "Message-ID": message.message_id}}
    if isinstance(content, list):
        fields = {**fields, "content": [part for part in content if at(part, "value") != ""]}
    return as_json(fields, message)


def _refuses(mail: Mail, _: Options) -> Iterator[str]:
    yield from size_beyond(mail, MESSAGE_BYTES_MAX)
    yield from _wrong_metadata(mail)
    for name, _value in mail.headers:
        if name.lower() in _RESERVED_HEADERS:
            yield f"headers.{name}: SendGrid sets it"
    if len(mail.tags) > TAGS_MAX:
        yield f"tags: SendGrid takes {TAGS_MAX}, not {len(mail.tags)}"
    if len(set(mail.tags)) < len(mail.tags):
        yield "tags: SendGrid takes each once"
    yield from _given_twice(mail)
    if odd := next((file.content_type for file in mail.attachments if ";" in file.content_type), None):
        yield f"attachments: SendGrid takes a content type without parameters, not {odd}"


def _given_twice(mail: Mail) -> Iterator[str]:
    seen: set[str] = set()
    for field, addresses in (("to", mail.to), ("cc", mail.cc), ("bcc", mail.bcc)):
        for address in addresses:
            if address.folded in seen:
                yield f"{field}: SendGrid takes each address once, and {address.email} is there already"
            seen.add(address.folded)


def _wrong_metadata(mail: Mail) -> Iterator[str]:
    for name in mail.metadata:
        if name in _EVENT_FIELDS:
            yield f"metadata.{name}: SendGrid's events say something else under this name"
    if (size := len(encoded(dict(mail.metadata))) + OUR_ID_BYTES) > METADATA_BYTES_MAX:
        yield f"metadata: {size:,} bytes with our id; SendGrid takes {METADATA_BYTES_MAX:,}"


# The look-up: a list of what one recipient got, and each entry of it.


@dataclass(frozen=True, slots=True)
class _Search:
    """Where a look-up stands."""

    settings: SendgridSettings
    message: OutgoingMessage
    addresses: tuple[str, ...]  # those whose lists are still to be read
    entries: tuple[Any, ...] = ()  # of the list before, those still to be opened


def _first_step(settings: SendgridSettings, message: OutgoingMessage, _: Options) -> Question | LookUp | None:
    addresses = spellings(message)
    return _next_step(_Search(settings, message, addresses)) if addresses else None


def _next_step(search: _Search) -> Question | LookUp | None:
    """Opens the next entry, or else asks for the next list; with neither left, the send isn't there."""
    settings = search.settings
    if search.entries:
        entry_id = as_id(at(search.entries[0], "sg_message_id"))
        if entry_id is None:
            return None
        opened = replace(search, entries=search.entries[1:])
        return Question(settings.at(f"/v3/logs/{quote(entry_id, safe='')}"), partial(_read_entry, opened))
    if not search.addresses:
        return LookUp(Found.MISSING, text="in no entry of the logs")
    since = datetime.fromtimestamp(asked_from_s(search.message), UTC)
    query = f'to_email="{search.addresses[0]}" AND sg_message_id_created_at > TIMESTAMP "{since:%Y-%m-%dT%H:%M:%SZ}"'
    listed = replace(search, addresses=search.addresses[1:])
    body = encoded({"query": query, "limit": OPENED_MAX + 1})
    return Question(settings.at("/v3/logs"), partial(_read_list, listed), body)


def _read_list(search: _Search, answer: Answer, document: Any) -> Question | LookUp | None:
    entries = document.get("messages") if answer.status == 200 and isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    if len(entries) > OPENED_MAX:
        return LookUp(Found.UNSURE, text="the entries of the logs are too many to open")
    return _next_step(replace(search, entries=tuple(entries)))


def _read_entry(search: _Search, answer: Answer, document: Any) -> Question | LookUp | None:
    if answer.status != 200 or not isinstance(document, dict):
        return None
    metadata = document.get("custom_args")
    if isinstance(metadata, dict) and metadata.get(OUR_ID) == search.message.idempotency_key:
        return LookUp(Found.ACCEPTED, message_id_of(document.get("sg_message_id")), text="in the logs")
    # Ours has metadata: an entry with our subject and without any may be ours, and not be filled in yet.
    unfilled = not metadata and document.get("subject") == search.message.subject
    return None if unfilled else _next_step(search)
