"""One click, from the message that went out to the next one that doesn't."""

from __future__ import annotations

import re
import urllib.parse
import urllib.request

from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import Installation, email, http_route

TYPES = {"newsletter": {"category": "marketing"}, "reset": {"category": "security"}}
WEB = {"public_url": "https://mail.shop.example/p", "unsubscribe_secrets": ["s" * 32]}


def call(url: str, body: bytes | None) -> int:
    with urllib.request.urlopen(url, body, timeout=30) as response:  # noqa: S310  # our own server
        return int(response.status)


def test_who_clicks_gets_no_more_newsletters_and_still_their_reset_link(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox()
    installation.configure({"main": http_route(sandbox)}, TYPES, web=WEB)
    installation.enqueue([email(1, type="newsletter", to="Ada <ada@example.com>")])
    installation.worker()
    installation.until_status({"accepted": 1})
    (message,) = sandbox.acceptances()
    headers = (message.body or {})["headers"]
    assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    link = re.fullmatch(r"<(https://\S+)>", headers["List-Unsubscribe"])
    assert link is not None
    _, url = installation.server()
    path = urllib.parse.urlsplit(link[1]).path.removeprefix("/p")  # the server in front takes that off

    assert call(url + path, None) == 200
    installation.enqueue([email(2, type="newsletter", to="ada@example.com")])
    installation.until_status({"accepted": 2})
    assert call(url + path, b"List-Unsubscribe=One-Click") == 200
    installation.enqueue(
        [
            email(3, type="newsletter", to="ADA@example.com"),
            email(4, type="reset", to="ada@example.com"),
            email(5, type="newsletter", to="eve@example.com"),
        ]
    )
    installation.until_status({"accepted": 4, "suppressed": 1})

    assert installation.row("k-3")["status"] == "suppressed"
    assert "ADA@example.com unsubscribed on" in installation.row("k-3")["last_error"]
    shown = installation.run("show", "k-1")
    assert [(told["kind"], told["route"]) for told in shown["events"]] == [("unsubscribed", "unsubscribe")]

    assert call(url + path, b"undo=1") == 200
    installation.enqueue([email(6, type="newsletter", to="ada@example.com")])
    installation.until_status({"accepted": 5, "suppressed": 1})


def test_a_secret_that_is_missing_is_said_once_and_no_process_is_started_again_and_again(
    on_postgresql: Installation, make_sandbox: MakeSandbox
) -> None:
    web = WEB | {"unsubscribe_secrets": ["env:POSTHOUSE_NO_SUCH"]}
    on_postgresql.configure({"main": http_route(make_sandbox())}, TYPES, web=web)
    worker = on_postgresql.worker("--processes", "2", at_work=0)

    assert worker.exit_code() == 2
    assert worker.times_said("web.unsubscribe_secrets: the environment variable POSTHOUSE_NO_SUCH is not set") == 1
