"""SendGrid's API, version 3: `/v3/mail/send` and its Email Logs, which find a message by its recipient.

Facts: twilio.com/docs/sendgrid/api-reference (mail-send, email-logs), as of 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parseaddr
from functools import partial
from typing import Any, Final

from posthouse.sandbox.json_parts import Misfit, Unusable, a_text, an_object, decoded_object, encoded, objects
from posthouse.sandbox.ledger import Acceptance, Ledger
from posthouse.sandbox.limit import Standing
from posthouse.sandbox.replies import Answer, Refusal, json_answer, phrase
from posthouse.sandbox.shape import (
    Headers,
    LookUp,
    Request,
    Send,
    Shape,
    Taken,
    bearer_of,
    iso,
    listed,
    matches,
    metadata_of,
)
from posthouse.sandbox.shapes.sendgrid_news import SENDGRID_NEWS, item
from posthouse.sandbox.submission import Submission, given, renamed_files, rest, submission_of

LISTED_MAX: Final = 1000

_FILE: Final = {
    "filename": "filename",
    "content": "content",
    "type": "content_type",
    "content_id": "content_id",
    "disposition": "disposition",
}
_KNOWN: Final = frozenset(
    "personalizations from reply_to reply_to_list subject content attachments headers categories custom_args "
    "tracking_settings".split()
)
_OF_ONE: Final = frozenset("to cc bcc from subject headers custom_args".split())


def _send(request: Request) -> Send:
    """One message for each personalization; all of them or none."""
    call = given(decoded_object(request.body))
    some = objects(call.get("personalizations", []), "personalizations")
    if len(some) == 1:
        return Send([_submission(call, some[0], request.body)], _accepted)
    return Send([_submission(call, one, encoded([call, one])) for one in some] or [_NOBODY], _accepted)


_NOBODY: Final = Unusable("missing_recipients", "The personalizations field is required.", "personalizations")


def _submission(call: dict[str, Any], whom: dict[str, Any], octets: bytes) -> Submission:
    words = {"from": call.get("from"), "subject": call.get("subject"), **_words_in(call.get("content", []))}
    words |= given({name: whom.get(name) for name in ("to", "cc", "bcc", "from", "subject")})
    words["reply_to"] = call.get("reply_to_list") or call.get("reply_to")
    words["headers"] = _joined(call, whom, "headers")
    words["metadata"] = _joined(call, whom, "custom_args")
    words["tags"] = listed(call.get("categories")) or None
    words["attachments"] = renamed_files(call.get("attachments"), _FILE)
    words |= _tracking(an_object(call.get("tracking_settings", {}), "tracking_settings"))
    if "content" not in call and "template_id" not in call:
        raise Misfit("missing_field", "The content value is required.", "content")
    spoken = rest(call, _KNOWN) | rest(whom, _OF_ONE) | given(words)
    return submission_of(spoken, octets, required=("from",))


def _words_in(content: object) -> dict[str, Any]:
    names = {"text/plain": "text", "text/html": "html"}
    words: dict[str, Any] = {}
    for part in objects(content, "content"):
        kind, value = a_text(part.get("type"), "content.type"), a_text(part.get("value"), "content.value")
        if (name := names.get(kind)) is not None:
            words[name] = value
        else:
            words.setdefault("alternatives", []).append({"content_type": kind, "content": value})
    return words


def _joined(call: dict[str, Any], whom: dict[str, Any], name: str) -> dict[str, Any]:
    """What the whole call has, and the personalization's own in its place."""
    return an_object(call.get(name) or {}, name) | an_object(whom.get(name) or {}, name)


def _tracking(settings: dict[str, Any]) -> dict[str, Any]:
    switches = {"track_opens": settings.get("open_tracking"), "track_clicks": settings.get("click_tracking")}
    return {ours: an_object(one, "tracking_settings").get("enable") for ours, one in switches.items() if one}


def _accepted(taken: Taken) -> Answer:
    """The whole call's id is that of its first message. The body is empty."""
    first = next(one for one in taken if not isinstance(one, Unusable))
    return Answer(202, b"", {"X-Message-Id": first.message_id})


# The logs: an entry for each recipient.


@dataclass(frozen=True, slots=True)
class _Entry:
    acceptance: Acceptance
    place: int  # of the recipient

    @property
    def fields(self) -> dict[str, Any]:
        one = self.acceptance
        return {
            "sg_message_id": f"{one.message_id}.recv-{self.place}",
            "sg_message_id_created_at": iso(one.at),
            "from_email": _email((one.body or {}).get("from")),
            "to_email": one.recipients[self.place],
            "subject": one.subject,
            "status": "processed",
        }


def _email(who: object) -> str:
    return str(who.get("email", "")) if isinstance(who, dict) else parseaddr(str(who))[1]


