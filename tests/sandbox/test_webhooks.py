"""What the sandbox tells to webhooks is what each provider would tell: our adapters and their libraries verify it."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import svix.webhooks
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from sendgrid.helpers.eventwebhook import EventWebhook

from posthouse.config import RouteSettings
from posthouse.core.answers import Answer
from posthouse.core.events import Cause, Event, EventKind
from posthouse.errors import ConfigError
from posthouse.providers.logs import LogPage, LogQuestion
from posthouse.providers.mailgun_log import mailgun_log
from posthouse.providers.postmark_log import postmark_log
from posthouse.providers.registry import build_webhook
from posthouse.providers.sendgrid_log import sendgrid_log
from posthouse.providers.webhook import CertificateNeeded, Genuine, Refused, Webhook, WebhookCall, reading, reading_of
from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import FaultPlan
from posthouse.sandbox.http import serve
from posthouse.sandbox.ledger import Ledger
from posthouse.sandbox.news import MAGIC_FATES, NewsKind
from posthouse.sandbox.telling import WebhookCall as SandboxCall
from posthouse.sandbox.webhooks import REPEATS_S, SWAPPED_S, Due, TellingResult

PROVIDERS: Final = ("mailgun", "postmark", "resend", "sendgrid", "ses")
OUR_ID: Final = "0123456789abcdef0123456789abcdef"
SANDBOX_URL: Final = "http://127.0.0.1:8025"
MUCH_LATER_S: Final = 60.0

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "mailgun": {"api_key": "key", "domain": "shop.example"},
    "postmark": {"api_key": "key"},
    "resend": {"api_key": "key"},
    "sendgrid": {"api_key": "key"},
    "ses": {"region": "eu-west-1", "access_key_id": "id", "secret_access_key": "key", "url": SANDBOX_URL},
}

_JSON: Final = {"content-type": "application/json"}
_SIGNED: Final = {
    "authorization": "AWS4-HMAC-SHA256 Credential=id/20270115/eu-west-1/ses/aws4_request, SignedHeaders=host, "
    f"Signature={'0' * 64}"
}


def sending(provider: str, *to: str) -> tuple[str, dict[str, str], bytes]:
    """A message as a call to this provider: its path, headers and body."""
    subject, shop = "Your receipt", "shop@example.com"
    if provider == "mailgun":
        form = [
            ("from", shop),
            *(("to", one) for one in to),
            ("subject", subject),
            ("text", "x"),
            ("v:posthouse_id", OUR_ID),
        ]
        return (
            "/v3/shop.example/messages",
            {"content-type": "application/x-www-form-urlencoded"},
            urlencode(form).encode(),
        )
    documents: dict[str, dict[str, Any]] = {
        "postmark": {"From": shop, "To": ",".join(to), "Subject": subject, "Metadata": {"posthouse_id": OUR_ID}},
        "resend": {"from": shop, "to": to, "subject": subject, "tags": [{"name": "posthouse_id", "value": OUR_ID}]},
        "sendgrid": {
            "personalizations": [{"to": [{"email": one} for one in to]}],
            "from": {"email": shop},
            "subject": subject,
            "content": [{"type": "text/plain", "value": "x"}],
            "custom_args": {"posthouse_id": OUR_ID},
        },
        "ses": {
            "FromEmailAddress": shop,
            "Destination": {"ToAddresses": to},
            "Content": {"Simple": {"Subject": {"Data": subject}, "Body": {"Text": {"Data": "x"}}}},
            "EmailTags": [{"Name": "posthouse_id", "Value": OUR_ID}],
        },
    }
    path = {
        "postmark": "/email",
        "resend": "/emails",
        "sendgrid": "/v3/mail/send",
        "ses": "/v2/email/outbound-emails",
    }[provider]
    return path, _SIGNED if provider == "ses" else _JSON, json.dumps(documents[provider]).encode()


class Bench:
    """A sandbox that tells, in no time."""

    def __init__(self, provider: str, *faults: str, url: str = "http://127.0.0.1:1/", **settings: Any) -> None:
        self.provider = provider
        self.now = self.began = time.time()
        plan = FaultPlan([parse_fault(text) for text in faults])
        self.api = SandboxApi(
            Ledger(),
            plan,
            chance=random.Random(1),
            webhook_chance=random.Random(2),
            started_at=self.now,
            webhooks={provider: url},
            **settings,
        )
        self.api.webhooks.sandbox_url = SANDBOX_URL

    def send(self, *to: str) -> int:
        """The status that the message was answered with."""
        path, headers, body = sending(self.provider, *to)
        exchange = self.api.begin("POST", path, headers, body, self.now)
        self.api.finish(exchange, self.now)
        return exchange.reply.status

    def due(self, after_s: float = 0.0) -> list[Due]:
        """The calls that are made from now until then, where each is answered at once."""
        made: list[Due] = []
        ends_at = self.now + after_s
        while True:
            for one in self.api.webhooks.due(self.now):
                made.append(one)
                self.api.webhooks.answered(one, 200, self.now)
            if self.now >= ends_at:
                return made
            self.now = min(self.now + 0.5, ends_at)

    def webhook(self) -> Webhook:
        """The route that lets these calls in."""
        facts = dict(self.api.webhooks.shown()[self.provider])
        del facts["url"]
        [(setting, secret)] = facts.items()
        document = {"provider": self.provider, **SETTINGS[self.provider], setting: [secret]}
        found = build_webhook("main", RouteSettings.model_validate(document))
        assert found is not None
        return found

    def verdict(self, call: SandboxCall) -> Genuine | Refused:
        """What the route says of a call."""
        webhook = self.webhook()
        verdict = webhook.verify(
            WebhookCall(call.headers, call.body),
            [webhook.key(secret.reveal()) for secret in webhook.secrets],
            self.now,
        )
        if isinstance(verdict, CertificateNeeded):
            path = verdict.url.removeprefix(SANDBOX_URL)
            return verdict.decide(self.api.webhooks.addresses["ses"].teller.pages[path](self.api.webhooks.secret))
        return verdict

    def events(self, calls: Sequence[Due]) -> list[Event]:
        """What these calls tell, where they are genuine."""
        found: list[Event] = []
        for due in calls:
            assert isinstance(self.verdict(due.call), Genuine)
            told = reading(self.webhook(), WebhookCall(due.call.headers, due.call.body))
            assert told.unread == ()
            found += told.events
        return found


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


K = EventKind
MEANINGS: Final[dict[str, list[tuple[EventKind, set[Cause], bool]]]] = {
    "delivered": [(K.DELIVERED, {Cause.NONE}, False)],
    "deferred": [(K.DEFERRED, {Cause.OTHER, Cause.UNREACHABLE}, False), (K.DELIVERED, {Cause.NONE}, False)],
    "bounced": [(K.BOUNCED, {Cause.NO_MAILBOX}, True)],
    "full": [
        (K.DEFERRED, {Cause.OTHER, Cause.UNREACHABLE}, False),
        (K.BOUNCED, {Cause.MAILBOX_FULL, Cause.OTHER, Cause.EXPIRED}, False),
    ],
    "blocked": [(K.BOUNCED, {Cause.BLOCKED, Cause.CONTENT}, False)],
    "suppressed": [(K.BOUNCED, {Cause.LISTED}, True)],
    "complained": [(K.DELIVERED, {Cause.NONE}, False), (K.COMPLAINED, {Cause.NONE}, False)],
    "opened": [(K.DELIVERED, {Cause.NONE}, False), (K.OPENED, {Cause.NONE}, False)],
    "clicked": [(K.DELIVERED, {Cause.NONE}, False), (K.OPENED, {Cause.NONE}, False), (K.CLICKED, {Cause.NONE}, False)],
    "unsubscribed": [(K.DELIVERED, {Cause.NONE}, False), (K.UNSUBSCRIBED, {Cause.NONE}, False)],
}
"""What our adapters have to make of it."""


def test_every_magic_recipient_is_tried() -> None:
    assert set(MEANINGS) == set(MAGIC_FATES)


@pytest.mark.parametrize("name", MEANINGS)
def test_what_becomes_of_a_message_is_told_as_its_provider_tells_it(provider: str, name: str) -> None:
    bench = Bench(provider)
    status = bench.send(f"{name}+7@example.com")

    events = bench.events([due for due in bench.due(MUCH_LATER_S) if due.tellings])

    if (provider, name) == ("postmark", "suppressed"):  # it says so at once
        assert (status, events) == (422, [])
        return
    expected = [one for one in MEANINGS[name] if (provider, one[0]) != ("resend", K.UNSUBSCRIBED)]
    assert [(event.kind, event.hard) for event in events] == [(kind, hard) for kind, _, hard in expected]
    assert all(event.cause in causes for event, (_, causes, _) in zip(events, expected, strict=True))
    [acceptance] = bench.api.ledger.acceptances
    for event in events:
        assert (event.key, event.recipient) == (OUR_ID, f"{name}+7@example.com")
        assert event.message_id == acceptance.message_id
        assert event.at == pytest.approx(bench.began + 1, abs=4)


def test_each_recipient_has_a_fate_of_its_own(provider: str) -> None:
    bench = Bench(provider)
    bench.send("ada@example.com", "bounced@example.com")

    events = bench.events([due for due in bench.due(MUCH_LATER_S) if due.tellings])

    assert {(event.recipient, event.kind) for event in events} == {
        ("ada@example.com", K.DELIVERED),
        ("bounced@example.com", K.BOUNCED),
    }


def test_a_secret_of_ones_own_makes_other_keys(provider: str) -> None:
    bench, other = Bench(provider), Bench(provider, webhook_secret="another")
    bench.send("ada@example.com")

    if provider != "ses":  # which has no secret: its key is another in each run
        assert bench.webhook().secrets != other.webhook().secrets
        assert isinstance(other.verdict(bench.due(MUCH_LATER_S)[-1].call), Refused)


def test_svix_and_sendgrid_verify_what_the_sandbox_signs() -> None:
    resend, sendgrid = Bench("resend"), Bench("sendgrid")
    for bench in (resend, sendgrid):
        bench.send("ada@example.com")

    [due] = resend.due(2.0)
    secret = resend.api.webhooks.shown()["resend"]["webhook_secrets"]
    theirs: Any = svix.webhooks.Webhook(secret)
    theirs.verify(due.call.body, dict(due.call.headers))  # raises where it is not signed so

    [due] = sendgrid.due(2.0)
    verifier, headers = EventWebhook(), due.call.headers
    key = verifier.convert_public_key_to_ecdsa(sendgrid.api.webhooks.shown()["sendgrid"]["webhook_secrets"])
    signature = headers["x-twilio-email-event-webhook-signature"]
    timestamp = headers["x-twilio-email-event-webhook-timestamp"]
    assert verifier.verify_signature(due.call.body.decode(), signature, timestamp, key)


def test_ses_asks_first_whether_the_topic_may_be_subscribed() -> None:
    bench = Bench("ses")
    bench.send("ada@example.com")

    greeting, news = bench.due(2.0)

    assert json.loads(greeting.call.body)["Type"] == "SubscriptionConfirmation"
    verdict = bench.verdict(greeting.call)
    assert isinstance(verdict, Genuine)
    assert (verdict.visit or "").startswith(f"{SANDBOX_URL}/?Action=ConfirmSubscription")
    assert bench.events([news])


def test_sendgrid_puts_many_events_into_one_call() -> None:
    bench = Bench("sendgrid")
    for number in range(150):
        bench.send(f"person+{number}@example.com")

    assert [len(due.tellings) for due in bench.due(2.0)] == [100, 50]


# The logs.


def logged(bench: Bench) -> list[Event]:
    """What the provider's log tells, read to its end as our route reads it."""
    log = {
        "mailgun": lambda: mailgun_log(lambda rest: f"/v3/shop.example/events{rest}", 0.0, 86_400.0),
        "postmark": lambda: postmark_log(str, "outbound", 86_400.0),
        "sendgrid": lambda: sendgrid_log(str, 86_400.0),
    }[bench.provider]()
    questions: list[LogQuestion] = [log.first(bench.began - 60, bench.now + 60)]
    found: list[Event] = []
    while questions:
        question = questions.pop()
        method = "POST" if question.body else "GET"
        reply = bench.api.begin(method, question.url, _JSON, question.body, bench.now).reply
        page = question.read(Answer(reply.status, reply.body.decode()), json.loads(reply.body))
        assert isinstance(page, LogPage)
        found += reading_of(page.entries, log.read).events
        questions += [detail for _, detail in page.details]
        questions += [page.further] if page.further is not None else []
    return found


