"""What a real Postfix sends back, read: for each recipient what their server said, and for which send."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from posthouse.address import Address
from posthouse.core.events import Cause, Event, EventKind
from posthouse.returned.reading import Kind, Returned, read_returned
from tests.acceptance.installation import until
from tests.integration.postfix import Postfix
from tests.providers.messages import message
from tests.providers.smtp_routes import route
from tests.providers.smtp_server import Script, scripted_server

SCRIPT: Final[Script] = {
    "rcpt bob@sandbox.test": b"550 5.1.1 <bob@sandbox.test>: Recipient address rejected: User unknown\r\n",
    "rcpt eve@sandbox.test": b"552 5.2.2 mailbox full\r\n",
    "rcpt mallory@sandbox.test": b"554-5.7.1 Client host blocked using zen.example\r\n554 5.7.1 see our help page\r\n",
}
BOUNCES: Final = "box-{id}@inbox.test"


async def came_back(postfix: Postfix, key: str, *names: str, mailbox: str = "", **given: Any) -> Returned:
    """What comes back of a message to these people, read by the headers that Postfix gave it."""
    to = tuple(Address(f"{name}@sandbox.test") for name in names)
    options = given.pop("options", {})
    relay = route("smtp", postfix.ports["relay"], concurrency=1, **(given or {"bounce_address": BOUNCES}))
    async with scripted_server(SCRIPT, port=postfix.sandbox_port):
        verdict = await relay.send(message(idempotency_key=key, to=to, options=options))
        await relay.close()
        assert verdict.message_id
        address = mailbox or BOUNCES.replace("{id}", key)
        (content,) = await asyncio.to_thread(until, lambda: postfix.mail()[address], f"mail for {address}")
    return read_returned(content, time.time(), bounce_addresses={"main": BOUNCES} if not mailbox else {})


def told(events: tuple[Event, ...]) -> list[tuple[EventKind, str, Cause, bool, str]]:
    return sorted((one.kind, one.recipient.partition("@")[0], one.cause, one.hard, one.code) for one in events)


async def test_each_refused_recipient_comes_back_to_the_sends_own_address(postfix: Postfix) -> None:
    read = await came_back(postfix, "a" * 32, "ada", "bob", "eve", "mallory")

    assert (read.kind, read.route) == (Kind.REPORT, "main")
    assert {event.key for event in read.events} == {"a" * 32}
    assert told(read.events) == [
        (EventKind.BOUNCED, "bob", Cause.NO_MAILBOX, True, "550 5.1.1"),
        (EventKind.BOUNCED, "eve", Cause.MAILBOX_FULL, False, "552 5.2.2"),
        (EventKind.BOUNCED, "mallory", Cause.BLOCKED, False, "554 5.7.1"),
    ]
    assert all(time.time() - 60.0 < event.at <= time.time() for event in read.events)


async def test_without_an_address_of_its_own_the_returned_message_says_which_send(postfix: Postfix) -> None:
    mailbox = "box-returned@inbox.test"
    (event,) = (await came_back(postfix, "b" * 32, "bob", mailbox=mailbox, envelope_sender=mailbox)).events
    assert (event.key, event.kind) == ("b" * 32, EventKind.BOUNCED)


async def test_a_report_that_was_asked_for_is_no_bounce(postfix: Postfix) -> None:
    read = await came_back(postfix, "c" * 32, "ada", options={"smtp": {"dsn_notify": ["success"]}})
    assert told(read.events) == [(EventKind.SENT, "ada", Cause.NONE, False, "250 2.0.0")]
