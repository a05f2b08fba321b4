"""The `smtp` provider against a real Postfix: what arrives in its mailboxes, and what it says when it refuses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from posthouse.address import Address
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.providers.mime import message_bytes
from posthouse.providers.port import OutgoingMessage, Provider
from posthouse.sandbox.smtp import serve_smtp
from tests.acceptance.installation import until
from tests.integration.hard_messages import HARD, assert_says, read
from tests.integration.policy_server import Attributes, PolicyServer
from tests.integration.postfix import USER, Postfix
from tests.providers.messages import message
from tests.providers.smtp_routes import (
    ACCEPTED,
    LATER,
    MISCONFIGURED,
    OUTAGE,
    REJECTED,
    THROTTLED,
    UNKNOWN,
    Meaning,
    meaning,
    route,
)
from tests.sandbox.conftest import make_bench

AS_A_MEMBER: Final = {"scheme": "smtp+starttls", "user": f"{USER}@"}


def way_in(postfix: Postfix, service: str, *, scheme: str = "smtp", user: str = "", **settings: Any) -> Provider:
    """A route to one of Postfix's ports, with one connection."""
    if scheme != "smtp":
        settings["ca_file"] = str(postfix.ca_file)
    return route(scheme, postfix.ports[service], user, concurrency=1, **settings)


async def sent(provider: Provider, *messages: OutgoingMessage) -> list[Verdict]:
    """The messages one after the other on one connection."""
    verdicts = [await provider.send(one) for one in messages]
    await provider.close()
    return verdicts


def box(name: str) -> Address:
    """A mailbox that is there."""
    return Address(f"box-{name}@inbox.test")


NOBODY: Final = Address("nobody@inbox.test")


async def arrived(postfix: Postfix, address: Address) -> bytes:
    """The only message in a mailbox, without what was put before its own first line."""
    (delivered,) = await asyncio.to_thread(until, lambda: postfix.mail()[address.email], f"mail for {address.email}")
    return delivered[delivered.index(b"\nDate: ", delivered.index(b"\nReceived: ")) + 1 :]


async def logged(postfix: Postfix, words: str) -> None:
    """Waits until Postfix has said so."""
    await asyncio.to_thread(until, lambda: words in postfix.log, f"Postfix says {words!r}")


# What arrives.


@pytest.mark.parametrize("name", HARD)
async def test_a_message_arrives_as_it_was_meant(postfix: Postfix, name: str) -> None:
    meant = message(to=(box(re.sub(r"\W", "-", name)),), **HARD[name])
    assert [meaning(verdict) for verdict in await sent(way_in(postfix, "relay"), meant)] == [ACCEPTED]
    delivered = await arrived(postfix, meant.to[0])
    assert delivered == message_bytes(meant).replace(b"\r\n", b"\n")
    assert_says(delivered, meant)


async def test_bcc_recipients_get_it_and_nobody_reads_of_them(postfix: Postfix) -> None:
    seen, hidden = box("seen"), box("hidden")
    (verdict,) = await sent(way_in(postfix, "relay"), message(to=(seen,), cc=(box("copied"),), bcc=(hidden,)))
    assert verdict.outcome is Outcome.ACCEPTED
    for reader in (seen, hidden, box("copied")):
        delivered = await arrived(postfix, reader)
        assert b"hidden" not in delivered
        assert read(delivered)["Cc"] == "box-copied@inbox.test"


async def test_an_address_beyond_ascii_goes_through(postfix: Postfix) -> None:
    (verdict,) = await sent(way_in(postfix, "relay"), message(to=(box("müller"),)))
    assert verdict.outcome is Outcome.ACCEPTED
    assert "\nTo: box-müller@inbox.test\n".encode() in await arrived(postfix, box("müller"))


async def test_its_id_in_the_queue_is_the_message_id(postfix: Postfix) -> None:
    (verdict,) = await sent(way_in(postfix, "relay"), message(to=(box("queued"),)))
    assert verdict.message_id
    await logged(postfix, f"{verdict.message_id}: from=<orders@shop.example>")


@pytest.mark.parametrize("method", ["plain", "login", "cram-md5"])
@pytest.mark.parametrize(("service", "scheme"), [("submission", "smtp+starttls"), ("smtps", "smtps")])
async def test_a_member_is_let_in(postfix: Postfix, service: str, scheme: str, method: str) -> None:
    provider = way_in(postfix, service, scheme=scheme, user=f"{USER}@", auth_method=method)
    (verdict,) = await sent(provider, message(to=(box("member"),)))
    assert verdict.outcome is Outcome.ACCEPTED
    mark = f"client=unknown[127.0.0.1], sasl_method={method.upper()}, sasl_username={USER}@mail.test"
    await logged(postfix, f"{verdict.message_id}: {mark}")


