"""The `postmark` provider: its requests, its refusals, its answers and its search."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.content import StoredFile
from posthouse.core.outcome import Found, LookUp, Outcome, Subject
from posthouse.providers.port import Provider
from posthouse.providers.postmark import REFUSALS, RULES, TOKEN_REFUSED
from posthouse.providers.transport import FailurePhase, HttpAnswer, HttpFailure, HttpRequest
from tests.contract.api_harness import ApiCase, ApiHarness, BatchCase, api_harness
from tests.contract.batch_suite import BatchSuite
from tests.contract.provider_suite import SECRET, Behaviour, ProviderSuite
from tests.providers.loopback import Received, Reply, answer
from tests.providers.messages import ADA, BOB, content, full_message, message
from tests.providers.postmark_sandbox import in_our_words
from tests.providers.scripted import NOW, Build, ScriptedTransport
from tests.worker.stage import Stage, email, play


def error(code: int, text: str = "") -> dict[str, Any]:
    return {"ErrorCode": code, "Message": text}


def look_up(got: Received, known: Mapping[str, str]) -> Reply:
    query = parse_qs(urlsplit(got.path).query)
    assert (query["count"], query["offset"], query["messagestream"]) == (["1"], ["0"], ["outbound"])
    [key] = query["metadata_posthouse_id"]
    messages = [{"MessageID": known[key], "Metadata": {"posthouse_id": key}}] if key in known else []
    return answer(200, {"TotalCount": len(messages), "Messages": messages})


POSTMARK = ApiCase(
    settings=lambda url: {"provider": "postmark", "url": url},
    replies={
        Behaviour.ACCEPT: answer(200, {"To": "ada@example.com", "MessageID": "m-1", **error(0, "OK")}),
        Behaviour.ACCEPT_UNREADABLY: answer(200, '{"To": "ada@example.com", "MessageID": "m-'),
        Behaviour.THROTTLE: answer(429, error(429, f"Rate limit exceeded {SECRET}")),
        Behaviour.BE_OUT_OF_SERVICE: answer(503, error(100, f"Maintenance {SECRET}")),
        Behaviour.FAIL_MIDWAY: answer(500, error(0, SECRET), X_Request_Id=SECRET),
        Behaviour.REFUSE_MESSAGE: answer(422, error(300, f"Zero recipients specified {SECRET}")),
        Behaviour.REFUSE_RECIPIENT: answer(422, error(406, f"Found inactive addresses: ada@example.com. {SECRET}")),
        Behaviour.REFUSE_CREDENTIAL: answer(401, error(10, f"Request does not contain a valid token: {SECRET}")),
    },
    fields=lambda got: in_our_words(got.json),
    key=lambda got: got.json["Metadata"]["posthouse_id"],
    look_up=look_up,
    batch=BatchCase(
        keys=lambda got: [one["Metadata"]["posthouse_id"] for one in got.json],
        results=lambda got: [
            {"To": one["To"], "MessageID": f"m-{one['Metadata']['posthouse_id']}", **error(0, "OK")} for one in got.json
        ],
        refused=error(406, f"Found inactive addresses. {SECRET}"),
        refused_whole=(answer(422, error(402, f"Invalid JSON {SECRET}")), answer(413, error(413)), answer(404, "")),
        said_no_more=error(9999, "a new one"),
        named=True,
    ),
    refuses=frozenset({"part headers", "amp", "calendar", "raw", "message_id", "envelope_sender"}),
    can_say_when=False,
)


class TestContract(ProviderSuite, BatchSuite):
    """What every provider must do, and one that takes several messages by a call."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[ApiHarness]:
        async with api_harness(POSTMARK) as harness:
            yield harness


@pytest.fixture
def postmark(build: Build) -> Provider:
    return build(provider="postmark", url=None)


