"""The `mailgun` provider: the provider suite, what stands in the form, and how events are read."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from email import message_from_bytes
from email.message import Message
from email.utils import getaddresses
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.core.outcome import Found, LookUp, Outcome, Subject
from posthouse.providers.form import form
from posthouse.providers.mailgun import LISTED_MAX, PAGES_MAX
from posthouse.providers.mime import message_bytes
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.transport import FailurePhase, HttpAnswer, HttpFailure, HttpRequest
from posthouse.sandbox.received import read_message
from tests.contract.api_harness import ApiCase, ApiHarness, api_harness
from tests.contract.provider_suite import SECRET, Behaviour, ProviderSuite, stored_and_rendered
from tests.providers.loopback import Received, Reply, answer
from tests.providers.messages import ADA, full_message, message
from tests.providers.scripted import NOW, Build, ScriptedTransport
from tests.worker.stage import Stage, email, play

Json = dict[str, Any]


def read_form(content_type: str, body: bytes) -> list[tuple[str, bytes]]:
    """The fields of a form, in their order."""
    whole = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    parts = whole.get_payload()
    assert isinstance(parts, list)
    return [_field(part) for part in parts]


def _field(part: Any) -> tuple[str, bytes]:
    assert isinstance(part, Message)
    name, value = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
    assert isinstance(name, str)
    assert isinstance(value, bytes)
    return name, value


def fields_of(got: Received | HttpRequest) -> list[tuple[str, bytes]]:
    headers = {name.lower(): value for name, value in got.headers.items()}
    return read_form(headers["content-type"], got.body)


def in_words_of_the_sandbox(got: Received) -> Json:
    """What Mailgun makes of a form: whom the message is for, and the message as it is."""
    fields = fields_of(got)
    raw = dict(fields)["message"]
    envelope = [value.decode() for name, value in fields if name == "to"]
    shown = read_message(raw).body
    heads = {name: [f"{who} <{bare}>" for who, bare in getaddresses([shown.get(name, "")])] for name in ("to", "cc")}
    seen = [bare for _, bare in getaddresses([shown.get("to", ""), shown.get("cc", "")])]
    words: Json = {"raw": base64.b64encode(raw).decode(), **{name: value for name, value in heads.items() if value}}
    words["bcc"] = [bare for bare in envelope if bare not in seen]
    words["metadata"] = {name[2:]: value.decode() for name, value in fields if name.startswith("v:")}
    words["tags"] = [value.decode() for name, value in fields if name == "o:tag"]
    for name, value in fields:
        if name.startswith("o:tracking-"):
            words[f"track_{name.removeprefix('o:tracking-')}"] = value == b"yes"
        elif name not in ("to", "message") and name[1] != ":":
            words[name] = value.decode()
    return words


def event(message_id: str, key: str) -> Json:
    return {"event": "accepted", "message": {"headers": {"message-id": message_id}}, "user-variables": {OUR_ID: key}}


def events(got: Received, known: Mapping[str, str]) -> Reply:
    assert got.path.startswith("/v3/mg.shop.example/events?")
    return answer(200, {"items": [event(message_id, key) for key, message_id in known.items()], "paging": {}})


MAILGUN = ApiCase(
    settings=lambda url: {"provider": "mailgun", "url": url, "domain": "mg.shop.example"},
    replies={
        Behaviour.ACCEPT: answer(200, {"id": "<m-1>", "message": "Queued. Thank you."}),
        Behaviour.ACCEPT_UNREADABLY: answer(200, '{"id": "<m-'),
        Behaviour.THROTTLE: answer(
            429,
            {
                "message": f"Domain {SECRET} is not allowed to send: request limit exceeded, "
                "try again after Fri, 15 Jan 2027 08:00:30 GMT"
            },
        ),
        Behaviour.BE_OUT_OF_SERVICE: answer(503, f"<html><title>Maintenance {SECRET}</title></html>"),
        Behaviour.FAIL_MIDWAY: answer(500, {"message": f"internal error {SECRET}"}),
        Behaviour.REFUSE_MESSAGE: answer(400, {"message": f"from parameter is missing {SECRET}"}),
        Behaviour.REFUSE_RECIPIENT: answer(400, {"message": f"to parameter is not a valid address {SECRET}"}),
        Behaviour.REFUSE_CREDENTIAL: answer(401, f"Forbidden {SECRET}"),
    },
    fields=in_words_of_the_sandbox,
    key=lambda got: dict(fields_of(got))[f"v:{OUR_ID}"].decode(),
    look_up=events,
    expected={Behaviour.BE_OUT_OF_SERVICE: (Outcome.TRANSIENT, True, True)},
    refuses=frozenset({"envelope_sender"}),
)


class TestMailgun(ProviderSuite):
    """The `mailgun` provider."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[ApiHarness]:
        async with api_harness(MAILGUN) as harness:
            yield harness


