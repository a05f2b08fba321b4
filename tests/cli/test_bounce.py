"""`bounce` on each database: what came back is written down for its send, and a mail server never loses any of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from sqlalchemy import select

from posthouse.cli.init import STARTER
from posthouse.errors import DatabaseUnavailable
from posthouse.inlet.messages import Inlet, Taken
from posthouse.store.database import Database
from posthouse.store.schema import events, quarantine
from tests.cli.conftest import Shell, free_port
from tests.inlet.dovecot import PASSWORD, USER, own_dovecot
from tests.migrated import sqlite_url
from tests.returned.mails import GONE, KEY, complaint, mail, recipient, report

Put = Callable[..., None]

SMTP = """
[routes.relay]
provider = "smtp"
url = "smtp://127.0.0.1:25"
bounce_address = "bounces+{id}@shop.example"
"""


@pytest.fixture
def sent(shell: Shell, put: Put) -> Shell:
    """A shell with one send that was accepted."""
    shell.send("k", "bob@example.com")
    put("k", status="accepted", route="main", idempotency_key=KEY, message_id="m-1", next_try_at=None)
    return shell


def came_back(shell: Shell, content: bytes, *options: str, code: int = 0) -> Any:
    ran = shell.run("bounce", "--json", *options, stdin=content.decode())
    assert ran.code == code, ran
    return ran.document


def test_what_came_back_is_about_its_send(sent: Shell) -> None:
    document = came_back(sent, report(GONE))

    assert document["events"] == [
        {
            "kind": "bounced",
            "recipient": "bob@example.com",
            "cause": "no_mailbox",
            "hard": True,
            "code": "550 5.1.1",
            "text": "550 5.1.1 <bob@example.com>: user unknown",
            "idempotency_key": KEY,
        }
    ]
    assert (document["kind"], document["route"]) == ("report", "main")
    assert (document["new"], document["joined"], document["quarantined"]) == (1, 1, False)
    shown = sent.json("show", "k")
    assert (shown["status"], shown["delivery"]) == ("accepted", "bounced")


def test_it_says_so_on_one_line(sent: Shell) -> None:
    assert sent.run("bounce", stdin=report(GONE).decode()).out == (
        "report: bounced bob@example.com (no_mailbox, 550 5.1.1, for good)\n"
    )
    assert sent.run("bounce", stdin=complaint("Feedback-Type: abuse").decode()).out == (
        "complaint: complained bob@example.com\n"
    )


def test_the_same_message_again_changes_nothing(sent: Shell) -> None:
    came_back(sent, report(GONE))
    assert came_back(sent, report(GONE))["new"] == 0
    assert "known before" in sent.run("bounce", stdin=report(GONE).decode()).out


def test_an_automatic_reply_changes_nothing(sent: Shell, opened: Database) -> None:
    away = mail("I am away.", "Auto-Submitted: auto-replied", of="bob@example.com")

    ran = sent.run("bounce", stdin=away.decode())

    assert (ran.code, ran.out) == (0, "nothing changes: an automatic reply, as the standard has it\n")
    assert sent.json("show", "k")["delivery"] == "none"
    with opened.read() as connection:
        assert not list(connection.execute(select(events))) + list(connection.execute(select(quarantine)))


def test_what_nobody_understands_is_kept_as_it_came(sent: Shell, opened: Database) -> None:
    content = mail("Käyttäjää ei ole: bob@example.com")

    assert came_back(sent, content, "--route", "main")["quarantined"]
    came_back(sent, content, "--route", "main")

    with opened.read() as connection:
        (kept,) = connection.execute(select(quarantine))
    assert (kept.route, kept.item) == ("main", content.decode())
    assert "known shape" in kept.reason


def test_the_mail_servers_recipient_says_which_send(sent: Shell) -> None:
    sent.configure(sent.config.read_text() + SMTP)
    unnamed = report(recipient("bob@example.com", "delayed", "4.2.2"), returned="Subject: x\n")

    document = came_back(sent, unnamed, "--recipient", f"bounces+{KEY}@shop.example")

    assert (document["joined"], document["events"][0]["cause"]) == (1, "mailbox_full")
    assert sent.json("show", "k")["delivery"] == "deferred"


def test_news_of_a_send_that_nobody_knows_is_kept_under_the_route_that_is_named(sent: Shell) -> None:
    stranger = report(GONE).replace(KEY.encode(), b"f" * 32)
    document = came_back(sent, stranger, "--route", "main")
    assert (document["route"], document["new"], document["joined"]) == ("main", 1, 0)
    assert "no send of ours" in sent.run("bounce", stdin=stranger.replace(b"bob@", b"eve@").decode()).out


# A mailbox.


def away_from_the_second_on() -> Callable[..., Taken]:
    take, calls = Inlet.take, count()

    def took(self: Inlet, content: bytes, **given: Any) -> Taken:
        if next(calls):
            raise DatabaseUnavailable("the database is gone")
        return take(self, content, **given)

    return took


def test_all_that_is_unread_in_a_mailbox_is_taken_in(empty_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_dovecot() as dovecot:
        empty_shell.configure(
            f"""
            database = "{sqlite_url(empty_shell.folder)}"
            [mailboxes.bounces]
            host = "127.0.0.1"
            port = {dovecot.tls_port}
            user = "{USER}"
            password = "{PASSWORD}"
            ca_file = "{dovecot.ca_file}"
            """
        )
        dovecot.put("1", report(GONE))
        dovecot.put("2", mail("Lunch?", "Subject: lunch", of="ada@example.com"))

        ran = empty_shell.run("bounce", "--mailbox", "bounces")

        assert ran.out.splitlines() == [
            "report: bounced bob@example.com (no_mailbox, 550 5.1.1, for good); no send of ours is known for it",
            "kept for a person to look at: neither a report nor a bounce of a known shape",
            "2 messages read from bounces.",
        ]
        dovecot.put("3", report(GONE))
        dovecot.put("4", report(GONE))
        with monkeypatch.context() as patch:
            patch.setattr(Inlet, "take", away_from_the_second_on())
            ended = empty_shell.run("bounce", "--mailbox", "bounces")
        assert ended.code == 75
        assert ended.out.splitlines() == [
            "report, known before: bounced bob@example.com (no_mailbox, 550 5.1.1, for good)",
            "1 message read from bounces.",
            "It ended there: the database is gone. The next run goes on.",
        ]
        assert len(empty_shell.json("bounce", "--mailbox", "bounces")["messages"]) == 1
        assert empty_shell.json("bounce", "--mailbox", "bounces") == {
            "mailbox": "bounces",
            "messages": [],
            "error": None,
        }
    assert "can't be read" in empty_shell.json("bounce", "--mailbox", "bounces", code=75)["error"]


def test_a_mailboxs_own_settings_say_its_route(empty_shell: Shell) -> None:
    empty_shell.configure(STARTER)
    assert empty_shell.run("bounce", "--mailbox", "bounces", "--route", "main").code == 2
    assert "is not configured" in empty_shell.run("bounce", "--mailbox", "bounces").err


# Whatever is wrong with us, the mail server keeps the message.


def test_a_database_that_is_away_makes_the_mail_server_try_again(empty_shell: Shell) -> None:
    away = STARTER.replace("sqlite:///posthouse.db", f"postgresql://app@127.0.0.1:{free_port()}/app")
    empty_shell.configure(away)

    ran = empty_shell.run("bounce", stdin=report(GONE).decode())

    assert (ran.code, ran.out) == (75, "")
    assert ran.err


@pytest.mark.parametrize("config", ["", "database = 7", STARTER])
def test_a_deploy_that_is_half_done_makes_the_mail_server_try_again(empty_shell: Shell, config: str) -> None:
    if config:
        empty_shell.configure(config)
    assert empty_shell.run("bounce", stdin=report(GONE).decode()).code == 75


def test_a_wrong_route_makes_the_mail_server_try_again(shell: Shell) -> None:
    ran = shell.run("bounce", "--route", "typo", stdin=report(GONE).decode())
    assert ran.code == 75
    assert "there are: main" in ran.err


def test_a_fault_of_ours_makes_the_mail_server_try_again(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Inlet, "take", broken)
    ran = shell.run("bounce", stdin=report(GONE).decode())
    assert ran.code == 75
    assert "a fault in Posthouse" in ran.err
