"""`posthouse suppress`, `unsuppress` and `suppressions`: one address, a page of them, or a file of thousands."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from posthouse.core.events import Cause, Event, EventKind
from posthouse.store.database import Database
from posthouse.store.schema import audit
from posthouse.store.store import Store
from tests.cli.conftest import Shell

BY = ("--by", "grace")


def listed(shell: Shell, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shell.json("suppressions", *options)["suppressions"]
    return found


def audited(database: Database) -> list[tuple[str, ...]]:
    with database.read() as connection:
        return [
            tuple(row)
            for row in connection.execute(
                select(audit.c.who, audit.c.action, audit.c.subject, audit.c.detail).order_by(audit.c.id)
            )
        ]


def test_an_address_is_suppressed_listed_and_let_go_again(shell: Shell, opened: Database) -> None:
    ran = shell.run("suppress", "Ada@Example.com", "bob@example.com", "--reason", "asked by phone", *BY)
    assert ran.code == 0
    assert ran.out.splitlines() == ["ada@example.com gets no mail any more.", "bob@example.com gets no mail any more."]

    one, two = listed(shell)
    assert (one["address"], two["address"]) == ("bob@example.com", "ada@example.com")
    assert (two["cause"], two["scope"], two["until"], two["reason"], two["who"]) == (
        "manual",
        "",
        None,
        "asked by phone",
        "grace",
    )
    assert "ada@example.com" in shell.run("suppressions", "ADA").out

    gone = shell.run("unsuppress", "ADA@example.com", *BY)
    assert gone.code == 0
    assert gone.flat.startswith("ada@example.com, who was suppressed on ")
    assert gone.flat.endswith(" by grace (asked by phone), may get mail again.")
    assert [each["address"] for each in listed(shell)] == ["bob@example.com"]
    assert audited(opened) == [
        ("grace", "suppress", "ada@example.com", "manual, asked by phone"),
        ("grace", "suppress", "bob@example.com", "manual, asked by phone"),
        ("grace", "unsuppress", "ada@example.com", "manual, asked by phone"),
    ]


def test_what_it_is_about_and_for_how_long_can_be_said(shell: Shell) -> None:
    document = shell.json(
        "suppress", "ada@example.com", "--cause", "complaint", "--scope", "category  marketing", "--until", "30d"
    )
    assert (document["scope"], document["new"]) == ("category marketing", 1)
    assert document["until"] is not None
    ran = shell.run("suppress", "dan@example.com", "--cause", "complaint", "--until", "2031-01-01T00:00Z")
    assert ran.out == "dan@example.com gets no transactional and marketing mail until 2031-01-01 01:00:00 CET.\n"
    ran = shell.run("suppress", "eve@example.com", "--scope", "type newsleter")
    assert "But no type newsleter is configured here (there are: default" in ran.flat
    shell.run("unsuppress", "eve@example.com")
    ran = shell.run("suppress", "bob@example.com", "--cause", "complaint")
    assert ran.out == "bob@example.com gets no transactional and marketing mail any more.\n"
    assert [each["cause"] for each in listed(shell, "--cause", "manual")] == []
    assert len(listed(shell, "--cause", "complaint")) == 3


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("suppress", "nobody"), "is not an email address"),
        (("suppress", "*@example.com", "--scope", "newsletter"), "is no scope"),
        (("suppress", "a@example.com", "--scope", "category news"), "is no category"),
        (("suppress", "a@example.com", "--until", "soon"), "is not a time"),
        (("suppress", "a@example.com", "--until", "2020-01-01T00:00Z"), "is over already"),
        (("suppress", "*@example.com"), "there are no wildcards"),
        (("suppress", "a@example.com", "--cause", "anger"), "'anger' is not one of"),
        (("suppress",), "Missing argument"),
        (("suppressions", "--review", "ada"), "--review goes with --limit alone"),
        (("suppressions", "import", "nowhere.csv"), "nowhere.csv: No such file"),
        (("suppressions", "export", "--json"), "goes with a FILE"),
        (("suppressions", "export", "-", "--json"), "goes with a FILE"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_written(shell: Shell, args: tuple[str, ...], said: str) -> None:
    ran = shell.run(*args)
    assert ran.code == 2
    assert said in " ".join((ran.err + ran.out).split())
    assert listed(shell) == []


def test_taking_back_what_is_not_there_is_told(shell: Shell) -> None:
    shell.run("suppress", "ada@example.com")
    ran = shell.run("unsuppress", "ada@example.com", "--cause", "complaint")
    assert (ran.code, ran.out) == (1, "ada@example.com was not suppressed for complaint.\n")
    document = shell.json("unsuppress", "ada@example.com", "bob@example.com", code=1)
    assert ([each["address"] for each in document["removed"]], document["not_suppressed"]) == (
        ["ada@example.com"],
        ["bob@example.com"],
    )


def test_many_are_gone_through_page_by_page(shell: Shell) -> None:
    assert shell.run("suppressions").out == "Nobody.\n"
    shell.run("suppress", *(f"p{n}@example.com" for n in range(5)))
    first = shell.json("suppressions", "list", "--limit", "3")
    assert f"--before {first['next']}" in shell.run("suppressions", "--limit", "3").out
    second = shell.json("suppressions", "--limit", "3", "--before", str(first["next"]))
    assert [each["address"][1] for each in first["suppressions"] + second["suppressions"]] == ["4", "3", "2", "1", "0"]
    assert second["next"] is None
    assert shell.run("suppressions", "zoe").out == "Nobody like that.\n"


def test_addresses_that_bounce_again_and_again_are_shown_for_review(shell: Shell, opened: Database) -> None:
    bounces = [
        Event(EventKind.BOUNCED, 1000.0 + n, "ada@example.com", cause=Cause.MAILBOX_FULL, hard=False) for n in range(5)
    ]
    Store(opened).events.store("main", bounces, {}, time.time())
    assert shell.run("suppressions", "--review").out.splitlines()[0] == "ada@example.com bounced 5 times in 14 days"
    assert [each["bounces"] for each in shell.json("suppressions", "--review")["review"]] == [5]
    shell.run("suppress", "ada@example.com", "--cause", "hard_bounce")
    assert "No address bounced 5 times" in shell.run("suppressions", "--review").out


LIST = """\
email,cause,until,reason,score
ada@example.com,hard_bounce,,"550 5.1.1, no such user",7
"never closed,,,
Bob@Bücher.example,complaint

