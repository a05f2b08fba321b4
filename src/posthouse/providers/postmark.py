"""The `postmark` provider: Postmark's email API. It has no idempotency key, and can be asked by our metadata.

Facts: postmarkapp.com/developer/api (email-api, messages-api, overview), as of 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from pydantic import Field

from posthouse.core.answers import Answer, Rule, said
from posthouse.core.outcome import Found, LookUp, Outcome, Remainder, Subject, Verdict
from posthouse.providers.answer_paths import ABSENT, as_id, at
from posthouse.providers.api import Api, LookUpCall, Options, answered
from posthouse.providers.api_settings import UrlValue
from posthouse.providers.auth import in_header
from posthouse.providers.batch import BatchCall
from posthouse.providers.body import Body, encoded
from posthouse.providers.carrying import Mail
from posthouse.providers.limits import metadata_beyond, recipients_beyond, size_beyond, tags_beyond, words_beyond
from posthouse.providers.mime import message_id_of
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.port import OutgoingMessage
from posthouse.providers.postmark_events import PostmarkWebhookSettings
from posthouse.providers.postmark_lists import postmark_lists
from posthouse.providers.postmark_log import postmark_log
from posthouse.setting_values import Duration, PositiveDuration, text_of_form

KIND: Final = "postmark"

RECIPIENTS_MAX: Final = 50
WORDS_BYTES_MAX: Final = 5_000_000
SIZE_MAX: Final = 10_000_000
TAG_CHARS_MAX: Final = 1000
BATCH_MAX: Final = 500

TOKEN_REFUSED: Final = 10
REFUSALS: Final = frozenset({100, 300, 400, 401, 402, 403, 405, 406, 409, 410, 411, 412, 413, 429})
"""Error codes that the rules below know: with them a message was certainly not taken."""

BODY: Final = {
    "From": "{from}",
    "To": "{to|join}",
    "Cc": "{cc|join}",
    "Bcc": "{bcc|join}",
    "ReplyTo": "{reply_to|join}",
    "Subject": "{subject}",
    "TextBody": "{text}",
    "HtmlBody": "{html}",
    "Tag": "{tags|first}",
    "Metadata": "{metadata}",
    "Headers": "{headers|pairs:Name,Value}",
    "Attachments": "{attachments|cid|object:Name,Content,ContentType,ContentID}",
    "TrackOpens": "{track_opens}",
    "TrackLinks": "{track_clicks|choose:HtmlAndText,None}",
}


_STREAM: Final = text_of_form(r"[a-z0-9][a-z0-9_-]*", "a stream's id such as outbound: a-z, 0-9, _ and -")


class PostmarkSettings(PostmarkWebhookSettings):
    """`[routes.NAME]` with `provider = "postmark"`."""

    url: UrlValue = Field("https://api.postmarkapp.com", description="Where the API is.")
    message_stream: Annotated[str, _STREAM] = Field(
        "outbound",
        description=(
            "The message stream that mail goes out by, and is asked for in. Change it only while no send's outcome is "
            "unknown."
        ),
    )
    look_up_lag: Duration = Field(
        "5m",  # type: ignore[assignment]
        description=(
            "How long after a call Postmark's search may not know the message yet: until then a no means nothing. "
            "Postmark doesn't publish it; seconds are usual."
        ),
    )
    retention: PositiveDuration = Field(
        "7d",  # type: ignore[assignment]
        description=(
            "How long Postmark keeps a message for its search: about an older one its no means nothing. It is 45 days "
            "where nobody changed it, and 7 at least."
        ),
    )
    batch: int = Field(
        50,
        ge=1,
        le=BATCH_MAX,
        description=(
            "The most messages that share a call; 1 gives each its own. In a call that several share, each of them "
            "counts for `concurrency`, so more than that never do."
        ),
    )
    metadata_pairs_max: int = Field(
        10, ge=1, description="The most metadata that Postmark takes, our own id being one pair; not certain."
    )
    metadata_name_chars_max: int = Field(20, ge=12, description="The longest name in the metadata; not certain.")
    metadata_value_chars_max: int = Field(80, ge=32, description="The longest value in the metadata; not certain.")


def postmark_api(settings: PostmarkSettings) -> Api:
    """Postmark's API, as this route uses it."""
    return Api(
        kind=KIND,
        url=settings.at("/email"),
        auth=in_header(settings.api_key, "X-Postmark-Server-Token"),
        body=Body({**BODY, "MessageStream": settings.message_stream}),
        ignore=settings.ignore,
        refuses=partial(_refusals, settings),
        rules=RULES,
        message_id="MessageID",
        complete=_without_inactive,
        look_up=LookUpCall(
            url=partial(_search, settings), read=_found, lag_s=settings.look_up_lag, kept_s=settings.retention
        ),
        # Postmark takes 50 MB in a batch. But a shared call has the time that the route gives one message.
        batch=BatchCall(url=settings.at("/email/batch"), most=settings.batch, bytes_max=SIZE_MAX, read=_results),
        log=postmark_log(settings.at, settings.message_stream, settings.retention),
        lists=postmark_lists(settings.at, settings.message_stream),
        health_url=settings.health_url,
    )


