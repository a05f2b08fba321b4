"""The `ses` provider: the provider suite, where each part stands, how calls are signed, and what errors mean."""

from __future__ import annotations

import asyncio
import base64
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from email.utils import getaddresses
from pathlib import Path
from typing import Any, Final

import pytest

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.core.outcome import Outcome, Subject
from posthouse.errors import ConfigError
from posthouse.providers.mime import message_bytes
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.port import Provider
from posthouse.providers.transport import FailurePhase, HttpAnswer, HttpFailure, HttpRequest
from posthouse.sandbox.received import read_message
from tests.contract.api_harness import ApiCase, ApiHarness, api_harness
from tests.contract.provider_suite import SECRET, Behaviour, ProviderSuite, stored_and_rendered
from tests.providers.loopback import Api, Received, Reply, answer, running_api
from tests.providers.messages import content, full_message, message
from tests.providers.scripted import NOW, Build, ScriptedTransport
from tests.providers.ses_routes import ACCOUNT, KEY_ID, OWN, REGION, route
from tests.providers.sigv4_server import Account, covered
from tests.worker.stage import Stage, email, play

Json = dict[str, Any]

PATH: Final = "/v2/email/outbound-emails"


def error(status: int, name: str, text: str = "") -> Reply:
    return answer(status, {"message": text}, x_amzn_ErrorType=f"{name}:http://internal.amazon.com/coral/")


def in_words_of_the_sandbox(got: Received) -> Json:
    """What SES makes of a call: whom the message is for, and the message as it is."""
    call = dict(got.json)
    raw, destination = call.pop("Content")["Raw"]["Data"], call.pop("Destination")
    shown = read_message(base64.b64decode(raw)).body
    heads = {name: [f"{who} <{bare}>" for who, bare in getaddresses([shown.get(name, "")])] for name in ("to", "cc")}
    words: Json = {"raw": raw, **{name: value for name, value in heads.items() if value}}
    assert [bare for name in heads for _, bare in getaddresses([shown.get(name, "")]) if bare] == [
        *destination.get("ToAddresses", []),
        *destination.get("CcAddresses", []),
    ]
    words["bcc"] = destination.get("BccAddresses", [])
    tags = {tag["Name"]: tag["Value"] for tag in call.pop("EmailTags")}
    words["tags"] = [tags.pop("tag")] if "tag" in tags else []
    words["metadata"] = tags
    tracking = call.pop("ConfigurationOverrides", {}).get("Tracking", {})
    names = {"track_opens": "OpenTrackingEnabled", "track_clicks": "ClickTrackingEnabled"}
    words |= {ours: tracking[theirs] == "ENABLED" for ours, theirs in names.items() if theirs in tracking}
    if "FeedbackForwardingEmailAddress" in call:
        words["envelope_sender"] = call.pop("FeedbackForwardingEmailAddress")
    return words | call


def our_id(got: Received) -> str | None:
    """Of a call that SES would let in."""
    assert ACCOUNT.refusal(got, NOW) is None
    return next((tag["Value"] for tag in got.json["EmailTags"] if tag["Name"] == OUR_ID), None)


SES = ApiCase(
    settings=lambda url: {**OWN, "url": url},
    replies={
        Behaviour.ACCEPT: answer(200, {"MessageId": "m-1"}, x_amzn_RequestId="r-1"),
        Behaviour.ACCEPT_UNREADABLY: answer(200, '{"MessageId": "m-'),
        Behaviour.THROTTLE: error(429, "TooManyRequestsException", f"Maximum sending rate exceeded. {SECRET}"),
        Behaviour.BE_OUT_OF_SERVICE: error(503, "ServiceUnavailable", f"Service is unavailable {SECRET}"),
        Behaviour.FAIL_MIDWAY: error(500, "InternalFailure", f"Something failed {SECRET}"),
        Behaviour.REFUSE_MESSAGE: error(400, "MessageRejected", f"The message has a virus {SECRET}"),
        Behaviour.REFUSE_RECIPIENT: error(400, "BadRequestException", f"Missing final '@domain' {SECRET}"),
        Behaviour.REFUSE_CREDENTIAL: error(403, "InvalidClientTokenId", f"The security token {SECRET} is invalid"),
    },
    fields=in_words_of_the_sandbox,
    key=our_id,
    expected={Behaviour.BE_OUT_OF_SERVICE: (Outcome.TRANSIENT, True, True)},
    refuses=frozenset({"message_id"}),
    can_say_when=False,
)


