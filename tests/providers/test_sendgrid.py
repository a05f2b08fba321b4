"""The `sendgrid` provider: the provider suite, where each part of a message goes, and how its logs are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.core.outcome import Found, LookUp, Outcome, Subject
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.sendgrid import OPENED_MAX
from posthouse.providers.transport import FailurePhase, HttpAnswer, HttpFailure, HttpRequest
from tests.contract.api_harness import ApiCase, ApiHarness, api_harness
from tests.contract.provider_suite import SECRET, Behaviour, ProviderSuite, stored_and_rendered
from tests.providers.loopback import Received, Reply, answer
from tests.providers.messages import ADA, full_message, message
from tests.providers.scripted import NOW, Build, ScriptedTransport
from tests.worker.stage import Stage, email, play

Json = dict[str, Any]


def refusal(words: str, field: str | None = None) -> Json:
    return {"errors": [{"message": words, "field": field, "help": None}]}


def entry(message_id: str, key: str) -> Json:
    return {"sg_message_id": f"{message_id}.recvd-7d4-1", "subject": "s", "custom_args": {OUR_ID: key}}


def in_words_of_the_sandbox(got: Received) -> Json:
    """What SendGrid makes of a body."""
    body = got.json
    [whom] = body["personalizations"]
    tracking = body.get("tracking_settings", {})
    known = {"personalizations", "content", "reply_to_list", "categories", "custom_args", "tracking_settings"}
    fields = {name: value for name, value in body.items() if name not in known}
    fields |= {**whom, "metadata": body["custom_args"]}
    names = {"text/plain": "text", "text/html": "html"}
    for content in body["content"]:
        if name := names.get(content["type"]):
            fields[name] = content["value"]
        else:
            fields["alternatives"] = [{"content_type": content["type"], "content": content["value"]}]
    fields["attachments"] = [
        {"content_type" if name == "type" else name: value for name, value in file.items()}
        for file in body.get("attachments", [])
    ]
    renamed = {"reply_to": body.get("reply_to_list"), "tags": body.get("categories")}
    flags = {
        f"track_{what}s": tracking[f"{what}_tracking"]["enable"]
        for what in ("open", "click")
        if f"{what}_tracking" in tracking
    }
    return fields | flags | {name: value for name, value in renamed.items() if value}


def logs(got: Received, known: Mapping[str, str]) -> Reply:
    if got.method == "POST":
        assert 'to_email="ada@example.com"' in got.json["query"]
        return answer(200, {"messages": [entry(message_id, key) for key, message_id in known.items()]})
    keys = {f"{message_id}.recvd-7d4-1": key for key, message_id in known.items()}
    found = unquote(got.path.rpartition("/")[2])
    return answer(200, entry(found.partition(".")[0], keys[found]))


SENDGRID = ApiCase(
    settings=lambda url: {"provider": "sendgrid", "url": url},
    replies={
        Behaviour.ACCEPT: answer(202, "", X_Message_Id="m-1"),
        Behaviour.ACCEPT_UNREADABLY: answer(202, "{"),
        Behaviour.THROTTLE: answer(
            429,
            refusal(f"too many requests {SECRET}"),
            Date="Fri, 15 Jan 2027 08:00:00 GMT",
            X_RateLimit_Remaining="0",
            X_RateLimit_Reset="1800000030",
        ),
        Behaviour.BE_OUT_OF_SERVICE: answer(503, f"<html><title>Maintenance {SECRET}</title></html>"),
        Behaviour.FAIL_MIDWAY: answer(500, refusal(f"internal error {SECRET}")),
        Behaviour.REFUSE_MESSAGE: answer(400, refusal(f"the subject is required {SECRET}", "subject")),
        Behaviour.REFUSE_RECIPIENT: answer(400, refusal(f"no address {SECRET}", "personalizations.0.to.0.email")),
        Behaviour.REFUSE_CREDENTIAL: answer(401, refusal(f"The provided authorization grant is invalid {SECRET}")),
    },
    fields=in_words_of_the_sandbox,
    key=lambda got: got.json["custom_args"][OUR_ID],
    is_send=lambda got: got.path == "/v3/mail/send",
    look_up=logs,
    expected={Behaviour.BE_OUT_OF_SERVICE: (Outcome.TRANSIENT, True, True)},
    refuses=frozenset({"raw", "part headers", "envelope_sender", "calendar", "attachments"}),
)


class TestSendgrid(ProviderSuite):
    """The `sendgrid` provider."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[ApiHarness]:
        async with api_harness(SENDGRID) as harness:
            yield harness


