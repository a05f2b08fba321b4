"""The files of caught messages: listed, shown where the HTML shows them, saved, and never run."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from email.message import EmailMessage
from email.policy import SMTP

import aiohttp
import pytest

from posthouse.sandbox.downloads import with_images
from posthouse.sandbox.http import serve
from posthouse.sandbox.ledger import CaughtFile
from tests.sandbox.conftest import Bench, Talk, make_bench, message
from tests.sandbox.test_pages import SCRIPT, Elements, page_at, path_of_newest

Sent = Callable[[Bench], None]

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[aiohttp.ClientSession]:
    server = await serve(bench.api, clock=bench.clock)
    async with aiohttp.ClientSession(server.url) as session:
        yield session
    await server.close()


def over_http(bench: Bench) -> None:
    """A message with a logo in its HTML, a dangerous file and an AMP form."""
    files = [
        {"filename": "logo.png", "content_type": "image/png", "content_id": "logo", "disposition": "inline"},
        {"filename": "Überblick\r\n.html", "content_type": "text/html", "disposition": "attachment"},
    ]
    contents = [PNG, SCRIPT.encode()]
    attachments = [
        {**file, "content": base64.b64encode(content).decode()} for file, content in zip(files, contents, strict=True)
    ]
    alternatives = [{"content_type": "text/x-amp-html", "content": f"<html amp4email>{SCRIPT}"}]
    bench.send(message(html='<img src="cid:logo">', attachments=attachments, alternatives=alternatives))


def over_smtp(bench: Bench) -> None:
    """The same."""
    mail = EmailMessage(policy=SMTP)
    mail["Subject"] = "Hello"
    mail.set_content("Hi")
    mail.add_alternative(f"<html amp4email>{SCRIPT}", subtype="x-amp-html")
    mail.add_alternative('<img src="cid:logo">', subtype="html")
    mail.get_payload()[2].add_related(  # type: ignore[index, union-attr]
        PNG, "image", "png", cid="<logo>", filename="logo.png", disposition="inline"
    )
    mail.add_attachment(SCRIPT.encode(), "text", "html", filename="Überblick.html")
    Talk(bench).deliver("ada@example.com", content=mail.as_bytes())


@pytest.mark.parametrize("sent", [over_http, over_smtp])
async def test_a_page_lists_files_and_other_forms_of_the_words(
    bench: Bench, client: aiohttp.ClientSession, sent: Sent
) -> None:
    sent(bench)
    page, policy = await page_at(client, path_of_newest(bench))
    for shown in ("logo.png", "image/png", "8 octets", "cid:logo", "Überblick", "text/x-amp-html", "<html amp4email>"):
        assert shown in page.text, shown
    assert not page.named("script")
    assert "default-src 'none'" in policy
    links = [link["href"] for link in page.named("a")]
    assert f"{path_of_newest(bench)}/attachments/0" in links
    assert f"{path_of_newest(bench)}/attachments/1" in links


@pytest.mark.parametrize("sent", [over_http, over_smtp])
async def test_an_image_that_the_html_shows_is_shown(bench: Bench, client: aiohttp.ClientSession, sent: Sent) -> None:
    sent(bench)
    page, policy = await page_at(client, f"{path_of_newest(bench)}/html")
    [image] = page.named("img")
    assert image["src"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert "img-src data:" in policy


@pytest.mark.parametrize("sent", [over_http, over_smtp])
async def test_a_file_is_saved_and_never_run(bench: Bench, client: aiohttp.ClientSession, sent: Sent) -> None:
    sent(bench)
    async with client.get(f"{path_of_newest(bench)}/attachments/1") as answer:
        assert await answer.read() == SCRIPT.encode()
        assert answer.content_type == "application/octet-stream"
        assert answer.headers["Content-Disposition"].startswith("attachment; filename*=UTF-8''%C3%9Cberblick")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    for number in ("2", "999999", "-1", "x"):
        async with client.get(f"{path_of_newest(bench)}/attachments/{number}") as answer:
            assert answer.status == 404


async def test_a_message_that_came_as_it_is_is_saved_for_a_mail_program(
    bench: Bench, client: aiohttp.ClientSession
) -> None:
    raw = b"Subject: Hi\r\n\r\nHello\r\n"
    bench.send(message(raw=base64.b64encode(raw).decode()))
    page, _ = await page_at(client, path_of_newest(bench))
    assert f"{path_of_newest(bench)}/source.eml" in [link["href"] for link in page.named("a")]
    async with client.get(f"{path_of_newest(bench)}/source.eml") as answer:
        assert await answer.read() == raw
        assert answer.content_type == "message/rfc822"
        assert answer.headers["Content-Disposition"].endswith(".eml")


async def test_the_control_api_tells_files_by_their_place(bench: Bench, client: aiohttp.ClientSession) -> None:
    over_http(bench)
    path = path_of_newest(bench)
    async with client.get(f"/_sandbox{path}") as answer:
        told = await answer.json()
    assert told["body"]["attachments"][0] == {
        "filename": "logo.png",
        "content_type": "image/png",
        "content_id": "logo",
        "disposition": "inline",
        "size": len(PNG),
        "url": f"{path}/attachments/0",
    }
    assert told["body"]["alternatives"][0]["content_type"] == "text/x-amp-html"
    async with client.get(told["body"]["attachments"][0]["url"]) as answer:
        assert await answer.read() == PNG
    async with client.get("/_sandbox/messages/none") as answer:
        assert (answer.status, (await answer.json())["error"]) == (404, "not_found")


async def test_fields_that_the_sandbox_does_not_know_are_shown_all_the_same(
    bench: Bench, client: aiohttp.ClientSession
) -> None:
    bench.send(message(track_opens=False, message_id="<a@shop.example>", pool="bulk", deep={"x": [1]}))
    page, _ = await page_at(client, path_of_newest(bench))
    for shown in ("Opens are tracked", "no", "<a@shop.example>", "Also: pool", '"bulk"', '{"x": [1]}'):
        assert shown in page.text, shown


@pytest.mark.parametrize(
    ("html", "shows"),
    [
        ("<img src=cid:logo>", True),
        ("<img src='CID:logo'>", True),
        ('<p style="background: url(cid:logo)">', True),
        ('<img src="cid:l%6Fgo">', True),
        ('<img src="cid:other">', False),
        ('<img src="cid:page">', False),
        ("<p>see cid:logo</p>", False),
    ],
)
def test_only_images_and_only_where_the_html_shows_them(html: str, shows: bool) -> None:
    files = [
        CaughtFile(PNG, content_type="image/png; x=1", content_id="logo"),
        CaughtFile(b"<p>", "", "text/html", "page"),
    ]
    made = with_images(html, files)
    assert ("data:image/png;base64," in made) == shows
    assert shows or made == html
    assert Elements(made).found


async def test_files_of_a_message_that_is_no_longer_kept_are_gone() -> None:
    bench = make_bench(kept_max=1)
    over_http(bench)
    path = path_of_newest(bench)
    bench.send()
    server = await serve(bench.api, clock=bench.clock)
    async with aiohttp.ClientSession(server.url) as client, client.get(f"{path}/attachments/0") as answer:
        assert answer.status == 404
    await server.close()