class TestContract(ProviderSuite):
    """What every provider must do."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[ApiHarness]:
        async with api_harness(SES) as harness:
            yield harness


@pytest.fixture
def ses(build: Build, wire: ScriptedTransport) -> Build:
    wire.replies(200, '{"MessageId":"m-1"}')
    return lambda **settings: build(**{**OWN, "url": None, **settings})


def sent(wire: ScriptedTransport) -> Any:
    return Received("POST", "", {}, wire.requests[-1].body).json


async def test_every_part_of_a_message_has_its_place(ses: Build, wire: ScriptedTransport) -> None:
    mail = full_message(
        attachments=[Attachment(b"PNG", "logo.png", "image/png", "logo")],
        envelope_sender=Address("bounces@shop.example"),
        track_opens=False,
        track_clicks=True,
    )
    verdict = await ses().send(mail)
    assert (verdict.outcome, verdict.message_id) == (Outcome.ACCEPTED, "m-1")
    [request] = wire.requests
    assert (request.method, request.url) == ("POST", f"https://email.eu-west-1.amazonaws.com{PATH}")
    assert sent(wire) == {
        "Destination": {
            "ToAddresses": ["ada@example.com", "bob@example.com"],
            "CcAddresses": ["cc@example.com"],
            "BccAddresses": ["bcc@example.com"],
        },
        "FeedbackForwardingEmailAddress": "bounces@shop.example",
        "Content": {"Raw": {"Data": base64.b64encode(message_bytes(mail)).decode()}},
        "EmailTags": [
            {"Name": "order", "Value": "42"},
            {"Name": OUR_ID, "Value": "ph-7"},
            {"Name": "tag", "Value": "receipt"},
        ],
        "ConfigurationOverrides": {"Tracking": {"OpenTrackingEnabled": "DISABLED", "ClickTrackingEnabled": "ENABLED"}},
    }


async def test_the_settings_of_the_route_are_in_every_call_and_options_lie_above_them(
    ses: Build, wire: ScriptedTransport
) -> None:
    wide = ses(
        configuration_set="receipts",
        identity_arn="arn:aws:ses:eu-west-1:123456789012:identity/shop.example",
        feedback_identity_arn="arn:aws:ses:eu-west-1:123456789012:identity/bounces.example",
        tenant="shop",
        contact_list="customers",
        contact_topic="news",
        tag_name="kind",
    )
    await wide.send(message(tags=("receipt",), options={"ses": {"ListManagementOptions": {"TopicName": "offers"}}}))
    call = sent(wire)
    assert call["EmailTags"][-1] == {"Name": "kind", "Value": "receipt"}
    assert {name: call[name] for name in call.keys() - {"Destination", "Content", "EmailTags"}} == {
        "FromEmailAddressIdentityArn": "arn:aws:ses:eu-west-1:123456789012:identity/shop.example",
        "FeedbackForwardingEmailAddressIdentityArn": "arn:aws:ses:eu-west-1:123456789012:identity/bounces.example",
        "ConfigurationSetName": "receipts",
        "TenantName": "shop",
        "ListManagementOptions": {"ContactListName": "customers", "TopicName": "offers"},
    }


async def test_a_domain_beyond_ascii_goes_out_as_its_a_label(ses: Build, wire: ScriptedTransport) -> None:
    await ses().send(message(to=(Address("ada@müller.example", "Adä"),)))
    assert sent(wire)["Destination"] == {"ToAddresses": ["ada@xn--mller-kva.example"]}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"to": "müller@example.com"}, "to: this provider takes only ASCII before the @, not müller@example.com"),
        ({"sender": "größe@shop.example"}, "sender: this provider takes only ASCII before the @"),
        ({"reply_to": "größe@shop.example"}, "reply_to: this provider takes only ASCII before the @"),
        ({"envelope_sender": "größe@shop.example"}, "envelope_sender: this provider takes only ASCII before the @"),
        ({"tags": ["receipt", "may"]}, "tags: this route takes one, not 2"),
        ({"tags": ["für Ada"]}, "tags: this provider takes up to 256 letters of ASCII, digits, _ and - alone"),
        ({"metadata": {"order no": "42"}}, "metadata.order no: this provider takes up to 256 letters of ASCII"),
        ({"metadata": {"order": "v" * 257}}, "metadata.order: this provider takes"),
        ({"metadata": {OUR_ID: "1"}}, f"metadata.{OUR_ID}: our own id goes out under this name"),
        (
            {"metadata": {"tag": "1"}, "tags": ["receipt"]},
            "metadata.tag: the email's tag goes out under this name (tag_name)",
        ),
        ({"options": {"ses": {"EmailTags": []}}}, "options: EmailTags says who gets the message or which one it is"),
        (
            {"options": {"main": {"Destination": {"BccAddresses": ["eve@example.com"]}}}},
            "options: Destination.BccAddresses says who gets the message",
        ),
        ({"options": {"ses": {"Content": {"Simple": {}}}}}, "options.Content: stands in the message itself"),
        ({"options": {"ses": {"FromEmailAddress": "eve@example.com"}}}, "options.FromEmailAddress: stands in the"),
        ({"options": {"ses": {"EmailTag": "receipt"}}}, "options.EmailTag: belongs into tags"),
        ({"options": {"ses": {"EndpointId": "abc.xyz"}}}, "options.EndpointId: needs calls to another host"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
async def test_what_ses_would_refuse_or_lose_is_refused_at_enqueue(
    ses: Build, wire: ScriptedTransport, parts: Json, reason: str
) -> None:
    stored, mail = stored_and_rendered(**parts)
    [refused] = ses().refusals(stored)
    assert refused.startswith(reason), refused
    assert ((await ses().send(mail)).outcome, wire.requests) == (Outcome.REJECTED, [])


def test_more_recipients_than_it_takes_are_refused(ses: Build) -> None:
    [refused] = ses().refusals(content(to=tuple(Address(f"a{n}@example.com") for n in range(51))))
    assert refused == "to: this route takes 50 recipients in one call, with cc and bcc, not 51"


def test_more_bytes_than_it_takes_are_refused_whatever_the_route_says(ses: Build) -> None:
    stored, _ = stored_and_rendered(attachments=[Attachment(bytes(9_000_000), f"{n}.bin") for n in range(2)])
    assert ses(max_size="100MB").refusals(stored) == []
    [refused] = ses(max_size="100MB").refusals(replace(stored, attachments=stored.attachments * 2))
    assert re.match(r"content: about [\d,]+ bytes as it is sent; SES takes 40,000,000", refused)


async def test_a_message_id_is_refused_unless_the_settings_say_that_it_is_kept(
    ses: Build, wire: ScriptedTransport
) -> None:
    stored, mail = stored_and_rendered(message_id="<order-42@shop.example>")
    [refused] = ses().refusals(stored)
    assert refused == "message_id: this route takes none (keeps_message_id = false)"
    assert ses(keeps_message_id=True).refusals(stored) == []
    assert ses(ignore=["message_id"]).refusals(stored) == []
    assert (await ses().send(replace(mail, envelope_to=("ada@example.com",)))).outcome is Outcome.ACCEPTED


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"region": None}, "routes.main.region: is missing"),
        ({"region": "Ireland"}, "routes.main.region: "),
        ({"secret_access_key": None}, "routes.main.secret_access_key: is missing"),
        ({"contact_topic": "news"}, "routes.main.contact_topic: needs contact_list"),
        ({"identity_arn": "shop.example"}, "routes.main.identity_arn: "),
        ({"tag_name": OUR_ID}, f"routes.main.tag_name: our own id goes out as {OUR_ID}"),
        ({"configuration_set": "a b"}, "routes.main.configuration_set: "),
        ({"api_key": "k"}, "routes.main.api_key: there is no such setting"),
    ],
)
def test_a_wrong_setting_is_named(ses: Build, settings: Json, complaint: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(complaint)):
        ses(**settings)


def test_it_has_no_key_and_can_not_be_asked(ses: Build) -> None:
    facts = ses().facts
    assert (facts.kind, facts.key_lifetime_s, facts.can_look_up) == ("ses", 0.0, False)


# The package that signs.


def test_without_the_signing_package_the_route_says_what_to_install(
    ses: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    wanted = "routes.main.provider: needs the package botocore: pip install 'posthouse[ses]'"
    with pytest.raises(ConfigError, match="^" + re.escape(wanted)):
        ses()


# Signatures, as a server checks them.


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server() -> AsyncIterator[Api]:
    async with running_api() as api:
        api.reply = answer(200, {"MessageId": "m-1"})
        yield api


@pytest.fixture
async def signed(server: Api, clock: Clock) -> AsyncIterator[Any]:
    """Builds routes to the server."""
    routes: list[Provider] = []

    def build(url: str = "", **settings: Any) -> Provider:
        routes.append(route(url or server.url, clock, **settings))
        return routes[-1]

    yield build
    for one in routes:
        await one.close()


async def test_a_server_that_knows_the_secret_lets_the_call_in(signed: Any, server: Api) -> None:
    await signed().send(full_message())
    [got] = server.received
    assert ACCOUNT.refusal(got, NOW) is None
    assert covered(got) == ["content-type", "host", "x-amz-date"]


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"body": b"{}"}, "SignatureDoesNotMatch"),
        ({"path": "/v2/email/outbound-bulk-emails"}, "SignatureDoesNotMatch"),
        ({"method": "PUT"}, "SignatureDoesNotMatch"),
    ],
)
async def test_a_call_that_was_changed_on_its_way_is_not_let_in(
    signed: Any, server: Api, change: Json, refusal: str
) -> None:
    await signed().send(message())
    assert ACCOUNT.refusal(replace(server.received[0], **change), NOW) == refusal


async def test_another_secret_region_or_day_is_not_let_in(signed: Any, server: Api) -> None:
    await signed().send(message())
    [got] = server.received
    assert replace(ACCOUNT, secret="another").refusal(got, NOW) == "SignatureDoesNotMatch"
    assert replace(ACCOUNT, region="us-east-1").refusal(got, NOW) == "InvalidClientTokenId"
    assert ACCOUNT.refusal(got, NOW + 86_400) == "RequestTimeTooSkewed"


async def test_the_host_is_signed_as_it_is_sent(signed: Any, server: Api) -> None:
    await signed(url=server.url.replace("127.0.0.1", "LOCALHOST")).send(message())
    assert ACCOUNT.refusal(server.received[0], NOW) is None


async def test_a_temporary_key_brings_its_token_and_signs_it(signed: Any, server: Api) -> None:
    await signed(session_token="IQoJb3JpZ2lu//token==").send(message())
    [got] = server.received
    assert replace(ACCOUNT, token="IQoJb3JpZ2lu//token==").refusal(got, NOW) is None
    assert "x-amz-security-token" in covered(got)


async def test_each_call_is_signed_at_its_own_time_though_its_bytes_are_the_same(
    signed: Any, server: Api, clock: Clock
) -> None:
    provider = signed()
    await provider.send(message())
    clock.now += 3600.5
    await provider.send(message())
    first, second = server.received
    assert first.body == second.body
    assert [got.headers["x-amz-date"] for got in (first, second)] == ["20270115T080000Z", "20270115T090000Z"]
    assert ACCOUNT.refusal(second, clock.now) is None


async def test_the_health_url_is_asked_under_a_signature_with_its_query(signed: Any, server: Api) -> None:
    provider = signed(health_url=f"{server.url}/v2/email/account?b=2&a=1")
    assert (await provider.health()).outcome is Outcome.ACCEPTED
    [got] = server.received
    assert (got.method, ACCOUNT.refusal(got, NOW)) == ("GET", None)


async def test_a_key_that_was_replaced_signs_the_next_call(signed: Any, server: Api, tmp_path: Path) -> None:
    names = ("access_key_id", "secret_access_key", "session_token")
    files = {name: tmp_path / name for name in names}

    def write(*values: str) -> None:
        for file, value in zip(files.values(), values, strict=True):
            file.write_text(f"{value}\n")

    async def reply(request: Any, got: Received) -> Any:
        refusal = new.refusal(got, NOW)
        taken = answer(200, {"MessageId": "m-1"}) if refusal is None else error(403, "ExpiredTokenException", "expired")
        return await taken(request, got)

    new = Account("AKIDNEW", "new-secret", REGION, token="new-token")
    server.reply = reply
    write("AKIDOLD", "old-secret", "old-token")
    provider = signed(**{name: f"file:{file}" for name, file in files.items()})
    assert (await provider.send(message())).outcome is Outcome.MISCONFIGURED
    assert not provider.credential_changed()
    write("AKIDNEW", "new-secret", "new-token")
    assert provider.credential_changed()
    assert (await provider.send(message())).outcome is Outcome.ACCEPTED


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"secret_access_key": "env:NO_SUCH_KEY"}, "routes.main.secret_access_key: the environment variable"),
        ({"session_token": "two words"}, "routes.main.session_token: has a character that no AWS credential has"),
    ],
)
async def test_a_key_that_can_not_be_used_stops_the_route_and_names_the_setting(
    ses: Build, wire: ScriptedTransport, values: Json, text: str
) -> None:
    verdict = await ses(**values).send(message())
    assert (verdict.outcome, verdict.code, wire.requests) == (Outcome.MISCONFIGURED, "no_credential", [])
    assert verdict.text.startswith(text)


async def test_neither_secret_nor_token_shows_in_what_a_server_echoes(ses: Build, wire: ScriptedTransport) -> None:
    wire.replies_json(403, {"message": f"{SECRET} of {KEY_ID} with tok-en-123456"})
    verdict = await ses(session_token="tok-en-123456").send(message())
    assert verdict.text == "*** of *** with ***"


# What errors mean.

THROTTLED, MISCONFIGURED, REJECTED = (
    (Outcome.THROTTLED, Subject.ROUTE),
    (Outcome.MISCONFIGURED, Subject.ROUTE),
    (Outcome.REJECTED, Subject.MESSAGE),
)

OUTCOMES: Final = [
    (429, "TooManyRequestsException", "Maximum sending rate exceeded.", THROTTLED, "too fast for the account"),
    (400, "ThrottlingException", "Rate exceeded", THROTTLED, "too fast for the account"),
    (400, "LimitExceededException", "Daily message quota exceeded", THROTTLED, "the daily quota is used up"),
    (429, "TooManyRequestsException", "Daily message quota exceeded.", THROTTLED, "the daily quota is used up"),
    (400, "AccountSuspendedException", "", MISCONFIGURED, "the account is suspended"),
    (
        400,
        "SendingPausedException",
        "Sending paused for this account.",
        MISCONFIGURED,
        "sending is paused for the account",
    ),
    (
        400,
        "SendingPausedException",
        "Sending is paused for configuration set receipts",
        MISCONFIGURED,
        "sending is paused for the configuration set",
    ),
    (
        400,
        "MessageRejected",
        "Email address is not verified. The following identities failed the check in region EU-WEST-1: a@b.example",
        MISCONFIGURED,
        "an address is not verified, or the account may not send yet",
    ),
    (400, "MailFromDomainNotVerifiedException", "", MISCONFIGURED, "the sending domain is not verified"),
    (404, "NotFoundException", "Configuration set does not exist", MISCONFIGURED, "what the route names is not there"),
    (404, "NotFoundException", "Template a does not exist", MISCONFIGURED, "what the route names is not there"),
    (403, "SignatureDoesNotMatch", "does not match", MISCONFIGURED, "our key or its signature is refused"),
    (403, "UnrecognizedClientException", "", MISCONFIGURED, "our key or its signature is refused"),
    (403, "ExpiredTokenException", "", MISCONFIGURED, "our key or its signature is refused"),
    (403, "AccessDeniedException", "not authorized", MISCONFIGURED, "our key may not send this"),
    (400, "MessageRejected", "Transaction failed: bad content", REJECTED, "the message is refused"),
    (400, "BadRequestException", "Invalid EmailTags", REJECTED, "the message is refused"),
    (413, "RequestEntityTooLarge", "", REJECTED, "too large"),
]


@pytest.mark.parametrize(("status", "name", "text", "meaning", "rule"), OUTCOMES)
async def test_an_error_is_certainly_no_acceptance_and_says_whose_fault_it_is(
    ses: Build, wire: ScriptedTransport, status: int, name: str, text: str, meaning: tuple[Outcome, Subject], rule: str
) -> None:
    wire.replies_json(status, {"message": text}, x_amzn_errortype=name, x_amzn_requestid="r-1")
    verdict = await ses().send(message())
    assert ((verdict.outcome, verdict.subject), verdict.rule) == (meaning, rule)
    assert (verdict.maybe_accepted, verdict.spends_attempt) == (False, meaning is REJECTED)
    assert verdict.request_id == "r-1"


@pytest.mark.parametrize(
    ("status", "name", "text"),
    [
        (403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large."),
        (400, "RequestExpired", ""),
        (403, "InvalidSignatureException", "Signature expired: 20270115T080000Z is now earlier than 20270115T081500Z"),
        (403, "SignatureDoesNotMatch", "Signature not yet current: 20270115T080000Z is still later than 20270115T07"),
    ],
)
async def test_a_clock_that_is_wrong_is_no_messages_fault(
    ses: Build, wire: ScriptedTransport, status: int, name: str, text: str
) -> None:
    wire.replies_json(status, {"message": text}, x_amzn_errortype=name)
    verdict = await ses().send(message())
    assert (verdict.outcome, verdict.subject, verdict.spends_attempt) == (Outcome.MISCONFIGURED, Subject.ROUTE, False)
    assert verdict.rule.endswith("is this machine's clock right?")


@pytest.mark.parametrize(("status", "name"), [(500, "InternalFailure"), (503, "ServiceUnavailable"), (504, "")])
async def test_after_a_fault_of_theirs_nobody_knows(
    ses: Build, wire: ScriptedTransport, status: int, name: str
) -> None:
    wire.replies_json(status, {"message": "no"}, x_amzn_errortype=name)
    verdict = await ses().send(message())
    assert (verdict.outcome, verdict.maybe_accepted) == (Outcome.TRANSIENT, True)


# A lost answer.


class PlayedSes:
    """Takes every message, and loses the answer to the first call."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        self.requests.append(request)
        if len(self.requests) == 1:
            return HttpFailure(FailurePhase.EXCHANGE, "read_timeout", "no answer within the timeout")
        return HttpAnswer(200, {}, b'{"MessageId":"m-2"}')

    async def close(self) -> None: ...


@pytest.mark.parametrize(("on_unknown", "calls", "status"), [("hold", 1, "unknown"), ("resend", 2, "accepted")])
def test_a_message_whose_answer_was_lost_is_never_repeated_before_its_type_says_so(
    on_unknown: str, calls: int, status: str
) -> None:
    async def scene(stage: Stage) -> None:
        own = {**OWN, "url": "https://ses.example", "api_key": None, "auth": None, "idempotency_header": None}
        stage.configure({"main": own}, {"default": {"on_unknown": on_unknown, "unknown_wait": "60s"}})
        server = PlayedSes()
        stage.transports["main"] = server
        stage.enqueue(email(1))
        stage.worker()
        await stage.until_status(unknown=1, within_s=50)
        await asyncio.sleep(200)
        assert (len(server.requests), stage.row("k-1")["status"]) == (calls, status)
        assert len({request.headers["Authorization"] for request in server.requests}) == calls

    play(scene)