@pytest.fixture
def sendgrid(build: Build, wire: ScriptedTransport) -> Build:
    wire.answer = HttpAnswer(202, {"x-message-id": "m-1"}, b"")
    return lambda **settings: build(**{"provider": "sendgrid", "url": None} | settings)


async def test_every_part_has_its_place(sendgrid: Build, wire: ScriptedTransport) -> None:
    files = (Attachment(b"%PDF", "bill.pdf", "application/pdf"), Attachment(b"PNG", "l.png", "image/png", "logo"))
    sent = full_message(
        attachments=files,
        alternatives=(Alternative.amp("<html amp4email>"),),
        message_id="<order-42@shop.example>",
        track_opens=False,
        options={"sendgrid": {"ip_pool_name": "bulk", "headers": {"X-More": "1"}}},
    )
    verdict = await sendgrid(subuser="shop").send(sent)
    assert (verdict.outcome, verdict.message_id, verdict.code) == (Outcome.ACCEPTED, "m-1", "202")
    [request] = wire.requests
    assert (request.method, request.url) == ("POST", "https://api.sendgrid.com/v3/mail/send")
    assert request.headers["Authorization"] == "Bearer k-123456"
    assert request.headers["On-Behalf-Of"] == "shop"
    assert json.loads(request.body) == {
        "personalizations": [
            {
                "to": [{"email": "ada@example.com", "name": "Ada"}, {"email": "bob@example.com"}],
                "cc": [{"email": "cc@example.com"}],
                "bcc": [{"email": "bcc@example.com"}],
            }
        ],
        "from": {"email": "orders@shop.example", "name": "Shop"},
        "reply_to_list": [{"email": "help@shop.example", "name": "Help"}],
        "subject": "Your order",
        "content": [
            {"type": "text/plain", "value": "Thank you."},
            {"type": "text/x-amp-html", "value": "<html amp4email>"},
            {"type": "text/html", "value": "<p>Thank you.</p>"},
        ],
        "attachments": [
            {"filename": "bill.pdf", "content": "JVBERg==", "type": "application/pdf"},
            {
                "filename": "l.png",
                "content": "UE5H",
                "type": "image/png",
                "content_id": "logo",
                "disposition": "inline",
            },
        ],
        "headers": {"X-Order": "42", "X-More": "1", "Message-ID": "<order-42@shop.example>"},
        "categories": ["receipt"],
        "custom_args": {"order": "42", OUR_ID: "ph-7"},
        "tracking_settings": {"open_tracking": {"enable": False}},
        "ip_pool_name": "bulk",
    }


async def test_words_without_a_character_are_left_out(sendgrid: Build, wire: ScriptedTransport) -> None:
    await sendgrid().send(message(text="", html="<p>Thank you.</p>"))
    assert json.loads(wire.requests[0].body)["content"] == [{"type": "text/html", "value": "<p>Thank you.</p>"}]