async def test_every_part_of_a_message_has_its_place(postmark: Provider, wire: ScriptedTransport) -> None:
    logo = Attachment(b"PNG", "logo.png", "image/png", "logo")
    await postmark.send(full_message(attachments=[logo], track_opens=True, track_clicks=False))
    [request] = wire.requests
    assert (request.method, request.url) == ("POST", "https://api.postmarkapp.com/email")
    assert request.headers == {
        "Accept": "application/json",
        "User-Agent": "posthouse",
        "Content-Type": "application/json",
        "X-Postmark-Server-Token": "k-123456",
    }
    assert Received("POST", "", {}, request.body).json == {
        "From": '"Shop" <orders@shop.example>',
        "To": '"Ada" <ada@example.com>, bob@example.com',
        "Cc": "cc@example.com",
        "Bcc": "bcc@example.com",
        "ReplyTo": '"Help" <help@shop.example>',
        "Subject": "Your order",
        "TextBody": "Thank you.",
        "HtmlBody": "<p>Thank you.</p>",
        "Tag": "receipt",
        "Metadata": {"order": "42", "posthouse_id": "ph-7"},
        "Headers": [{"Name": "X-Order", "Value": "42"}],
        "Attachments": [{"Name": "logo.png", "Content": "UE5H", "ContentType": "image/png", "ContentID": "cid:logo"}],
        "TrackOpens": True,
        "TrackLinks": "None",
        "MessageStream": "outbound",
    }


async def test_options_go_into_the_body_and_the_search_follows_the_stream(
    postmark: Provider, wire: ScriptedTransport
) -> None:
    sent = message(options={"postmark": {"MessageStream": "broadcast", "InlineCss": True}})
    await postmark.send(sent)
    body = Received("POST", "", {}, wire.requests[0].body).json
    assert (body["MessageStream"], body["InlineCss"]) == ("broadcast", True)
    await postmark.look_up(sent)
    assert "messagestream=broadcast&" in wire.requests[1].url


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"to": tuple(Address(f"a{n}@example.com") for n in range(49)), "cc": (ADA, BOB)}, "to: this route takes 50"),
        ({"text": "ü" * 2_500_001}, "text: 5,000,002 bytes"),
        ({"html": "x" * 5_000_001}, "html: 5,000,001 bytes"),
        ({"attachments": (StoredFile("d", 7_500_000, "a.pdf", "application/pdf"),)}, "content: 10,000,010 bytes"),
        ({"tags": ("a", "b")}, "tags: this route takes one, not 2"),
        ({"tags": ("a" * 1001,)}, "tags: this provider takes 1000 characters"),
        ({"metadata": {f"n{n}": "v" for n in range(10)}}, "metadata: this provider takes 10 pairs"),
        ({"metadata": {"a" * 21: "v"}}, "metadata.aaaaaaaaaaaaaaaaaaaaa: this provider takes names of 20"),
        ({"metadata": {"order": "v" * 81}}, "metadata.order: this provider takes 80 characters"),
        ({"metadata": {"posthouse_id": "v"}}, "metadata.posthouse_id: our own id"),
        ({"options": {"postmark": {"To": "x@example.com"}}}, "options: To says who gets the message"),
        ({"options": {"main": {"Metadata": {}}}}, "options: Metadata says who gets the message"),
        ({"options": {"postmark": {"MessageStream": 7}}}, "options: MessageStream is not text"),
    ],
)
def test_what_postmark_would_refuse_is_refused_at_enqueue(
    postmark: Provider, parts: dict[str, Any], reason: str
) -> None:
    [refused] = postmark.refusals(content(**parts))
    assert refused.startswith(reason)


def test_as_much_as_postmark_takes_is_carried(postmark: Provider) -> None:
    everything = content(
        to=tuple(Address(f"a{n}@example.com") for n in range(50)),
        text="x" * 4_999_997,
        html="x" * 4_999_999,
        attachments=(StoredFile("d", 3, "a.pdf", "application/pdf"),),
        tags=("a" * 1000,),
        metadata={**{f"n{n}": "v" * 80 for n in range(8)}, "a" * 20: "v"},
    )
    assert postmark.refusals(everything) == []


def test_limits_that_nobody_is_sure_of_are_settings(build: Build) -> None:
    route = build(
        provider="postmark",
        url=None,
        metadata_pairs_max=20,
        metadata_name_chars_max=30,
        metadata_value_chars_max=100,
        look_up_lag="90s",
    )
    assert route.refusals(content(metadata={f"{n:030}": "v" * 100 for n in range(19)})) == []
    assert route.facts.look_up_lag_s == 90.0


def test_it_dedupes_nothing_and_can_be_asked(postmark: Provider) -> None:
    facts = postmark.facts
    assert (facts.kind, facts.key_lifetime_s, facts.can_look_up, facts.look_up_lag_s) == ("postmark", 0.0, True, 300.0)


