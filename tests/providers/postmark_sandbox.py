"""A sandbox that speaks as Postmark does: one message, a batch of them, and the search by our id.

A fault hits a batch twice: the call as a whole, and each of its messages. What can be said of a single message is said
in its result; what can't (no answer, a page, a 500) becomes the answer to all, whatever was taken of the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, quote

from posthouse.sandbox.api import LOOK_UP_PATH, SEND_PATH, Exchange, SandboxApi
from posthouse.sandbox.faults import Call, CallKind
from posthouse.sandbox.replies import Answer, Refusal, Reply, ReplyKind, fault_reply, plain_reply
from posthouse.sandbox.shapes import OWN

NAMES = {
    "From": "from",
    "ReplyTo": "reply_to",
    "Subject": "subject",
    "TextBody": "text",
    "HtmlBody": "html",
    "Tag": "tags",
    "Metadata": "metadata",
    "TrackOpens": "track_opens",
}
"""In Postmark's words and in those of the sandbox."""

CODES = {200: 0, 401: 10, 422: 300, 429: 429, 503: 100}
"""What a result says instead of a status."""


def in_our_words(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of Postmark's as the sandbox reads one."""
    body = dict(message)
    taken = {ours: body.pop(theirs) for theirs, ours in NAMES.items() if theirs in body}
    for name in ("To", "Cc", "Bcc"):
        taken[name.lower()] = [text.strip() for text in body.pop(name, "").split(",") if "@" in text]
    if "Headers" in body:
        taken["headers"] = [[pair["Name"], pair["Value"]] for pair in body.pop("Headers")]
    if "TrackLinks" in body:
        taken["track_clicks"] = body.pop("TrackLinks") != "None"
    taken["attachments"] = [_file(file) for file in body.pop("Attachments", [])]
    return taken | body


def _file(file: Mapping[str, str]) -> dict[str, str]:
    shown = {"filename": file["Name"], "content": file["Content"], "content_type": file["ContentType"]}
    if "ContentID" in file:
        assert file["ContentID"].startswith("cid:")
        shown |= {"content_id": file["ContentID"].removeprefix("cid:"), "disposition": "inline"}
    return shown


@dataclass(frozen=True, slots=True)
class Together(Exchange):
    """A batch under way."""

    parts: Sequence[Exchange] = ()


class PostmarkSandbox(SandboxApi):
    """A path may have its query."""

    def __init__(self, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self.handed_in: list[tuple[float, int]] = []  # when each call with messages came, and with how many

    def begin(self, method: str, path: str, headers: Mapping[str, str], body: bytes, now: float) -> Exchange:
        path, _, query = path.partition("?")
        if (method, path) == ("GET", "/messages/outbound"):
            return self._search(parse_qs(query)["metadata_posthouse_id"][0], now)
        if (method, path) == ("POST", "/email"):
            message = json.loads(body)
            self.handed_in.append((now, 1))
            taken = self._take(message, now)
            return replace(taken, reply=_told(taken.reply, message))
        if (method, path) == ("POST", "/email/batch"):
            messages = json.loads(body)
            self.handed_in.append((now, len(messages)))
            return self._take_all(messages, now)
        return Exchange(plain_reply(OWN.refused(Refusal(404, "not_found"))))

    def finish(self, exchange: Exchange, now: float, *, client_gone: bool = False) -> None:
        for part in exchange.parts if isinstance(exchange, Together) else (exchange,):
            super().finish(part, now, client_gone=client_gone)

    def _take(self, message: Mapping[str, Any], now: float) -> Exchange:
        return super().begin("POST", SEND_PATH, {}, json.dumps(in_our_words(message)).encode(), now)

    def _take_all(self, messages: Sequence[Mapping[str, Any]], now: float) -> Exchange:
        fault = self.draw(Call(CallKind.SEND), now)
        if fault is not None and not fault.effect.reaches_provider:
            return Exchange(fault_reply(fault.effect, None, OWN.refused, now))
        parts = [self._take(message, now) for message in messages]
        replies = [_told(part.reply, message) for part, message in zip(parts, messages, strict=True)]
        results = [_result(reply) for reply in replies]
        if None in results:
            return Together(replies[results.index(None)], parts=parts)
        waits = {name: value for reply in replies for name, value in reply.headers.items() if name == "Retry-After"}
        whole = Answer(200, json.dumps(results).encode(), waits)
        reply = plain_reply(whole) if fault is None else fault_reply(fault.effect, whole, OWN.refused, now)
        return Together(replace(reply, delay_s=max(each.delay_s for each in (reply, *replies))), parts=parts)

    def _search(self, key: str, now: float) -> Exchange:
        asked = super().begin("GET", LOOK_UP_PATH + quote(key, safe=""), {}, b"", now)
        reply = asked.reply
        document = _document(reply)
        if reply.status == 404 or "id" in document:
            found = [{"MessageID": document["id"], "Metadata": {"posthouse_id": key}}] if "id" in document else []
            body = json.dumps({"TotalCount": len(found), "Messages": found}).encode()
            reply = replace(reply, status=200, body=body)
        return replace(asked, reply=reply)


def _told(reply: Reply, message: Mapping[str, Any]) -> Reply:
    """An acceptance in Postmark's words; what else there is stays as it is."""
    document = _document(reply)
    if reply.status != 200 or "id" not in document:
        return reply
    told = {"To": message["To"], "MessageID": document["id"], "ErrorCode": 0, "Message": "OK"}
    return replace(reply, body=json.dumps(told).encode())


def _result(reply: Reply) -> dict[str, Any] | None:
    """A message's result in a batch; None where none can say it."""
    document = _document(reply)
    if reply.status not in CODES or not document:
        return None
    return {"ErrorCode": CODES[reply.status], "Message": document.get("message", ""), **document}


def _document(reply: Reply) -> dict[str, Any]:
    """The JSON of a complete answer; empty where there is none."""
    if reply.kind not in (ReplyKind.ANSWER, ReplyKind.DRIP):
        return {}
    try:
        document = json.loads(reply.body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
