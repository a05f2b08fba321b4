"""The `mailgun` provider: Mailgun's Messages API, version 3, with whole messages (`messages.mime`).

A message is built by us, as for SMTP, so that every part of it arrives as it was meant; what Mailgun alone knows
stands beside it in the form. It takes no idempotency key, and can't be asked for a send by our id: a look-up reads
one recipient's events and compares our id in each. Facts: docs/providers/mailgun.md.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from pydantic import Field

from posthouse.content import Content
from posthouse.core.answers import Answer, Kind, Rule, said
from posthouse.core.outcome import Found, LookUp, Outcome, Subject, Verdict
from posthouse.providers.answer_paths import as_id, at
from posthouse.providers.api import Api, Options, Payload
from posthouse.providers.api_settings import UrlValue
from posthouse.providers.auth import basic_as
from posthouse.providers.body import Body
from posthouse.providers.carrying import Mail
from posthouse.providers.form import FormFile, form
from posthouse.providers.look_ups import LookUpSteps, Question, asked_from_s, spellings
from posthouse.providers.mailgun_events import MailgunWebhookSettings
from posthouse.providers.mailgun_lists import mailgun_lists
from posthouse.providers.mailgun_log import mailgun_log
from posthouse.providers.mime import message_id_of
from posthouse.providers.placeholders import ENCODER, OUR_ID
from posthouse.providers.port import OutgoingMessage
from posthouse.setting_values import Duration, PositiveDuration, text_of_form

KIND: Final = "mailgun"

TAGS_MAX: Final = 3
TAG_CHARS_MAX: Final = 128
OPTION_BYTES_MAX: Final = 16 * 1024  # of all o:, h:, v: and t: together
OUR_ID_BYTES: Final = 96  # what our own id takes of them
MESSAGE_BYTES_MAX: Final = 25_000_000

LISTED_MAX: Final = 15
"""Events on a page: of a longer answer only the beginning may be read."""

PAGES_MAX: Final = 10
"""Among more events of one recipient, a send is not looked for."""

_COUNTED: Final = ("o:", "h:", "v:", "t:")

_METADATA: Final = "v:"
_MESSAGE: Final = "message"
_NOT_FOR_OPTIONS: Final = frozenset({"from", "cc", "bcc", "subject", "text", "html"})
"""Who gets the message, and what it says, stands in the message."""

BODY: Final = Body(
    {
        "to": "{recipients|email}",
        "o:tag": "{tags}",
        "o:tracking-opens": "{track_opens|choose:yes,no}",
        "o:tracking-clicks": "{track_clicks|choose:yes,no}",
        _METADATA: "{metadata}",
        _MESSAGE: "{mime}",
    }
)


class MailgunSettings(MailgunWebhookSettings):
    """`[routes.NAME]` with `provider = "mailgun"`."""

    url: UrlValue = Field(
        "https://api.mailgun.net",
        description="Where the API is; `https://api.eu.mailgun.net` for a domain that lives in the EU.",
    )
    domain: Annotated[str, text_of_form(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", "a domain such as shop.example")] = Field(
        description="The sending domain, as Mailgun knows it."
    )
    keeps_message_id: bool = Field(
        True,
        description=(
            "Whether the Message-ID that an email has of its own is kept; Mailgun doesn't say so. With `false` such "
            "an email is refused."
        ),
    )
    look_up: Literal["events", "none"] = Field(
        "events",
        description=(
            "Where to ask for a send whose answer was lost: in the domain's events (a sending key may not read them), "
            "or nowhere."
        ),
    )
    look_up_lag: Duration = Field(
        "30m",  # type: ignore[assignment]
        description="How long after a call the events may not have the message yet.",
    )
    look_up_kept: PositiveDuration = Field(
        "3d",  # type: ignore[assignment]
        description="How long the plan keeps events: about an older send their no means nothing.",
    )


RULES: Final = (
    Rule(
        name="the recipient is refused",
        statuses=frozenset({400}),
        says=said(r"\b(?:to|cc|bcc) parameter is not a valid address"),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source="Mailgun 400",
        matches=(
            Answer(400, '{"message":"to parameter is not a valid address. please check documentation"}'),
            Answer(400, '{"message":"cc parameter is not a valid address"}'),
        ),
        not_matches=(Answer(400, '{"message":"from parameter is not a valid address"}'),),
    ),
    Rule(
        name="too fast, or a limit is reached, under another status",
        statuses=frozenset({400, 403}),
        says=said(r"not allowed to send: (?:request|recipient|bytes) limit exceeded|try again after"),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="Mailgun 429, whose words begin like those of a domain that may not send",
        matches=(
            Answer(400, '{"message":"Domain x.example is not allowed to send: recipient limit exceeded"}'),
            Answer(403, '{"message":"limited, try again after Fri, 15 Jan 2027 08:00:30 GMT"}'),
        ),
        not_matches=(Answer(400, '{"message":"Domain x.example is not allowed to send: disabled"}'),),
    ),
    Rule(
        name="the domain may not send",
        statuses=frozenset({400, 403}),
        says=said(r"not allowed to send|free accounts are for test purposes|domain\b.{0,80}\bunverified"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="Mailgun 400: unverified, disabled, or an account for tests",
        matches=(
            Answer(400, '{"message":"Domain x.example is not allowed to send: the domain is unverified"}'),
            Answer(400, '{"message":"Free accounts are for test purposes only."}'),
            Answer(400, '{"message":"Domain x.example is disabled and not allowed to send"}'),
        ),
        not_matches=(Answer(400, '{"message":"from parameter is missing"}'),),
    ),
    Rule(
        name="the domain is not known here",
        statuses=frozenset({404}),
        kinds=frozenset({Kind.JSON, Kind.TEXT}),
        says=said(r"domain not found"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="Mailgun 404: a wrong `domain`, or the `url` of another region",
        matches=(Answer(404, '{"message":"Domain not found: x.example"}'),),
        not_matches=(Answer(404, ""),),
    ),
    Rule(
        name="out of service, and nobody says since when",
        statuses=frozenset({503}),
        outcome=Outcome.TRANSIENT,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="Mailgun promises for no 5xx that the message was not queued before",
        matches=(Answer(503, '{"message":"unavailable"}'), Answer(503, "")),
        not_matches=(Answer(500, ""), Answer(429, "")),
    ),
)
"""Asked before the general ones."""


def mailgun_api(settings: MailgunSettings) -> Api:
    """The API of one domain."""
    steps = LookUpSteps(first=partial(_first_step, settings), lag_s=settings.look_up_lag, kept_s=settings.look_up_kept)
    return Api(
        kind=KIND,
        url=settings.at(f"/v3/{settings.domain}/messages.mime"),
        auth=basic_as("api", settings.api_key),
        body=BODY,
        ignore=settings.ignore,
        encode=_encode,
        refuses=partial(_refuses, settings),
        rules=RULES,
        complete=_complete,
        look_up=steps if settings.look_up == "events" else None,
        log=mailgun_log(
            lambda page: settings.at(f"/v3/{settings.domain}/events{page}"), settings.look_up_lag, settings.look_up_kept
        ),
        lists=mailgun_lists(lambda name: settings.at(f"/v3/{settings.domain}/{name}")),
        health_url=settings.health_url,
    )


def _encode(fields: Any, message: OutgoingMessage) -> Payload:
    finished = FormFile(_MESSAGE, "message.eml", "application/octet-stream", base64.b64decode(fields.pop(_MESSAGE)))
    return Payload(*form(_form_fields(fields), [finished], message.idempotency_key))


def _form_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each value in a field of its own, metadata each under its own name."""
    for name, value in fields.items():
        if value is None:
            continue
        if name == _METADATA:
            yield from ((f"{_METADATA}{key}", text) for key, text in value.items())
        else:
            yield from ((name, _as_text(one)) for one in (value if isinstance(value, list | tuple) else [value]))


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else ENCODER.encode(value)


