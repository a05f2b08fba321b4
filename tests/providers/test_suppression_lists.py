"""Each provider's own suppression list: read page by page in our words, and added to in its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from posthouse.config import RouteSettings
from posthouse.core.provider_lists import Listed
from posthouse.core.suppression import SuppressionCause
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.providers.transport import HttpAnswer, HttpRequest
from posthouse.worker import suppression_lists as module
from posthouse.worker.suppression_lists import ListFailed, put_on_list, read_list
from tests.providers.log_reading import PlayedServer

BOUNCE, COMPLAINT = SuppressionCause.HARD_BOUNCE, SuppressionCause.COMPLAINT
UNSUBSCRIBE, MANUAL = SuppressionCause.UNSUBSCRIBE, SuppressionCause.MANUAL
AT = 1_785_412_800.0  # 2026-07-30T12:00:00Z


@dataclass(frozen=True)
class Case:
    """A provider, what it answers to each address with its question, what that means, and what is put where."""

    settings: Mapping[str, Any]
    pages: Mapping[str, Any]  # by path and question, as they begin
    listed: tuple[tuple[str, SuppressionCause], ...]
    put: Mapping[SuppressionCause, tuple[str, str, Any]]  # method, path and body, for eve@example.com
    taken: Any = field(default_factory=dict)


POSTMARK_ITEMS = [
    {"EmailAddress": f"{name}@example.com", "SuppressionReason": reason, "Origin": origin, "CreatedAt": when}
    for name, reason, origin, when in (
        ("ada", "HardBounce", "Recipient", "2026-07-30T08:00:00-04:00"),
        ("bob", "SpamComplaint", "Recipient", "2026-07-30T08:00:00-04:00"),
        ("cid", "ManualSuppression", "Recipient", "2026-07-30T08:00:00-04:00"),
        ("dan", "ManualSuppression", "Customer", "2026-07-30T08:00:00-04:00"),
        ("odd", "SomethingNew", "Customer", "2026-07-30T08:00:00-04:00"),
    )
]
FOUR = (
    ("ada@example.com", BOUNCE),
    ("bob@example.com", COMPLAINT),
    ("cid@example.com", UNSUBSCRIBE),
    ("dan@example.com", MANUAL),
)
POSTMARK_PUT = (
    "POST",
    "/message-streams/outbound/suppressions",
    {"Suppressions": [{"EmailAddress": "eve@example.com"}]},
)


def mailgun_page(name: str, next_: str) -> Any:
    items = [{"address": f"{name}@example.com", "created_at": "Thu, 30 Jul 2026 12:00:00 UTC", "error": "550 No."}]
    return {"items": items, "paging": {"next": f"https://elsewhere.example/v3/mg.shop.example/x?{next_}"}}


def sendgrid_page(name: str) -> Any:
    return [{"email": f"{name}@example.com", "created": int(AT), "reason": "550 No."}]


SES_ITEMS = [
    {"EmailAddress": "ada@example.com", "Reason": "BOUNCE", "LastUpdateTime": AT},
    {"EmailAddress": "bob@example.com", "Reason": "COMPLAINT", "LastUpdateTime": AT},
]
RESEND_ITEMS = [
    {"id": f"s-{n}", "email": f"{name}@example.com", "origin": origin, "created_at": "2026-07-30 12:00:00+00"}
    for n, (name, origin) in enumerate([("ada", "bounce"), ("bob", "complaint"), ("dan", "manual")])
]

CASES = {
    "postmark": Case(
        {},
        {"/message-streams/outbound/suppressions/dump": {"Suppressions": POSTMARK_ITEMS}},
        FOUR,
        dict.fromkeys([BOUNCE, COMPLAINT, UNSUBSCRIBE, MANUAL], POSTMARK_PUT),
        {"Suppressions": [{"EmailAddress": "eve@example.com", "Status": "Suppressed", "Message": None}]},
    ),
    "mailgun": Case(
        {"domain": "mg.shop.example"},
        {
            "/v3/mg.shop.example/bounces?limit": mailgun_page("ada", "page=2"),
            "/v3/mg.shop.example/complaints?limit": mailgun_page("bob", "page=2"),
            "/v3/mg.shop.example/unsubscribes?limit": mailgun_page("cid", "page=2"),
            "/v3/mg.shop.example/": {"items": [], "paging": {}},
        },
        FOUR[:3],
        {
            BOUNCE: ("POST", "/v3/mg.shop.example/bounces", [{"address": "eve@example.com"}]),
            COMPLAINT: ("POST", "/v3/mg.shop.example/complaints", [{"address": "eve@example.com"}]),
            UNSUBSCRIBE: (
                "POST",
                "/v3/mg.shop.example/unsubscribes",
                [{"address": "eve@example.com", "tags": ["*"]}],
            ),
            MANUAL: ("POST", "/v3/mg.shop.example/unsubscribes", [{"address": "eve@example.com", "tags": ["*"]}]),
        },
    ),
    "sendgrid": Case(
        {},
        {
            "/v3/suppression/bounces?limit=500&offset=0": sendgrid_page("ada"),
            "/v3/suppression/spam_reports?limit=500&offset=0": sendgrid_page("bob"),
            "/v3/suppression/unsubscribes?limit=500&offset=0": sendgrid_page("cid"),
            "/v3/suppression/": [],
        },
        FOUR[:3],
        dict.fromkeys(
            [UNSUBSCRIBE, MANUAL],
            ("POST", "/v3/asm/suppressions/global", {"recipient_emails": ["eve@example.com"]}),
        ),
    ),
    "ses": Case(
        {"region": "eu-west-1", "access_key_id": "k", "secret_access_key": "k", "api_key": None},
        {
            "/v2/email/suppression/addresses?NextToken=a%2Fb": {"SuppressedDestinationSummaries": SES_ITEMS[1:]},
            "/v2/email/suppression/addresses?PageSize": {
                "SuppressedDestinationSummaries": SES_ITEMS[:1],
                "NextToken": "a/b",
            },
        },
        FOUR[:2],
        {
            BOUNCE: (
                "PUT",
                "/v2/email/suppression/addresses",
                {"EmailAddress": "eve@example.com", "Reason": "BOUNCE"},
            ),
            COMPLAINT: (
                "PUT",
                "/v2/email/suppression/addresses",
                {"EmailAddress": "eve@example.com", "Reason": "COMPLAINT"},
            ),
        },
    ),
    "resend": Case(
        {},
        {
            "/suppressions?limit=100&after=s-1": {"data": RESEND_ITEMS[2:], "has_more": False},
            "/suppressions?limit=100": {"data": RESEND_ITEMS[:2], "has_more": True},
        },
        (*FOUR[:2], FOUR[3]),
        dict.fromkeys(
            [BOUNCE, COMPLAINT, UNSUBSCRIBE, MANUAL],
            ("POST", "/suppressions/batch/add", {"emails": ["eve@example.com"]}),
        ),
    ),
}
each_case = pytest.mark.parametrize("name", CASES)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)


def place(request: HttpRequest) -> str:
    url = urlsplit(request.url)
    assert url.netloc == "api.example"
    return f"{url.path}?{url.query}" if url.query else url.path


def provider_of(name: str, reply: Callable[[HttpRequest], Any]) -> tuple[Provider, PlayedServer]:
    server = PlayedServer(reply)
    own = {"provider": name, "api_key": "k", "url": "https://api.example"} | dict(CASES[name].settings)
    route = RouteSettings.model_validate({key: value for key, value in own.items() if value is not None})
    return build_provider("main", route, transport_factory=lambda _: server, now=lambda: AT), server


def answers(name: str) -> Callable[[HttpRequest], Any]:
    def reply(request: HttpRequest) -> Any:
        if request.method != "GET":
            return CASES[name].taken
        asked = place(request)
        return next(page for begin, page in CASES[name].pages.items() if asked.startswith(begin))

    return reply


async def listed(provider: Provider) -> list[Listed]:
    assert provider.lists is not None
    return [each async for page in read_list(provider.lists) for each in page]


@each_case
async def test_every_page_of_the_list_is_read_in_our_words(name: str) -> None:
    provider, _ = provider_of(name, answers(name))
    found = await listed(provider)
    assert tuple((each.address, each.cause) for each in found) == CASES[name].listed
    assert {each.at for each in found} == {AT}


@each_case
async def test_what_has_a_place_there_is_put_there(name: str) -> None:
    case = CASES[name]
    provider, server = provider_of(name, answers(name))
    assert provider.lists is not None
    assert provider.lists.lists.pushes == set(case.put)
    for cause, (method, path, body) in case.put.items():
        puts = [put async for put in put_on_list(provider.lists, {"eve@example.com": cause})]
        assert [(list(put.taken), put.refused) for put in puts] == [(["eve@example.com"], {})]
        request = server.requests[-1]
        assert (request.method, place(request), json.loads(request.body)) == (method, path, body)


@each_case
async def test_a_list_that_can_not_be_read_or_written_on_says_why(name: str) -> None:
    provider, _ = provider_of(name, lambda _: HttpAnswer(403, {}, b'{"message":"no"}'))
    assert provider.lists is not None
    with pytest.raises(ListFailed, match="403"):
        await listed(provider)
    cause = next(iter(CASES[name].put))
    with pytest.raises(ListFailed, match="403"):
        [put async for put in put_on_list(provider.lists, {"eve@example.com": cause})]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (HttpAnswer(200, {}, b"<html><title>Log in</title></html>"), "200 the answer is not as documented: Log in"),
        (HttpAnswer(200, {}, b'{"items":{}}'), "200 the answer is not as documented"),
        (HttpAnswer(200, {}, b'{"items":[]}', complete=False), "200 the answer is not as documented: (the answer was"),
    ],
)
async def test_an_answer_that_is_no_list_is_called_so(said: HttpAnswer, why: str) -> None:
    provider, _ = provider_of("mailgun", lambda _: said)
    with pytest.raises(ListFailed, match=re.escape(why)):
        await listed(provider)


async def test_pages_that_lead_in_a_circle_are_not_read_for_ever() -> None:
    page = {"items": [{"address": "ada@example.com"}], "paging": {"next": "https://api.example/?page=again"}}
    provider, server = provider_of("mailgun", lambda _: page)
    with pytest.raises(ListFailed, match="in a circle"):
        await listed(provider)
    assert len(server.requests) == 2


async def test_addresses_go_in_batches_and_one_that_is_refused_holds_up_no_other() -> None:
    bad = "person-70@example.com"

    def reply(request: HttpRequest) -> Any:
        wanted = [each["address"] for each in json.loads(request.body)]
        return HttpAnswer(400, {}, b'{"message":"bad address"}') if bad in wanted else {"message": "ok"}

    provider, server = provider_of("mailgun", reply)
    assert provider.lists is not None
    wanted = {f"person-{n}@example.com": BOUNCE for n in range(1500)}
    puts = [put async for put in put_on_list(provider.lists, wanted)]
    assert sum(len(put.taken) for put in puts) == 1499
    assert [*{address for put in puts for address in put.refused}] == [bad]
    assert max(len(json.loads(request.body)) for request in server.requests) == 1000


async def test_postmark_says_of_each_address_whether_it_was_taken() -> None:
    def reply(_: HttpRequest) -> Any:
        failed = {"EmailAddress": "b@example.com", "Status": "Failed", "Message": "An invalid email address."}
        return {"Suppressions": [{"EmailAddress": "a@example.com", "Status": "Suppressed"}, failed]}

    provider, _ = provider_of("postmark", reply)
    assert provider.lists is not None
    (put,) = [put async for put in put_on_list(provider.lists, {"a@example.com": BOUNCE, "b@example.com": BOUNCE})]
    assert (list(put.taken), put.refused) == (["a@example.com"], {"b@example.com": "An invalid email address."})


async def test_the_key_follows_no_address_of_an_answer() -> None:
    provider, server = provider_of("mailgun", answers("mailgun"))
    await listed(provider)
    assert {urlsplit(request.url).netloc for request in server.requests} == {"api.example"}
    assert parse_qs(urlsplit(server.requests[1].url).query) == {"page": ["2"]}