_CONDITION: Final = re.compile(r'\s*(\w+)\s*([<>]=?|=)\s*(?:(TIMESTAMP)\s*)?"([^"]*)"\s*', re.IGNORECASE)
_TESTS: Final[Mapping[tuple[str, str], Callable[[_Entry, str], bool]]] = {
    ("to_email", "="): lambda entry, value: entry.fields["to_email"] == value.casefold(),
    ("subject", "="): lambda entry, value: entry.acceptance.subject == value,
    ("sg_message_id", "="): lambda entry, value: entry.fields["sg_message_id"].startswith(value),
    ("sg_message_id_created_at", ">="): lambda entry, value: entry.acceptance.at >= _moment(value),
    ("sg_message_id_created_at", "<="): lambda entry, value: entry.acceptance.at <= _moment(value),
    ("sg_message_id_created_at", ">"): lambda entry, value: entry.acceptance.at > _moment(value),
    ("sg_message_id_created_at", "<"): lambda entry, value: entry.acceptance.at < _moment(value),
}
"""By field and operator."""


def _list(request: Request) -> LookUp:
    call = decoded_object(request.body)
    limit = call.get("limit", LISTED_MAX)
    if not isinstance(limit, int) or not 0 < limit <= LISTED_MAX:
        raise Misfit("invalid_part", f"limit is not a number from 1 to {LISTED_MAX}", "limit")
    conditions = list(_conditions(a_text(call.get("query"), "query")))
    return LookUp(partial(_among, conditions), partial(_entries, conditions, limit))


def _conditions(query: str) -> Iterable[tuple[str, str, str]]:
    for text in re.split(r"\bAND\b(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", query):
        found = _CONDITION.fullmatch(text)
        if found is None or (found[1], found[2]) not in _TESTS:
            raise Misfit("invalid_part", f"query: {text.strip()} is no condition on a field of the logs", "query")
        if found[1] == "sg_message_id_created_at":
            _moment(found[4])
        yield found[1], found[2], found[4]


def _moment(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Misfit("invalid_part", f"query: {text} is not a time", "query") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _among(conditions: Sequence[tuple[str, str, str]], ledger: Ledger) -> Iterable[Acceptance]:
    whom = next((value for field, _, value in conditions if field == "to_email"), None)
    chosen = ledger.acceptances if whom is None else ledger.by_recipient(whom)
    return [one for one in chosen if _entries_of(one, conditions)]


def _entries_of(one: Acceptance, conditions: Sequence[tuple[str, str, str]]) -> list[_Entry]:
    entries = [_Entry(one, place) for place in range(len(one.recipients))]
    return [e for e in entries if all(_TESTS[field, sign](e, value) for field, sign, value in conditions)]


def _entries(conditions: Sequence[tuple[str, str, str]], limit: int, found: Sequence[Acceptance]) -> Answer:
    entries = [entry for one in found for entry in _entries_of(one, conditions)]
    return json_answer(200, {"messages": [entry.fields for entry in entries[:limit]]})


def _open(request: Request) -> LookUp:
    message_id, _, place = request.within["entry_id"].partition(".recv-")
    number = int(place) if place.isascii() and place.isdecimal() else 0
    return LookUp(lambda ledger: filter(None, [ledger.by_id(message_id)]), partial(_entry, number, request.now))


def _entry(place: int, now: float, found: Sequence[Acceptance]) -> Answer:
    if not found or place >= len(found[0].recipients):
        return _refused(Refusal(404, "not_found", "there is no such message"))
    [one] = found
    entry = _Entry(one, place).fields
    categories = listed((one.body or {}).get("tags"))
    whom = one.recipients[place]
    events = [item(one, news) for news in one.news_by(now, "sendgrid") if news.recipient == whom]
    return json_answer(200, {**entry, "categories": categories, "custom_args": metadata_of(one), "events": events})


# What it says.


def _refuses(headers: Headers, api_key: str | None) -> Refusal | None:
    if matches(bearer_of(headers), api_key):
        return None
    return Refusal(401, "unauthorised", "The authorization grant is invalid, expired or revoked.")


_FIELDS: Final = {name: f"personalizations.0.{name}" for name in ("to", "cc", "bcc")}


def _refused(refusal: Refusal) -> Answer:
    """What is wrong with a call has the status 400."""
    status = 400 if refusal.error and refusal.status == 422 else refusal.status
    field = _FIELDS.get(refusal.field, refusal.field) or None
    error = {"message": refusal.message or phrase(status), "field": field, "help": None}
    return json_answer(status, {"errors": [error]})


def _limit_headers(standing: Standing) -> Mapping[str, str]:
    return {
        "X-RateLimit-Limit": str(standing.sends),
        "X-RateLimit-Remaining": str(standing.remaining),
        "X-RateLimit-Reset": str(int(standing.now) + standing.ends_in_s),
    }


SENDGRID: Final = Shape(
    name="sendgrid",
    calls={
        "/v3/mail/send": {"POST": _send},
        "/v3/logs": {"POST": _list},
        "/v3/logs/{entry_id}": {"GET": _open},
    },
    refuses=_refuses,
    refused=_refused,
    limit_headers=_limit_headers,
    teller=SENDGRID_NEWS,
)
