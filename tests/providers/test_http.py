"""The `http` provider against a scripted API: what goes out, what comes back, and what is refused beforehand."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.content import Content
from posthouse.core.outcome import Found, LookUp, Outcome, Subject
from posthouse.providers.api import ApiProvider
from posthouse.providers.transport import FailurePhase, HttpFailure, TransportOptions
from tests.providers.messages import ADA, BOB, full_message, message
from tests.providers.scripted import URL, Build, ScriptedTransport


async def test_a_call_goes_out_with_key_credential_and_body(build: Build, wire: ScriptedTransport) -> None:
    verdict = await build(idempotency_header="Idempotency-Key", timeout="7s").send(message())
    sent = wire.requests[0]
    assert (sent.method, sent.url, wire.timeouts) == ("POST", URL, [7.0])
    assert sent.headers == {
        "Accept": "application/json",
        "User-Agent": "posthouse",
        "Content-Type": "application/json",
        "Idempotency-Key": "ph-7",
        "Authorization": "Bearer k-123456",
    }
    assert b'"metadata":{"posthouse_id":"ph-7"}' in sent.body
    assert (verdict.outcome, verdict.message_id, verdict.code) == (Outcome.ACCEPTED, "m-1", "200")


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        ({}, ("Authorization", "Bearer k-123456")),
        ({"auth": "header"}, ("X-Api-Key", "k-123456")),
        ({"auth": "header", "auth_header": "X-Postmark-Server-Token"}, ("X-Postmark-Server-Token", "k-123456")),
        (
            {"auth": "header", "auth_header": "Authorization", "auth_prefix": "Token "},
            ("Authorization", "Token k-123456"),
        ),
        (
            {"auth": "basic", "username": "api", "password": "pässword"},
            ("Authorization", "Basic " + base64.b64encode("api:pässword".encode()).decode()),
        ),
        ({"auth": "basic", "username": "k-1"}, ("Authorization", "Basic " + base64.b64encode(b"k-1:").decode())),
    ],
)
async def test_a_call_is_let_in_by(
    build: Build, wire: ScriptedTransport, settings: dict[str, str], header: tuple[str, str]
) -> None:
    await build(**settings).send(message())
    assert wire.requests[0].headers[header[0]] == header[1]


async def test_a_route_without_auth_sends_no_credential(build: Build, wire: ScriptedTransport) -> None:
    await build(auth="none", api_key=None).send(message())
    assert "Authorization" not in wire.requests[0].headers


async def test_further_headers_go_out_and_win_over_the_defaults(build: Build, wire: ScriptedTransport) -> None:
    await build(headers={"user-agent": "shop/1", "X-Account": "7"}, method="PUT").send(message())
    names = {
        name: value for name, value in wire.requests[0].headers.items() if name.lower() in ("user-agent", "x-account")
    }
    assert names == {"user-agent": "shop/1", "X-Account": "7"}
    assert wire.requests[0].method == "PUT"


@pytest.mark.parametrize(
    ("message_id", "body", "headers", "found"),
    [
        ("id", '{"id":"m-1"}', {}, "m-1"),
        ("id", '{"id":12345678901234567890}', {}, "12345678901234567890"),
        ("Messages.0.To.0.MessageID", '{"Messages":[{"To":[{"MessageID":7}]}]}', {}, "7"),
        ("0._id", '[{"_id":"a"}]', {}, "a"),
        ("header:X-Message-Id", "", {"x_message_id": "h-1"}, "h-1"),
        ("header:X-Message-Id", '{"id":"m-1"}', {}, None),
        ("id", '{"message":"queued"}', {}, None),
        ("id", '{"id":null}', {}, None),
        ("id", '{"id":true}', {}, None),
        ("id", '{"id":{"a":1}}', {}, None),
        ("id", '{"id":"a\\u0000b"}', {}, None),
        ("id", '{"id":"' + "x" * 256 + '"}', {}, None),
        ("id.0", '{"id":[]}', {}, None),
        ("id", '{"id":"m-', {}, None),
        ("id", "queued", {}, None),
        ("id", "", {}, None),
    ],
)
async def test_the_message_id_is_found_or_the_message_accepted_without_one(
    build: Build, wire: ScriptedTransport, message_id: str, body: str, headers: dict[str, str], found: str | None
) -> None:
    wire.replies(202, body, **headers)
    verdict = await build(message_id=message_id).send(message())
    assert (verdict.outcome, verdict.message_id) == (Outcome.ACCEPTED, found)
    assert bool(verdict.text) is (found is None)


async def test_the_same_send_goes_out_in_the_same_bytes(build: Build, wire: ScriptedTransport) -> None:
    provider = build(idempotency_header="Idempotency-Key")
    await provider.send(full_message())
    await build(idempotency_header="Idempotency-Key").send(full_message(metadata={"order": "42"}))
    assert wire.requests[0] == wire.requests[1]


async def test_a_failure_before_the_request_left_is_not_an_acceptance(build: Build, wire: ScriptedTransport) -> None:
    wire.answer = HttpFailure(FailurePhase.CONNECT, "connect_refused", "api.example.com:443: refused")
    verdict = await build().send(message())
    assert (verdict.outcome, verdict.maybe_accepted, verdict.spends_attempt) == (Outcome.TRANSIENT, False, False)
    assert (verdict.code, verdict.text) == ("connect_refused", "api.example.com:443: refused")


async def test_a_failure_after_the_request_left_is_unknown(build: Build, wire: ScriptedTransport) -> None:
    wire.answer = HttpFailure(FailurePhase.EXCHANGE, "read_timeout", "no answer")
    assert (await build().send(message())).outcome is Outcome.UNKNOWN


async def test_retry_after_is_read_by_the_routes_own_clock(build: Build, wire: ScriptedTransport) -> None:
    wire.replies(429, retry_after="Fri, 15 Jan 2027 08:01:00 GMT")
    assert (await build().send(message())).retry_after_s == 60.0


async def test_a_missing_credential_stops_the_route_and_nothing_goes_out(
    build: Build, wire: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    verdict = await build(api_key="env:NO_SUCH_KEY").send(message())
    assert (verdict.outcome, verdict.subject, verdict.spends_attempt) == (Outcome.MISCONFIGURED, Subject.ROUTE, False)
    assert verdict.text == "routes.main.api_key: the environment variable NO_SUCH_KEY is not set"
    assert wire.requests == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [("", "is empty"), ("  \n", "is empty"), ("kéy", "has a character"), ("a\nb", "has a character")],
)
async def test_a_credential_that_can_not_be_sent_stops_the_route(
    build: Build, wire: ScriptedTransport, monkeypatch: pytest.MonkeyPatch, value: str, reason: str
) -> None:
    monkeypatch.setenv("MAIN_KEY", value)
    verdict = await build(api_key="env:MAIN_KEY").send(message())
    assert verdict.outcome is Outcome.MISCONFIGURED
    assert reason in verdict.text
    assert wire.requests == []


async def test_a_credential_file_that_is_not_text_stops_the_route(
    build: Build, wire: ScriptedTransport, tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe\x00")
    verdict = await build(api_key=f"file:{tmp_path / 'key'}").send(message())
    assert verdict.outcome is Outcome.MISCONFIGURED
    assert verdict.text.startswith(f"routes.main.api_key: the file {tmp_path / 'key'} can't be read")
    assert wire.requests == []


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_credential_is_read_again(
    build: Build, wire: ScriptedTransport, tmp_path: Path, status: int
) -> None:
    key = tmp_path / "key"
    key.write_text("old-key-1\n")
    provider = build(api_key=f"file:{key}")
    await provider.send(message())
    key.write_text("new-key-2\n")
    await provider.send(message())  # not refused yet: no reason to read the file for every message
    wire.replies(status, '{"message":"the key old-key-1 is revoked"}')
    refused = await provider.send(message())
    wire.replies(200, '{"id":"m-2"}')
    assert (await provider.send(message())).message_id == "m-2"
    sent = [request.headers["Authorization"] for request in wire.requests]
    assert sent == ["Bearer old-key-1"] * 3 + ["Bearer new-key-2"]
    assert refused.text == "the key *** is revoked"


async def test_a_credential_that_was_refused_is_said_to_have_changed_once_and_only_when_it_reads_otherwise(
    build: Build, wire: ScriptedTransport, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("old-key-1\n")
    provider = build(api_key=f"file:{key}")
    assert not provider.credential_changed()
    wire.replies(401)
    await provider.send(message())
    assert not provider.credential_changed()
    key.unlink()
    assert not provider.credential_changed(), "in the middle of being replaced"
    key.write_text("new-key-2\n")
    assert [provider.credential_changed() for _ in range(2)] == [True, False]


async def test_a_credential_that_could_not_be_read_has_changed_when_it_can_be(build: Build, tmp_path: Path) -> None:
    provider = build(api_key=f"file:{tmp_path / 'key'}")
    assert (await provider.send(message())).outcome is Outcome.MISCONFIGURED
    assert not provider.credential_changed()
    (tmp_path / "key").write_text("new-key-2\n")
    assert provider.credential_changed()


async def test_a_route_without_a_credential_never_has_another(build: Build, wire: ScriptedTransport) -> None:
    provider = build(auth="none", api_key=None)
    wire.replies(403)
    await provider.send(message())
    assert not provider.credential_changed()


async def test_an_old_credential_stays_hidden_after_the_new_one_was_read(
    build: Build, wire: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIN_KEY", "old-key-one")
    provider = build(api_key="env:MAIN_KEY")
    wire.replies(401)
    await provider.send(message())
    monkeypatch.setenv("MAIN_KEY", "new-key-two")
    wire.replies(500, "old-key-one and new-key-two")
    verdict = await provider.send(message())
    assert "old-key-one" not in repr(verdict)
    assert "new-key-two" not in repr(verdict)


def stored(**parts: Any) -> Content:
    """What an email with these parts is stored as."""
    return Content(**({"to": (ADA,), "subject": "s", "text": "t"} | parts))


ONLY_WORDS = {"from": "{from}", "to": "{to|first}", "subject": "{subject}", "html": "{html}", "tag": "{tags|first}"}


def test_the_default_body_carries_everything(build: Build) -> None:
    everything = stored(
        cc=(BOB,),
        bcc=(BOB,),
        reply_to=(BOB, ADA),
        html="h",
        headers=(("X-A", "1"),),
        tags=("a", "b"),
        metadata={"a": "b"},
        sender=BOB,
    )
    assert build().refusals(everything) == []


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"to": (ADA, BOB)}, "to: this route takes one, not 2"),
        ({"cc": (BOB,)}, "cc: this route takes none"),
        ({"bcc": (BOB,)}, "bcc: this route takes none"),
        ({"reply_to": (BOB,)}, "reply_to: this route takes none"),
        ({"headers": (("X-A", "1"),)}, "headers: this route takes none"),
        ({"tags": ("a", "b")}, "tags: this route takes one, not 2"),
        ({"metadata": {"a": "b"}}, "metadata: this route takes none"),
        ({"text": "t"}, "text: this route takes none"),
        ({"text": "t", "html": None}, "text: this route takes html alone, and there is none"),
    ],
)
async def test_what_the_body_has_no_place_for_is_refused(
    build: Build, wire: ScriptedTransport, parts: dict[str, Any], reason: str
) -> None:
    provider = build(body=ONLY_WORDS)
    asked = {"html": "h", "text": None} | parts
    assert provider.refusals(stored(**asked)) == [reason]
    verdict = await provider.send(message(**asked))
    assert (verdict.outcome, verdict.code, verdict.text) == (Outcome.REJECTED, "unsupported", reason)
    assert wire.requests == []


async def test_what_may_be_ignored_is_left_out(build: Build, wire: ScriptedTransport) -> None:
    provider = build(body=ONLY_WORDS, ignore=["text", "reply_to", "headers", "metadata", "tags"])
    asked = full_message(to=(ADA,), cc=(), bcc=(), tags=("a", "b"))
    assert (await provider.send(asked)).outcome is Outcome.ACCEPTED
    assert wire.requests[0].body == (
        b'{"from":"\\"Shop\\" <orders@shop.example>","to":"\\"Ada\\" <ada@example.com>","subject":"Your order",'
        b'"html":"<p>Thank you.</p>","tag":"a"}'
    )


def test_words_alone_are_not_ignored_away(build: Build) -> None:
    provider = build(body=ONLY_WORDS, ignore=["text"])
    assert provider.refusals(stored()) == ["text: this route takes html alone, and there is none"]


def test_the_words_of_a_template_are_asked_about_when_they_are_known(build: Build) -> None:
    assert build(body=ONLY_WORDS).refusals(stored(text=None, subject=None, template="receipt")) == []


def test_a_header_given_twice_needs_a_body_that_lists_headers(build: Build) -> None:
    twice = stored(headers=(("X-A", "1"), ("x-a", "2")))
    assert build().refusals(twice) == ["headers.x-a: this route takes each header once"]
    listed = {"from": "{from}", "to": "{to}", "subject": "{subject}", "text": "{text}", "h": "{headers|pairs}"}
    assert build(body=listed).refusals(twice) == []


def test_our_own_name_in_the_metadata_is_taken(build: Build) -> None:
    reasons = build().refusals(stored(metadata={"posthouse_id": "x"}))
    assert reasons == ["metadata.posthouse_id: our own id goes out under this name"]


def test_facts_say_what_the_deciding_functions_need(build: Build) -> None:
    facts = build(concurrency=4, timeout="9s").facts
    assert (facts.name, facts.kind, facts.key_lifetime_s, facts.can_look_up) == ("main", "http", 0.0, False)
    assert (facts.timeout_s, facts.concurrency) == (9.0, 4)
    assert build(idempotency_header="Idempotency-Key").facts.key_lifetime_s == 86400.0
    keyed = build(idempotency_header="Idempotency-Key", idempotency_lifetime="30m")
    assert keyed.facts.key_lifetime_s == 1800.0
    asked = build(look_up_url=URL + "/{id}", look_up_lag="10s").facts
    assert (asked.can_look_up, asked.look_up_lag_s) == (True, 10.0)


def test_a_key_in_the_body_has_a_lifetime_only_when_it_is_said(build: Build) -> None:
    body = {"from": "{from}", "to": "{to}", "subject": "{subject}", "headers": {"idempotencyKey": "{id}"}}
    assert build(body=body).facts.key_lifetime_s == 0.0
    assert build(body=body, idempotency_lifetime="30m").facts.key_lifetime_s == 1800.0


async def test_the_first_call_opens_the_transport_with_the_routes_options(
    build: Build, wire: ScriptedTransport, tmp_path: Path
) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("")
    provider = build(concurrency=4, connect_timeout="1s", keepalive="4s", ca_file=str(authority))
    assert wire.options is None
    await provider.send(message())
    assert wire.options == TransportOptions(1.0, 4, 4.0, authority)


LOOK_UP = {"look_up_url": "https://api.example.com/v1/messages?metadata_id={id}&count=1"}
LISTED = LOOK_UP | {"look_up_found": "Messages.0", "look_up_message_id": "Messages.0.MessageID"}


@pytest.mark.parametrize(
    ("settings", "status", "body", "found", "message_id"),
    [
        (LOOK_UP, 200, '{"id":"m-1"}', Found.ACCEPTED, None),
        (LOOK_UP | {"look_up_message_id": "id"}, 200, '{"id":"m-1"}', Found.ACCEPTED, "m-1"),
        (LOOK_UP, 404, '{"message":"not found"}', Found.MISSING, None),
        (LOOK_UP, 404, "", Found.MISSING, None),
        (LOOK_UP, 404, "<html><title>404</title></html>", Found.UNSURE, None),
        (LOOK_UP, 200, "", Found.UNSURE, None),
        (LOOK_UP, 200, "[]", Found.UNSURE, None),
        (LOOK_UP, 200, "{}", Found.UNSURE, None),
        (LOOK_UP, 200, "<html>welcome</html>", Found.UNSURE, None),
        (LOOK_UP, 200, '{"id":"m-', Found.UNSURE, None),
        (LOOK_UP, 500, "{}", Found.UNSURE, None),
        (LOOK_UP, 401, "{}", Found.UNSURE, None),
        (LOOK_UP, 429, "{}", Found.UNSURE, None),
        (LOOK_UP, 302, "", Found.UNSURE, None),
        (LISTED, 200, '{"Messages":[{"MessageID":"m-9"}]}', Found.ACCEPTED, "m-9"),
        (LISTED, 200, '{"Messages":[]}', Found.MISSING, None),
        (LISTED, 200, '{"Messages":null}', Found.MISSING, None),
        (LISTED, 200, '{"error":"try later"}', Found.UNSURE, None),
        (LISTED, 200, '{"Messages":{}}', Found.UNSURE, None),
        (LOOK_UP | {"look_up_found": "total"}, 200, '{"total":0}', Found.MISSING, None),
        (LOOK_UP | {"look_up_found": "total"}, 200, '{"total":1}', Found.ACCEPTED, None),
    ],
)
async def test_a_look_up_says(
    build: Build,
    wire: ScriptedTransport,
    settings: dict[str, str],
    status: int,
    body: str,
    found: Found,
    message_id: str | None,
) -> None:
    wire.replies(status, body)
    answer = await build(**settings).look_up(message())
    assert (answer.found, answer.message_id) == (found, message_id)
    assert not answer.text.isdigit(), "a bare number says nothing in a time-line"
    assert (wire.requests[0].method, wire.requests[0].body) == ("GET", b"")
    assert wire.requests[0].headers["Authorization"] == "Bearer k-123456"


async def test_a_look_up_quotes_our_id(build: Build, wire: ScriptedTransport) -> None:
    await build(**LOOK_UP).look_up(message(idempotency_key="a/b c?ü&d"))
    assert wire.requests[0].url == "https://api.example.com/v1/messages?metadata_id=a%2Fb%20c%3F%C3%BC%26d&count=1"


async def test_a_look_up_that_gets_no_answer_is_unsure(build: Build, wire: ScriptedTransport) -> None:
    wire.answer = HttpFailure(FailurePhase.CONNECT, "dns", "no such host")
    assert await build(**LOOK_UP).look_up(message()) == LookUp(Found.UNSURE, text="dns no such host")
    assert (await build().look_up(message())).found is Found.UNSURE


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, "<html>all systems go</html>", Outcome.ACCEPTED),
        (204, "", Outcome.ACCEPTED),
        (503, "", Outcome.TRANSIENT),
        (401, "", Outcome.MISCONFIGURED),
    ],
)
async def test_health_is_the_health_urls_answer(
    build: Build, wire: ScriptedTransport, status: int, body: str, outcome: Outcome
) -> None:
    wire.replies(status, body)
    verdict = await build(health_url="https://api.example.com/health").health()
    assert verdict is not None
    assert verdict.outcome is outcome
    assert (wire.requests[0].method, wire.requests[0].url) == ("GET", "https://api.example.com/health")


async def test_without_a_health_url_nothing_is_asked(build: Build, wire: ScriptedTransport) -> None:
    assert await build().health() is None
    assert wire.requests == []


async def test_closing_closes_the_transport(build: Build, wire: ScriptedTransport) -> None:
    provider = build()
    await provider.send(message())
    await provider.close()
    assert wire.closed


async def test_closing_what_made_no_call_opens_nothing(build: Build, wire: ScriptedTransport) -> None:
    await build().close()
    assert (wire.options, wire.closed) == (None, False)


async def test_a_body_can_be_json_text(build: Build, wire: ScriptedTransport) -> None:
    text = '{"From": "{from|email}", "To": "{to|email|join}", "Subject": "{subject}", "TextBody": "{text}"}'
    await build(body=text).send(message())
    assert wire.requests[0].body == (
        b'{"From":"orders@shop.example","To":"ada@example.com","Subject":"Your order","TextBody":"Thank you."}'
    )


async def test_a_sender_may_be_the_accounts_own(build: Build, wire: ScriptedTransport) -> None:
    provider = build(body={"to": "{to}", "subject": "{subject}", "text": "{text}"}, ignore=["from"])
    await provider.send(message(sender=Address("other@shop.example")))
    assert b"other@shop.example" not in wire.requests[0].body


def test_the_provider_is_the_http_one(build: Build) -> None:
    assert isinstance(build(), ApiProvider)