OUTCOMES = [
    (422, error(300, "Invalid 'To' address: 'ada'."), Outcome.REJECTED, Subject.RECIPIENT),
    (422, error(300, "Invalid 'From' address: 'shop'."), Outcome.REJECTED, Subject.MESSAGE),
    (422, error(400, "not a Sender Signature"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (422, error(401, "not confirmed"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (422, error(402, "Invalid JSON"), Outcome.REJECTED, Subject.MESSAGE),
    (422, error(405, "Not allowed to send"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (422, error(406, "marked as inactive"), Outcome.REJECTED, Subject.RECIPIENT),
    (422, error(411, "forbidden attachment type"), Outcome.REJECTED, Subject.MESSAGE),
    (422, error(412, "pending approval"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (422, error(413, "may not send"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (422, error(100, "maintenance"), Outcome.TRANSIENT, Subject.ROUTE),
    (422, error(9999, "a new one"), Outcome.REJECTED, Subject.MESSAGE),
    (401, error(10, "bad token"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (403, "<html><body>Forbidden</body></html>", Outcome.MISCONFIGURED, Subject.ROUTE),
    (413, "", Outcome.REJECTED, Subject.MESSAGE),
    (413, error(413, "the request is too large"), Outcome.REJECTED, Subject.MESSAGE),
    (403, error(403, "forbidden"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (429, error(429, "slow down"), Outcome.THROTTLED, Subject.ROUTE),
]


@pytest.mark.parametrize(("status", "body", "outcome", "subject"), OUTCOMES)
async def test_an_error_is_certainly_no_acceptance(
    postmark: Provider, wire: ScriptedTransport, status: int, body: Any, outcome: Outcome, subject: Subject
) -> None:
    wire.replies_json(status, body)
    verdict = await postmark.send(message())
    assert (verdict.outcome, verdict.subject, verdict.maybe_accepted) == (outcome, subject, False), verdict


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (500, error(0, "oops"), Outcome.TRANSIENT),
        (503, "", Outcome.TRANSIENT),
        (503, "<html><body>Unavailable</body></html>", Outcome.TRANSIENT),
        (200, error(9999, "what is this"), Outcome.UNKNOWN),
        (200, error(406, "inactive"), Outcome.UNKNOWN),
    ],
)
async def test_what_leaves_a_doubt_is_asked_about(
    postmark: Provider, wire: ScriptedTransport, status: int, body: Any, outcome: Outcome
) -> None:
    wire.replies_json(status, body)
    verdict = await postmark.send(message())
    assert (verdict.outcome, verdict.maybe_accepted) == (outcome, True), verdict


@pytest.mark.parametrize("words", ["OK", "Message accepted, but delivery may be delayed."])
async def test_an_acceptance_may_miss_its_code(postmark: Provider, wire: ScriptedTransport, words: str) -> None:
    wire.replies_json(200, {"MessageID": "m-1", "Message": words})
    verdict = await postmark.send(message())
    assert (verdict.outcome, verdict.message_id, verdict.remainders) == (Outcome.ACCEPTED, "m-1", ())


INACTIVE = "Message OK, but will not deliver to these inactive addresses: "


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        (f"{INACTIVE}bob@example.com", ("Bob@Example.com",)),
        (f"{INACTIVE}cc@example.com, bob@example.com. Inactive recipients are…", ("Bob@Example.com", "cc@example.com")),
        (f"{INACTIVE}somebody@else.example.", ()),
        (f"{INACTIVE}ada@example.com, bob@example.com, cc@example.com.", ()),
    ],
)
async def test_recipients_who_are_left_out_of_an_acceptance_are_told_apart(
    postmark: Provider, wire: ScriptedTransport, words: str, left_out: tuple[str, ...]
) -> None:
    wire.replies_json(200, {"MessageID": "m-1", **error(0, words)})
    sent = message(to=(ADA, Address("Bob@Example.com")), cc=(Address("cc@example.com"),))
    verdict = await postmark.send(sent)
    assert (verdict.outcome, verdict.message_id) == (Outcome.ACCEPTED, "m-1")
    assert [one.addresses for one in verdict.remainders] == ([left_out] if left_out else [])
    for one in verdict.remainders:
        assert (one.verdict.outcome, one.verdict.subject) == (Outcome.REJECTED, Subject.RECIPIENT)


async def test_a_batch_is_the_list_of_what_each_message_would_have_been(
    postmark: Provider, wire: ScriptedTransport
) -> None:
    sent = [message(), full_message(idempotency_key="ph-8", options={"postmark": {"MessageStream": "broadcast"}})]
    for one in sent:
        await postmark.send(one)
    await postmark.send_together(sent)
    *alone, together = wire.requests
    assert (together.method, together.url) == ("POST", "https://api.postmarkapp.com/email/batch")
    assert together.headers == alone[0].headers
    assert together.body == b"[" + b",".join(request.body for request in alone) + b"]"


@pytest.mark.parametrize(("status", "body", "outcome", "subject"), OUTCOMES)
async def test_an_error_in_a_batch_is_what_it_would_be_alone(
    postmark: Provider, wire: ScriptedTransport, status: int, body: Any, outcome: Outcome, subject: Subject
) -> None:
    if status not in (401, 422) or body["ErrorCode"] not in {TOKEN_REFUSED, *REFUSALS}:
        return  # such an answer is the whole call's, or leaves a doubt
    wire.replies_json(200, [{"MessageID": "m-1", **error(0, "OK")}, body])
    taken, refused = await postmark.send_together([message(), message(idempotency_key="ph-8")])
    assert taken is not None
    assert refused is not None
    assert (taken.outcome, taken.message_id) == (Outcome.ACCEPTED, "m-1")
    assert (refused.outcome, refused.subject, refused.maybe_accepted) == (outcome, subject, False), refused


def test_the_error_codes_that_are_certain_in_a_batch_are_those_that_the_rules_decide() -> None:
    named = {code for rule in RULES for answer in rule.matches for code in re.findall(r'ErrorCode":(\d+)', answer.text)}
    assert {int(code) for code in named} - {0, 600} == REFUSALS | {TOKEN_REFUSED}


async def test_who_is_left_out_in_a_batch_is_told_apart(postmark: Provider, wire: ScriptedTransport) -> None:
    results = [{"MessageID": "m-1", **error(0, "OK")}, {"MessageID": "m-2", **error(0, f"{INACTIVE}bob@example.com.")}]
    wire.replies_json(200, results)
    whole, partly = await postmark.send_together([message(to=(ADA, BOB)), message(to=(ADA, BOB))])
    assert whole is not None
    assert partly is not None
    assert (whole.remainders, [one.addresses for one in partly.remainders]) == ((), [("bob@example.com",)])


async def test_what_does_not_fit_into_a_call_is_left_for_another(postmark: Provider, wire: ScriptedTransport) -> None:
    wire.replies_json(200, [{"MessageID": f"m-{n}", **error(0, "OK")} for n in range(2)])
    verdicts = await postmark.send_together([message(text="x" * size) for size in (4_000_000, 4_000_000, 4_000_000)])
    assert [verdict and verdict.message_id for verdict in verdicts] == ["m-0", "m-1", None]


async def test_a_message_that_no_call_can_be_made_of_holds_up_no_other(
    postmark: Provider, wire: ScriptedTransport
) -> None:
    wire.replies_json(200, [{"MessageID": "m-1", **error(0, "OK")}])
    taken, faulty = await postmark.send_together([message(), message(metadata={"order": object()})])
    assert (taken and taken.message_id, faulty) == ("m-1", None)


@pytest.mark.parametrize("batch", [1, 500])
def test_how_many_share_a_call_is_a_setting(build: Build, batch: int) -> None:
    assert build(provider="postmark", url=None).facts.batch_max == 50
    assert build(provider="postmark", url=None, batch=batch).facts.batch_max == batch


FOUND = {"MessageID": "m-7", "Metadata": {"posthouse_id": "ph-7"}}


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (200, {"TotalCount": 1, "Messages": [FOUND]}, Found.ACCEPTED),
        (200, {"TotalCount": 1, "Messages": [{"MessageID": "m-7"}]}, Found.ACCEPTED),
        (200, {"TotalCount": 0, "Messages": []}, Found.MISSING),
        (200, {"TotalCount": 3, "Messages": []}, Found.UNSURE),
        (200, {"Messages": []}, Found.UNSURE),
        (200, {"TotalCount": 9, "Messages": [FOUND | {"Metadata": {"posthouse_id": "ph-8"}}]}, Found.UNSURE),
        (200, {"TotalCount": 9, "Messages": [FOUND | {"Metadata": {}}]}, Found.UNSURE),
        (200, error(0, "OK"), Found.UNSURE),
        (200, "<html>", Found.UNSURE),
        (404, "", Found.UNSURE),
        (404, {"TotalCount": 0, "Messages": []}, Found.UNSURE),
        (401, error(10), Found.UNSURE),
        (500, error(0), Found.UNSURE),
    ],
)
async def test_the_search_says_no_only_where_it_is_certain(
    postmark: Provider, wire: ScriptedTransport, status: int, body: Any, found: Found
) -> None:
    wire.replies_json(status, body)
    said = await postmark.look_up(message(date=NOW))
    assert said.found is found
    assert said.message_id == ("m-7" if found is Found.ACCEPTED else None)


@pytest.mark.parametrize(("age_s", "found"), [(7 * 86400 - 1, Found.MISSING), (7 * 86400 + 1, Found.UNSURE)])
async def test_the_search_says_nothing_about_what_postmark_does_not_keep_any_more(
    postmark: Provider, wire: ScriptedTransport, age_s: float, found: Found
) -> None:
    wire.replies_json(200, {"TotalCount": 0, "Messages": []})
    assert (await postmark.look_up(message(date=NOW - age_s))).found is found


async def test_the_search_that_was_cut_off_is_unsure(postmark: Provider, wire: ScriptedTransport) -> None:
    wire.replies(200, '{"TotalCount": 0, "Messages": [')
    assert await postmark.look_up(message()) == LookUp(Found.UNSURE, text="200 no usable answer")


async def test_another_address_is_its_root(build: Build, wire: ScriptedTransport) -> None:
    route = build(provider="postmark", url="http://127.0.0.1:8025/postmark/")
    await route.send(message())
    await route.look_up(message())
    assert [request.url.partition("?")[0] for request in wire.requests] == [
        "http://127.0.0.1:8025/postmark/email",
        "http://127.0.0.1:8025/postmark/messages/outbound",
    ]


class PlayedPostmark:
    """Takes messages, and loses the answer to the first call; its search knows a message ten seconds later."""

    def __init__(self, now: Callable[[], float], *, takes_the_first: bool) -> None:
        self._now = now
        self._takes_the_first = takes_the_first
        self.taken: dict[str, float] = {}  # when, by our id
        self.calls = 0

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        if request.method == "GET":
            [key] = parse_qs(urlsplit(request.url).query)["metadata_posthouse_id"]
            known = key in self.taken and self._now() - self.taken[key] > 10
            found = [{"MessageID": "m-1", "Metadata": {"posthouse_id": key}}] if known else []
            return self._says({"TotalCount": len(found), "Messages": found})
        self.calls += 1
        if self._takes_the_first or self.calls > 1:
            self.taken[json.loads(request.body)["Metadata"]["posthouse_id"]] = self._now()
        if self.calls == 1:
            return HttpFailure(FailurePhase.EXCHANGE, "read_timeout", "no answer within the timeout")
        return self._says({"MessageID": "m-2", **error(0, "OK")})

    def _says(self, body: Mapping[str, Any]) -> HttpAnswer:
        return HttpAnswer(200, {}, json.dumps(body).encode())

    async def close(self) -> None: ...


ROUTE = {
    "provider": "postmark",
    "url": "https://postmark.example",
    "api_key": "k",
    "auth": None,
    "idempotency_header": None,
    "look_up_lag": "30s",
}


@pytest.mark.parametrize(("takes_the_first", "calls", "message_id"), [(True, 1, "m-1"), (False, 2, "m-2")])
def test_a_message_whose_answer_was_lost_is_asked_about_and_goes_out_once(
    takes_the_first: bool, calls: int, message_id: str
) -> None:
    async def scene(stage: Stage) -> None:
        stage.configure({"main": ROUTE})
        server = PlayedPostmark(stage.now, takes_the_first=takes_the_first)
        stage.transports["main"] = server
        stage.enqueue(email(1))
        stage.worker()
        stage.worker()
        await stage.until_status(accepted=1, within_s=200)
        assert (server.calls, len(server.taken)) == (calls, 1)
        assert stage.row("k-1")["message_id"] == message_id

    play(scene)


def test_a_recipient_who_is_left_out_is_rejected_and_the_others_have_their_copy() -> None:
    class LeavesBobOut(PlayedPostmark):
        async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
            self.calls += 1
            return self._says({"MessageID": "m-1", **error(0, f"{INACTIVE}bob@example.com.")})

    async def scene(stage: Stage) -> None:
        stage.configure({"main": ROUTE})
        server = LeavesBobOut(stage.now, takes_the_first=True)
        stage.transports["main"] = server
        stage.enqueue(email(1, to=["ada@example.com", "bob@example.com"]))
        stage.worker()
        await stage.until_status(accepted=1, failed=1, within_s=60)
        assert server.calls == 1
        told = {row["status"]: row["recipients"] for row in stage.rows()}
        assert "bob@example.com" not in str(told["accepted"])
        assert "bob@example.com" in str(told["failed"])

    play(scene)