LOGGED: Final = {K.DELIVERED, K.BOUNCED, K.DEFERRED, K.COMPLAINED}
"""Of these every log tells that is read."""


@pytest.mark.parametrize("name", ["mailgun", "postmark", "sendgrid"])
def test_a_log_tells_what_the_webhooks_told_so_that_both_count_once(name: str) -> None:
    bench = Bench(name)
    for recipient in ("ada", "deferred", "bounced", "blocked", "complained"):
        bench.send(f"{recipient}@example.com")
    told = {event for event in bench.events(bench.due(MUCH_LATER_S)) if event.kind in LOGGED}

    bench.provider = "resend"
    bench.send("bounced@example.com")  # of another provider's messages it says nothing
    bench.due(MUCH_LATER_S)
    bench.provider = name

    assert {event.kind for event in told} == LOGGED
    found = [event for event in logged(bench) if event.kind in LOGGED]
    assert {(event.kind, event.provider_event_id) for event in found} == {
        (event.kind, event.provider_event_id) for event in told
    }
    assert {(event.key, event.recipient, event.cause, event.hard) for event in found} == {
        (event.key, event.recipient, event.cause, event.hard) for event in told
    }


# Faults.


def test_a_lost_call_is_never_made(provider: str) -> None:
    bench = Bench(provider, "lost:at=webhook,to=ada@example.com")
    bench.send("ada@example.com")
    bench.send("bob@example.com")

    assert [event.recipient for event in bench.events(bench.due(MUCH_LATER_S))] == ["bob@example.com"]
    assert [record.result for record in bench.api.webhooks.records] == [TellingResult.LOST, TellingResult.TOLD]


