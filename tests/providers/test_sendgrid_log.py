"""SendGrid's log: each entry of its Email Logs opened, its events in the words of the webhook."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from posthouse.config import RouteSettings
from posthouse.core.events import Cause, EventKind
from posthouse.core.outcome import Verdict
from posthouse.providers.logs import TooMuch
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.providers.sendgrid_events import read
from posthouse.providers.sendgrid_log import COUNT_MAX
from posthouse.providers.transport import HttpAnswer, HttpRequest
from tests.providers.log_reading import PlayedServer, count_as_one, read_log

BEGIN = datetime(2026, 7, 30, 12, tzinfo=UTC).timestamp()
END = BEGIN + 3600

BOUNCE = {
    "event": "bounce",
    "sg_event_id": "e-2",
    "timestamp": int(BEGIN) + 2,
    "reason": "550 5.1.1 no such user",
    "bounce_classification": "Invalid Address",
}
ENTRY = {
    "sg_message_id": "m-1.recvd-5.1",
    "to_email": "ada@example.com",
    "custom_args": {OUR_ID: "ph-1"},
    "events": [
        {"event": "received", "sg_event_id": "e-0", "timestamp": int(BEGIN)},
        {"event": "processed", "sg_event_id": "e-1", "timestamp": int(BEGIN) + 1},
        BOUNCE,
    ],
}


def usual(request: HttpRequest) -> Any:
    if request.method == "POST":
        return {"messages": [{"sg_message_id": "m-1.recvd-5.1"}]}
    assert request.url.endswith("/v3/logs/m-1.recvd-5.1")
    return ENTRY


def provider_of(server: PlayedServer) -> Provider:
    route = RouteSettings.model_validate({"provider": "sendgrid", "api_key": "k"})
    return build_provider("main", route, transport_factory=lambda _: server, now=lambda: END)


async def test_an_entry_is_opened_and_its_events_are_told_as_the_webhook_tells_them() -> None:
    server = PlayedServer(usual)
    told = await read_log(provider_of(server), BEGIN, END)

    assert isinstance(told, list)
    sent, bounced = told[:2]
    assert (sent.kind, sent.key, sent.message_id) == (EventKind.SENT, "ph-1", "m-1")
    assert (bounced.kind, bounced.cause, bounced.hard) == (EventKind.BOUNCED, Cause.NO_MAILBOX, True)
    item = {**BOUNCE, "email": "ada@example.com", "sg_message_id": "m-1.recvd-5.1", OUR_ID: "ph-1"}
    (by_webhook,) = read(item, {})
    assert count_as_one(bounced, by_webhook)
    assert json.loads(server.requests[0].body)["query"] == (
        'sg_message_id_created_at >= TIMESTAMP "2026-07-30T12:00:00Z" '
        'AND sg_message_id_created_at <= TIMESTAMP "2026-07-30T13:00:00Z"'
    )


async def test_a_list_that_may_be_cut_off_asks_for_a_shorter_stretch() -> None:
    many = [{"sg_message_id": f"m-{n}.1"} for n in range(COUNT_MAX)]
    assert await read_log(provider_of(PlayedServer(lambda _: {"messages": many})), BEGIN, END) == TooMuch()


async def test_an_entry_that_is_gone_holds_up_no_other() -> None:
    server = PlayedServer(lambda r: usual(r) if r.method == "POST" else HttpAnswer(404, {}, b"{}"))
    assert await read_log(provider_of(server), BEGIN, END) == []


@pytest.mark.parametrize("said", [HttpAnswer(403, {}, b"{}"), HttpAnswer(200, {}, b'{"messages":null}')])
async def test_an_answer_that_is_no_list_tells_nothing_and_says_why(said: HttpAnswer) -> None:
    assert isinstance(await read_log(provider_of(PlayedServer(lambda _: said)), BEGIN, END), Verdict)
