"""The `ses` provider beside AWS's own client, and against servers that nobody here wrote: moto, aws-ses-v2-local.

No other module loads moto.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import boto3
import pytest
from botocore.config import Config
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.server import ThreadedMotoServer
from moto.ses.models import ses_backends

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.core.outcome import Outcome, Subject
from posthouse.providers.mime import message_bytes
from posthouse.providers.placeholders import OUR_ID
from tests.contract.provider_suite import SECRET
from tests.integration.hard_messages import HARD, assert_says
from tests.integration.npm import NpmServer, got_json, installed
from tests.providers.loopback import answer, running_api
from tests.providers.messages import SHOP, full_message, message
from tests.providers.ses_routes import ACCOUNT, KEY_ID, REGION, route

SES_LOCAL: Final = NpmServer(
    "aws-ses-v2-local",
    "2.10.2",
    script="dist/cli.js",
    arguments=["--host", "127.0.0.1", "--port", "{port}"],
    ready="/health-check",
)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Makes AWS's own client for a server on loopback; nothing of this machine's settings has a say."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return lambda url: boto3.client(
        "sesv2",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=10),
    )


EVERYTHING: Final[Mapping[str, Any]] = {
    "configuration_set": "receipts",
    "identity_arn": "arn:aws:ses:eu-west-1:123456789012:identity/shop.example",
    "feedback_identity_arn": "arn:aws:ses:eu-west-1:123456789012:identity/shop.example",
    "tenant": "shop",
    "contact_list": "customers",
    "contact_topic": "news",
}
"""Every setting that stands in a call."""


async def test_the_call_is_the_one_that_awss_own_client_makes(client: Callable[[str], Any]) -> None:
    """The client checks each member against SES's model, and the same server lets both calls in."""
    mail = full_message(
        html="<p>Grüße</p>",
        attachments=[Attachment(b"\x00\xff", "Ü.bin")],
        envelope_sender=Address("bounces@shop.example"),
        track_opens=True,
        track_clicks=False,
    )
    async with running_api() as server:
        server.reply = answer(200, {"MessageId": "m-1"})
        provider = route(server.url, time.time, **EVERYTHING)
        assert (await provider.send(mail)).message_id == "m-1"
        await provider.close()
        call = server.received[0].json
        call["Content"]["Raw"]["Data"] = base64.b64decode(call["Content"]["Raw"]["Data"])  # it encodes by itself
        await asyncio.to_thread(client(server.url).send_email, **call)
    ours, theirs = server.received
    assert (ours.method, ours.path, ours.json) == (theirs.method, theirs.path, theirs.json)
    assert [ACCOUNT.refusal(got, time.time()) for got in (ours, theirs)] == [None, None]


# moto.


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def moto(moto_url: str, client: Callable[[str], Any]) -> Iterator[str]:
    """A server that knows our sender."""
    client(moto_url).create_email_identity(EmailIdentity=SHOP.email)
    yield moto_url
    ses_backends[DEFAULT_ACCOUNT_ID][REGION].reset()


async def test_moto_gets_every_hard_message_as_it_was_built(moto: str) -> None:
    provider = route(moto, time.time, configuration_set="receipts")
    for differs in HARD.values():
        mail = message(**differs)
        verdict = await provider.send(mail)
        got = ses_backends[DEFAULT_ACCOUNT_ID][REGION].sent_messages[-1]
        assert (verdict.outcome, verdict.message_id) == (Outcome.ACCEPTED, got.id)
        assert got.raw_data.encode() == message_bytes(mail)
        assert_says(got.raw_data.encode(), mail)
    await provider.close()


async def test_moto_names_everybody_who_gets_a_copy(moto: str) -> None:
    provider = route(moto, time.time)
    await provider.send(full_message())
    await provider.close()
    got = ses_backends[DEFAULT_ACCOUNT_ID][REGION].sent_messages[-1]
    assert {"ada@example.com", "bob@example.com", "cc@example.com", "bcc@example.com"} <= set(got.destinations)


async def test_a_class_that_moto_names_in_its_header_is_read(moto: str) -> None:
    provider = route(moto, time.time)
    verdict = await provider.send(message(sender=Address("nobody@elsewhere.example")))
    await provider.close()
    assert (verdict.outcome, verdict.subject) == (Outcome.REJECTED, Subject.MESSAGE)
    assert verdict.rule == "the message is refused"


# aws-ses-v2-local.


@pytest.fixture
def ses_local() -> Iterator[str]:
    """The server, installed into a folder of its own."""
    with installed(SES_LOCAL) as url:
        yield url


async def test_aws_ses_v2_local_reads_in_every_hard_message_what_was_meant(ses_local: str) -> None:
    provider = route(ses_local, time.time)
    meant = [message(**differs) for differs in HARD.values()]
    meant.append(
        full_message(attachments=[Attachment(b"PNG", "a.png", "image/png", "a"), Attachment(b"\x00\xff", "Ü.bin")])
    )
    verdicts = [await provider.send(mail) for mail in meant]
    await provider.close()
    caught = (await asyncio.to_thread(got_json, f"{ses_local}/store"))["emails"]
    assert [verdict.message_id for verdict in verdicts] == [email["messageId"] for email in caught]
    for mail, email in zip(meant, caught, strict=True):
        assert email["subject"] == mail.subject
        assert all(address.email in str(email["destination"]["to"]) for address in mail.to)
        if mail.text is not None:
            assert email["body"]["text"].split() == mail.text.split()
        assert [base64.b64decode(file["content"]) for file in email["attachments"]] == [
            file.content for file in mail.attachments
        ]
        assert OUR_ID not in str(email)
