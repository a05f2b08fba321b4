"""SES's events by way of SNS: its certificate is fetched, its subscription confirmed, and nobody else is called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from posthouse.core.answers import FailurePhase
from posthouse.providers.transport import HttpAnswer, HttpFailure
from posthouse.providers.webhook import WebhookCall
from tests.contract.webhook_cases import (
    CERTIFICATE_URL,
    NOW,
    SES,
    SUBSCRIBE_URL,
    TOPIC,
    certificate,
    in_envelope,
    sign_as_sns,
    with_member,
)
from tests.web.stage import Answered, Stage, running

CONFIRMATION = {
    "Type": "SubscriptionConfirmation",
    "MessageId": "s-1",
    "Token": "t",
    "Message": "You have chosen to subscribe to the topic.",
    "SubscribeURL": SUBSCRIBE_URL,
}

DELIVERED = in_envelope(SES.told["delivered"].item)


def signed(envelope: Any, topic: str = TOPIC, version: str = "2") -> WebhookCall:
    return sign_as_sns(topic, json.dumps(envelope).encode(), NOW, version)


def called(stage: Stage) -> list[str]:
    """The addresses that the server itself has called."""
    return [request.url for request in stage.transport.requests]


@pytest.mark.parametrize("version", ["1", "2"])
async def test_both_versions_of_the_signature_are_verified_by_a_certificate_that_is_fetched_once(version: str) -> None:
    async with running() as stage:
        for _ in range(3):
            answered = await stage.call("ses", signed(DELIVERED, version=version))
            assert answered == Answered(200, "1 taken in, 0 unreadable\n")
        assert called(stage) == [CERTIFICATE_URL]
        assert stage.kinds() == ["delivered"]


async def test_a_subscription_to_our_topic_is_confirmed_and_no_news() -> None:
    async with running() as stage:
        assert await stage.call("ses", signed(CONFIRMATION)) == Answered(200, "0 taken in, 0 unreadable\n")
        assert called(stage) == [CERTIFICATE_URL, SUBSCRIBE_URL]


async def test_a_subscription_that_could_not_be_confirmed_is_asked_for_again() -> None:
    async with running() as stage:
        stage.transport.first = [HttpAnswer(200, {}, certificate()), HttpAnswer(500, {}, b"")]
        assert (await stage.call("ses", signed(CONFIRMATION))).status == 503
        assert (await stage.call("ses", signed(CONFIRMATION))).status == 200


@pytest.mark.parametrize(
    "visit",
    [
        "http://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription",
        "https://sns.eu-west-1.amazonaws.com.evil.example/",
        "https://evil.example/sns.eu-west-1.amazonaws.com/",
        "https://169.254.169.254/",
        "",
    ],
)
async def test_nobody_but_amazon_is_called_to_confirm(visit: str) -> None:
    async with running() as stage:
        assert (await stage.call("ses", signed(CONFIRMATION | {"SubscribeURL": visit}))).status == 401
        assert called(stage) == []


@pytest.mark.parametrize(
    "call",
    [
        signed(DELIVERED, topic=TOPIC + "-of-somebody"),
        signed(CONFIRMATION, topic=TOPIC + "-of-somebody"),
        with_member(SigningCertURL=CERTIFICATE_URL.replace(".com", ".com.evil.example"))(signed(DELIVERED)),
        with_member(Timestamp="2020-01-01T00:00:00Z")(signed(DELIVERED)),
        WebhookCall({"x-amz-sns-rawdelivery": "true"}, DELIVERED["Message"].encode()),
    ],
    ids=["topic", "subscription", "host of the certificate", "time", "raw delivery"],
)
async def test_what_is_refused_makes_no_call(call: WebhookCall) -> None:
    async with running() as stage:
        assert (await stage.call("ses", call)).status == 401
        assert called(stage) == []


@pytest.mark.parametrize(
    "failure",
    [
        HttpFailure(FailurePhase.CONNECT, "dns", "no such host"),
        HttpAnswer(503, {}, b"later"),
        HttpAnswer(302, {"location": "https://evil.example/"}, b""),
        HttpAnswer(200, {}, certificate()[:100], complete=False),
    ],
    ids=["unreachable", "failing", "elsewhere", "cut off"],
)
async def test_a_certificate_that_could_not_be_fetched_is_fetched_when_the_event_comes_again(
    failure: HttpAnswer | HttpFailure, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as stage:
        stage.transport.first = [failure]
        answered = await stage.call("ses", signed(DELIVERED))
        assert answered == Answered(503, "it can't be verified now; send it again\n")
        assert (await stage.call("ses", signed(DELIVERED))).status == 200
        assert called(stage) == [CERTIFICATE_URL] * 2
    assert "a webhook of ses could not be verified, and is asked for again: https://sns" in caplog.text


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (b"no certificate", "its certificate or its signature can't be read"),
        (certificate(NOW - 20, NOW - 10), "its certificate is not valid now"),
        (certificate(NOW + 10, NOW + 20), "its certificate is not valid now"),
    ],
)
async def test_another_certificate_verifies_nothing(found: bytes, said: str) -> None:
    async with running() as stage:
        stage.transport.answer = HttpAnswer(200, {}, found)
        assert await stage.call("ses", signed(DELIVERED)) == Answered(401, f"{said}\n")


async def test_an_event_about_several_recipients_is_one_for_each() -> None:
    bounced = json.loads(json.dumps(SES.told["bounced"].item))
    bounced["bounce"]["bouncedRecipients"] += [{"emailAddress": "bob@example.com"}, {"emailAddress": "eve@example.com"}]
    async with running() as stage:
        assert await stage.call("ses", signed(in_envelope(bounced))) == Answered(200, "3 taken in, 0 unreadable\n")
        assert stage.kinds() == ["bounced"] * 3


async def test_what_ses_says_to_try_a_topic_out_is_left_alone() -> None:
    told = DELIVERED | {"Message": "Successfully validated SNS topic for Amazon SES event publishing."}
    async with running() as stage:
        assert await stage.call("ses", signed(told)) == Answered(200, "0 taken in, 0 unreadable\n")
        assert stage.quarantined() == []


async def test_a_message_in_other_words_is_kept_for_a_person() -> None:
    async with running() as stage:
        assert (await stage.call("ses", signed(DELIVERED | {"Message": "hello"}))).status == 200
        ((route, reason, _),) = stage.quarantined()
        assert (route, reason) == ("ses", "its Message is no JSON")