@pytest.fixture
def mailgun(build: Build, wire: ScriptedTransport) -> Build:
    wire.replies(200, '{"id":"<m-1@mg.shop.example>","message":"Queued. Thank you."}')
    return lambda **settings: build(**{"provider": "mailgun", "url": None, "domain": "mg.shop.example"} | settings)


async def test_the_form_has_the_whole_message_and_what_mailgun_alone_knows(
    mailgun: Build, wire: ScriptedTransport
) -> None:
    sent = full_message(
        tags=("receipt", "may"),
        track_opens=False,
        track_clicks=True,
        options={
            "mailgun": {"o:dkim": True, "o:deliverytime-optimize-period": "24H", "t:variables": {"a": 1}},
            "main": {"o:require-tls": False},
        },
    )
    verdict = await mailgun().send(sent)
    assert (verdict.outcome, verdict.message_id) == (Outcome.ACCEPTED, "m-1@mg.shop.example")
    [request] = wire.requests
    assert (request.method, request.url) == ("POST", "https://api.mailgun.net/v3/mg.shop.example/messages.mime")
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"api:k-123456").decode()
    assert fields_of(request) == [
        ("to", b"ada@example.com"),
        ("to", b"bob@example.com"),
        ("to", b"cc@example.com"),
        ("to", b"bcc@example.com"),
        ("o:tag", b"receipt"),
        ("o:tag", b"may"),
        ("o:tracking-opens", b"no"),
        ("o:tracking-clicks", b"yes"),
        ("v:order", b"42"),
        (f"v:{OUR_ID}", b"ph-7"),
        ("o:dkim", b"yes"),
        ("o:deliverytime-optimize-period", b"24H"),
        ("t:variables", b'{"a":1}'),
        ("o:require-tls", b"no"),
        ("message", message_bytes(sent)),
    ]