def _complete(verdict: Verdict, _: Any, __: OutgoingMessage) -> Verdict:
    """The id without angle brackets, as events have it."""
    return replace(verdict, message_id=verdict.message_id and verdict.message_id.strip("<>"))


def _refuses(settings: MailgunSettings, mail: Mail, options: Options) -> Iterator[str]:
    if mail.message_id is not None and not settings.keeps_message_id and "message_id" not in settings.ignore:
        yield "message_id: this route takes none (keeps_message_id = false)"
    if len(mail.tags) > TAGS_MAX:
        yield f"tags: Mailgun takes {TAGS_MAX}, not {len(mail.tags)}"
    if isinstance(mail, Content) and mail.encoded_size > MESSAGE_BYTES_MAX:
        yield f"content: about {mail.encoded_size:,} bytes as it is sent; Mailgun takes {MESSAGE_BYTES_MAX:,}"
    for tag in mail.tags:
        if not tag.isascii() or len(tag) > TAG_CHARS_MAX:
            yield f"tags: Mailgun takes up to {TAG_CHARS_MAX} characters of ASCII, not {tag!r}"
    yield from (f"options.{name}: {why}" for name in options if (why := _why_no_option(name)))
    if (size := _option_bytes(mail, options)) > OPTION_BYTES_MAX:
        yield f"metadata: {size:,} bytes with tags, options and our id; Mailgun takes {OPTION_BYTES_MAX:,}"


