"""The `resend` provider against a server that nobody here wrote: resend-local."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from email.utils import getaddresses
from typing import Any, Final

import pytest

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.config import RouteSettings
from posthouse.core.outcome import Outcome
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from tests.integration.hard_messages import HARD
from tests.integration.npm import NpmServer, got, got_json, installed
from tests.providers.messages import full_message, message

RESEND_LOCAL: Final = NpmServer(
    "resend-local",
    "0.0.7",
    script="dist/starter.js",
    arguments=["--port", "{port}"],
    ready="/dashboard-api/emails",
    environment={"HOSTNAME": "127.0.0.1", "NEXT_TELEMETRY_DISABLED": "1"},  # as Next.js reads them
)
FILES: Final = [
    Attachment(b"PNG", "a.png", "image/png", "a"),
    Attachment(b"\x00\xff", "Ü.bin", "application/octet-stream"),
]


@pytest.fixture
def resend_local() -> Iterator[str]:
    """The server, installed into a folder of its own."""
    with installed(RESEND_LOCAL) as url:
        yield url


def route(url: str) -> Provider:
    model = RouteSettings.model_validate({"provider": "resend", "url": url, "api_key": "re_key"})
    return build_provider("main", model, transport_factory=AiohttpTransport, now=time.time)


def read(addresses: list[str]) -> list[Address]:
    return [Address(address, name) for name, address in getaddresses(addresses)]


async def test_resend_local_reads_in_every_hard_message_what_was_meant(resend_local: str) -> None:
    provider = route(resend_local)
    meant = [message(**differs) for differs in HARD.values()]
    meant.append(full_message(tags=(), attachments=FILES))
    verdicts = [await provider.send(mail) for mail in meant]
    await provider.close()
    assert {verdict.outcome for verdict in verdicts} == {Outcome.ACCEPTED}
    page: dict[str, Any] = await asyncio.to_thread(got_json, f"{resend_local}/dashboard-api/emails?limit=100")
    caught = {email["id"]: email for email in page["emails"]}
    assert len(caught) == len(meant)
    for verdict, mail in zip(verdicts, meant, strict=True):
        email = caught[verdict.message_id]
        assert read([email["from"]]) == [mail.sender]
        for name, addresses in {"to": mail.to, "cc": mail.cc, "bcc": mail.bcc, "replyTo": mail.reply_to}.items():
            assert read(email[name]) == list(addresses)
        assert (email["subject"], email["text"], email["html"]) == (mail.subject, mail.text, mail.html)
        assert email["headers"] == (dict(mail.headers) or None)
        assert [(file["filename"], file["contentType"]) for file in email["attachments"]] == [
            (file.filename, file.content_type) for file in mail.attachments
        ]
        for file, attached in zip(email["attachments"], mail.attachments, strict=True):
            address = f"{resend_local}/dashboard-api/attachments/{file['id']}"
            assert await asyncio.to_thread(got, address) == attached.content
