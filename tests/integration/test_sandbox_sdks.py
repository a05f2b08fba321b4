"""The sandbox as the providers' own libraries for Python see it: they send to it, and raise what they always raise."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import boto3
import mailgun.client
import postmark
import postmark.sync
import pytest
import resend
import sendgrid
from botocore.config import Config
from botocore.exceptions import ClientError
from mailgun.config import RetryPolicy
from python_http_client.exceptions import ServiceUnavailableError, TooManyRequestsError, UnauthorizedError
from requests import HTTPError
from resend.exceptions import RateLimitError, ResendError
from sendgrid.helpers.mail import Attachment, Content, CustomArg, Email, Mail, To

from posthouse.sandbox.received import shown
from tests.acceptance.sandbox_thread import SandboxThread

KEY: Final = "s3cret-key"
BILL: Final = b"%PDF-1.7\r\n\x00\xff\nend"
SHOP, ADA = "orders@shop.example", "ada@example.com"
HTML: Final = "<p>Grüße ✉</p>"
METADATA: Final = {"order": "42"}


@pytest.fixture(scope="module")
def _sandbox() -> Iterator[SandboxThread]:
    one = SandboxThread(api_key=KEY)
    yield one
    one.close()


@pytest.fixture
def sandbox(_sandbox: SandboxThread, monkeypatch: pytest.MonkeyPatch) -> SandboxThread:
    """Without a fault; nothing of this machine's settings has a say."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    _sandbox.set_faults()
    return _sandbox


# One message with each library; gives the id that it was told. Raises what the library raises.


def by_postmark(url: str, key: str) -> str:
    with postmark.sync.ServerClient(key, retries=0, base_url=url) as client:
        answer = client.outbound.send(
            {
                "sender": SHOP,
                "to": ADA,
                "subject": "Your order",
                "html_body": HTML,
                "metadata": METADATA,
                "attachments": [
                    {"Name": "bill.pdf", "Content": in_base64(BILL), "ContentType": "application/pdf"},
                ],
            }
        )
        return str(answer.message_id)


def by_resend(url: str, key: str) -> str:
    resend.api_url, resend.api_key = url, key
    answer = resend.Emails.send(
        {
            "from": SHOP,
            "to": [ADA],
            "subject": "Your order",
            "html": HTML,
            "tags": [{"name": name, "value": value} for name, value in METADATA.items()],
            "attachments": [{"filename": "bill.pdf", "content": list(BILL), "content_type": "application/pdf"}],
        }
    )
    return str(answer["id"])


def by_sendgrid(url: str, key: str) -> str:
    mail = Mail(Email(SHOP), To(ADA), "Your order", html_content=Content("text/html", HTML))
    mail.add_attachment(Attachment(in_base64(BILL), "bill.pdf", "application/pdf", "attachment"))
    for name, value in METADATA.items():
        mail.add_custom_arg(CustomArg(name, value))
    answer = sendgrid.SendGridAPIClient(key, host=url).send(mail)
    assert (answer.status_code, answer.body) == (202, b"")
    return str(answer.headers["X-Message-Id"])


def by_mailgun(url: str, key: str) -> str:
    client = mailgun.client.Client(auth=("api", key), api_url=url, retry_policy=RetryPolicy(max_retries=0))
    answer = client.messages.create(
        domain="shop.example",
        data={
            "from": SHOP,
            "to": ADA,
            "subject": "Your order",
            "html": HTML,
            **{f"v:{name}": value for name, value in METADATA.items()},
        },
        files=[("attachment", ("bill.pdf", BILL, "application/pdf"))],
    )
    answer.raise_for_status()
    return str(answer.json()["id"]).strip("<>")


def by_boto3(url: str, key: str) -> str:
    client = boto3.client(
        "sesv2",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id=key,
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=10),
    )
    answer = client.send_email(
        FromEmailAddress=SHOP,
        Destination={"ToAddresses": [ADA]},
        Content={
            "Simple": {
                "Subject": {"Data": "Your order"},
                "Body": {"Html": {"Data": HTML}},
                "Attachments": [{"FileName": "bill.pdf", "RawContent": BILL, "ContentType": "application/pdf"}],
            }
        },
        EmailTags=[{"Name": name, "Value": value} for name, value in METADATA.items()],
    )
    return str(answer["MessageId"])


def in_base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


@dataclass(frozen=True)
class Library:
    """One library, and what it raises: the class, and what the exception says went wrong."""

    send: Callable[[str, str], str]
    code_of: Callable[[Any], object]
    wrong_key: tuple[type[Exception], object]
    too_fast: tuple[type[Exception], object]
    unavailable: tuple[type[Exception], object]


LIBRARIES: Final = {
    "postmark": Library(
        by_postmark,
        code_of=lambda error: error.error_code,
        wrong_key=(postmark.InvalidAPIKeyException, 10),
        too_fast=(postmark.RateLimitException, 429),
        unavailable=(postmark.ServerException, 100),
    ),
    "resend": Library(
        by_resend,
        code_of=lambda error: error.error_type,
        wrong_key=(ResendError, "invalid_api_key"),
        too_fast=(RateLimitError, "rate_limit_exceeded"),
        unavailable=(ResendError, "application_error"),
    ),
    "sendgrid": Library(
        by_sendgrid,
        code_of=lambda error: error.status_code,
        wrong_key=(UnauthorizedError, 401),
        too_fast=(TooManyRequestsError, 429),
        unavailable=(ServiceUnavailableError, 503),
    ),
    "mailgun": Library(
        by_mailgun,
        code_of=lambda error: error.response.status_code,
        wrong_key=(HTTPError, 401),
        too_fast=(HTTPError, 429),
        unavailable=(HTTPError, 503),
    ),
    "boto3": Library(
        by_boto3,
        code_of=lambda error: error.response["Error"]["Code"],
        wrong_key=(ClientError, "InvalidClientTokenId"),
        too_fast=(ClientError, "TooManyRequestsException"),
        unavailable=(ClientError, "ServiceUnavailable"),
    ),
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


def raised_by(library: Library, url: str, key: str, expected: tuple[type[Exception], object]) -> None:
    kind, code = expected
    with pytest.raises(kind) as raised:
        library.send(url, key)
    assert library.code_of(raised.value) == code


def test_a_message_is_caught_whole(sandbox: SandboxThread, library: Library) -> None:
    told = library.send(sandbox.url, KEY)
    acceptance = sandbox.acceptances()[-1]
    caught = shown(acceptance)
    assert caught is not None
    assert (acceptance.message_id, acceptance.recipients, acceptance.subject) == (told, (ADA,), "Your order")
    assert SHOP in str(caught.body["from"])
    assert caught.body["html"] == HTML
    assert caught.body["metadata"] == METADATA
    assert [(f.filename, f.content_type, f.content) for f in caught.files] == [("bill.pdf", "application/pdf", BILL)]


def test_a_fault_raises_what_the_library_always_raises(sandbox: SandboxThread, library: Library) -> None:
    before = len(sandbox.acceptances())
    sandbox.set_faults("429")
    raised_by(library, sandbox.url, KEY, library.too_fast)
    sandbox.set_faults("503")
    raised_by(library, sandbox.url, KEY, library.unavailable)
    assert len(sandbox.acceptances()) == before


def test_a_wrong_key_raises_what_the_library_always_raises(sandbox: SandboxThread, library: Library) -> None:
    raised_by(library, sandbox.url, "wrong", library.wrong_key)