@pytest.mark.parametrize("odd", [None, 1, "x", ["x", None, {}], {}])
async def test_options_of_whatever_shape_go_out_for_sendgrid_to_judge(
    sendgrid: Build, wire: ScriptedTransport, odd: object
) -> None:
    await sendgrid().send(message(message_id="<a@b.example>", options={"main": {"content": odd, "headers": odd}}))
    assert json.loads(wire.requests[0].body)["content"] == odd


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"to": "ada@example.com", "cc": "Ada@Example.com"}, "cc: SendGrid takes each address once"),
        ({"headers": {"X-SG-EID": "1"}}, "headers.X-SG-EID: SendGrid sets it"),
        ({"tags": [str(number) for number in range(11)]}, "tags: SendGrid takes 10, not 11"),
        ({"tags": ["a", "a"]}, "tags: SendGrid takes each once"),
        ({"metadata": {"event": "1"}}, "metadata.event: SendGrid's events say something else"),
        ({"metadata": {"a": "x" * 9_950}}, "metadata: 10,022 bytes with our id; SendGrid takes 10,000"),
        (
            {"attachments": [Attachment(b"a", "a.csv", "text/csv; header=present")]},
            "attachments: SendGrid takes a content type without parameters",
        ),
        ({"alternatives": [Alternative.calendar("BEGIN:VCALENDAR")]}, "alternatives: this route takes none of text/c"),
        ({"options": {"sendgrid": {"custom_args": {"a": "1"}}}}, "options: custom_args says who gets the message"),
        ({"options": {"main": {"personalizations": []}}}, "options: personalizations says who gets the message"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
async def test_what_it_would_refuse_is_refused_at_enqueue(
    sendgrid: Build, wire: ScriptedTransport, parts: Json, reason: str
) -> None:
    content, sent = stored_and_rendered(**parts)
    [refused] = sendgrid().refusals(content)
    assert refused.startswith(reason), refused
    verdict = await sendgrid().send(sent)
    assert (verdict.outcome, wire.requests) == (Outcome.REJECTED, [])


def test_more_bytes_than_it_takes_are_refused_whatever_the_route_says(sendgrid: Build) -> None:
    content, _ = stored_and_rendered(attachments=[Attachment(bytes(4_000_000), f"{n}.bin") for n in range(3)])
    assert sendgrid(max_size="100MB").refusals(content) == []
    [refused] = sendgrid(max_size="100MB").refusals(replace(content, attachments=content.attachments * 2))
    assert refused.startswith("content: ")


def test_a_message_id_is_refused_where_it_would_not_be_kept(sendgrid: Build) -> None:
    content, _ = stored_and_rendered(message_id="<order-42@shop.example>")
    assert sendgrid().refusals(content) == []
    assert sendgrid(keeps_message_id=False).refusals(content) == ["message_id: this route takes none"]
    assert sendgrid(keeps_message_id=False, ignore=["message_id"]).refusals(content) == []


@pytest.mark.parametrize(
    ("status", "words", "outcome", "subject"),
    [
        (401, "Maximum credits exceeded", Outcome.THROTTLED, Subject.ROUTE),
        (401, "Authenticated user is not authorized to send mail", Outcome.MISCONFIGURED, Subject.ROUTE),
        (403, "The from address does not match a verified Sender Identity.", Outcome.MISCONFIGURED, Subject.ROUTE),
        (406, "", Outcome.MISCONFIGURED, Subject.ROUTE),
        (413, "", Outcome.REJECTED, Subject.MESSAGE),
        (451, "not in this region", Outcome.MISCONFIGURED, Subject.ROUTE),
    ],
)
async def test_an_odd_refusal_means(
    sendgrid: Build, wire: ScriptedTransport, status: int, words: str, outcome: Outcome, subject: Subject
) -> None:
    wire.replies(status, json.dumps(refusal(words)))
    verdict = await sendgrid().send(message())
    assert (verdict.outcome, verdict.subject, verdict.text) == (outcome, subject, words or verdict.text)


# The look-up.

Look = Callable[..., Any]


def answers(*documents: Json) -> list[HttpAnswer | HttpFailure]:
    return [HttpAnswer(200, {}, json.dumps(document).encode()) for document in documents]


def listed(*ids: str) -> Json:
    return {"messages": [{"sg_message_id": f"{one}.filter0-1", "subject": "Your order"} for one in ids]}


@pytest.fixture
def look_up(sendgrid: Build, wire: ScriptedTransport) -> Look:
    async def look_up(*steps: HttpAnswer | HttpFailure, **changes: Any) -> LookUp:
        wire.first = [*steps]
        found = await sendgrid().look_up(message(**{"date": NOW - 60} | changes))
        assert wire.first == [], "not every step was taken"
        return found

    return look_up


async def test_it_reads_the_log_of_the_first_recipient_and_compares_our_id(
    look_up: Look, wire: ScriptedTransport
) -> None:
    found = await look_up(*answers(listed("m-8", "m-9"), entry("m-8", "ph-6"), entry("m-9", "ph-7")))
    assert (found.found, found.message_id) == (Found.ACCEPTED, "m-9")
    asked, *opened = wire.requests
    assert (asked.method, asked.url) == ("POST", "https://api.sendgrid.com/v3/logs")
    assert json.loads(asked.body) == {
        "query": 'to_email="ada@example.com" AND sg_message_id_created_at > TIMESTAMP "2027-01-15T06:59:00Z"',
        "limit": OPENED_MAX + 1,
    }
    assert [(one.method, one.url.rpartition("/")[2]) for one in opened] == [
        ("GET", "m-8.filter0-1"),
        ("GET", "m-9.filter0-1"),
    ]


async def test_a_no_needs_every_entry_and_both_spellings_of_the_address(look_up: Look, wire: ScriptedTransport) -> None:
    steps = answers(listed("m-8"), entry("m-8", "ph-6"), listed("m-9"), entry("m-9", "ph-5"))
    assert (await look_up(*steps, to=(Address("Ada@example.com"),))).found is Found.MISSING
    queries = [json.loads(one.body)["query"] for one in wire.requests if one.body]
    assert [query.split('"')[1] for query in queries] == ["Ada@example.com", "ada@example.com"]


@pytest.mark.parametrize(
    "steps",
    [
        [HttpAnswer(403, {}, b'{"errors":[{"message":"access forbidden"}]}')],
        [HttpAnswer(404, {}, b"{}")],
        [HttpAnswer(200, {}, b"[]")],
        [HttpAnswer(200, {}, b'{"messages":[{}]}')],
        [HttpFailure(FailurePhase.EXCHANGE, "read_timeout", "no answer")],
        answers({"messages": None}),
        answers(listed(*map(str, range(OPENED_MAX + 1)))),
        [*answers(listed("m-8")), HttpAnswer(404, {}, b"{}")],
        answers(listed("m-8"), {"sg_message_id": "m-8", "subject": "Your order"}),
    ],
)
async def test_whatever_says_neither_yes_nor_no_is_not_sure(look_up: Look, steps: list[HttpAnswer]) -> None:
    assert (await look_up(*steps)).found is Found.UNSURE


async def test_all_steps_together_take_no_longer_than_a_call_may(
    sendgrid: Build, monkeypatch: pytest.MonkeyPatch, wire: ScriptedTransport
) -> None:
    async def never(*_: Any, **__: Any) -> HttpAnswer:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(wire, "request", never)
    found = await sendgrid(connect_timeout="10ms", timeout="10ms").look_up(message(date=NOW))
    assert (found.found, found.text) == (Found.UNSURE, "no end to the look-up within the timeout")


async def test_about_a_send_older_than_the_logs_a_no_means_nothing(look_up: Look) -> None:
    assert (await look_up(*answers(listed()), date=NOW - 29 * 86_400)).found is Found.MISSING
    assert (await look_up(*answers(listed()), date=NOW - 31 * 86_400)).found is Found.UNSURE


async def test_an_address_that_would_break_the_query_is_not_asked_for(look_up: Look, wire: ScriptedTransport) -> None:
    assert (await look_up(to=(Address('"a\\"b"@example.com'), ADA))).found is Found.UNSURE
    assert wire.requests == []


def test_without_a_look_up_the_route_says_so(sendgrid: Build) -> None:
    assert sendgrid().facts.can_look_up
    assert not sendgrid(look_up="none").facts.can_look_up


class PlayedSendgrid:
    """Loses the answer to the first call; its logs know a message ten seconds later."""

    def __init__(self, now: Callable[[], float], *, takes_the_first: bool) -> None:
        self._now = now
        self._takes_the_first = takes_the_first
        self.taken: list[tuple[float, str]] = []  # when, and our id
        self.calls = 0

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        if request.method == "GET":
            place = int(request.url.rpartition("/m-")[2].partition(".")[0])
            return self._says(entry(f"m-{place}", self.taken[place][1]))
        body = json.loads(request.body)
        if "query" in body:
            return self._says(listed(*(f"m-{n}" for n, (at, _) in enumerate(self.taken) if self._now() - at > 10)))
        self.calls += 1
        if self._takes_the_first or self.calls > 1:
            self.taken.append((self._now(), body["custom_args"][OUR_ID]))
        if self.calls == 1:
            return HttpFailure(FailurePhase.EXCHANGE, "read_timeout", "no answer within the timeout")
        return HttpAnswer(202, {"x-message-id": "m-2"}, b"")

    def _says(self, body: Json) -> HttpAnswer:
        return HttpAnswer(200, {}, json.dumps(body).encode())

    async def close(self) -> None: ...


@pytest.mark.parametrize(("takes_the_first", "calls", "message_id"), [(True, 1, "m-0"), (False, 2, "m-2")])
def test_a_message_whose_answer_was_lost_is_looked_for_and_goes_out_once(
    takes_the_first: bool, calls: int, message_id: str
) -> None:
    async def scene(stage: Stage) -> None:
        own = {"provider": "sendgrid", "url": "https://sendgrid.example", "api_key": "k", "look_up_lag": "30s"}
        stage.configure({"main": {**own, "auth": None, "idempotency_header": None}})
        server = PlayedSendgrid(stage.now, takes_the_first=takes_the_first)
        stage.transports["main"] = server
        stage.enqueue(email(1))
        stage.worker()
        stage.worker()
        await stage.until_status(accepted=1, within_s=200)
        assert (server.calls, len(server.taken)) == (calls, 1)
        assert stage.row("k-1")["message_id"] == message_id

    play(scene)
