"""`send` with files and with a finished message, and what `show` tells of them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posthouse.cli.main import app
from posthouse.store.database import Database
from posthouse.store.store import Store
from tests.cli.conftest import Shell

FINISHED = (
    b"From: Desk <desk@example.com>\nTo: Ada <ada@example.com>\nCc: bob@example.com\nBcc: eve@example.com\n"
    b"Subject: =?utf-8?q?Gr=C3=B6=C3=9Fe?=\n\nHello \xff\n"
)
BASIC = ("send", "--key", "k", "--to", "ada@example.com", "--subject", "Hello", "--text", "Hi")


@pytest.fixture
def smtp_shell(shell: Shell, database_url: str) -> Shell:
    """A shell whose only route carries everything."""
    route = '[routes.main]\nprovider = "smtp"\nurl = "smtp://127.0.0.1:2525"\n'
    shell.configure(f'database = "{database_url}"\nsender = "Shop <orders@shop.example>"\n\n{route}')
    return shell


def stored(database: Database, key: str, body: bytes) -> bytes | None:
    store, digest = Store(database), sha256(body).hexdigest()
    return store.blobs.read(store.ledger.story(key).send["id"], [digest]).get(digest)


def test_send_takes_files_along(smtp_shell: Shell, opened: Database) -> None:
    Path("invoice 1042.pdf").write_bytes(b"%PDF \x00\xff" * 300)
    Path("logo.png").write_bytes(b"\x89PNG")
    Path("page.html").write_text('<img src="cid:logo">')

    ran = smtp_shell.run(
        *BASIC,
        *("--attach", "invoice 1042.pdf", "--attach", "logo.png", "--inline", "logo=logo.png", "--html", "page.html"),
    )

    assert ran.code == 0, ran
    content = smtp_shell.json("show", "k", "--content")["content"]
    assert [
        (file["filename"], file["content_type"], file["size"], file.get("content_id"))
        for file in content["attachments"]
    ] == [
        ("invoice 1042.pdf", "application/pdf", 2100, None),
        ("logo.png", "image/png", 4, None),
        ("logo.png", "image/png", 4, "logo"),
    ]
    assert stored(opened, "k", b"%PDF \x00\xff" * 300) == b"%PDF \x00\xff" * 300
    words = smtp_shell.run("show", "k", "--content").out
    assert "Attachment: invoice 1042.pdf (application/pdf, 2.1 KB)\n" in words
    assert "Attachment: logo.png (image/png, 4 bytes, shown as cid:logo)\n" in words
    assert "Attachment" not in smtp_shell.run("show", "k").out


@pytest.mark.parametrize("source", ["message.eml", "-"])
def test_a_finished_message_goes_to_whom_it_names(smtp_shell: Shell, opened: Database, source: str) -> None:
    Path("message.eml").write_bytes(FINISHED)
    args = ["send", "--key", "k", "--eml", source, "--tag", "letters"]
    ran = CliRunner().invoke(app, args, input=FINISHED if source == "-" else None, env=smtp_shell.environment)
    assert ran.exit_code == 0, ran

    told = smtp_shell.json("show", "k", "--content")

    assert told["recipients"] == ["ada@example.com", "bob@example.com", "eve@example.com"]
    assert (told["tags"], told["content"]["subject"]) == (["letters"], "Größe")
    without_bcc = FINISHED.replace(b"Bcc: eve@example.com\n", b"").replace(b"\n", b"\r\n")
    assert stored(opened, "k", without_bcc) == without_bcc
    words = smtp_shell.run("show", "k", "--content").out
    assert f"Message: finished, {len(without_bcc)} bytes\n" in words
    assert 'From: "Desk" <desk@example.com>' in words


def test_a_finished_message_may_go_to_others_than_it_names(smtp_shell: Shell) -> None:
    Path("message.eml").write_bytes(FINISHED)

    smtp_shell.run("send", "--key", "k", "--eml", "message.eml", "--to", "list@example.com")

    assert smtp_shell.json("show", "k")["recipients"] == ["list@example.com"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([*BASIC, "--attach", "missing.pdf"], "attachments: missing.pdf can't be read: No such file or directory"),
        ([*BASIC, "--attach", "."], "attachments: . can't be read: Is a directory"),
        ([*BASIC, "--inline", "logo.png"], "attachments: 'logo.png' is not of the form CID=FILE"),
        ([*BASIC, "--inline", "logo=missing.png"], "attachments: missing.png can't be read"),
        ([*BASIC, "--eml", "message.eml"], "subject: stands in the finished message itself"),
        (["send", "--eml", "message.eml", "--text", "Hi"], "text: stands in the finished message itself"),
        (["send", "--eml", "message.eml", "--html", "a.txt"], "html: stands in the finished message itself"),
        (["send", "--eml", "message.eml", "--template", "t"], "template: stands in the finished message itself"),
        (["send", "--eml", "message.eml", "--attach", "a.txt"], "attachments: stands in the finished message itself"),
        (["send", "--eml", "missing.eml"], "raw: missing.eml can't be read: No such file or directory"),
        (["send", "--eml", "empty.eml"], "raw: is empty"),
        (["send", "--eml", "nobody.eml"], "to: no recipient"),
    ],
)
def test_what_cannot_go_along_is_refused_with_the_reason(smtp_shell: Shell, args: list[str], said: str) -> None:
    Path("message.eml").write_bytes(FINISHED.replace(b"\xff", b""))
    Path("empty.eml").write_bytes(b"")
    Path("nobody.eml").write_bytes(b"From: desk@example.com\n\nHello\n")
    Path("a.txt").write_bytes(b"a")

    ran = smtp_shell.run(*args)

    assert ran.code == 2
    assert said in ran.err
    assert smtp_shell.json("find", code=1)["sends"] == []
