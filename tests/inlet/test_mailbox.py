"""A mailbox on a real IMAP server: read once, marked after it was written down, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posthouse.app import App
from posthouse.config import parse_config
from posthouse.errors import ConfigError, DatabaseUnavailable, MailboxUnavailable
from posthouse.inlet.messages import Inlet
from tests.inlet.dovecot import COPIES, KEEPS, MOVES, PASSWORD, USER, Dovecot, own_dovecot
from tests.migrated import sqlite_url
from tests.providers.wire import free_port
from tests.returned.mails import GONE, mail, report

NOTE = mail("Lunch?", "Subject: lunch", of="ada@example.com")
BOUNCE = report(GONE)
AWAY = mail("I am away.", "Subject: Automatic reply: x", of="bob@example.com")


@pytest.fixture(params=[MOVES, COPIES, KEEPS], ids=["it can move", "it can expunge one", "it can neither"])
def dovecot(request: pytest.FixtureRequest) -> Iterator[Dovecot]:
    with own_dovecot(request.param) as running:
        yield running


@pytest.fixture
def moving() -> Iterator[Dovecot]:
    with own_dovecot() as running:
        yield running


def app_of(tmp_path: Path, dovecot: Dovecot, **settings: Any) -> App:
    box = {
        "host": "127.0.0.1",
        "port": dovecot.tls_port,
        "user": USER,
        "password": PASSWORD,
        "ca_file": str(dovecot.ca_file),
        "timeout": "20s",
    }
    document = {"database": sqlite_url(tmp_path), "mailboxes": {"bounces": box | settings}}
    return App(parse_config(document, environment={}))


def passed(app: App) -> list[str]:
    """What one pass reads."""
    try:
        return [taken.returned.kind.value for taken in app.read_mailbox("bounces")]
    finally:
        app.close()


def test_what_is_read_is_marked_and_read_once(tmp_path: Path, moving: Dovecot) -> None:
    moving.put("1", BOUNCE)
    moving.put("2", NOTE)
    moving.put("3", AWAY)

    assert passed(app_of(tmp_path, moving)) == ["report", "unread", "automatic"]
    assert moving.messages() == {"Undelivered Mail": "S", "lunch": "S", "Automatic reply: x": "S"}
    assert passed(app_of(tmp_path, moving)) == []


def test_what_is_understood_is_moved_and_no_other_message_is_touched(tmp_path: Path, dovecot: Dovecot) -> None:
    dovecot.make("Read")
    dovecot.put("1", BOUNCE)
    dovecot.put("2", NOTE)
    dovecot.put("3", mail("x", "Subject: somebody deleted this"), "ST")
    dovecot.put("4", mail("x", "Subject: old"), "S")

    assert passed(app_of(tmp_path, dovecot, move_to="Read")) == ["report", "unread"]

    assert dovecot.messages("Read") == {"Undelivered Mail": "S"}
    left = dovecot.messages()
    assert left.pop("Undelivered Mail", "ST") == "ST"  # where the server can't take out one alone, it is only marked
    assert left == {"lunch": "S", "somebody deleted this": "ST", "old": "S"}


def test_another_folder_is_read_with_tls_that_begins_in_clear_text(tmp_path: Path, moving: Dovecot) -> None:
    moving.make('Of "bounces"')
    moving.put("1", BOUNCE, folder='Of "bounces"')
    moving.put("2", NOTE)

    app = app_of(tmp_path, moving, security="starttls", port=moving.port, folder='Of "bounces"')

    assert passed(app) == ["report"]
    assert moving.messages()["lunch"] == ""


def test_what_could_not_be_written_down_stays_unread(
    tmp_path: Path, moving: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("away")

    moving.put("1", BOUNCE)
    with monkeypatch.context() as patch:
        patch.setattr(Inlet, "take", away)
        with pytest.raises(DatabaseUnavailable):
            passed(app_of(tmp_path, moving))

    assert moving.messages() == {"Undelivered Mail": ""}
    assert passed(app_of(tmp_path, moving)) == ["report"]


def test_a_message_that_we_stumble_over_stays_unread_and_holds_up_no_other(
    tmp_path: Path, moving: Dovecot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = Inlet.take

    def stumble(self: Inlet, content: bytes, **given: Any) -> Any:
        if b"lunch" in content:
            raise RuntimeError("a fault of ours")
        return take(self, content, **given)

    monkeypatch.setattr(Inlet, "take", stumble)
    moving.put("1", NOTE)
    moving.put("2", BOUNCE)
    with pytest.raises(MailboxUnavailable, match="1 unread for a fault in Posthouse"):
        passed(app_of(tmp_path, moving))
    assert moving.messages() == {"lunch": "", "Undelivered Mail": "S"}
    assert "a fault of ours" in caplog.text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"password": "wrong"}, "Authentication failed"),
        ({"password": "file:/dev/null"}, "Authentication failed"),
        ({"folder": "Nowhere"}, "Nowhere"),
        ({"move_to": "Nowhere"}, "Nowhere"),
        ({"ca_file": None}, "certificate"),
    ],
)
def test_what_the_server_refuses_is_said_without_the_password(
    tmp_path: Path, moving: Dovecot, settings: dict[str, Any], said: str
) -> None:
    moving.put("1", BOUNCE)
    with pytest.raises(
        MailboxUnavailable, match=rf"mailboxes\.bounces: 127\.0\.0\.1 can't be read: .*{said}"
    ) as caught:
        passed(app_of(tmp_path, moving, **settings))
    assert PASSWORD not in str(caught.value)
    assert moving.messages() == {"Undelivered Mail": ""}


def test_a_server_that_is_away_is_named(tmp_path: Path, moving: Dovecot) -> None:
    with pytest.raises(MailboxUnavailable, match=r"can't be read: .*refused"):
        passed(app_of(tmp_path, moving, port=free_port()))


def test_a_mailbox_or_a_password_that_is_not_there_is_named(tmp_path: Path, moving: Dovecot) -> None:
    app = app_of(tmp_path, moving, password="env:NO_SUCH_PASSWORD")
    with pytest.raises(ConfigError, match=r"mailboxes\.bounces\.password: the environment variable NO_SUCH_PASSWORD"):
        passed(app)
    with pytest.raises(ConfigError, match=r"mailboxes\.other: is not configured \(there are: bounces\)"):
        app.read_mailbox("other")
    app.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"route": "nowhere"}, r"mailboxes\.bounces\.route: 'nowhere' is not a route"),
        ({"folder": "Bücher"}, r"mailboxes\.bounces\.folder: 'Bücher' is not a folder's name in ASCII"),
        ({"pasword": "x"}, r"mailboxes\.bounces\.pasword: there is no such setting; did you mean 'password'\?"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], said: str) -> None:
    box = {"host": "h", "user": "u", "password": "p"}
    with pytest.raises(ConfigError, match=said):
        parse_config({"database": "sqlite:///x.db", "mailboxes": {"bounces": box | settings}}, environment={})
