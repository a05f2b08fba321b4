"""Postmark's log: bounces and deliveries in the words of its webhooks, on the clocks of New York."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest

from posthouse.config import RouteSettings
from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.outcome import Outcome, Verdict
from posthouse.providers.logs import MESSAGES_AGO_S, TooMuch
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.port import Provider
from posthouse.providers.postmark import PostmarkSettings
from posthouse.providers.postmark_events import postmark_webhook
from posthouse.providers.postmark_log import REACH_MAX, eastern
from posthouse.providers.registry import build_provider
from posthouse.providers.transport import HttpAnswer, HttpRequest
from tests.providers.log_reading import PlayedServer, count_as_one, read_log, told_by_webhook

BEGIN = datetime(2026, 7, 30, 12, tzinfo=UTC).timestamp()
END = BEGIN + 3600
WEBHOOK = postmark_webhook(PostmarkSettings.model_validate({"api_key": "env:KEY"}))

BOUNCE = {
    "ID": 4323372036854775807,
    "Type": "HardBounce",
    "MessageID": "m-1",
    "Description": "The server was unable to deliver your message.",
    "Details": "smtp;550 5.1.1 no such user",
    "Email": "ada@example.com",
    "BouncedAt": "2026-07-30T08:20:00.1234567-04:00",
    "Inactive": True,
}
DETAILS = {
    "MessageID": "m-2",
    "Metadata": {OUR_ID: "ph-2"},
    "MessageEvents": [
        {"Recipient": "bob@example.com", "Type": "Opened", "ReceivedAt": "2026-07-30T08:31:00Z", "Details": {}},
        {
            "Recipient": "bob@example.com",
            "Type": "Delivered",
            "ReceivedAt": "2026-07-30T08:30:00.0000000-04:00",
            "Details": {"DeliveryMessage": "smtp;250 2.0.0 OK"},
        },
        {"Recipient": "eve@example.com", "Type": "Bounced", "ReceivedAt": "2026-07-30T08:30:00Z", "Details": {}},
    ],
}


def query_of(request: HttpRequest) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(request.url).query).items()}


def usual(request: HttpRequest) -> Any:
    path = urlsplit(request.url).path
    if path == "/bounces":
        return {"TotalCount": 1, "Bounces": [BOUNCE]}
    if path == "/messages/outbound":
        return {"TotalCount": 1, "Messages": [{"MessageID": "m-2"}]}
    assert path == "/messages/outbound/m-2/details"
    return DETAILS


def provider_of(server: PlayedServer) -> Provider:
    own = {"provider": "postmark", "api_key": "k", "message_stream": "news"}
    route = RouteSettings.model_validate(own)
    return build_provider("main", route, transport_factory=lambda _: server, now=lambda: END)


async def read(reply: Callable[[HttpRequest], Any]) -> list[Event] | TooMuch | Verdict:
    return await read_log(provider_of(PlayedServer(reply)), BEGIN, END)


async def test_a_bounce_and_a_delivery_are_told_as_webhooks_tell_them() -> None:
    told = await read(usual)

    assert isinstance(told, list)
    bounced, delivered = told[0], told[1]
    assert (bounced.kind, bounced.cause, bounced.hard) == (EventKind.BOUNCED, Cause.NO_MAILBOX, True)
    assert count_as_one(bounced, told_by_webhook(WEBHOOK, BOUNCE | {"RecordType": "Bounce", "Metadata": {OUR_ID: "1"}}))
    assert (delivered.kind, delivered.key, delivered.recipient) == (EventKind.DELIVERED, "ph-2", "bob@example.com")
    assert delivered.code == "250 2.0.0"
    by_webhook = {
        "RecordType": "Delivery",
        "MessageID": "m-2",
        "Recipient": "Bob@example.com",
        "DeliveredAt": "2026-07-30T12:30:00.7654321Z",
        "Metadata": {OUR_ID: "ph-2"},
    }
    assert count_as_one(delivered, told_by_webhook(WEBHOOK, by_webhook)), "the digits of a second differ"
    assert {event.kind for event in told} == {EventKind.BOUNCED, EventKind.DELIVERED}, "opens are the webhooks'"


async def test_messages_are_asked_for_again_hours_and_days_later_since_receivers_may_put_them_off() -> None:
    server = PlayedServer(usual)
    await read_log(provider_of(server), BEGIN, END)

    lists = [query_of(request) for request in server.requests if "details" not in request.url]
    assert {query["messagestream"] for query in lists} == {"news"}
    assert lists[0]["fromdate"] == "2026-07-30T08:00:00"
    assert [query["todate"] for query in lists[1:]] == [eastern(END - ago, latest=True) for ago in MESSAGES_AGO_S]


async def test_it_reads_page_after_page() -> None:
    def reply(request: HttpRequest) -> Any:
        if "/bounces" not in request.url:
            return {"TotalCount": 0, "Messages": []}
        offset = int(query_of(request)["offset"])
        return {"TotalCount": 5, "Bounces": [BOUNCE | {"ID": offset + n} for n in range(min(2, 5 - offset))]}

    told = await read(reply)
    assert isinstance(told, list)
    assert [event.provider_event_id for event in told] == [f"bounce {n}" for n in range(5)]


async def test_a_list_longer_than_postmark_gives_out_asks_for_a_shorter_stretch() -> None:
    assert await read(lambda _: {"TotalCount": REACH_MAX + 1, "Bounces": [BOUNCE]}) == TooMuch()


async def test_a_message_that_is_gone_holds_up_no_other() -> None:
    told = await read(lambda r: HttpAnswer(422, {}, b'{"ErrorCode":701}') if "details" in r.url else usual(r))
    assert isinstance(told, list)
    assert [event.kind for event in told] == [EventKind.BOUNCED]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (HttpAnswer(401, {}, b'{"ErrorCode":10}'), Outcome.MISCONFIGURED),
        (HttpAnswer(429, {}, b""), Outcome.THROTTLED),
        (HttpAnswer(200, {}, b"<html>"), Outcome.ACCEPTED),
        (HttpAnswer(200, {}, b'{"TotalCount":1,"Bounces":null}'), Outcome.ACCEPTED),
    ],
)
async def test_an_answer_that_is_no_list_tells_nothing_and_says_why(said: HttpAnswer, outcome: Outcome) -> None:
    answer = await read(lambda _: said)
    assert isinstance(answer, Verdict)
    assert answer.outcome in (outcome, Outcome.UNKNOWN)


@pytest.mark.parametrize(
    "moment", [f"2026-{day}T{hour:02}:30:00" for day in ("01-15", "03-08", "07-30", "11-01") for hour in range(24)]
)
def test_whichever_way_a_time_in_new_york_is_read_the_stretch_is_whole(moment: str) -> None:
    """On 1 November the clocks show one hour twice; `fold` says which one is meant."""
    wanted = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    for latest in (False, True):
        shown = datetime.fromisoformat(eastern(wanted.timestamp(), latest=latest))
        read_as = [shown.replace(tzinfo=ZoneInfo("America/New_York"), fold=fold).astimezone(UTC) for fold in (0, 1)]
        off_s = [(wanted - each).total_seconds() * (-1 if latest else 1) for each in read_as]
        assert all(0 <= off <= 3600 + 1 for off in off_s), (wanted, latest, read_as)
