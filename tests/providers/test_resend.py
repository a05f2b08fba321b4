"""The `resend` provider: its requests, its refusals and its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.content import StoredFile
from posthouse.core.outcome import Outcome, Subject
from posthouse.providers.port import Provider
from posthouse.providers.transport import FailurePhase, HttpAnswer, HttpFailure, HttpRequest
from tests.contract.api_harness import ApiCase, ApiHarness, api_harness
from tests.contract.provider_suite import SECRET, Behaviour, ProviderSuite
from tests.providers.loopback import Received, answer
from tests.providers.messages import ADA, BOB, content, full_message, message
from tests.providers.scripted import Build, ScriptedTransport
from tests.worker.stage import Stage, email, play


def error(name: str, text: str = "") -> dict[str, Any]:
    return {"statusCode": 422, "name": name, "message": text}


def fields(got: Received) -> dict[str, Any]:
    body = dict(got.json)
    pairs = {pair["name"]: pair["value"] for pair in body.pop("tags")}
    files = [file | ({"disposition": "inline"} if "content_id" in file else {}) for file in body.pop("attachments", [])]
    return body | {"metadata": pairs, "attachments": files}


RESEND = ApiCase(
    settings=lambda url: {"provider": "resend", "url": url},
    replies={
        Behaviour.ACCEPT: answer(200, {"id": "m-1"}),
        Behaviour.ACCEPT_UNREADABLY: answer(200, '{"id": "m-'),
        Behaviour.THROTTLE: answer(429, error("rate_limit_exceeded", SECRET), Retry_After="30"),
        Behaviour.BE_OUT_OF_SERVICE: answer(503, f"<html><title>Maintenance {SECRET}</title></html>"),
        Behaviour.FAIL_MIDWAY: answer(500, error("application_error", SECRET), X_Request_Id=SECRET),
        Behaviour.REFUSE_MESSAGE: answer(422, error("missing_required_field", f"Missing `subject` field {SECRET}")),
        Behaviour.REFUSE_RECIPIENT: answer(422, error("validation_error", f"Invalid `to` field. {SECRET}")),
        Behaviour.REFUSE_CREDENTIAL: answer(401, error("restricted_api_key", f"The key {SECRET} may only send")),
    },
    fields=fields,
    key=lambda got: got.headers.get("idempotency-key"),
    refuses=frozenset(
        {
            "tags",
            "part headers",
            "amp",
            "calendar",
            "raw",
            "message_id",
            "envelope_sender",
            "track_opens",
            "track_clicks",
        }
    ),
)


class TestContract(ProviderSuite):
    """What every provider must do."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[ApiHarness]:
        async with api_harness(RESEND) as harness:
            yield harness


@pytest.fixture
def resend(build: Build) -> Provider:
    return build(provider="resend", url=None)


async def test_every_part_of_a_message_has_its_place(resend: Provider, wire: ScriptedTransport) -> None:
    logo = Attachment(b"PNG", "logo.png", "image/png", "logo")
    await resend.send(full_message(tags=(), attachments=[logo]))
    [request] = wire.requests
    assert (request.method, request.url) == ("POST", "https://api.resend.com/emails")
    assert request.headers == {
        "Accept": "application/json",
        "User-Agent": "posthouse",
        "Content-Type": "application/json",
        "Idempotency-Key": "ph-7",
        "Authorization": "Bearer k-123456",
    }
    assert Received("POST", "", {}, request.body).json == {
        "from": '"Shop" <orders@shop.example>',
        "to": ['"Ada" <ada@example.com>', "bob@example.com"],
        "cc": ["cc@example.com"],
        "bcc": ["bcc@example.com"],
        "reply_to": ['"Help" <help@shop.example>'],
        "subject": "Your order",
        "text": "Thank you.",
        "html": "<p>Thank you.</p>",
        "headers": {"X-Order": "42"},
        "attachments": [
            {"filename": "logo.png", "content": "UE5H", "content_type": "image/png", "content_id": "logo"},
        ],
        "tags": [{"name": "order", "value": "42"}, {"name": "posthouse_id", "value": "ph-7"}],
    }


async def test_options_go_into_the_body(resend: Provider, wire: ScriptedTransport) -> None:
    await resend.send(message(options={"resend": {"topic_id": "t-1"}}))
    assert Received("POST", "", {}, wire.requests[0].body).json["topic_id"] == "t-1"


