"""Mailgun's API, version 3: `/v3/{domain}/messages` and `messages.mime`, and a domain's events.

Facts: documentation.mailgun.com (messages, events), as of 2026.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final

from posthouse.sandbox.envelopes import words_of
from posthouse.sandbox.forms import FormField, read_form
from posthouse.sandbox.json_parts import Misfit, Unusable, addresses_in
from posthouse.sandbox.ledger import Acceptance, Ledger
from posthouse.sandbox.replies import Answer, Refusal, json_answer, phrase
from posthouse.sandbox.shape import Headers, LookUp, Request, Send, Shape, Taken, matches
from posthouse.sandbox.shapes.mailgun_news import MAILGUN_NEWS, about, item
from posthouse.sandbox.submission import given, rest, submission_of

LISTED_MAX: Final = 300
LISTED: Final = 100

_ADDRESSES: Final = ("to", "cc", "bcc")
_WORDS: Final = ("from", "subject", "text", "html")
_MESSAGE: Final = "message"


def _send(request: Request) -> Send:
    fields = read_form(request.headers.get("content-type", ""), request.body)
    words: dict[str, Any] = {name: _last(fields, name) for name in _WORDS}
    words |= {name: _addresses(fields, name) for name in _ADDRESSES}
    words |= _headers(fields)
    words["alternatives"] = [
        {"content_type": "text/x-amp-html", "content": field.text} for field in fields if field.name == "amp-html"
    ]
    words["attachments"] = [_file(field) for field in fields if field.name in ("attachment", "inline")]
    return _asked(request, _others(fields) | given(words), required=("from",))


def _send_finished(request: Request) -> Send:
    fields = read_form(request.headers.get("content-type", ""), request.body)
    finished = next((field.octets for field in fields if field.name == _MESSAGE), None)
    if finished is None:
        raise Misfit("missing_field", "message parameter is missing", _MESSAGE)
    envelope = {"to": _addresses(fields, "to")}
    return _asked(request, _others(fields) | words_of(finished, envelope), envelope=envelope)


def _asked(request: Request, words: dict[str, Any], **more: Any) -> Send:
    return Send([submission_of(words, request.body, id_domain=request.within["domain"], **more)], _accepted)


def _others(fields: Sequence[FormField]) -> dict[str, Any]:
    """What is not the message itself: our metadata, tags, switches, and whatever else the form has."""
    plain = {field.name: field.text for field in fields if ":" not in field.name and not field.filename}
    options = {field.name: field.text for field in fields if field.name[:2] in ("o:", "t:")}
    words = {
        "metadata": {field.name[2:]: field.text for field in fields if field.name.startswith("v:")},
        "tags": [field.text for field in fields if field.name == "o:tag"] or None,
        "track_opens": _switch(options.get("o:tracking-opens", options.get("o:tracking"))),
        "track_clicks": _switch(options.get("o:tracking-clicks", options.get("o:tracking"))),
    }
    known = {"amp-html", "o:tag", "o:tracking", "o:tracking-opens", "o:tracking-clicks", _MESSAGE}
    return rest(plain | options, known) | given(words)


def _switch(text: str | None) -> bool | None:
    return None if text is None else text.casefold() not in ("no", "false")


def _headers(fields: Sequence[FormField]) -> dict[str, Any]:
    headers = [[field.name[2:], field.text] for field in fields if field.name.startswith("h:")]
    reply_to = next((text for name, text in headers if name.casefold() == "reply-to"), None)
    others = [header for header in headers if header[0].casefold() != "reply-to"]
    return {"headers": others or None, "reply_to": reply_to}


def _last(fields: Sequence[FormField], name: str) -> str | None:
    return next((field.text for field in reversed(fields) if field.name == name), None)


def _addresses(fields: Sequence[FormField], name: str) -> list[str]:
    return [address for field in fields if field.name == name for address in addresses_in(field.text, name)]


def _file(field: FormField) -> dict[str, Any]:
    """An inline file is known by its name."""
    inline = {"disposition": "inline", "content_id": field.filename} if field.name == "inline" else {}
    content = base64.b64encode(field.octets).decode()
    return {"filename": field.filename, "content": content, "content_type": field.content_type, **inline}


def _accepted(taken: Taken) -> Answer:
    message_id = next(one.message_id for one in taken if not isinstance(one, Unusable))
    return json_answer(200, {"id": f"<{message_id}>", "message": "Queued. Thank you."})


# The events: of each recipient that the message was taken, and what has become of it since.


@dataclass(frozen=True, slots=True)
class _Listing:
    """What is asked for. A list has a next page, until one is empty."""

    query: Mapping[str, str]
    begin: float
    end: float
    names: Collection[str]  # of the events; none for all
    now: float
    address: str  # of the pages
    offset: int


def _events(request: Request) -> LookUp:
    query, offset = _page_asked(request.within["page"]) if "page" in request.within else (request.query, 0)
    begin, end = _moment(query, "begin", "-inf"), _moment(query, "end", "inf")
    listing = _Listing(
        query,
        min(begin, end),
        max(begin, end),
        set(re.findall(r"\w+", query.get("event", ""))),
        request.now,
        f"http://{request.headers.get('host', '')}/v3/{request.within['domain']}/events/",
        offset,
    )
    return LookUp(partial(_among, listing), partial(_page, listing))


def _page_asked(name: str) -> tuple[Mapping[str, str], int]:
    """What was asked for on the page before, and where this one begins. Raises Misfit."""
    try:
        query, offset = json.loads(base64.urlsafe_b64decode(name))
    except (ValueError, TypeError):
        query = offset = None
    if not isinstance(query, dict) or not isinstance(offset, int):
        raise Misfit("invalid_parameter", "there is no such page", "page")
    return query, offset


def _among(listing: _Listing, ledger: Ledger) -> Iterable[Acceptance]:
    query = listing.query
    whom = query.get("recipient")
    chosen = ledger.acceptances if whom is None else ledger.by_recipient(whom)
    return [
        one
        for one in chosen
        if query.get("message-id", one.message_id) == one.message_id
        and query.get("subject", one.subject) == one.subject
        and any(_listed(listing, one))
    ]


def _listed(listing: _Listing, one: Acceptance) -> Iterator[dict[str, Any]]:
    """Its events that are asked for."""
    whom = listing.query.get("recipient", "").casefold()
    told = [item(one, news) for news in one.news_by(listing.now, "mailgun")]
    for event in [*(_taken(one, recipient) for recipient in one.recipients), *told]:
        in_time = listing.begin <= event["timestamp"] <= listing.end
        if in_time and (not listing.names or event["event"] in listing.names) and whom in ("", event["recipient"]):
            yield event


def _moment(query: Mapping[str, str], name: str, default: str) -> float:
    """Seconds since 1970, or a date as in a message."""
    text = query.get(name, default)
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        raise Misfit("invalid_parameter", f"{name} parameter is not a time", name) from None


def _page(listing: _Listing, found: Sequence[Acceptance]) -> Answer:
    query = listing.query
    asked = query.get("limit", "")
    limit = min(int(asked), LISTED_MAX) if asked.isascii() and asked.isdecimal() else LISTED
    oldest_first = query.get("ascending", "yes" if "begin" in query else "no") in ("yes", "true")
    events = [event for one in found for event in _listed(listing, one)]
    events.sort(key=lambda event: float(event["timestamp"]), reverse=not oldest_first)
    further = base64.urlsafe_b64encode(json.dumps([dict(query), listing.offset + limit]).encode()).decode()
    items = events[listing.offset : listing.offset + limit]
    return json_answer(200, {"items": items, "paging": {"next": listing.address + further}})


def _taken(one: Acceptance, recipient: str) -> dict[str, Any]:
    return {
        **about(one, recipient),
        "event": "accepted",
        "id": f"{one.message_id}-{recipient}",
        "timestamp": one.at,
    }


# What it says.


def _refuses(headers: Headers, api_key: str | None) -> Refusal | None:
    """The user name is `api`, the password the key."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    try:
        user, _, password = base64.b64decode(token).decode().partition(":")
    except ValueError:
        user = password = ""
    if matches(password if (scheme, user) == ("Basic", "api") else None, api_key):
        return None
    return Refusal(401, "unauthorised")


def _refused(refusal: Refusal) -> Answer:
    """What is wrong with a call has the status 400."""
    status = 400 if refusal.error and refusal.status == 422 else refusal.status
    if status == 401:
        return Answer(status, b"Forbidden", {"Content-Type": "text/plain; charset=utf-8"})
    return json_answer(status, {"message": _message(refusal)})


def _message(refusal: Refusal) -> str:
    if refusal.error == "invalid_recipient":
        return f"{refusal.field} parameter is not a valid address"
    if refusal.error in ("missing_field", "missing_recipients"):
        return f"{refusal.field} parameter is missing"
    if refusal.status == 429:
        return refusal.message or "The domain is not allowed to send: request limit exceeded"
    return refusal.message or phrase(refusal.status)


MAILGUN: Final = Shape(
    name="mailgun",
    calls={
        "/v3/{domain}/messages": {"POST": _send},
        "/v3/{domain}/messages.mime": {"POST": _send_finished},
        "/v3/{domain}/events": {"GET": _events},
        "/v3/{domain}/events/{page}": {"GET": _events},
    },
    refuses=_refuses,
    refused=_refused,
    teller=MAILGUN_NEWS,
)
