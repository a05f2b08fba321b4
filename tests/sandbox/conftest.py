"""A sandbox without a network, in a time that stands still until a test moves it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from posthouse.sandbox.api import Exchange, SandboxApi
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import FaultPlan
from posthouse.sandbox.ledger import Ledger
from posthouse.sandbox.replies import Reply
from posthouse.sandbox.smtp_framing import Piece
from posthouse.sandbox.smtp_replies import Output
from posthouse.sandbox.smtp_session import SmtpSession

START = 1_800_000_000.0


def message(to: str = "ada@example.com", **more: Any) -> bytes:
    """The body of a send."""
    return json.dumps(
        {"from": "Shop <shop@shop.example>", "to": [to], "subject": "Hello", "text": "Hi", **more}
    ).encode()


@dataclass
class Bench:
    """A SandboxApi with the time at hand."""

    api: SandboxApi
    now: float = START
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        return self.api.ledger

    def clock(self) -> float:
        return self.now

    def begin(self, body: bytes | None = None, *, key: str | None = None) -> Exchange:
        headers = {**self.headers, **({"idempotency-key": key} if key is not None else {})}
        return self.api.begin("POST", "/v1/send", headers, message() if body is None else body, self.now)

    def send(self, body: bytes | None = None, *, key: str | None = None) -> Reply:
        exchange = self.begin(body, key=key)
        self.api.finish(exchange, self.now)
        return exchange.reply

    def get(self, path: str) -> Reply:
        exchange = self.api.begin("GET", path, self.headers, b"", self.now)
        self.api.finish(exchange, self.now)
        return exchange.reply


def make_bench(*faults: str, seed: int = 1, kept_max: int | None = None, **settings: Any) -> Bench:
    """A bench whose provider has these faults and settings."""
    plan = FaultPlan([parse_fault(text) for text in faults])
    return Bench(SandboxApi(Ledger(kept_max=kept_max), plan, chance=random.Random(seed), started_at=START, **settings))


@pytest.fixture
def bench() -> Bench:
    """A provider without a fault."""
    return make_bench()


def letter(*, subject: str = "Hello", message_id: str = "order-1@shop.example", text: str = "Hi") -> bytes:
    """A message as it goes over the wire, without the final dot."""
    head = f"From: shop@shop.example\r\nTo: ada@example.com\r\nSubject: {subject}\r\nMessage-ID: <{message_id}>\r\n"
    return f"{head}\r\n{text}\r\n".encode()


class Talk:
    """An SMTP client without a network, which remembers the output of each step."""

    def __init__(self, bench: Bench, **settings: bool) -> None:
        self.bench = bench
        self.session = SmtpSession(bench.api, **settings)
        self.banner = self.session.open(bench.now)

    def line(self, text: str) -> Output:
        output = self.session.line(Piece(text.encode()), self.bench.now)
        self.session.finish(output, self.bench.now)
        return output

    def say(self, *lines: str) -> str:
        """The reply to the last of these commands."""
        return [self.line(line) for line in lines][-1].lines.decode()

    def begin(self, *recipients: str, sender: str = "shop@shop.example") -> None:
        """Everything before DATA; every step of it has to work."""
        recipients = recipients or ("ada@example.com",)
        lines = ["EHLO shop", f"MAIL FROM:<{sender}>", *(f"RCPT TO:<{recipient}>" for recipient in recipients)]
        for line in lines:
            assert self.say(line).startswith("250")

    def send(self, content: bytes | None = None) -> Output:
        """DATA and a message, its outcome not yet finished."""
        assert self.say("DATA").startswith("354")
        return self.session.content(Piece(letter() if content is None else content), self.bench.now)

    def deliver(self, *recipients: str, content: bytes | None = None) -> Output:
        """A whole message; the output after the final dot."""
        self.begin(*recipients)
        output = self.send(content)
        self.session.finish(output, self.bench.now)
        return output