def file(filename: str, content_type: str) -> StoredFile:
    return StoredFile("d", 3, filename, content_type)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"to": tuple(Address(f"a{n}@example.com") for n in range(49)), "bcc": (ADA, BOB)}, "to: this route takes 50"),
        ({"tags": ("receipt",)}, "tags: this route takes none"),
        ({"headers": (("X-A", "1"), ("x-a", "2"))}, "headers.x-a: this route takes each header once"),
        ({"metadata": {"order no": "42"}}, "metadata.order no: this provider takes up to 256 letters of ASCII"),
        ({"metadata": {"order": "42/7"}}, "metadata.order: this provider takes"),
        ({"metadata": {"order": "v" * 257}}, "metadata.order: this provider takes"),
        ({"metadata": {"posthouse_id": "v"}}, "metadata.posthouse_id: our own id"),
        ({"attachments": (file("data.txt", "text/csv"),)}, "attachments: data.txt doesn't end as text/csv does"),
        ({"attachments": (file("picture", "image/png"),)}, "attachments: picture doesn't end as image/png does"),
        ({"track_opens": True}, "track_opens: this route takes none"),
        ({"options": {"resend": {"tags": []}}}, "options: tags says who gets the message or which one it is"),
        ({"options": {"resend": {"bcc": []}}}, "options: bcc says who gets the message or which one it is"),
    ],
)
def test_what_resend_would_refuse_or_drop_is_refused_at_enqueue(
    resend: Provider, parts: dict[str, Any], reason: str
) -> None:
    [refused] = resend.refusals(content(**parts))
    assert refused.startswith(reason)


def test_more_than_resend_takes_is_refused_whatever_the_route_allows(build: Build) -> None:
    route = build(provider="resend", url=None, max_size="100MB")
    large = content(attachments=(StoredFile("d", 30_000_001, "a.pdf", "application/pdf"),))
    [refused] = route.refusals(large)
    assert refused.startswith("content: 40,000,014 bytes with its files in base64; this provider takes 40,000,000")


@pytest.mark.parametrize(
    ("filename", "content_type"),
    [
        ("bill.PDF", "application/pdf"),
        ("photo.jpeg", "image/jpeg"),
        ("table.csv", "text/csv; header=present"),
        ("", "image/png"),
        ("odd.xyzzy", "application/octet-stream"),
        ("invite.ics", "application/ics"),
    ],
)
def test_a_file_whose_name_fits_its_type_is_carried(resend: Provider, filename: str, content_type: str) -> None:
    assert resend.refusals(content(attachments=(file(filename, content_type),))) == []


def test_the_check_of_file_names_can_be_switched_off(build: Build) -> None:
    route = build(provider="resend", url=None, check_file_names=False)
    assert route.refusals(content(attachments=(file("data.txt", "text/csv"),))) == []


async def test_what_may_be_left_out_is(build: Build, wire: ScriptedTransport) -> None:
    route = build(provider="resend", url=None, ignore=["tags", "alternatives", "track_opens"])
    invitation = Alternative.calendar("BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n")
    assert route.refusals(content(tags=("a", "b"), alternatives=(invitation,), track_opens=True)) == []
    verdict = await route.send(message(tags=("a", "b"), alternatives=(invitation,), track_opens=True))
    assert verdict.outcome is Outcome.ACCEPTED


def test_it_dedupes_for_a_day_and_can_not_be_asked(resend: Provider) -> None:
    facts = resend.facts
    assert (facts.kind, facts.key_lifetime_s, facts.can_look_up) == ("resend", 86400.0, False)


async def test_a_replay_in_another_process_has_the_same_bytes(resend: Provider, wire: ScriptedTransport) -> None:
    order = {"b": "2", "a": "1"}
    await resend.send(message(metadata=order))
    await resend.send(message(metadata=dict(sorted(order.items()))))
    assert wire.requests[0] == wire.requests[1]


