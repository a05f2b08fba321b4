"""Postmark's email API: `/email`, `/email/batch`, and the search that finds a message by its metadata.

Facts: postmarkapp.com/developer/api (email-api, messages-api, overview), as of 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.utils import parseaddr
from functools import partial
from typing import Any, Final

from posthouse.sandbox.json_parts import (
    Misfit,
    Unusable,
    addresses_in,
    decoded_list,
    decoded_object,
    encoded,
    in_order,
)
from posthouse.sandbox.ledger import Acceptance, Ledger
from posthouse.sandbox.news import NewsKind, magic_name
from posthouse.sandbox.received import shown
from posthouse.sandbox.replies import Answer, Refusal, json_answer, phrase
from posthouse.sandbox.shape import (
    Headers,
    LookUp,
    Request,
    Send,
    Shape,
    Taken,
    iso,
    listed,
    matches,
    metadata_of,
)
from posthouse.sandbox.shapes.postmark_news import BOUNCES, POSTMARK_NEWS, item, stream_of, tag_of
from posthouse.sandbox.submission import OUR_ID, Submission, each_usable, given, renamed_files, rest, submission_of

BATCH_MAX: Final = 500
FOUND_MAX: Final = 500

_PLAIN: Final = {
    "From": "from",
    "Subject": "subject",
    "TextBody": "text",
    "HtmlBody": "html",
    "Metadata": "metadata",
    "TrackOpens": "track_opens",
}
_ADDRESSES: Final = {"To": "to", "Cc": "cc", "Bcc": "bcc", "ReplyTo": "reply_to"}
_FILE: Final = {"Name": "filename", "Content": "content", "ContentType": "content_type", "ContentID": "content_id"}
_KNOWN: Final = frozenset({*_PLAIN, *_ADDRESSES, "Tag", "Headers", "TrackLinks", "Attachments"})


def _submission(call: dict[str, Any], octets: bytes | None = None) -> Submission:
    call = given(call)
    words = {ours: call.get(theirs) for theirs, ours in _PLAIN.items()}
    words |= {ours: addresses_in(call.get(theirs, ""), theirs) for theirs, ours in _ADDRESSES.items()}
    words["tags"] = listed(call.get("Tag")) or None
    words["headers"] = in_order(call.get("Headers", []), "Headers", "Name", "Value") or None
    if "TrackLinks" in call:
        words["track_clicks"] = call["TrackLinks"] != "None"
    words["attachments"] = [_without_scheme(file) for file in renamed_files(call.get("Attachments"), _FILE)]
    spoken = rest(call, _KNOWN) | given(words)
    message = submission_of(spoken, encoded(call) if octets is None else octets, required=("from",))
    if all(magic_name(recipient) == "suppressed" for recipient in message.recipients):
        raise Misfit("inactive_recipient", "You tried to send to recipients that have been marked as inactive.", "to")
    return message


def _without_scheme(file: dict[str, Any]) -> dict[str, Any]:
    content_id = file.get("content_id")
    return file | {"content_id": content_id.removeprefix("cid:")} if isinstance(content_id, str) else file


def _send(request: Request) -> Send:
    message = _submission(decoded_object(request.body), request.body)
    return Send([message], lambda taken: json_answer(200, _told(taken[0])))


def _send_batch(request: Request) -> Send:
    """Each message of a batch is taken or refused for itself."""
    documents = decoded_list(request.body)
    if len(documents) > BATCH_MAX:
        raise Misfit("too_many_messages", f"a batch has up to {BATCH_MAX} messages")
    return Send(each_usable(_submission, documents), _told_each, together=False)


def _told_each(taken: Taken) -> Answer:
    return json_answer(200, [_told(one) for one in taken])


def _told(one: Acceptance | Unusable) -> dict[str, Any]:
    if isinstance(one, Unusable):
        return _error(Refusal(422, one.error, one.message, one.field))
    return {
        "To": ", ".join(listed((one.body or {}).get("to"))),
        "SubmittedAt": iso(one.at),
        "MessageID": one.message_id,
        "ErrorCode": 0,
        "Message": "OK",
    }


# The search.


def _search(request: Request) -> LookUp:
    wanted = {
        name.removeprefix("metadata_"): value for name, value in request.query.items() if name.startswith("metadata_")
    }
    answer = partial(_page, _number(request, "count"), _number(request, "offset"))
    return LookUp(partial(_matching, request.query, wanted), answer, wanted.get(OUR_ID))


def _matching(query: Mapping[str, str], wanted: Mapping[str, str], ledger: Ledger) -> Iterable[Acceptance]:
    """The newest first."""
    asked_for = ledger.by_recipient(query["recipient"]) if "recipient" in query else ledger.acceptances
    for one in reversed(asked_for):
        metadata = metadata_of(one)
        fits = all(str(metadata.get(name)) == value for name, value in wanted.items())
        stream = stream_of(one)
        if fits and query.get("subject", one.subject) == one.subject and query.get("messagestream", stream) == stream:
            yield one


# What became of messages. `fromdate` and `todate` are let pass: everything is listed.


def _bounces(request: Request) -> LookUp:
    """The newest first."""
    count, offset = _number(request, "count"), _number(request, "offset")

    def answer(found: Sequence[Acceptance]) -> Answer:
        bounces = [
            _without_type(item(one, news))
            for one in found
            for news in one.news_by(request.now, "postmark")
            if news.kind in BOUNCES
        ]
        return json_answer(200, {"TotalCount": len(bounces), "Bounces": bounces[offset : offset + count]})

    return LookUp(lambda ledger: reversed(ledger.acceptances), answer)


def _without_type(told: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (told or {}).items() if name != "RecordType"}


def _details(request: Request) -> LookUp:
    message_id = request.within["message_id"]

    def answer(found: Sequence[Acceptance]) -> Answer:
        if not found:
            return _refused(Refusal(422, "not_found", "This message was not found."))
        return json_answer(200, {**_listed(found[0]), "MessageEvents": list(_message_events(found[0], request.now))})

    return LookUp(lambda ledger: filter(None, [ledger.by_id(message_id)]), answer)


_EVENT_TYPES: Final = {
    NewsKind.DELIVERED: "Delivered",
    NewsKind.DEFERRED: "Transient",
    NewsKind.OPENED: "Opened",
    NewsKind.CLICKED: "LinkClicked",
    NewsKind.UNSUBSCRIBED: "SubscriptionChanged",
}
"""Of what is no bounce."""


def _message_events(one: Acceptance, now: float) -> Iterator[dict[str, Any]]:
    for news in one.news_by(now, "postmark"):
        said = {} if news.said is None else {"DeliveryMessage": news.said.line}
        yield {
            "Recipient": news.recipient,
            "Type": _EVENT_TYPES.get(news.kind, "Bounced"),
            "ReceivedAt": iso(one.happened_at(news)),
            "Details": said,
        }


def _number(request: Request, name: str) -> int:
    text = request.query.get(name, "")
    if not (text.isascii() and text.isdecimal()):
        raise Misfit("invalid_parameter", f"{name} is not a number", name)
    return min(int(text), FOUND_MAX) if name == "count" else int(text)


def _page(count: int, offset: int, found: Sequence[Acceptance]) -> Answer:
    messages = [_listed(one) for one in found[offset : offset + count]]
    return json_answer(200, {"TotalCount": len(found), "Messages": messages})


def _listed(one: Acceptance) -> dict[str, Any]:
    caught = shown(one)
    body = caught.body if caught else {}
    return {
        "MessageID": one.message_id,
        "MessageStream": stream_of(one),
        "From": body.get("from", ""),
        **{name: [_person(who) for who in listed(body.get(name.lower()))] for name in ("To", "Cc", "Bcc")},
        "Recipients": one.recipients,
        "Subject": one.subject,
        "Tag": tag_of(one),
        "ReceivedAt": iso(one.at),
        "Status": "Sent",
        "Attachments": [file.filename for file in caught.files] if caught else [],
        "TrackOpens": body.get("track_opens", False),
        "TrackLinks": "HtmlAndText" if body.get("track_clicks") else "None",
        "Metadata": metadata_of(one),
        "Sandboxed": False,
    }


def _person(who: object) -> dict[str, str]:
    if isinstance(who, dict):
        return {"Email": str(who.get("email")), "Name": str(who.get("name", ""))}
    name, email = parseaddr(str(who))
    return {"Email": email, "Name": name}


# What it says.


def _refuses(headers: Headers, api_key: str | None) -> Refusal | None:
    if matches(headers.get("x-postmark-server-token"), api_key):
        return None
    return Refusal(401, "unauthorised", "The X-Postmark-Server-Token is missing or not that of a server.")


_CODES: Final = {
    401: (10, "The server token is not accepted."),
    403: (412, "The account is pending approval."),
    422: (300, "Invalid email request."),
    429: (429, "Rate limit exceeded."),
    500: (0, "Internal server error."),
    503: (100, "Offline for maintenance."),
}
"""The error code of a status, and words of its own; others have 0, because low numbers mean something else."""

_FIELDS: Final = {ours: theirs for theirs, ours in {**_PLAIN, **_ADDRESSES}.items()}
_INVALID_JSON: Final = 402
_INACTIVE: Final = 406


def _error(refusal: Refusal) -> dict[str, Any]:
    code, words = _CODES.get(refusal.status, (0, phrase(refusal.status)))
    if refusal.error == "invalid_json":
        code = _INVALID_JSON
    if refusal.error == "inactive_recipient":
        code = _INACTIVE
    if refusal.error == "invalid_recipient":
        return {"ErrorCode": code, "Message": f"Invalid '{_FIELDS[refusal.field]}' address."}
    if refusal.error in ("missing_field", "missing_recipients"):
        return {"ErrorCode": code, "Message": f"The '{_FIELDS[refusal.field]}' field is missing."}
    return {"ErrorCode": code, "Message": refusal.message or words}


def _refused(refusal: Refusal) -> Answer:
    return json_answer(refusal.status, _error(refusal))


POSTMARK: Final = Shape(
    name="postmark",
    calls={
        "/email": {"POST": _send},
        "/email/batch": {"POST": _send_batch},
        "/messages/outbound": {"GET": _search},
        "/messages/outbound/{message_id}/details": {"GET": _details},
        "/bounces": {"GET": _bounces},
    },
    refuses=_refuses,
    refused=_refused,
    teller=POSTMARK_NEWS,
)