def test_what_is_told_twice_is_the_same(provider: str) -> None:
    bench = Bench(provider, "twice:at=webhook")
    bench.send("bounced@example.com")

    first, second = bench.events([due for due in bench.due(MUCH_LATER_S) if due.tellings])

    assert first == second
    assert first.provider_event_id


def test_a_slow_call_comes_later(provider: str) -> None:
    bench = Bench(provider, "slow=30s:at=webhook")
    bench.send("ada@example.com")

    assert bench.due(30.0) == []
    assert len(bench.events([due for due in bench.due(2.0) if due.tellings])) == 1


def test_a_swapped_call_comes_after_the_following_one(provider: str) -> None:
    bench = Bench(provider, "swapped:at=webhook,first=1,per=all")
    bench.send("complained@example.com")

    kinds = [event.kind for event in bench.events([due for due in bench.due(SWAPPED_S / 2) if due.tellings])]

    assert kinds == [K.COMPLAINED, K.DELIVERED]


def test_a_swapped_call_that_nothing_follows_comes_all_the_same(provider: str) -> None:
    bench = Bench(provider, "swapped:at=webhook")
    bench.send("ada@example.com")

    assert bench.due(SWAPPED_S - 1) == []
    assert [due for due in bench.due(5.0) if due.tellings]