# What it refuses.


@dataclass(frozen=True)
class Refusal:
    """One message that Postfix doesn't take: how it is handed in, and what that means."""

    service: str
    to: Sequence[Address]
    means: Meaning
    code: str
    says: str
    about: Subject = Subject.ROUTE
    way: dict[str, str] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)


READER: Final = (box("reader"),)

REFUSALS: Final = {
    "an unknown recipient": Refusal(
        "relay", (NOBODY,), REJECTED, "550", "5.1.1 <nobody@inbox.test>: Recipient address rejected", Subject.RECIPIENT
    ),
    "a foreign domain": Refusal(
        "relay", (Address("ada@elsewhere.test"),), MISCONFIGURED, "554", "5.7.1 <ada@elsewhere.test>: Relay access"
    ),
    "a wrong password": Refusal(
        "submission", READER, MISCONFIGURED, "535", "5.7.8", way={**AS_A_MEMBER, "password": "guessed"}
    ),
    "a wrong answer to a challenge": Refusal(
        "submission",
        READER,
        MISCONFIGURED,
        "535",
        "5.7.8",
        way={**AS_A_MEMBER, "password": "guessed", "auth_method": "cram-md5"},
    ),
    "no password": Refusal(
        "submission",
        READER,
        MISCONFIGURED,
        "554",
        "Client host rejected: Access denied",
        way={"scheme": "smtp+starttls"},
    ),
    "clear text": Refusal("submission", READER, MISCONFIGURED, "530", "5.7.0 Must issue a STARTTLS command first"),
    "somebody else's sender": Refusal(
        "submission",
        READER,
        MISCONFIGURED,
        "553",
        "5.7.1 <eve@shop.example>: Sender address rejected: not owned by user",
        way=AS_A_MEMBER,
        changes={"sender": Address("eve@shop.example")},
    ),
    "TLS where there is none": Refusal("relay", READER, MISCONFIGURED, "tls", "", way={"scheme": "smtps"}),
    "a name that is none": Refusal(
        "wants_names",
        READER,
        MISCONFIGURED,
        "504",
        "5.5.2 <shop>: Helo command rejected",
        way={"local_hostname": "shop"},
    ),
    "a message that is too large": Refusal(
        "small", READER, REJECTED, "too_large", "at most 20000", Subject.MESSAGE, changes={"text": "long " * 10_000}
    ),
    "an address beyond ASCII": Refusal(
        "ascii", (box("müller"),), REJECTED, "no_smtputf8", "offers no SMTPUTF8", Subject.RECIPIENT
    ),
    "a full disk": Refusal("full", READER, OUTAGE, "452", "4.3.1 Insufficient system storage"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_is_understood(postfix: Postfix, refusal: Refusal) -> None:
    provider = way_in(postfix, refusal.service, **refusal.way)
    (verdict,) = await sent(provider, message(to=refusal.to, **refusal.changes))
    assert (meaning(verdict), verdict.code, verdict.subject) == (refusal.means, refusal.code, refusal.about), verdict
    assert refusal.says in verdict.text


@pytest.mark.parametrize("service", ["small", "ascii"])
async def test_what_can_not_be_carried_is_not_sent_at_all(postfix: Postfix, service: str) -> None:
    refused = message(to=(box("müller"),), text="long " * 10_000)
    verdicts = await sent(way_in(postfix, service), refused, message(to=(box("carried"),)))
    assert [meaning(verdict) for verdict in verdicts] == [REJECTED, ACCEPTED]
    commands = r"ehlo=1 mail=1 rcpt=1 data=1 quit=1 commands=5\n"
    session = re.compile(rf"postfix/{service}/smtpd\[\d+\]: disconnect from \S+ {commands}")
    await asyncio.to_thread(until, lambda: session.search(postfix.log), "one message is all that Postfix saw")


async def test_what_some_recipients_get_is_accepted_and_the_refused_one_is_named(postfix: Postfix) -> None:
    (verdict,) = await sent(way_in(postfix, "relay"), message(to=(box("one"), NOBODY, box("two"))))
    assert (verdict.outcome, verdict.rule) == (Outcome.ACCEPTED, "partly accepted")
    assert verdict.text.startswith("1 refused: nobody@inbox.test: rejected, 550 at RCPT TO: 5.1.1")
    assert b"nobody@inbox.test" in await arrived(postfix, box("one"))
    await arrived(postfix, box("two"))


async def test_who_is_too_fast_is_throttled(postfix: Postfix) -> None:
    first, second = await sent(way_in(postfix, "slow_down"), *[message(to=READER)] * 2)
    assert first.outcome is Outcome.ACCEPTED
    assert (meaning(second), second.code, second.subject) == (THROTTLED, "450", Subject.ROUTE)
    assert "too much mail from 127.0.0.1" in second.text


async def test_who_has_too_many_connections_is_throttled(postfix: Postfix) -> None:
    one, other = way_in(postfix, "one_connection"), way_in(postfix, "one_connection")
    assert (await one.send(message(to=READER))).outcome is Outcome.ACCEPTED
    (verdict,) = await sent(other, message(to=READER))
    assert (meaning(verdict), verdict.code) == (THROTTLED, "421")
    await one.close()


# Connections that end, or are ended.


async def test_many_unknown_recipients_end_a_session_and_harm_no_other_message(postfix: Postfix) -> None:
    """After three errors Postfix says 421 right behind the last refusal, unasked, and closes."""
    verdicts = await sent(way_in(postfix, "few_errors"), *[message(to=(NOBODY,))] * 7, message(to=READER))
    assert [meaning(verdict) for verdict in verdicts] == [*[REJECTED] * 7, ACCEPTED]
    assert {verdict.code for verdict in verdicts[:7]} == {"550"}


async def test_a_session_that_postfix_has_closed_for_its_idleness_is_replaced(postfix: Postfix) -> None:
    provider = way_in(postfix, "impatient")
    assert (await provider.send(message(to=READER))).outcome is Outcome.ACCEPTED
    await logged(postfix, "timeout after END-OF-MESSAGE")
    (verdict,) = await sent(provider, message(to=(box("patient"),)))
    assert verdict.outcome is Outcome.ACCEPTED
    await arrived(postfix, box("patient"))


@pytest.mark.parametrize(
    ("state", "means"), [("RCPT", OUTAGE), ("DATA", OUTAGE), ("END-OF-MESSAGE", UNKNOWN)], ids=lambda value: str(value)
)
async def test_a_session_killed_at_a_step_means(
    postfix: Postfix, policy: PolicyServer, state: str, means: Meaning
) -> None:
    def kill_once(attributes: Attributes) -> str:
        if attributes["protocol_state"] == state and not killed:
            killed.append(state)
            postfix.kill_sessions()
        return "DUNNO"

    killed: list[str] = []
    policy.policy = kill_once
    reader = box(f"killed-{state.lower()}")
    first, second = await sent(way_in(postfix, "policy"), *[message(to=(reader,))] * 2)
    assert (meaning(first), first.code) == (means, "lost")
    assert meaning(second) == ACCEPTED
    await arrived(postfix, reader)  # once: what was killed at its end was not delivered either


async def test_a_greylisted_recipient_waits_as_long_as_the_policy_says(postfix: Postfix, policy: PolicyServer) -> None:
    policy.policy = lambda _: "defer_if_permit 4.2.0 Greylisted, try again in 59 seconds"
    (verdict,) = await sent(way_in(postfix, "policy"), message(to=READER))
    assert (meaning(verdict), verdict.code, verdict.subject) == (LATER, "450", Subject.RECIPIENT)
    assert verdict.retry_after_s == 59


# Postfix as the client of our own server.


async def test_what_postfix_hands_on_arrives_in_the_sandbox_byte_for_byte(postfix: Postfix) -> None:
    names = ["dots at the beginnings of lines", "lines that are too long", "beyond ASCII"]
    sending = [message(to=(Address(f"ada-{n}@sandbox.test"),), **HARD[name]) for n, name in enumerate(names * 4)]
    international = message(to=(Address("müller@sandbox.test"),))
    bench = make_bench()
    server = await serve_smtp(bench.api, clock=bench.clock, port=postfix.sandbox_port)
    verdicts = await sent(way_in(postfix, "relay"), *sending, international)
    assert {verdict.outcome for verdict in verdicts} == {Outcome.ACCEPTED}
    await asyncio.to_thread(until, lambda: len(bench.ledger.acceptances) == len(verdicts), "Postfix has handed all on")
    await server.close()
    taken = {one.recipients: one.raw or b"" for one in bench.ledger.acceptances}
    for one in (*sending, international):
        raw = taken[tuple(address.email for address in one.to)]
        assert raw.endswith(message_bytes(one))