def _why_no_option(name: str) -> str:
    if name.startswith(_METADATA):
        return "belongs into metadata"
    return "stands in the message itself" if name in _NOT_FOR_OPTIONS else ""


def _option_bytes(mail: Mail, options: Options) -> int:
    given = [*_form_fields({**options, "o:tag": list(mail.tags), _METADATA: mail.metadata})]
    return OUR_ID_BYTES + sum(len(f"{name}{value}".encode()) for name, value in given if name.startswith(_COUNTED))


# The look-up: the events of one recipient.


@dataclass(frozen=True, slots=True)
class _Search:
    """Where a look-up stands: the first of `addresses` is being read, page by page."""

    settings: MailgunSettings
    message: OutgoingMessage
    addresses: tuple[str, ...]  # what is still to be read
    begin_s: int  # in seconds since 1970
    page: int = 1


def _first_step(settings: MailgunSettings, message: OutgoingMessage, _: Options) -> Question | LookUp | None:
    addresses = spellings(message)
    return _next_page(_Search(settings, message, addresses, int(asked_from_s(message)))) if addresses else None


def _next_page(search: _Search) -> Question:
    settings = search.settings
    query = {
        "begin": search.begin_s,
        "ascending": "yes",
        "limit": LISTED_MAX,
        "event": "accepted",
        "recipient": search.addresses[0],
    }
    url = f"{settings.at(f'/v3/{settings.domain}/events')}?{urlencode(query)}"
    return Question(url, partial(_read_page, search))


def _read_page(search: _Search, answer: Answer, document: Any) -> Question | LookUp | None:
    events = document.get("items") if answer.status == 200 and isinstance(document, dict) else None
    if not isinstance(events, list):
        return None
    message = search.message
    for event in events:
        message_id = as_id(at(event, "message.headers.message-id"))
        if at(event, f"user-variables.{OUR_ID}") == message.idempotency_key or message_id == _made_by_us(message):
            return LookUp(Found.ACCEPTED, message_id, text="in the events")
    if len(events) >= LISTED_MAX:
        return _later(search, at(events[-1], "timestamp"))
    if others := search.addresses[1:]:
        return _next_page(replace(search, addresses=others, begin_s=int(asked_from_s(message)), page=1))
    return LookUp(Found.MISSING, text="in no event")


def _later(search: _Search, last_s: Any) -> Question | LookUp:
    """The page that begins where a full one ended."""
    further = isinstance(last_s, int | float) and search.begin_s < last_s
    if not further or search.page == PAGES_MAX:
        return LookUp(Found.UNSURE, text="the events are too many to read")
    return _next_page(replace(search, begin_s=int(last_s), page=search.page + 1))


def _made_by_us(message: OutgoingMessage) -> str | None:
    """A Message-ID that no other send has; one that the application gave may be on several."""
    return None if message.message_id or message.raw is not None else message_id_of(message).strip("<>")