def test_a_forged_call_is_refused_and_the_true_one_is_not(provider: str) -> None:
    bench = Bench(provider, "forged:at=webhook")
    bench.send("ada@example.com")

    calls = [due for due in bench.due(MUCH_LATER_S) if due.tellings]

    forged = [due for due in calls if due.tellings[0].forged]
    assert [type(bench.verdict(due.call)) for due in forged] == [Refused]
    assert [event.kind for event in bench.events([due for due in calls if due not in forged])] == [K.DELIVERED]


def test_faults_of_calls_leave_webhooks_alone_and_the_other_way_round() -> None:
    bench = Bench("resend", "503:at=any,first=1,per=all", "lost:at=webhook")

    assert [bench.send("ada@example.com") for _ in range(3)] == [503, 200, 200]
    assert bench.due(MUCH_LATER_S) == []


@pytest.mark.parametrize("text", ["503:at=webhook", "lost", "twice:at=rcpt", "slow-not-accepted=3s:at=webhook"])
def test_a_fault_that_webhooks_do_not_know_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="webhook"):
        parse_fault(text)


# Answers.


def test_a_call_is_repeated_until_it_is_taken() -> None:
    bench = Bench("resend")
    bench.send("ada@example.com")
    webhooks, told = bench.api.webhooks, []
    bench.now += 1
    for wait_s in (*REPEATS_S, None):
        [due] = webhooks.due(bench.now)
        told += bench.events([due])
        webhooks.answered(due, None if wait_s == REPEATS_S[0] else 503, bench.now)
        if wait_s is not None:
            assert webhooks.due(bench.now + wait_s - 0.1) == []
            bench.now += wait_s

    assert len(set(told)) == 1
    assert webhooks.records[-1].result is TellingResult.GIVEN_UP
    assert webhooks.waiting == 0


