"""The mail catcher shows what was caught and runs none of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.message import EmailMessage
from email.policy import SMTP
from html.parser import HTMLParser

import aiohttp
import pytest

from posthouse.sandbox.http import serve
from tests.sandbox.conftest import Bench, Talk, make_bench, message

SCRIPT = "<script>alert(1)</script>"


class Elements(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.found if found == tag]


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[aiohttp.ClientSession]:
    server = await serve(bench.api, clock=bench.clock)
    async with aiohttp.ClientSession(server.url) as session:
        yield session
    await server.close()


async def page_at(client: aiohttp.ClientSession, path: str) -> tuple[Elements, str]:
    async with client.get(path) as answer:
        assert answer.status == 200
        return Elements(await answer.text()), answer.headers["Content-Security-Policy"]


def path_of_newest(bench: Bench) -> str:
    return f"/messages/{bench.ledger.acceptances[-1].message_id}"


async def test_a_message_that_came_over_smtp_is_shown_with_its_source(
    bench: Bench, client: aiohttp.ClientSession
) -> None:
    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["Subject"] = "Shop <shop@shop.example>", f"Grüße {SCRIPT}"
    mail.set_content("Thank you, Ada")
    mail.add_alternative(f"<p>Thank you</p>{SCRIPT}", subtype="html")
    mail.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="bill.pdf")
    Talk(bench).deliver("ada@example.com", content=mail.as_bytes())

    page, _ = await page_at(client, path_of_newest(bench))

    for shown in ("Grüße", "Thank you, Ada", "ada@example.com", "Shop <shop@shop.example>", "bill.pdf", "4 octets"):
        assert shown in page.text
    assert not page.named("script")
    assert f"{path_of_newest(bench)}/source" in [link["href"] for link in page.named("a")]
    html, policy = await page_at(client, f"{path_of_newest(bench)}/html")
    assert "Thank you" in html.text
    assert policy.startswith("sandbox; default-src 'none'")
    async with client.get(f"{path_of_newest(bench)}/source") as answer:
        assert (answer.content_type, answer.headers["X-Content-Type-Options"]) == ("text/plain", "nosniff")
        assert await answer.read() == mail.as_bytes()


async def test_a_message_that_came_over_http_has_no_source(bench: Bench, client: aiohttp.ClientSession) -> None:
    bench.send()
    page, _ = await page_at(client, path_of_newest(bench))
    assert "Source" not in page.text
    async with client.get(f"{path_of_newest(bench)}/source") as answer:
        assert answer.status == 404


async def test_a_message_that_came_as_to_a_provider_is_shown_like_any_other(
    bench: Bench, client: aiohttp.ClientSession
) -> None:
    postmark = {
        "From": "shop@shop.example",
        "To": "Ada <ada@example.com>",
        "Subject": f"Grüße {SCRIPT}",
        "HtmlBody": "<p>Hi</p>",
        "Metadata": {"order": "42"},
        "MessageStream": "receipts",
        "Attachments": [{"Name": "a.txt", "Content": "YQ==", "ContentType": "text/plain"}],
    }
    async with client.post("/email", json=postmark) as answer:
        assert (await answer.json())["MessageID"] == bench.ledger.acceptances[0].message_id
    page, _ = await page_at(client, path_of_newest(bench))
    for text in (f"Grüße {SCRIPT}", "Ada <ada@example.com>", "Metadata: order", "receipts", "a.txt"):
        assert text in page.text
    assert page.named("iframe")
    assert not page.named("script")


async def test_a_providers_search_is_not_taken_for_a_page(bench: Bench, client: aiohttp.ClientSession) -> None:
    bench.send(message(metadata={"order": "42"}))
    search = {"count": "1", "offset": "0", "metadata_order": "42"}
    async with client.get("/messages/outbound", params=search) as answer:
        assert (await answer.json())["TotalCount"] == 1


async def test_an_empty_catcher_says_so(client: aiohttp.ClientSession) -> None:
    page, _ = await page_at(client, "/")
    assert "No message yet" in page.text


async def test_the_list_shows_the_newest_first_in_pages(bench: Bench, client: aiohttp.ClientSession) -> None:
    for number in range(60):
        bench.send(message(subject=f"message {number}."))
    first, _ = await page_at(client, "/")
    assert first.text.index("message 59.") < first.text.index("message 58.")
    assert "message 9." not in first.text
    older, _ = await page_at(client, "/?page=2")
    assert "message 9." in older.text
    assert "message 10." not in older.text
    for odd in ("0", "99", "-1", "x"):
        await page_at(client, f"/?page={odd}")


async def test_a_message_page_shows_text_headers_and_facts(bench: Bench, client: aiohttp.ClientSession) -> None:
    body = message(
        "Ada <ada@example.com>",
        reply_to={"email": "help@shop.example", "name": "Help"},
        headers=[{"name": "X-Order", "value": "1042"}, ["X-Pair", "two"], "odd"],
        tags=["receipt"],
        metadata={"posthouse_id": "send-7"},
        text="Hello\n  Ada",
    )
    bench.send(body)
    page, _ = await page_at(client, path_of_newest(bench))
    for shown in (
        "Ada <ada@example.com>",
        "Help <help@shop.example>",
        "X-Order",
        "1042",
        "X-Pair",
        "receipt",
        "send-7",
    ):
        assert shown in page.text
    assert "Hello\n  Ada" in page.text


async def test_nothing_that_was_caught_becomes_an_element(bench: Bench, client: aiohttp.ClientSession) -> None:
    bench.send(
        message(
            f'"{SCRIPT}"@example.com',
            subject=SCRIPT,
            text=SCRIPT,
            html=SCRIPT,
            tags=[SCRIPT],
            metadata={SCRIPT: SCRIPT},
            headers={SCRIPT: SCRIPT},
        ),
        key=SCRIPT,
    )
    for path in ("/", path_of_newest(bench)):
        page, policy = await page_at(client, path)
        assert not page.named("script")
        assert SCRIPT in page.text
        assert "default-src 'none'" in policy
        assert "script-src" not in policy


async def test_an_html_body_stands_in_a_frame_that_may_run_nothing(bench: Bench, client: aiohttp.ClientSession) -> None:
    html = f"<p>Hello</p>{SCRIPT}<img src=x onerror=alert(1)>"
    bench.send(message(html=html))
    page, _ = await page_at(client, path_of_newest(bench))
    [frame] = page.named("iframe")
    assert frame["sandbox"] == ""
    assert frame["src"] == f"{path_of_newest(bench)}/html"
    async with client.get(frame["src"]) as answer:
        assert await answer.text() == html
        policy = answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert policy.startswith("sandbox; default-src 'none'")
    assert "script-src" not in policy


async def test_duplicates_are_pointed_out(client: aiohttp.ClientSession, bench: Bench) -> None:
    for _ in range(2):
        bench.send(message(metadata={"posthouse_id": "send-7"}))
    page, _ = await page_at(client, "/")
    assert "1 duplicates" in page.text
    page, _ = await page_at(client, path_of_newest(bench))
    assert "2 times" in page.text


async def test_text_that_no_encoding_can_carry_is_shown_all_the_same(
    bench: Bench, client: aiohttp.ClientSession
) -> None:
    bench.send(b'{"to": ["ada@example.com"], "subject": "broken \\ud800", "text": 5}')
    for path in ("/", path_of_newest(bench)):
        page, _ = await page_at(client, path)
        assert "broken ?" in page.text


async def test_a_body_that_is_no_longer_kept_is_said_to_be_gone() -> None:
    bench = make_bench(kept_max=1)
    bench.send(message(subject="first"))
    bench.send(message(subject="second"))
    server = await serve(bench.api, clock=bench.clock)
    async with aiohttp.ClientSession(server.url) as client:
        page, _ = await page_at(client, f"/messages/{bench.ledger.acceptances[0].message_id}")
        assert "no longer kept" in page.text
    await server.close()


async def test_an_unknown_message_is_not_found(client: aiohttp.ClientSession) -> None:
    for path in ("/messages/none", "/messages/none/html"):
        async with client.get(path) as answer:
            assert answer.status == 404
