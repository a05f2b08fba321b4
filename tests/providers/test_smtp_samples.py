"""The sample messages of CPython's own tests, well and badly formed: each arrives byte for byte as it was enqueued.

They ship with most builds of Python, in its `test` package. None of them is refused: none has a NUL or a line that is
too long, so those two are made of one here.
"""

from __future__ import annotations

import importlib.util
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.config import RouteSettings
from posthouse.content import Content
from posthouse.core.outcome import Outcome
from posthouse.email import Email
from posthouse.errors import InvalidEmail
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.faults import FaultPlan
from posthouse.sandbox.ledger import Ledger
from posthouse.sandbox.smtp import serve_smtp
from posthouse.worker.rendering import Renderer
from tests.providers.messages import SHOP

NOW = 1_800_000_000.0


def samples() -> list[Path]:
    try:
        spec = importlib.util.find_spec("test.test_email")
    except ModuleNotFoundError:
        return []
    folder = Path(str(spec.origin)).parent / "data" if spec is not None else Path()
    return sorted(folder.glob("*.txt"))


SAMPLES = {path.name: path.read_bytes() for path in samples()}

needs_samples = pytest.mark.skipif(
    not SAMPLES, reason="this Python came without its test package (Debian: libpython3-testsuite)"
)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Ledger, Provider]]:
    """The sandbox's SMTP server: what it got, and a route to it."""
    ledger = Ledger()
    api = SandboxApi(ledger, FaultPlan([]), chance=random.Random(1), started_at=NOW)
    listening = await serve_smtp(api, clock=lambda: NOW)
    route = RouteSettings.model_validate({"provider": "smtp", "url": listening.url})
    provider = build_provider("main", route, transport_factory=AiohttpTransport, now=lambda: NOW)
    yield ledger, provider
    await provider.close()
    await listening.close()


async def received(raw: bytes, server: tuple[Ledger, Provider]) -> bytes:
    """What arrives of a message that is enqueued, stored, read back and sent."""
    ledger, provider = server
    checked = Email(key="raw-1", raw=raw, to="ada@example.com").checked()
    content = Content.from_json(checked.stored)
    assert provider.refusals(content) == []
    message = Renderer(Path(), SHOP).message(1, "key-1", content, NOW, checked.files)
    verdict = await provider.send(message)
    assert verdict.outcome is Outcome.ACCEPTED, verdict
    (acceptance,) = ledger.acceptances
    assert acceptance.recipients == ("ada@example.com",)
    assert acceptance.raw is not None
    return acceptance.raw


def as_it_should_arrive(raw: bytes) -> bytes:
    lines = re.sub(rb"\r\n|\r|\n", b"\r\n", raw)
    return lines if lines.endswith(b"\r\n") else lines + b"\r\n"


@needs_samples
@pytest.mark.parametrize("name", SAMPLES)
async def test_a_sample_arrives_byte_for_byte(name: str, server: tuple[Ledger, Provider]) -> None:
    raw = SAMPLES[name]
    assert b"\nbcc:" not in raw.lower()
    assert await received(raw, server) == as_it_should_arrive(raw)


@needs_samples
@pytest.mark.parametrize("name", SAMPLES)
async def test_a_sample_with_bcc_arrives_without_it(name: str, server: tuple[Ledger, Provider]) -> None:
    raw = SAMPLES[name]
    after_its_first_field = re.compile(rb"\n(?![ \t])")
    hidden = after_its_first_field.sub(b"\nBcc: eve@example.com,\n mallory@example.com\n", raw, count=1)
    assert hidden != raw
    assert await received(hidden, server) == as_it_should_arrive(raw)


@needs_samples
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_that_no_server_takes_is_refused(name: str) -> None:
    raw = SAMPLES[name]
    for made, reason in ((raw + b"\0", "contains a NUL"), (raw + b"x" * 999, "is longer than 998 bytes")):
        with pytest.raises(InvalidEmail, match=reason):
            Email(key="raw-1", raw=made, to="ada@example.com").checked()