@pytest.mark.parametrize(("name", "status"), [("postmark", 403), ("mailgun", 406), ("ses", 400)])
def test_some_answers_end_it(name: str, status: int) -> None:
    bench = Bench(name)
    bench.send("ada@example.com")
    bench.now += 1

    due = bench.api.webhooks.due(bench.now)[-1]
    bench.api.webhooks.answered(due, status, bench.now)

    assert bench.api.webhooks.waiting == 0
    assert bench.api.webhooks.records[-1].result is TellingResult.REFUSED


def test_a_provider_that_tells_nothing_is_named() -> None:
    with pytest.raises(ConfigError, match="'http' tells nothing; there are: mailgun, postmark, resend, sendgrid, ses"):
        Bench("http")


def test_reset_forgets_what_is_to_be_told() -> None:
    bench = Bench("resend")
    bench.send("ada@example.com")

    bench.api.reset(bench.now)

    assert bench.due(MUCH_LATER_S) == []


# Over the network.


class Receiver:
    """Somebody's webhook, which answers with these statuses in turn, the last one for good."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.calls: list[web.Request] = []
        self.came = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.calls.append(request)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == 200:
            self.came.set()
        return web.Response(status=status)


async def with_receiver(
    receiver: Receiver, provider: str, story: Callable[[str, Bench], Awaitable[None]], hurry: float = 1.0
) -> None:
    """Runs a sandbox that tells the receiver; its clock is `hurry` times as fast as others."""
    app = web.Application()
    app.router.add_post("/webhooks/main", receiver.take)
    async with TestServer(app) as server:
        bench = Bench(provider, url=str(server.make_url("/webhooks/main")))
        began = time.time()
        sandbox = await serve(bench.api, clock=lambda: began + (time.time() - began) * hurry)
        try:
            await story(sandbox.url, bench)
        finally:
            await sandbox.close()


async def test_it_calls_again_when_it_was_not_taken_and_tells_what_it_did() -> None:
    receiver = Receiver(503, 200)

    async def story(url: str, bench: Bench) -> None:
        async with ClientSession() as session:
            path, headers, body = sending("resend", "ada@example.com")
            async with session.post(url + path, headers=headers, data=body) as answer:
                message_id = (await answer.json())["id"]
            await asyncio.wait_for(receiver.came.wait(), 10)
            receiver.came.clear()
            async with session.post(
                f"{url}/_sandbox/messages/{message_id}/news", json={"kind": "complained"}
            ) as answer:
                assert [one["kind"] for one in (await answer.json())["news"]] == ["delivered", "complained"]
            await asyncio.wait_for(receiver.came.wait(), 10)
            async with session.post(f"{url}/_sandbox/messages/{message_id}/news", json={"kind": "eaten"}) as answer:
                assert answer.status == 422
                assert "there are: delivered" in (await answer.json())["message"]
            async with session.get(f"{url}/_sandbox/webhooks") as answer:
                shown = await answer.json()
        assert [one["result"] for one in shown["tries"]][:2] == ["failed", "told"]
        assert shown["addresses"]["resend"]["webhook_secrets"].startswith("whsec_")

    await with_receiver(receiver, "resend", story, hurry=20.0)
    assert len({call.headers["svix-id"] for call in receiver.calls}) == 2


async def test_the_certificate_is_where_the_call_says() -> None:
    receiver = Receiver(200)

    async def story(url: str, bench: Bench) -> None:
        async with ClientSession() as session:
            path, headers, body = sending("ses", "ada@example.com")
            async with session.post(url + path, headers=headers, data=body) as answer:
                assert answer.status == 200
            await asyncio.wait_for(receiver.came.wait(), 10)
            async with session.get(url + "/SimpleNotificationService-00000000000000000000000000000000.pem") as answer:
                assert (await answer.read()).startswith(b"-----BEGIN CERTIFICATE-----")

    await with_receiver(receiver, "ses", story, hurry=20.0)


def test_news_kinds_have_words_where_a_server_has_a_part_in_them() -> None:
    people = {NewsKind.COMPLAINED, NewsKind.OPENED, NewsKind.CLICKED, NewsKind.UNSUBSCRIBED}
    for name in MAGIC_FATES:
        bench = Bench("mailgun")
        bench.send(f"{name}@example.com")
        for news in bench.api.ledger.acceptances[0].news:
            assert (news.said is None) is (news.kind in people)
