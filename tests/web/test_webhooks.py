"""`POST /webhooks/ROUTE`: what each caller is answered, and what is stored by then."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace

import pytest

from posthouse.config import WebSettings
from posthouse.errors import ConfigError
from posthouse.web.server import WebParts, serve
from tests.contract.store_support import POLICIES
from tests.contract.webhook_cases import CASES, NOW, RESEND, SENDGRID, another_body
from tests.web.stage import Answered, Executor, Stage, keys_of, running


@pytest.mark.parametrize("provider", CASES)
async def test_what_a_provider_tells_is_stored_when_it_is_answered(provider: str) -> None:
    async with running() as stage:
        assert await stage.tell(provider, "delivered") == Answered(200, "1 taken in, 0 unreadable\n")

        assert stage.kinds() == ["delivered"]
        row = stage.bench.row("k")
        assert (row["status"], row["delivery"], row["message_id"]) == ("accepted", "delivered", "m-1")


async def test_what_is_told_twice_counts_once() -> None:
    async with running() as stage:
        for _ in range(3):
            assert (await stage.tell("sendgrid", "delivered")).status == 200
        assert stage.kinds() == ["delivered"]


async def test_a_forged_call_changes_nothing_and_does_not_end_the_tries_of_a_provider(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as stage:
        call = SENDGRID.sign(SENDGRID.secret, SENDGRID.body(SENDGRID.told["bounced"].item), NOW)
        for _ in range(3):
            answered = await stage.call("sendgrid", another_body(call))
            assert answered == Answered(401, "its signature is by none of webhook_secrets\n")
        assert stage.kinds() == []
    assert [record.getMessage() for record in caplog.records] == [
        "a webhook of sendgrid was refused: its signature is by none of webhook_secrets"
    ], "once a minute is often enough"


async def test_who_gives_no_password_is_asked_for_one() -> None:
    async with running() as stage, stage.client.post(f"{stage.server.url}/webhooks/postmark", data=b"{}") as refused:
        assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm="webhooks"')


async def test_a_genuine_call_of_another_route_is_a_forged_one() -> None:
    async with running() as stage:
        for provider, case in CASES.items():
            call = case.sign(case.secret, case.body(case.told["delivered"].item), NOW)
            for route in CASES:
                assert (await stage.call(route, call)).status == (200 if route == provider else 401)


async def test_a_signature_that_covers_no_body_comes_with_one_alone() -> None:
    async with running() as stage:
        assert (await stage.tell("mailgun", "delivered")).status == 200
        assert await stage.tell("mailgun", "bounced") == Answered(401, "its token came with another body before\n")
        assert (await stage.tell("mailgun", "delivered")).status == 200
        assert stage.kinds() == ["delivered"]


async def test_nobody_else_takes_webhooks() -> None:
    async with running() as stage:
        del stage.webhooks["resend"]  # as a route without secrets
        assert await stage.tell("resend", "sent") == Answered(404, "no route 'resend' takes webhooks here\n")
        assert (await stage.post("/webhooks/nowhere", b"{}")).status == 404
        assert (await stage.post("/webhooks/", b"{}")).status == 404
        assert (await stage.get("/webhooks/sendgrid")).status == 405


async def test_a_body_that_can_not_be_read_is_kept_for_a_person_and_not_asked_for_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as stage:
        for _ in range(2):
            answered = await stage.call("sendgrid", SENDGRID.sign(SENDGRID.secret, b"no JSON", NOW))
            assert answered == Answered(200, "0 taken in, 1 unreadable\n")
        assert stage.quarantined() == [("sendgrid", "the body is no JSON", "no JSON")]
    assert "1 of what sendgrid told could not be read (the body is no JSON); it is in email_quarantine" in caplog.text


async def test_a_bad_item_of_a_batch_spoils_none_beside_it() -> None:
    good = [SENDGRID.told[name].item for name in ("deferred", "delivered")]
    items = [{"event": "new"}, good[0], "text", good[1] | {"sg_event_id": "e-2"}, {"event": "open"}]
    async with running() as stage:
        assert await stage.tell("sendgrid", items=items) == Answered(200, "2 taken in, 3 unreadable\n")

        assert sorted(stage.kinds()) == ["deferred", "delivered"]
        assert sorted(stage.quarantined()) == [
            ("sendgrid", "event is 'new'", json.dumps({"event": "new"})),
            ("sendgrid", "it is no object", json.dumps("text")),
            ("sendgrid", "there is no time at timestamp", json.dumps({"event": "open"})),
        ]


async def test_a_batch_of_thousands_is_stored_whole() -> None:
    item = SENDGRID.told["delivered"].item
    items = [item | {"sg_event_id": f"e-{n}", "timestamp": item["timestamp"] + n} for n in range(1201)]
    async with running() as stage:
        assert await stage.tell("sendgrid", items=items) == Answered(200, "1201 taken in, 0 unreadable\n")
        assert len(stage.kinds()) == 1201


async def test_a_body_that_is_too_large_is_refused_with_the_setting() -> None:
    async with running(body_max="1kB") as stage:
        assert (await stage.post("/webhooks/resend", b"x" * 1000)).status == 401
        assert await stage.post("/webhooks/resend", b"x" * 1001) == Answered(
            413, "the body is larger than web.body_max\n"
        )


async def test_while_the_database_is_away_every_webhook_is_sent_away_and_counts_when_it_comes_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as stage:
        stage.executor.away = True
        for provider in CASES:
            assert await stage.tell(provider, "delivered") == Answered(503, "the database is away; send it again\n")
        stage.executor.away = False
        for provider in CASES:
            assert (await stage.tell(provider, "delivered")).status == 200
        assert stage.kinds() == ["delivered"] * len(CASES)
    told = [record.getMessage() for record in caplog.records if record.name == "posthouse.store"]
    assert told[0].endswith("nobody is there; webhooks are sent away, to be sent again, until it is back")
    assert told[1].startswith("the database is back after")


async def test_a_provider_is_told_in_its_own_words_to_send_again() -> None:
    async with running() as stage:
        keys = stage.webhooks["resend"]
        keys.webhook = replace(keys.webhook, again=429)
        stage.executor.away = True
        assert (await stage.tell("resend", "delivered")).status == 429


async def test_a_fault_of_ours_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("ours")

    async with running() as stage:
        stage.executor.before = fail
        assert await stage.tell("postmark", "bounced") == Answered(503, "a fault of ours; send it again\n")
        stage.executor.before = None
        assert (await stage.tell("postmark", "bounced")).status == 200
    assert "ZeroDivisionError: ours" in caplog.text


async def test_a_secret_that_can_not_be_read_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as stage:
        stage.webhooks["resend"] = keys_of(RESEND, webhook_secrets=["env:POSTHOUSE_NOWHERE"])
        assert await stage.tell("resend", "sent") == Answered(503, "its secrets can't be read here; send it again\n")
    assert "the webhooks of resend are sent away, to be sent again: routes.resend.webhook_secrets: the" in caplog.text


async def test_a_call_that_is_cut_off_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as stage:
        address = stage.server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(address[0], int(address[1]))
        writer.write(b"POST /webhooks/resend HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        assert await reader.read() == b""
        assert (await stage.get("/healthz")).status == 200
    assert not caplog.records


@pytest.mark.parametrize(
    "said",
    [
        b"POST /webhooks/resend HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
    ids=["a length below nothing", "a very long address", "a handshake"],
)
async def test_what_is_no_http_is_refused_without_a_line_in_the_log(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as stage:
        host, _, port = stage.server.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        assert b" 400 " in await reader.readline()
        writer.close()
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


# Whether it lives, and is ready


async def test_it_says_whether_it_lives_and_is_ready() -> None:
    async with running() as stage:
        assert await stage.get("/healthz") == Answered(200, "alive\n")
        assert await stage.get("/readyz") == Answered(200, "ready\n")
        stage.executor.away = True
        assert (await stage.get("/healthz")).status == 200
        assert await stage.get("/readyz") == Answered(503, "not ready: see the log\n")


async def test_it_is_not_ready_while_the_database_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posthouse.web.server.READY_WITHIN_S", 0.05)
    async with running(Executor(before=asyncio.Event().wait)) as stage:
        assert (await stage.get("/readyz")).status == 503


# How it begins and ends


async def listens(stage: Stage) -> bool:
    """Whether it takes another connection."""
    host, _, port = stage.server.url.removeprefix("http://").partition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


async def test_at_its_end_it_answers_what_is_under_way_and_listens_no_longer() -> None:
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await may_go_on.wait()

    async with running(Executor(before=wait)) as stage:
        telling = asyncio.create_task(stage.tell("resend", "delivered"))
        await begun.wait()
        closing = asyncio.create_task(stage.server.close())
        await asyncio.sleep(0)
        while await listens(stage):
            pass
        assert not closing.done()
        may_go_on.set()
        assert (await telling).status == 200
        await closing
        assert stage.kinds() == ["delivered"]


async def test_it_waits_no_longer_than_its_grace() -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with running(Executor(before=hang), shutdown_grace="100ms") as stage:
        telling = asyncio.create_task(stage.tell("resend", "delivered"))
        await begun.wait()
        async with asyncio.timeout(5):
            await stage.server.close()
        with pytest.raises(Exception, match="isconnected"):
            await telling


async def test_it_says_which_address_each_provider_is_to_call(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running(public_url="https://mail.shop.example/") as stage:
        told = [record.getMessage() for record in caplog.records if record.name == "posthouse.web"]
        assert told[0] == f"serves at {stage.server.url}"
        assert "webhooks of resend: https://mail.shop.example/webhooks/resend" in told


async def test_a_server_that_takes_no_webhooks_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as stage:
        settings = WebSettings(port=0)
        another = await serve(
            WebParts(stage.bench.store, stage.executor, POLICIES, {}, (), stage.transport, settings, lambda: NOW)
        )
        await another.close()
    assert "so no webhooks are taken" in caplog.text


async def test_a_port_that_is_taken_is_said_so() -> None:
    async with running() as stage:
        taken = WebSettings(port=int(stage.server.url.rpartition(":")[2]))
        with pytest.raises(ConfigError, match=r"web\.port: can't listen on 127\.0\.0\.1:\d+: .*in use"):
            await serve(
                WebParts(stage.bench.store, stage.executor, POLICIES, {}, (), stage.transport, taken, lambda: NOW)
            )
