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
