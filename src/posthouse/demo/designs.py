"""The two designs: sending within the order's request, and writing the email down with the order."""

from __future__ import annotations

import json
from typing import Any, Final

import aiohttp

from posthouse.app import Outbox
from posthouse.demo.scenario import (
    POLL_MAX_S,
    POLL_MIN_S,
    RETRY_FIRST_S,
    RETRY_MAX_S,
    SWEEP_S,
    TIMEOUT_S,
    Scenario,
)
from posthouse.demo.shop import OrderBook, customer
from posthouse.email import Email

SENDER: Final = "Shop <orders@shop.example>"
TYPE: Final = "receipt"
TRIES: Final = 3


class NaiveDesign:
    """Commits the order, then sends while the customer waits; tries again at once, and gives up after three tries."""

    def __init__(self, book: OrderBook, session: aiohttp.ClientSession, url: str, timeout_s: float) -> None:
        self.timed_out = 0
        self._book = book
        self._session = session
        self._url = url
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def take_order(self, order: int) -> None:
        """One request of the shop's website."""
        await self._book.commit(order)
        for _ in range(TRIES):
            if await self._send(order):
                return

    async def _send(self, order: int) -> bool:
        """Whether the provider said yes."""
        try:
            async with self._session.post(self._url, json=_message(order), timeout=self._timeout) as answer:
                await answer.read()
                return answer.ok
        except TimeoutError:
            self.timed_out += 1
            return False
        except aiohttp.ClientError:
            return False


def _message(order: int) -> dict[str, Any]:
    """Without an idempotency key. Its number stands where the sandbox's ledger looks for a key all the same."""
    return {
        "from": SENDER,
        "to": [customer(order)],
        "subject": _subject(order),
        "text": _text(order),
        "metadata": {"posthouse_id": f"order-{order}"},
    }


class OutboxDesign:
    """Commits the order together with its email; `posthouse worker` does the rest."""

    def __init__(self, book: OrderBook, outbox: Outbox) -> None:
        self._book = book
        self._outbox = outbox

    async def take_order(self, order: int) -> None:
        """One request of the shop's website."""
        email = Email(
            type=TYPE, key=f"order-{order}-receipt", to=customer(order), subject=_subject(order), text=_text(order)
        )
        await self._book.commit(order, lambda transaction: self._outbox.enqueue(transaction, email))


def _subject(order: int) -> str:
    return f"Your order {order}"


def _text(order: int) -> str:
    return f"Thank you for your order.\n\nIts number is {order}. We pack it today and write again when it leaves.\n"


def configuration(scenario: Scenario, database: str, url: str) -> str:
    """The posthouse.toml of the outbox side."""
    waits = {
        name: f'"{scenario.real_wait(seconds):g}s"'
        for name, seconds in {
            "timeout": TIMEOUT_S,
            "retry_first": RETRY_FIRST_S,
            "retry_max": RETRY_MAX_S,
            "poll_min": POLL_MIN_S,
            "poll_max": POLL_MAX_S,
            "sweep": SWEEP_S,
        }.items()
    }
    return f"""\
# Written by `posthouse demo`. Its hour runs {scenario.pace:g} times as fast as life,
# the waits below {scenario.wait_pace:g} times.
database = {json.dumps(database)}
sender = "{SENDER}"

[routes.main]
provider = "http"
url = "{url}"
auth = "none"
idempotency_header = "Idempotency-Key"
concurrency = {scenario.concurrency}
connect_timeout = {waits["timeout"]}
timeout = {waits["timeout"]}

[types.{TYPE}]
retry_first = {waits["retry_first"]}
retry_max = {waits["retry_max"]}

[worker]
poll_min = {waits["poll_min"]}
poll_max = {waits["poll_max"]}
sweep = {waits["sweep"]}
"""