def test_a_form_has_a_boundary_that_stands_in_none_of_its_values() -> None:
    [first] = [form([("a", "1")], [], "seed")[0].partition("boundary=")[2]]
    content_type, body = form([('q"o', f"--{first}"), ("ü", "Grüße\r\n")], [], "seed")
    assert first not in content_type
    assert [value for _, value in read_form(content_type, body)] == [f"--{first}".encode(), "Grüße\r\n".encode()]
    assert b'name="q%22o"' in body


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"tags": list("abcd")}, "tags: Mailgun takes 3, not 4"),
        ({"tags": ["für"]}, "tags: Mailgun takes up to 128 characters of ASCII, not 'für'"),
        ({"metadata": {"a": "x" * 16_300}}, "metadata: 16,"),
        ({"metadata": {OUR_ID: "1"}}, f"metadata.{OUR_ID}: our own id goes out under this name"),
        ({"envelope_sender": "bounces@shop.example"}, "envelope_sender: this route takes none"),
        ({"options": {"mailgun": {f"v:{OUR_ID}": "1"}}}, f"options.v:{OUR_ID}: belongs into metadata"),
        ({"options": {"mailgun": {"cc": "eve@example.com"}}}, "options.cc: stands in the message itself"),
        ({"options": {"mailgun": {"to": "eve@example.com"}}}, "options: to says who gets the message"),
        ({"options": {"main": {"message": "x"}}}, "options: message says who gets the message"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
async def test_what_it_would_refuse_is_refused_at_enqueue(
    mailgun: Build, wire: ScriptedTransport, parts: Json, reason: str
) -> None:
    content, sent = stored_and_rendered(**parts)
    [refused] = mailgun().refusals(content)
    assert refused.startswith(reason), refused
    verdict = await mailgun().send(sent)
    assert (verdict.outcome, wire.requests) == (Outcome.REJECTED, [])


def test_more_bytes_than_it_takes_are_refused_whatever_the_route_says(mailgun: Build) -> None:
    content, _ = stored_and_rendered(attachments=[Attachment(bytes(4_000_000), f"{n}.bin") for n in range(3)])
    assert mailgun(max_size="100MB").refusals(content) == []
    [refused] = mailgun(max_size="100MB").refusals(replace(content, attachments=content.attachments * 2))
    assert refused.startswith("content: ")


def test_a_message_id_is_refused_where_it_would_not_be_kept(mailgun: Build) -> None:
    content, _ = stored_and_rendered(message_id="<order-42@shop.example>")
    assert mailgun().refusals(content) == []
    [refused] = mailgun(keeps_message_id=False).refusals(content)
    assert refused.startswith("message_id: this route takes none")
    assert mailgun(keeps_message_id=False, ignore=["message_id"]).refusals(content) == []


@pytest.mark.parametrize(
    ("status", "words", "outcome", "subject"),
    [
        (400, "Domain x.example is not allowed to send: the domain is unverified", "misconfigured", Subject.ROUTE),
        (400, "Domain x.example is not allowed to send: recipient limit exceeded", "throttled", Subject.ROUTE),
        (400, "bcc parameter is not a valid address", "rejected", Subject.RECIPIENT),
        (402, "payment required", "misconfigured", Subject.ROUTE),
        (403, "the address is not on the list", "misconfigured", Subject.ROUTE),
        (404, "Domain not found: mg.shop.example", "misconfigured", Subject.ROUTE),
        (413, "too large", "rejected", Subject.MESSAGE),
    ],
)
async def test_an_odd_refusal_means(
    mailgun: Build, wire: ScriptedTransport, status: int, words: str, outcome: str, subject: Subject
) -> None:
    wire.replies(status, json.dumps({"message": words}))
    verdict = await mailgun().send(message())
    assert (verdict.outcome, verdict.subject, verdict.text) == (outcome, subject, words)


async def test_the_greeting_of_a_wrong_address_is_no_acceptance(mailgun: Build, wire: ScriptedTransport) -> None:
    wire.replies(200, "Mailgun Magnificent API")
    verdict = await mailgun().send(message())
    assert (verdict.outcome, verdict.message_id) == (Outcome.MISCONFIGURED, None)


# The look-up.

Look = Callable[..., Any]


def page(*events: Json) -> HttpAnswer:
    return HttpAnswer(200, {}, json.dumps({"items": events, "paging": {}}).encode())


def full_page(last_at: float) -> HttpAnswer:
    """As many events as fit on a page, none of them ours."""
    return page(*[{**event("m-8", "ph-6"), "timestamp": last_at}] * LISTED_MAX)


@pytest.fixture
def look_up(mailgun: Build, wire: ScriptedTransport) -> Look:
    async def look_up(*steps: HttpAnswer | HttpFailure, **changes: Any) -> LookUp:
        wire.first = [*steps]
        found = await mailgun().look_up(message(**{"date": NOW - 60} | changes))
        assert wire.first == [], "not every step was taken"
        return found

    return look_up


async def test_it_reads_the_events_of_the_first_recipient_and_compares_our_id(
    look_up: Look, wire: ScriptedTransport
) -> None:
    found = await look_up(page(event("m-8", "ph-6"), event("m-9", "ph-7")))
    assert (found.found, found.message_id) == (Found.ACCEPTED, "m-9")
    [request] = wire.requests
    url = urlsplit(request.url)
    assert (request.method, url.path) == ("GET", "/v3/mg.shop.example/events")
    assert parse_qs(url.query) == {
        "begin": [f"{NOW - 3660:.0f}"],
        "ascending": ["yes"],
        "limit": [str(LISTED_MAX)],
        "event": ["accepted"],
        "recipient": ["ada@example.com"],
    }


async def test_our_own_message_id_tells_as_well_unless_others_may_have_it(look_up: Look) -> None:
    ours = {"message": {"headers": {"message-id": "ph-7@shop.example"}}}
    assert (await look_up(page(ours))).found is Found.ACCEPTED
    given = {"message": {"headers": {"message-id": "order-42@shop.example"}}}
    assert (await look_up(page(given), message_id="<order-42@shop.example>")).found is Found.MISSING


async def test_a_no_needs_both_spellings_of_the_address(look_up: Look, wire: ScriptedTransport) -> None:
    assert (await look_up(page(), page(event("m-8", "ph-6")), to=(Address("Ada@example.com"),))).found is Found.MISSING
    assert ["recipient=Ada%40" in one.url for one in wire.requests] == [True, False]


@pytest.mark.parametrize(
    "step",
    [
        HttpAnswer(401, {}, b"Forbidden"),
        HttpAnswer(404, {}, b"{}"),
        HttpAnswer(200, {}, b"Mailgun Magnificent API"),
        HttpAnswer(200, {}, b'{"items":null}'),
        HttpFailure(FailurePhase.EXCHANGE, "read_timeout", "no answer"),
        full_page(NOW - 3660),
    ],
)
async def test_whatever_says_neither_yes_nor_no_is_not_sure(look_up: Look, step: HttpAnswer) -> None:
    assert (await look_up(step)).found is Found.UNSURE


async def test_it_reads_page_after_page_and_gives_up_on_too_many(look_up: Look, wire: ScriptedTransport) -> None:
    pages = [full_page(NOW - 50.5), full_page(NOW - 40), page(event("m-9", "ph-7"))]
    assert (await look_up(*pages)).message_id == "m-9"
    begins = [parse_qs(urlsplit(one.url).query)["begin"] for one in wire.requests]
    assert begins == [[f"{NOW - 3660:.0f}"], [f"{NOW - 51:.0f}"], [f"{NOW - 40:.0f}"]]
    assert (await look_up(*[full_page(NOW + at) for at in range(PAGES_MAX)])).found is Found.UNSURE


async def test_about_a_send_older_than_the_events_a_no_means_nothing(look_up: Look) -> None:
    assert (await look_up(page(), date=NOW - 2 * 86_400)).found is Found.MISSING
    assert (await look_up(page(), date=NOW - 4 * 86_400)).found is Found.UNSURE


async def test_an_address_that_would_break_the_query_is_not_asked_for(look_up: Look, wire: ScriptedTransport) -> None:
    assert (await look_up(to=(Address('"a b"@example.com'), ADA))).found is Found.UNSURE
    assert wire.requests == []


def test_without_a_look_up_the_route_says_so(mailgun: Build) -> None:
    assert mailgun().facts.can_look_up
    assert not mailgun(look_up="none").facts.can_look_up


class PlayedMailgun:
    """Loses the answer to the first call; its events know a message ten seconds later."""

    def __init__(self, now: Callable[[], float], *, takes_the_first: bool) -> None:
        self._now = now
        self._takes_the_first = takes_the_first
        self.taken: list[tuple[float, str]] = []  # when, and our id
        self.calls = 0

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        if request.method == "GET":
            return page(*(event("m-1", key) for at, key in self.taken if self._now() - at > 10))
        self.calls += 1
        if self._takes_the_first or self.calls > 1:
            self.taken.append((self._now(), dict(fields_of(request))[f"v:{OUR_ID}"].decode()))
        if self.calls == 1:
            return HttpFailure(FailurePhase.EXCHANGE, "read_timeout", "no answer within the timeout")
        return HttpAnswer(200, {}, b'{"id":"<m-2>","message":"Queued. Thank you."}')

    async def close(self) -> None: ...


@pytest.mark.parametrize(("takes_the_first", "calls", "message_id"), [(True, 1, "m-1"), (False, 2, "m-2")])
def test_a_message_whose_answer_was_lost_is_looked_for_and_goes_out_once(
    takes_the_first: bool, calls: int, message_id: str
) -> None:
    async def scene(stage: Stage) -> None:
        own = {"provider": "mailgun", "url": "https://mailgun.example", "api_key": "k", "look_up_lag": "30s"}
        stage.configure({"main": {**own, "domain": "mg.shop.example", "auth": None, "idempotency_header": None}})
        server = PlayedMailgun(stage.now, takes_the_first=takes_the_first)
        stage.transports["main"] = server
        stage.enqueue(email(1))
        stage.worker()
        stage.worker()
        await stage.until_status(accepted=1, within_s=200)
        assert (server.calls, len(server.taken)) == (calls, 1)
        assert stage.row("k-1")["message_id"] == message_id

    play(scene)