OUTCOMES = [
    (400, error("validation_error", "bad"), Outcome.REJECTED, Subject.MESSAGE),
    (400, error("invalid_idempotency_key", "1 to 256"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (401, error("missing_api_key"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (401, error("validation_error", "API key is invalid"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (400, error("validation_error", "API key is invalid"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (403, error("invalid_api_key"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (403, error("validation_error", "The domain is not verified"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (404, error("not_found"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (405, error("method_not_allowed"), Outcome.MISCONFIGURED, Subject.ROUTE),
    (422, error("invalid_from_address", "Invalid `from` field"), Outcome.REJECTED, Subject.MESSAGE),
    (422, error("invalid_attachment"), Outcome.REJECTED, Subject.MESSAGE),
    (422, error("missing_required_fields"), Outcome.REJECTED, Subject.MESSAGE),
    (422, error("validation_error", "Invalid `bcc` field"), Outcome.REJECTED, Subject.RECIPIENT),
    (429, error("rate_limit_exceeded"), Outcome.THROTTLED, Subject.ROUTE),
    (429, error("daily_quota_exceeded"), Outcome.THROTTLED, Subject.ROUTE),
    (429, error("monthly_quota_exceeded"), Outcome.THROTTLED, Subject.ROUTE),
    (451, error("security_error"), Outcome.REJECTED, Subject.MESSAGE),
]


@pytest.mark.parametrize(("status", "body", "outcome", "subject"), OUTCOMES)
async def test_an_error_is_certainly_no_acceptance(
    resend: Provider, wire: ScriptedTransport, status: int, body: Any, outcome: Outcome, subject: Subject
) -> None:
    wire.replies_json(status, body)
    verdict = await resend.send(message())
    assert (verdict.outcome, verdict.subject, verdict.maybe_accepted) == (outcome, subject, False), verdict


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (409, error("concurrent_idempotent_requests"), Outcome.UNKNOWN),
        (409, error("invalid_idempotent_request"), Outcome.UNKNOWN),
        (500, error("application_error"), Outcome.TRANSIENT),
        (500, error("internal_server_error"), Outcome.TRANSIENT),
    ],
)
async def test_what_leaves_a_doubt_is_repeated_under_the_key(
    resend: Provider, wire: ScriptedTransport, status: int, body: Any, outcome: Outcome
) -> None:
    wire.replies_json(status, body)
    verdict = await resend.send(message())
    assert (verdict.outcome, verdict.maybe_accepted) == (outcome, True), verdict


async def test_a_quota_is_told_from_a_rate(resend: Provider, wire: ScriptedTransport) -> None:
    wire.replies_json(429, error("daily_quota_exceeded"))
    assert (await resend.send(message())).rule == "a quota is used up"
    wire.replies_json(429, error("rate_limit_exceeded"))
    assert (await resend.send(message())).rule == "too fast"


async def test_a_key_that_is_refused_under_an_odd_status_is_read_again(
    build: Build, wire: ScriptedTransport, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("re_old")
    route = build(provider="resend", url=None, api_key=f"file:{key}")
    wire.replies_json(400, error("validation_error", "API key is invalid"))
    await route.send(message())
    assert not route.credential_changed()
    key.write_text("re_new")
    assert route.credential_changed()
    await route.send(message())
    assert wire.requests[1].headers["Authorization"] == "Bearer re_new"


async def test_its_rate_headers_are_believed(resend: Provider, wire: ScriptedTransport) -> None:
    wire.replies_json(200, {"id": "m-1"}, ratelimit_limit="2", ratelimit_remaining="0", ratelimit_reset="1")
    assert (await resend.send(message())).full_for_s == 1.0


class PlayedResend:
    """Takes every message, dedupes by its key, and loses the answer to the first call."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}  # of every call, by its key

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        calls = self.bodies.setdefault(request.headers["Idempotency-Key"], [])
        calls.append(request.body)
        if len(calls) == 1:
            return HttpFailure(FailurePhase.EXCHANGE, "read_timeout", "no answer within the timeout")
        return HttpAnswer(200, {}, b'{"id":"m-1"}')

    async def close(self) -> None: ...


def test_a_message_whose_answer_was_lost_is_repeated_under_its_key_by_any_worker() -> None:
    async def scene(stage: Stage) -> None:
        own = {"provider": "resend", "url": "https://resend.example", "api_key": "k"}
        stage.configure({"main": {**own, "auth": None, "idempotency_header": None}})
        server = PlayedResend()
        stage.transports["main"] = server
        stage.enqueue(email(1, metadata={"order": "42"}))
        first = stage.worker()
        await stage.until(lambda: server.bodies, within_s=20)
        await stage.until_status(unknown=1, within_s=20)
        first.process.kill()
        stage.worker()
        await stage.until_status(accepted=1, within_s=200)
        [calls] = server.bodies.values()
        assert len(calls) == 2
        assert calls[0] == calls[1]
        assert stage.row("k-1")["message_id"] == "m-1"

    play(scene)
