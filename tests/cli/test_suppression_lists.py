"""`posthouse suppressions pull` and `push`: both lists know what either knew, and who was refused is named."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from posthouse import app as composition
from posthouse.providers.transport import HttpAnswer, HttpRequest
from tests.cli.conftest import Shell
from tests.providers.log_reading import PlayedServer

BAD = "bad@example.com"


class PlayedPostmark:
    """A message stream's list, which takes everybody but one."""

    def __init__(self) -> None:
        self.listed = {"theirs@example.com": "HardBounce"}
        self.away = False

    def reply(self, request: HttpRequest) -> Any:
        if self.away:
            return HttpAnswer(401, {}, b'{"ErrorCode":10,"Message":"no such token"}')
        if urlsplit(request.url).path.endswith("/dump"):
            since = "2026-07-30T12:00:00Z"
            return {
                "Suppressions": [
                    {"EmailAddress": each, "SuppressionReason": why, "Origin": "Customer", "CreatedAt": since}
                    for each, why in self.listed.items()
                ]
            }
        wanted = [each["EmailAddress"] for each in json.loads(request.body)["Suppressions"]]
        self.listed |= {each: "ManualSuppression" for each in wanted if each != BAD}
        said = {"Status": "Failed", "Message": "not there"}
        return {"Suppressions": [{"EmailAddress": each, **(said if each == BAD else {})} for each in wanted]}


@pytest.fixture
def postmark(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> PlayedPostmark:
    played = PlayedPostmark()
    monkeypatch.setattr(composition, "open_transport", lambda _: PlayedServer(played.reply))
    monkeypatch.setattr("posthouse.worker.suppression_lists.PAUSE_S", 0.0)
    main = '[routes.main]\nprovider = "postmark"\napi_key = "k"\n'
    standby = '[routes.standby]\nprovider = "smtp"\nurl = "smtp://127.0.0.1:9"\n'
    head = shell.config.read_text(encoding="utf-8").partition("[routes.")[0]
    shell.configure(f"{head}{main}{standby}")
    return played


def suppressed(shell: Shell) -> set[str]:
    return {each["address"] for each in shell.json("suppressions", "list")["suppressions"]}


def test_both_lists_know_what_either_knew(shell: Shell, postmark: PlayedPostmark) -> None:
    shell.run("suppress", "ours@example.com", "--cause", "hard_bounce")
    shell.run("suppress", "reader@example.com", "--cause", "unsubscribe")
    shell.run("suppress", "some@example.com", "--type", "newsletter")

    pulled = shell.json("suppressions", "pull", "--route", "main")
    assert (pulled["read"], pulled["new"], pulled["error"]) == (1, 1, None)
    pushed = shell.json("suppressions", "push", "--route", "main")
    assert (pushed["taken"], pushed["refused"]) == (1, {})

    assert "theirs@example.com" in suppressed(shell)
    assert set(postmark.listed) == {"theirs@example.com", "ours@example.com"}, "unsubscriptions only where asked for"
    assert shell.json("suppressions", "pull", "--route", "main")["new"] == 0
    assert shell.json("suppressions", "push", "--route", "main")["taken"] == 0
    assert shell.json("suppressions", "push", "--route", "main", "--cause", "unsubscribe")["taken"] == 1


def test_who_was_let_go_here_is_not_brought_back(shell: Shell, postmark: PlayedPostmark) -> None:
    shell.run("suppressions", "pull", "--route", "main")
    shell.run("unsuppress", "theirs@example.com")
    assert "0 of them new" in shell.run("suppressions", "pull", "--route", "main").flat
    assert suppressed(shell) == set()


def test_who_is_refused_is_named_and_the_others_are_taken(shell: Shell, postmark: PlayedPostmark) -> None:
    for name in ("a@example.com", BAD, "c@example.com"):
        shell.run("suppress", name)
    pushed = shell.json("suppressions", "push", "--route", "main", code=1)
    assert (pushed["taken"], pushed["refused"]) == (2, {BAD: "not there"})


def test_a_list_that_can_not_be_reached_says_why(shell: Shell, postmark: PlayedPostmark) -> None:
    postmark.away = True
    ran = shell.run("suppressions", "pull", "--route", "main")
    assert ran.code == 1
    assert "Run it again" in ran.flat
    assert "no such token" in ran.flat
    assert shell.json("suppressions", "push", "--route", "main", code=1)["taken"] == 0


@pytest.mark.parametrize(("route", "said"), [("standby", "smtp has no suppression list"), ("nope", "not configured")])
def test_a_route_without_a_list_says_so(shell: Shell, postmark: PlayedPostmark, route: str, said: str) -> None:
    ran = shell.run("suppressions", "pull", "--route", route)
    assert ran.code != 0
    assert said in " ".join((ran.out + ran.err).split())