def _refusals(settings: PostmarkSettings, mail: Mail, options: Options) -> Iterator[str]:
    yield from recipients_beyond(mail, RECIPIENTS_MAX)
    yield from words_beyond(mail, WORDS_BYTES_MAX)
    yield from size_beyond(mail, SIZE_MAX)
    yield from tags_beyond(mail, TAG_CHARS_MAX)
    yield from metadata_beyond(
        mail,
        pairs=settings.metadata_pairs_max,
        name_chars=settings.metadata_name_chars_max,
        value_chars=settings.metadata_value_chars_max,
    )
    if not isinstance(options.get("MessageStream", ""), str):
        yield "options: MessageStream is not text"


def _search(settings: PostmarkSettings, message: OutgoingMessage, options: Options) -> str:
    """In the stream that the message went by."""
    query = {
        "count": "1",
        "offset": "0",
        "messagestream": options.get("MessageStream", settings.message_stream),
        f"metadata_{OUR_ID}": message.idempotency_key,
    }
    return settings.at(f"/messages/outbound?{urlencode(query)}")


def _found(answer: Answer, document: Any, message: OutgoingMessage) -> LookUp | None:
    """A message with another id than ours would mean that the search was not by our id: that says nothing."""
    messages = at(document, "Messages") if answer.status == 200 else None
    if not isinstance(messages, list):
        return None
    if not messages:
        return LookUp(Found.MISSING, text=answered(answer)) if at(document, "TotalCount") == 0 else None
    if at(messages, "0.Metadata") is not ABSENT and at(messages, f"0.Metadata.{OUR_ID}") != message.idempotency_key:
        return None
    return LookUp(Found.ACCEPTED, as_id(at(messages, "0.MessageID")), text=answered(answer))


def _results(document: Any, messages: Sequence[OutgoingMessage]) -> Sequence[Answer | None] | None:
    """A batch's results stand in the order of its messages."""
    if not isinstance(document, list) or len(document) != len(messages):
        return None
    return [_result(item, message, messages) for item, message in zip(document, messages, strict=True)]


def _result(item: Any, message: OutgoingMessage, messages: Sequence[OutgoingMessage]) -> Answer | None:
    """One result as the answer to a single message. None where it is none, or names another message's recipients."""
    if not isinstance(item, dict) or not ({"MessageID", "ErrorCode"} & item.keys()):
        return None
    named = str(item.get("To") or "").casefold()
    if not _names(named, message) and any(_names(named, other) for other in messages):
        return None
    code = item.get("ErrorCode", 0)
    if not isinstance(code, int):
        return None
    status = 401 if code == TOKEN_REFUSED else 422 if code in REFUSALS else 200
    return Answer(status, encoded(item).decode())


def _names(text: str, message: OutgoingMessage) -> bool:
    return any(address.email.casefold() in text for address in message.to)


_INACTIVE: Final = re.compile(
    r"will not deliver to (?:these|the following) inactive addresses: *([^\s,]+(?:, *[^\s,]+)*)"
)


def _without_inactive(verdict: Verdict, document: Any, message: OutgoingMessage) -> Verdict:
    """An acceptance may leave out recipients who bounced or complained before; it names them."""
    told = at(document, "Message")
    found = _INACTIVE.search(told) if isinstance(told, str) else None
    if found is None:
        return verdict
    named = {address.rstrip(".").casefold() for address in found[1].replace(",", " ").split()}
    left_out = tuple(address.email for address in message.recipients if address.email.casefold() in named)
    if not left_out or len(left_out) == len(message.recipients):
        return verdict
    refused = Verdict(
        Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        code="406",
        text="inactive at Postmark: bounced or complained before",
        rule="the recipient is inactive",
    )
    return replace(verdict, remainders=(Remainder(left_out, refused, message_id_of(message)),))


def _code(*codes: int) -> re.Pattern[str]:
    """In the answer's own member: within another member's text its quotes would be escaped."""
    return said(rf'"ErrorCode"\s*:\s*(?:{"|".join(map(str, codes))})\b')


def _said(code: int, message: str = "") -> str:
    return f'{{"ErrorCode":{code},"Message":"{message}"}}'


_ANY: Final = frozenset({401, 403, 404, 415, 422, 500, 503})
"""Codes about our account or Postmark itself decide whatever the status around them."""

_REFUSED: Final = frozenset({422})
"""Codes about a message come under this one alone: elsewhere the same numbers may be statuses."""

_SOURCE: Final = "postmarkapp.com/developer/api/overview, error code"

