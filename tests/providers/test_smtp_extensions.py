"""What a message needs a server to be able to do: 8-bit bytes, UTF-8 in headers, and what its options ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.config import RouteSettings
from posthouse.content import Content
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import OutgoingMessage, Provider
from posthouse.providers.registry import build_provider
from tests.providers.messages import ADA, BOB, message
from tests.providers.smtp_server import ScriptedServer, scripted_server
from tests.providers.wire import CERTIFICATE

EIGHT_BIT = b"Subject: a\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n"
UTF8_HEADER = "Subject: Grüße\r\n\r\nb\r\n".encode()


def route(url: str, **settings: Any) -> Provider:
    given = {"provider": "smtp", "url": url} | settings
    return build_provider(
        "main", RouteSettings.model_validate(given), transport_factory=AiohttpTransport, now=lambda: 0.0
    )


@asynccontextmanager
async def offering(*extensions: str, tls: bool = False) -> AsyncIterator[tuple[ScriptedServer, Provider]]:
    """A server with these extensions, and a route to it."""
    lines = ["hello", *extensions]
    said = "".join(f"250{' ' if line is lines[-1] else '-'}{line}\r\n" for line in lines)
    async with scripted_server({"ehlo": said.encode()}, tls=tls) as server:
        place = f"127.0.0.1:{server.port}"
        provider = route(f"smtps://{place}", ca_file=str(CERTIFICATE)) if tls else route(f"smtp://{place}")
        yield server, provider
        await provider.close()


async def sent(given: OutgoingMessage, *extensions: str, tls: bool = False) -> tuple[Verdict, ScriptedServer]:
    async with offering(*extensions, tls=tls) as (server, provider):
        return await provider.send(given), server


def mail_from(server: ScriptedServer) -> list[str]:
    """The parameters of the one MAIL, but for the size."""
    (line,) = [line for line in server.heard if line.startswith("MAIL")]
    return [part for part in line.split()[2:] if not part.startswith("SIZE=")]


def rcpt_to(server: ScriptedServer) -> list[str]:
    return [line.removeprefix("RCPT TO:") for line in server.heard if line.startswith("RCPT")]


def refused(verdict: Verdict, server: ScriptedServer, code: str) -> bool:
    """Whether it was rejected before the server heard of it."""
    found = (verdict.outcome, verdict.code, verdict.maybe_accepted)
    return found == (Outcome.REJECTED, code, False) and "MAIL" not in server.steps()


# 8-bit bytes.


async def test_a_message_that_we_build_needs_nothing() -> None:
    given = message(subject="Grüße", text="ü", attachments=[Attachment(b"\xff", "ü")])
    verdict, server = await sent(given, "8BITMIME", "SMTPUTF8")
    assert verdict.outcome is Outcome.ACCEPTED
    assert mail_from(server) == []
    assert server.contents[0].isascii()


@pytest.mark.parametrize(
    ("given", "needed", "parameters"),
    [
        (message(raw=b"Subject: a\r\n\r\nb\r\n"), [], []),
        (message(raw=EIGHT_BIT), ["8BITMIME"], ["BODY=8BITMIME"]),
        (message(raw=b"\r\n\xff\r\n\r\nmore\r\n"), ["8BITMIME"], ["BODY=8BITMIME"]),
        (message(raw=UTF8_HEADER), ["8BITMIME", "SMTPUTF8"], ["SMTPUTF8", "BODY=8BITMIME"]),
        (message(raw="Subject: Grüße\r\n".encode()), ["8BITMIME", "SMTPUTF8"], ["SMTPUTF8", "BODY=8BITMIME"]),
        (message(attachments=[Attachment(EIGHT_BIT, "", "message/rfc822")]), ["8BITMIME"], ["BODY=8BITMIME"]),
        (message(to=(ADA,), bcc=(Address("ü@x.example"),)), ["SMTPUTF8"], ["SMTPUTF8"]),
        (message(envelope_sender=Address("ü@x.example")), ["SMTPUTF8"], ["SMTPUTF8"]),
        (message(cc=(Address("ü@x.example"),)), ["8BITMIME", "SMTPUTF8"], ["SMTPUTF8", "BODY=8BITMIME"]),
        (
            message(cc=(Address("ü@x.example"),), envelope_to=(ADA.email,)),
            ["8BITMIME", "SMTPUTF8"],
            ["SMTPUTF8", "BODY=8BITMIME"],
        ),
    ],
)
async def test_the_server_is_told_what_it_gets_and_must_be_able_to(
    given: OutgoingMessage, needed: list[str], parameters: list[str]
) -> None:
    verdict, server = await sent(given, *needed)
    assert verdict.outcome is Outcome.ACCEPTED, verdict
    assert mail_from(server) == parameters
    for missing in needed:
        verdict, server = await sent(given, *(one for one in ("8BITMIME", "SMTPUTF8") if one != missing))
        assert refused(verdict, server, f"no_{missing.lower()}"), verdict
        assert missing in verdict.text


async def test_a_finished_message_arrives_as_it_is_dots_and_all() -> None:
    raw = b"Subject: a\r\n\r\n.\r\n..b\r\n"
    _, server = await sent(message(raw=raw))
    assert server.contents == [b"Subject: a\r\n\r\n..\r\n...b\r\n"]


async def test_a_connection_that_can_not_carry_one_message_carries_the_next() -> None:
    async with offering("SIZE 1000000") as (server, provider):
        assert (await provider.send(message(raw=EIGHT_BIT))).code == "no_8bitmime"
        assert (await provider.send(message())).outcome is Outcome.ACCEPTED
        assert server.opened == 1


# Options.

FULL = {"require_tls": True, "dsn_notify": ["success", "delay"], "dsn_return": "headers"}


async def test_an_option_is_told_to_a_server_that_offers_it() -> None:
    given = message(to=(ADA, BOB), options={"smtp": FULL})
    verdict, server = await sent(given, "REQUIRETLS", "DSN", tls=True)
    assert verdict.outcome is Outcome.ACCEPTED
    assert mail_from(server) == ["REQUIRETLS", "RET=HDRS"]
    assert rcpt_to(server) == [
        "<ada@example.com> NOTIFY=SUCCESS,DELAY",
        "<bob@example.com> NOTIFY=SUCCESS,DELAY",
    ]


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"require_tls": True}, "REQUIRETLS"),
        ({"dsn_notify": ["never"]}, "DSN"),
        ({"dsn_return": "full"}, "DSN"),
    ],
)
async def test_a_server_that_does_not_offer_it_gets_no_message(options: dict[str, Any], missing: str) -> None:
    others = [one for one in ("REQUIRETLS", "DSN") if one != missing]
    verdict, server = await sent(message(options={"smtp": options}), *others, tls=True)
    assert refused(verdict, server, f"no_{missing.lower()}"), verdict
    assert missing in verdict.text
    assert "use another route" in verdict.text
    assert verdict.subject is Subject.MESSAGE


async def test_the_routes_own_name_wins_and_other_routes_options_are_not_ours() -> None:
    options = {
        "smtp": {"dsn_return": "full", "dsn_notify": ["never"]},
        "main": {"dsn_return": "headers"},
        "other": FULL,
    }
    _, server = await sent(message(options=options), "DSN")
    assert mail_from(server) == ["RET=HDRS"]
    assert rcpt_to(server) == ["<ada@example.com> NOTIFY=NEVER"]


def refusals(url: str = "smtps://mail.example", **changes: Any) -> list[str]:
    return route(url).refusals(Content(to=(ADA,), subject="s", text="t", **changes))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dsn_notfy": []}, "options.dsn_notfy: there is no such setting; did you mean 'dsn_notify'?"),
        ({"require_tls": "yes"}, "options.require_tls: must be true or false"),
        ({"dsn_notify": ["sometimes"]}, "options.dsn_notify: entry 1 must be 'never', 'success'"),
        ({"dsn_notify": "never"}, "options.dsn_notify: must be a list in brackets"),
        ({"dsn_notify": ["never", "delay"]}, "options.dsn_notify: never stands alone"),
        ({"dsn_return": "all"}, "options.dsn_return: must be 'full' or 'headers'"),
    ],
)
async def test_a_wrong_option_is_refused_at_enqueue_and_when_it_goes_out(options: dict[str, Any], reason: str) -> None:
    (refusal,) = refusals(options={"smtp": options})
    assert refusal.startswith(reason)
    verdict, server = await sent(message(options={"main": options}), "DSN")
    assert refused(verdict, server, "unsupported")
    assert reason in verdict.text


def test_what_the_route_can_not_do_is_refused_at_enqueue() -> None:
    assert refusals() == []
    assert refusals(track_opens=False, track_clicks=False, options={"smtp": FULL, "http": {"x": 1}}) == []
    assert refusals(track_opens=True) == ["track_opens: this route can't track"]
    assert refusals(track_clicks=True) == ["track_clicks: this route can't track"]
    no_tls = refusals("smtp://mail.example", options={"smtp": {"require_tls": True}})
    assert no_tls == ["options.require_tls: this route itself has no TLS"]


async def test_what_another_route_would_have_carried_is_rejected_not_lost() -> None:
    verdict, server = await sent(message(track_opens=True))
    assert refused(verdict, server, "unsupported")
