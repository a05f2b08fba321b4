"""`posthouse reconcile --events`: what a log told, how far it was read, and what to do where it can't be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from posthouse import app as composition
from posthouse.providers.transport import HttpAnswer, HttpRequest
from posthouse.store.database import Database
from posthouse.store.log_cursors import LogCursors
from tests.cli.conftest import Shell
from tests.providers.log_reading import PlayedServer

HOUR_S = 3600
NOW = 1_800_000_000.0


class PlayedMailgun:
    """A domain with one delivery an hour."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.failing_after: int | None = None
        self.circle = False
        self.meanwhile: Callable[[], object] = lambda: None

    def reply(self, request: HttpRequest) -> Any:
        url = urlsplit(request.url)
        if self.circle:
            return {"items": [{}], "paging": {"next": "https://x/events/2"}}
        if not url.path.endswith("/events"):
            return {"items": [], "paging": {}}
        query = parse_qs(url.query)
        begin, end = int(query["begin"][0]), int(query["end"][0])
        if self.failing_after is not None and len(self.asked) >= self.failing_after:
            return HttpAnswer(429, {}, b'{"message":"slow down"}')
        self.asked.append((begin, end))
        self.meanwhile()
        at = range(begin - begin % HOUR_S, end, HOUR_S)
        return {"items": [self._event(each) for each in at if each >= begin], "paging": {"next": "https://x/events/2"}}

    def _event(self, at: int) -> Any:
        return {
            "event": "delivered",
            "id": f"e-{at}",
            "timestamp": at,
            "recipient": "ada@example.com",
            "message": {"headers": {"message-id": f"m-{at}@mg.shop.example"}},
        }


@pytest.fixture
def mailgun(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> PlayedMailgun:
    played = PlayedMailgun()
    monkeypatch.setattr(composition, "open_transport", lambda _: PlayedServer(played.reply))
    monkeypatch.setattr("posthouse.worker.backfill.PAUSE_S", 0.0)
    main = '[routes.main]\nprovider = "mailgun"\napi_key = "k"\ndomain = "mg.shop.example"\n'
    standby = '[routes.standby]\nprovider = "smtp"\nurl = "smtp://127.0.0.1:9"\n'
    head = shell.config.read_text(encoding="utf-8").partition("[routes.")[0]
    shell.configure(f"{head}{main}{standby}")
    return played


def test_it_reads_on_from_where_it_was_and_says_how_much_was_new(shell: Shell, mailgun: PlayedMailgun) -> None:
    (first,) = shell.json("reconcile", "--events", "--since", "6h")["routes"]
    assert (first["route"], first["new"], first["error"]) == ("main", first["events"], None)
    assert first["events"] in (5, 6)

    (again,) = shell.json("reconcile", "--events", "--route", "main")["routes"]
    assert again["events"] in (0, 1), "what was read is not read again"

    ran = shell.run("reconcile", "--events", "--since", "6h")
    assert "events, 0 of them new; read from" in ran.flat


def test_one_that_stops_in_the_middle_keeps_what_it_read_and_goes_on_from_there(
    shell: Shell, mailgun: PlayedMailgun
) -> None:
    mailgun.failing_after = 3
    (broken,) = shell.json("reconcile", "--events", "--since", "9h", code=1)["routes"]
    assert "slow down" in broken["error"]
    assert broken["new"] in (2, 3)

    mailgun.failing_after = None
    read = mailgun.asked[-1][1]
    shell.json("reconcile", "--events")
    assert read - 2 <= mailgun.asked[3][0] <= read


def test_it_says_so_where_somebody_else_reads_on(shell: Shell, mailgun: PlayedMailgun, opened: Database) -> None:
    mailgun.meanwhile = lambda: LogCursors(opened).seize_turn("main", NOW) if len(mailgun.asked) == 3 else None
    ran = shell.run("reconcile", "--events", "--since", "9h")
    assert (ran.code, len(mailgun.asked)) == (1, 3)
    assert "events, " in ran.flat
    assert ran.flat.endswith("somebody else reads it now; the next run goes on from there")


def test_pages_that_lead_in_a_circle_are_not_read_for_ever(shell: Shell, mailgun: PlayedMailgun) -> None:
    mailgun.circle = True
    (broken,) = shell.json("reconcile", "--events", "--since", "2h", code=1)["routes"]
    assert broken["error"] == "its pages lead in a circle"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["reconcile", "--since", "2d"], "go with --events"),
        (["reconcile", "k", "--events"], "name no KEY"),
        (["reconcile", "--events", "--since", "soon"], "--since"),
        (["reconcile", "--events", "--route", "nope"], "routes.nope"),
        (["reconcile", "--events", "--route", "standby"], "smtp has no log"),
    ],
)
def test_what_can_not_be_meant_is_refused(shell: Shell, mailgun: PlayedMailgun, words: list[str], said: str) -> None:
    ran = shell.run(*words)
    assert ran.code != 0
    assert said in " ".join((ran.out + ran.err).split())


def test_a_route_without_a_log_can_not_ask_for_it_to_be_read(shell: Shell, mailgun: PlayedMailgun) -> None:
    text = shell.config.read_text(encoding="utf-8")
    shell.configure(f'{text}backfill_every = "1h"\n')
    ran = shell.run("config", "check")
    assert ran.code != 0
    assert "routes.standby.backfill_every" in " ".join((ran.out + ran.err).split())