RULES: Final = (
    Rule(
        name="Postmark is in maintenance",
        statuses=_ANY,
        says=_code(100),
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source=f"{_SOURCE} 100: nothing is taken meanwhile",
        matches=(Answer(503, _said(100, "Offline for maintenance")), Answer(422, _said(100))),
        not_matches=(Answer(503, ""), Answer(422, _said(1000)), Answer(422, _said(300, r"\"ErrorCode\":100"))),
    ),
    Rule(
        name="the token is refused",
        statuses=_ANY,
        says=_code(10),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source=f"{_SOURCE} 10",
        matches=(Answer(401, _said(10, "No Account or Server API tokens were supplied")), Answer(422, _said(10))),
        not_matches=(Answer(422, _said(100)), Answer(401, "")),
    ),
    Rule(
        name="the recipient is inactive",
        statuses=_REFUSED,
        says=_code(406),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source=f"{_SOURCE} 406: every recipient bounced or complained before",
        matches=(Answer(422, _said(406, "You tried to send to a recipient that has been marked as inactive.")),),
        not_matches=(Answer(422, _said(300)), Answer(406, "")),
    ),
    Rule(
        name="a recipient's address is not one",
        statuses=_REFUSED,
        says=said(r'(?s)\A(?=.*"ErrorCode"\s*:\s*300\b).*\b(?:invalid|parsing) \W{0,2}(?:to|cc|bcc)\b'),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source=f"{_SOURCE} 300, where it names To, Cc or Bcc",
        matches=(
            Answer(422, _said(300, "Invalid 'To' address: 'ada@'.")),
            Answer(422, '{"Message":"Error parsing \'Cc\': Illegal email domain.","ErrorCode":300}'),
        ),
        not_matches=(
            Answer(422, _said(300, "Invalid 'From' address: 'shop@'.")),
            Answer(422, _said(402, "Invalid 'To'")),
        ),
    ),
    Rule(
        name="our sender is not confirmed, or the account may not send",
        statuses=_ANY,
        says=_code(400, 401, 412, 413),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source=f"{_SOURCE}s 400, 401: sender signature; 412, 413: approval",
        matches=(
            Answer(422, _said(400, "The 'From' address you supplied is not a Sender Signature on your account.")),
            Answer(422, _said(401, "Sender signature not confirmed")),
            Answer(422, _said(412, "pending approval")),
            Answer(422, _said(413, "may not send")),
        ),
        not_matches=(Answer(413, _said(413)), Answer(401, ""), Answer(422, _said(410))),
    ),
    Rule(
        name="the credits are used up",
        statuses=_ANY,
        says=_code(405),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source=f"{_SOURCE} 405: somebody has to pay; waiting doesn't help",
        matches=(Answer(422, _said(405, "Not allowed to send: out of credits")),),
        not_matches=(Answer(405, ""), Answer(422, _said(406))),
    ),
    Rule(
        name="too fast for Postmark",
        statuses=_ANY,
        says=_code(429),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source=f"{_SOURCE} 429, under whatever status",
        matches=(Answer(422, _said(429, "Rate limit exceeded")),),
        not_matches=(Answer(422, _said(406)), Answer(429, "")),
    ),
    Rule(
        name="the message is refused",
        statuses=_REFUSED,
        says=_code(300, 402, 403, 409, 410, 411),
        outcome=Outcome.REJECTED,
        source=f"{_SOURCE}s 300, 402, 403, 409, 410, 411: its form, or a file of a kind that is not taken",
        matches=(
            Answer(422, _said(300, "Invalid 'From' address: 'shop@'.")),
            Answer(422, _said(402)),
            Answer(422, _said(403)),
            Answer(422, _said(409)),
            Answer(422, _said(410)),
            Answer(422, _said(411, "You tried to send an attachment with a forbidden file type.")),
        ),
        not_matches=(Answer(422, _said(400)), Answer(403, _said(403)), Answer(500, _said(300))),
    ),
    Rule(
        name="Postmark may have taken it before it failed",
        statuses=frozenset({503}),
        outcome=Outcome.TRANSIENT,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="a 503 without error code 100 says nothing about the message, and Postmark can be asked",
        matches=(Answer(503, ""), Answer(503, "<html><title>Unavailable</title></html>")),
        not_matches=(Answer(500, ""), Answer(429, "")),
    ),
    Rule(
        name="an error code where there should be none",
        statuses=frozenset({200}),
        says=said(r'"ErrorCode"\s*:\s*-?[1-9]'),
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        source="a success that names an error says two things, and Postmark can be asked",
        matches=(Answer(200, _said(600, "a new one")),),
        not_matches=(Answer(200, _said(0, "OK")), Answer(200, '{"Message":"Message accepted, but delayed."}')),
    ),
)
"""Asked before the general rules, which decide the rest: 403 with a page is a block of our network, 429 is too fast."""