not an address,,
carol@example.com,boredom
dan@example.com,,2031-01-01T00:00Z
dan@example.com,,yesterday
"""


def test_a_list_is_imported_and_bad_lines_lose_nothing_but_themselves(shell: Shell, opened: Database) -> None:
    (shell.folder / "list.csv").write_text("\ufeff" + LIST, encoding="utf-8")
    with (shell.folder / "list.csv").open("ab") as file:
        file.write(b"\xff\xfe@example.com,,,\neve@example.com,unsubscribe\n")

    document = shell.json("suppressions", "import", "list.csv", "--reason", "from the old system", *BY, code=1)

    assert (document["imported"], document["new"]) == (4, 4)
    assert [each["line"] for each in document["bad"]] == [3, 6, 7, 9, 10]
    assert "boredom" in document["bad"][2]["error"]
    assert document["bad"][0]["text"] == '"never closed,,,'
    found = {each["address"]: each for each in listed(shell)}
    assert {address: (each["cause"], each["reason"]) for address, each in found.items()} == {
        "ada@example.com": ("hard_bounce", "550 5.1.1, no such user"),
        "bob@xn--bcher-kva.example": ("complaint", "from the old system"),
        "dan@example.com": ("manual", "from the old system"),
        "eve@example.com": ("unsubscribe", "from the old system"),
    }
    assert found["dan@example.com"]["until"].startswith("2031-01-01")
    assert audited(opened) == [("grace", "import suppressions", "list.csv", "4 lines, 4 new, 0 known, 5 bad")]

    again = shell.run("suppressions", "import", "list.csv")
    assert again.code == 1
    assert again.out.startswith("4 addresses read, 0 new, 4 known already.\nline 3 is left out: ")
    assert len(listed(shell)) == 4


def test_a_file_of_addresses_alone_needs_no_names_and_thousands_are_written_in_chunks(shell: Shell) -> None:
    lines = [f"p{n}@example.com\r\n" for n in range(1203)]
    (shell.folder / "list.csv").write_text("".join(lines))
    document = shell.json("suppressions", "import", "list.csv", "--cause", "hard_bounce", "--scope", "type news")
    assert (document["imported"], document["new"], document["bad"]) == (1203, 1203, [])
    (one,) = listed(shell, "p1202@example.com")
    assert (one["cause"], one["scope"]) == ("hard_bounce", "type news")


@pytest.mark.parametrize(
    "written",
    [
        "\ufeffE-Mail;Cause;Reason\r\nada@example.com;HARD_BOUNCE;no mailbox, he said\r\n".encode(),
        b"Email Address\tcause\treason\nada@example.com\thard_bounce\tno mailbox, he said\n",
        'Recipient,Cause,Reason\r\nada@example.com,hard_bounce,"no mailbox, he said"\r\n'.encode("utf-16"),
        b"\n \n;;\nada@example.com;hard_bounce;;;no mailbox, he said\n",
    ],
    ids=["semicolons", "tabs", "utf-16", "without names"],
)
def test_a_list_is_read_as_spreadsheets_write_it(shell: Shell, written: bytes) -> None:
    (shell.folder / "list.csv").write_bytes(written)
    document = shell.json("suppressions", "import", "list.csv")
    assert (document["imported"], document["bad"]) == (1, [])
    (one,) = listed(shell)
    assert (one["address"], one["cause"], one["reason"]) == ("ada@example.com", "hard_bounce", "no mailbox, he said")


def test_a_list_comes_by_a_pipe_as_well(shell: Shell) -> None:
    ran = shell.run("suppressions", "import", "-", stdin="email\nada@example.com\n*@example.net\n")
    assert (ran.code, ran.flat) == (
        1,
        "1 address read, 1 new, 0 known already. line 3 is left out: address: '*@example.net': there are no wildcards; "
        "a whole domain is never suppressed",
    )


@pytest.mark.parametrize("first", ["status,who", "PK\x03\x04\x14", "Ada Lovelace;hard_bounce"])
def test_a_file_that_is_no_list_of_addresses_is_refused_as_a_whole(shell: Shell, first: str) -> None:
    (shell.folder / "list.csv").write_text(f"\n{first}\nada@example.com,manual\n")
    ran = shell.run("suppressions", "import", "list.csv")
    assert (ran.code, listed(shell)) == (2, [])
    assert "list.csv: line 2 names no column `address` or `email`, and has no address: " in ran.err


def test_what_is_wrong_with_a_line_is_told_shortly(shell: Shell) -> None:
    (shell.folder / "list.csv").write_text(f"ada@example.com,{'x' * 9000}\n")
    (bad,) = shell.json("suppressions", "import", "list.csv", code=1)["bad"]
    assert len(bad["error"]) <= 300
    shell.run("suppress", "ada@example.com", "--reason", "y" * 1000)
    assert len(shell.run("suppressions").out) < 500


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_told_as_such(shell: Shell) -> None:
    ran = shell.run("suppressions", "export", "/dev/full")
    assert (ran.code, ran.err) == (1, "posthouse: /dev/full: No space left on device\n")


def test_what_is_exported_can_be_imported(shell: Shell) -> None:
    shell.run("suppress", "ada@example.com", "--reason", 'she said "no",\nand meant it', "--scope", "type news")
    shell.run("suppress", "bob@bücher.example", "--until", "30d", "--cause", "hard_bounce")
    before = listed(shell)

    assert shell.run("suppressions", "export", "out.csv").out == "2 suppressions written to out.csv.\n"
    assert shell.json("suppressions", "export", "out.csv") == {"file": "out.csv", "exported": 2}
    text = (shell.folder / "out.csv").read_text(encoding="utf-8")
    assert shell.run("suppressions", "export").out == text
    assert shell.run("suppressions", "export", "-").out == text
    assert not (shell.folder / "-").exists()
    first, _ = csv.DictReader(text.splitlines())
    assert (first["address"], first["reason"]) == ("ada@example.com", 'she said "no", and meant it')

    told = shell.json("suppressions", "import", "out.csv", "--reason", "from a file", "--by", "eve")
    assert (told["imported"], told["new"], told["known"]) == (2, 0, 2)
    assert [each | {"reason": ""} for each in listed(shell)] == [each | {"reason": ""} for each in before], (
        "one's own export changes nothing"
    )

    shell.run("unsuppress", "ada@example.com", "bob@bücher.example")
    assert shell.json("suppressions", "import", "out.csv")["new"] == 2
    kept = ("address", "cause", "scope", "until")
    assert [[each[name] for name in kept] for each in listed(shell)] == [
        [each[name] for name in kept] for each in before
    ]


def test_show_says_why_an_email_was_not_sent_and_retry_what_to_do(shell: Shell, put: Callable[..., None]) -> None:
    shell.send("k", "ada@example.com")
    why = "not sent: ada@example.com complained on 2026-03-01; unsuppress with: posthouse unsuppress ada@example.com"
    put("k", status="suppressed", next_try_at=None, last_error=why)

    shown = shell.run("show", "k")
    assert why in shown.flat
    assert "Next: nothing; its recipient must not get it" in shown.flat
    assert shell.json("show", "k")["next"]["commands"] == ["posthouse unsuppress ada@example.com"]

    refused = shell.run("retry", "k")
    assert refused.code == 1
    assert "must not get it (posthouse show says why)" in refused.flat
    assert "posthouse unsuppress, and ask for the email anew under a new key" in refused.flat
