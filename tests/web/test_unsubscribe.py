"""`/unsubscribe/TOKEN`: opening the link changes nothing, the button acts, and what acted can be undone."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from aiohttp import FormData
from sqlalchemy import select

from posthouse.core.suppression import Suppress, SuppressionCause, told
from posthouse.store.schema import audit, events
from posthouse.unsubscribe import Unsubscription, path_of, signed
from posthouse.web.unsubscribe import FORM_OCTETS_MAX
from tests.contract.webhook_cases import NOW, OUR_ID
from tests.web.stage import SECRETS, Stage, running

WISH = Unsubscription(OUR_ID, "type newsletter", "Ada@Example.com")
LINK = path_of(signed(WISH, SECRETS[0]))
ONE_CLICK = b"List-Unsubscribe=One-Click"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def click(stage: Stage, link: str = LINK, body: bytes = ONE_CLICK) -> tuple[int, str]:
    answered = await stage.post(link, body, FORM)
    return answered.status, heading(answered.text)


def heading(html: str) -> str:
    found = re.search("<h1>(.*)</h1>", html)
    return found[1] if found else html


def suppressed(stage: Stage) -> list[tuple[str, str, str, str]]:
    found = stage.bench.store.suppressions.find([], None, 100)
    return [(one.address, one.cause.value, one.scope, one.who) for one in found]


def written(stage: Stage) -> tuple[Any, ...]:
    """All that a link may change."""
    with stage.bench.store.database.read() as connection:
        noted = [tuple(row) for row in connection.execute(select(audit.c.who, audit.c.action, audit.c.subject))]
    return suppressed(stage), stage.kinds(), noted


NOTHING: tuple[Any, ...] = ([], [], [])
ADA = ("ada@example.com", "unsubscribe", "type newsletter", "unsubscribe")


async def test_opening_the_link_shows_what_it_is_about_and_changes_nothing() -> None:
    async with running() as stage:
        for _ in range(3):
            shown = await stage.get(LINK)
            assert shown.status == 200
        assert "<strong>Ada@Example.com</strong>" in shown.text
        assert "<strong>newsletter</strong>" in shown.text
        assert re.findall("<button name=.* value=.*>.*</button>", shown.text) == [
            '<button name="List-Unsubscribe" value="One-Click">Unsubscribe</button>'
        ]
        assert written(stage) == NOTHING


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"])
async def test_no_other_method_changes_anything(method: str) -> None:
    async with running() as stage, stage.client.request(method, stage.server.url + LINK, data=ONE_CLICK) as answered:
        assert answered.status == (200 if method == "HEAD" else 405)
        assert written(stage) == NOTHING


async def test_one_click_suppresses_for_that_type_and_tells_of_the_send() -> None:
    async with running() as stage:
        assert await click(stage) == (200, "Unsubscribed")

        assert suppressed(stage) == [ADA]
        assert stage.kinds() == ["unsubscribed"]
        with stage.bench.store.database.read() as connection:
            event = connection.execute(select(events)).one()
        row = stage.bench.row("k")
        assert (event.send_id, event.recipient, event.route) == (row["id"], "ada@example.com", "unsubscribe")
        assert row["status"] == "accepted", "who has its link has got it"
        (known,) = stage.bench.store.suppressions.find([], None, 1)
        assert told(known) == "unsubscribed on 2027-01-15, for newsletter mail (by the link in a message)"


async def test_clicked_again_or_at_once_on_several_servers_it_counts_once() -> None:
    async with running() as stage:
        answers = await asyncio.gather(*(click(stage) for _ in range(5)))
        assert set(answers) == {(200, "Unsubscribed")}
        assert written(stage) == ([ADA], ["unsubscribed"], [])


async def test_a_program_may_post_it_in_the_other_encoding() -> None:
    form = FormData(default_to_multipart=True)
    form.add_field("List-Unsubscribe", "One-Click")
    async with running() as stage, stage.client.post(stage.server.url + LINK, data=form) as answered:
        assert (answered.status, answered.history, answered.cookies) == (200, (), {})
        assert suppressed(stage) == [ADA]


async def test_a_link_that_nobody_signed_changes_nothing_and_says_what_to_do() -> None:
    forged = [LINK[:-1], LINK + "A", LINK[:-2], path_of(signed(WISH, "somebody else's secret")), path_of("x" * 5000)]
    async with running() as stage:
        for link in forged:
            assert await click(stage, link) == (400, "This link is not complete")
            assert await click(stage, link, b"undo=1") == (400, "This link is not complete")
            shown = await stage.get(link)
            assert (shown.status, "open it from the message again" in shown.text) == (400, True)
            assert "<form" not in shown.text
        assert written(stage) == NOTHING


async def test_a_link_of_the_secret_before_still_works() -> None:
    async with running() as stage:
        assert await click(stage, path_of(signed(WISH, SECRETS[1]))) == (200, "Unsubscribed")
        assert suppressed(stage) == [ADA]


async def test_what_acted_can_be_undone_exactly_and_the_audit_says_so() -> None:
    async with running() as stage:
        others = [
            Suppress("ada@example.com", SuppressionCause.UNSUBSCRIBE, "type offers", who="grace"),
            Suppress("ada@example.com", SuppressionCause.COMPLAINT, "type newsletter", who="grace"),
            Suppress("eve@example.com", SuppressionCause.UNSUBSCRIBE, "type newsletter", who="grace"),
        ]
        stage.bench.store.suppressions.import_(others, NOW)
        before = suppressed(stage)
        await click(stage)
        for _ in range(2):
            assert await click(stage, body=b"undo=1") == (200, "Undone")

        assert suppressed(stage) == before
        assert written(stage)[2] == [("unsubscribe", "unsuppress", "ada@example.com")]


async def test_who_changes_their_mind_twice_is_unsubscribed() -> None:
    async with running() as stage:
        for body in (ONE_CLICK, b"undo=1", ONE_CLICK):
            assert (await click(stage, body=body))[0] == 200
        assert suppressed(stage) == [ADA]
        assert stage.kinds() == ["unsubscribed"]


async def test_a_link_outlives_the_send_that_it_came_in() -> None:
    wish = Unsubscription("purged long ago", "type newsletter", "ada@example.com")
    async with running() as stage:
        assert (await click(stage, path_of(signed(wish, SECRETS[0]))))[0] == 200
        assert suppressed(stage) == [ADA], "and nothing wider than what it says"


@pytest.mark.parametrize("body", [b"", b"x=1", b"List-Unsubscribe=", b"list-unsubscribe=one-click"])
async def test_a_form_that_says_nothing_is_asked_again(body: bytes) -> None:
    async with running() as stage:
        assert await click(stage, body=body) == (400, "Nothing was changed: unsubscribe?")
        assert written(stage) == NOTHING


@pytest.mark.parametrize(
    "kind", ["multipart/form-data; boundary=x", "multipart/form-data", FORM["Content-Type"] + "; charset=x"]
)
async def test_a_form_that_is_none_is_refused(kind: str) -> None:
    async with running() as stage:
        answered = await stage.post(LINK, b"\xffnothing of the kind", {"Content-Type": kind})
        assert answered.status == 400
        assert written(stage) == NOTHING


async def test_a_body_without_end_is_not_read() -> None:
    async with running() as stage:
        assert await click(stage, body=b"x" * (FORM_OCTETS_MAX + 1)) == (413, "That didn't work")
        assert written(stage) == NOTHING


async def test_while_the_database_is_away_the_page_is_there_and_the_click_is_asked_for_again() -> None:
    async with running() as stage:
        stage.executor.away = True
        assert (await stage.get(LINK)).status == 200
        async with stage.client.post(stage.server.url + LINK, data=ONE_CLICK, headers=FORM) as answered:
            assert (answered.status, answered.headers["Retry-After"]) == (503, "60")
        stage.executor.away = False
        assert written(stage) == NOTHING
        assert await click(stage) == (200, "Unsubscribed")


async def test_a_fault_of_ours_is_told_and_logged_without_the_link(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("ours")

    async with running() as stage:
        stage.executor.before = fail
        assert await click(stage) == (500, "That didn't work")
    assert "an unsubscription could not be written down" in caplog.text
    assert LINK not in caplog.text


async def test_the_page_loads_nothing_is_kept_nowhere_and_gives_its_address_to_nobody() -> None:
    async with running() as stage, stage.client.get(stage.server.url + LINK) as shown:
        html, headers = await shown.text(), shown.headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert policy.endswith("; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Robots-Tag"] == "noindex, nofollow"
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert "Set-Cookie" not in headers
        assert not re.search(r"https?:|src=|href=|<script|action=", html)
        assert '<html lang="en">' in html


async def test_what_a_token_says_is_text_and_never_html() -> None:
    wish = Unsubscription("k", 'type <b>"x"', '"<script>alert(1)</script>"@example.com')
    async with running() as stage:
        link = path_of(signed(wish, SECRETS[0]))
        for answered in (await stage.get(link), await stage.post(link, ONE_CLICK, FORM)):
            assert answered.status == 200
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answered.text
            assert "<script>" not in answered.text
            assert "<b>" not in answered.text


async def test_without_secrets_there_are_no_links() -> None:
    async with running(secrets=()) as stage:
        assert (await stage.get(LINK)).status == 404
