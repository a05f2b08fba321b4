"""Mailgun's log: the events of the domain, page after page, in the words of its webhooks."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from posthouse.config import RouteSettings
from posthouse.core.events import EventKind
from posthouse.core.outcome import Verdict
from posthouse.providers.mailgun import MailgunSettings
from posthouse.providers.mailgun_events import mailgun_webhook
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.providers.transport import HttpAnswer, HttpRequest
from tests.providers.log_reading import PlayedServer, count_as_one, read_log, told_by_webhook

BEGIN, END = 1_800_000_000.5, 1_800_003_600.5
EVENTS = "https://mailgun.example/v3/mg.shop.example/events"
WEBHOOK = mailgun_webhook(MailgunSettings.model_validate({"api_key": "k", "domain": "mg.shop.example"}))


def event(number: int, kind: str = "delivered") -> dict[str, Any]:
    return {
        "event": kind,
        "id": f"e-{number}",
        "timestamp": BEGIN + number + 0.123456,
        "recipient": "ada@example.com",
        "user-variables": {OUR_ID: f"ph-{number}"},
        "message": {"headers": {"message-id": f"m-{number}@mg.shop.example"}},
    }


def provider_of(server: PlayedServer) -> Provider:
    own = {"provider": "mailgun", "api_key": "k", "domain": "mg.shop.example", "url": "https://mailgun.example"}
    route = RouteSettings.model_validate(own)
    return build_provider("main", route, transport_factory=lambda _: server, now=lambda: END)


def pages(request: HttpRequest) -> Any:
    """Two pages and the empty one that ends the list; the next one's address names another host."""
    number = int(request.url.rpartition("/events/page-")[2] or 0) if "/events/" in request.url else 0
    items = [event(number), event(number, "opened")] if number < 2 else []
    return {"items": items, "paging": {"next": f"https://elsewhere.example/v3/x/events/page-{number + 1}"}}


async def test_events_are_those_of_its_webhooks_page_after_page() -> None:
    server = PlayedServer(pages)
    told = await read_log(provider_of(server), BEGIN, END)

    assert isinstance(told, list)
    assert [each.kind for each in told] == [EventKind.DELIVERED, EventKind.OPENED] * 2
    assert count_as_one(told[0], told_by_webhook(WEBHOOK, {"signature": {}, "event-data": event(0)}))
    first, *further = (request.url for request in server.requests)
    assert further == [f"{EVENTS}/page-1", f"{EVENTS}/page-2"], "the key goes to no other host"
    query = parse_qs(urlsplit(first).query)
    assert (query["begin"], query["end"]) == (["1800000000"], ["1800003601"])


@pytest.mark.parametrize(
    "said",
    [
        HttpAnswer(401, {}, b"Forbidden"),
        HttpAnswer(429, {}, b"{}"),
        HttpAnswer(200, {}, b'{"items":null}'),
        HttpAnswer(200, {}, b'{"items":[{}],"paging":{}}'),
    ],
)
async def test_an_answer_that_is_no_page_tells_nothing_and_says_why(said: HttpAnswer) -> None:
    assert isinstance(await read_log(provider_of(PlayedServer(lambda _: said)), BEGIN, END), Verdict)
