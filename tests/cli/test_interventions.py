"""`retry`, `cancel` and `resolve` on each database: what they change, whom they refuse, and what they leave behind."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from typing import Any

import pytest

from posthouse.core.lifecycle import Status
from tests.cli.conftest import Shell

Put = Callable[..., None]


def status_of(shell: Shell, key: str) -> str:
    return str(shell.json("show", key)["status"])


def test_an_ended_send_gets_another_life_under_another_idempotency_key(shell: Shell, put: Put) -> None:
    shell.send("k")
    before = shell.json("show", "k")["idempotency_key"]
    put("k", status="failed", next_try_at=None, failures=10, expires_at=1.0)

    document = shell.json("retry", "k")

    after = shell.json("show", "k")
    assert document["done"] == [{"key": "k", "status": "pending"}]
    assert (after["status"], after["failures"], after["idempotency_key"] != before) == ("pending", 0, True)
    assert after["expires_at"] > after["created_at"]


def test_who_did_what_and_why_is_written_down(shell: Shell) -> None:
    shell.send("k")

    shell.run("cancel", "k", "--by", "ada", "--why", "ordered twice")
    shell.run("retry", "k")

    told = shell.json("show", "k")["interventions"]
    assert [(line["who"], line["action"], line["detail"]) for line in told] == [
        ("ada", "cancel", "ordered twice"),
        (f"{getpass.getuser()}@{socket.gethostname()}", "retry", ""),
    ]
    assert "ada: cancel ordered twice" in shell.run("show", "k").flat


def test_one_that_is_refused_holds_up_no_other(shell: Shell, put: Put) -> None:
    for key in ("a", "b", "c"):
        shell.send(key)
    put("b", status="accepted")

    document = shell.json("cancel", "a", "b", "nope", "c", "a", code=1)

    assert [made["key"] for made in document["done"]] == ["a", "c"]
    assert [no["key"] for no in document["refused"]] == ["b", "nope"]
    assert "it has ended already (accepted)" in document["refused"][0]["error"]
    assert document["refused"][1]["hint"] == "posthouse find WORDS"


def test_every_send_of_a_kind_is_retried(shell: Shell, put: Put) -> None:
    for number in range(25):
        shell.send(f"f-{number}")
        put(f"f-{number}", status="failed")
    shell.send("code", "a@b.example", "--type", "one-time-code")
    put("code", status="failed")
    shell.send("accepted")
    put("accepted", status="accepted")

    assert len(shell.json("retry", "--failed", "--limit", "3")["done"]) == 3
    assert [made["key"] for made in shell.json("retry", "--failed", "--type", "one-time-code")["done"]] == ["code"]
    words = shell.run("retry", "--failed")

    assert words.out == "22 sends: pending now.\n"
    assert shell.json("status")["sends"]["failed"] == 0
    assert status_of(shell, "accepted") == "accepted"
    assert shell.run("retry", "--failed").out == "Nothing to retry.\n"


def test_a_bulk_goes_on_past_what_it_cannot_do(shell: Shell, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posthouse.cli.interventions.PAGE", 2)
    for number in range(5):
        shell.send(f"f-{number}")
        put(f"f-{number}", status="failed", type="gone" if number == 1 else "default")

    document = shell.json("retry", "--failed", code=1)

    assert [made["key"] for made in document["done"]] == ["f-0", "f-2", "f-3", "f-4"]
    assert "its type gone is not configured here" in document["refused"][0]["error"]


def test_what_has_no_content_any_more_cannot_be_retried(
    shell: Shell, put: Put, forget_content: Callable[[], None]
) -> None:
    shell.send("k")
    put("k", status="failed")
    forget_content()

    ran = shell.run("retry", "k")

    assert ran.code == 1
    assert ran.out == "k: it can't be sent again: its content is no longer kept\n"
    assert status_of(shell, "k") == "failed"


def hold(shell: Shell, put: Put, key: str, *options: str) -> None:
    """An unknown send that only a person can move on."""
    shell.send(key, "ada@example.com", *options)
    put(key, status="unknown", next_try_at=None, unknown_since=1.0, unknown_fence=1, fence=1, attempts=1, route="main")


@pytest.mark.parametrize(
    ("option", "status", "duplicate"),
    [("--accepted", "accepted", False), ("--failed", "failed", False), ("--resend", "pending", True)],
)
def test_a_person_says_what_became_of_an_unknown_send(
    shell: Shell, put: Put, option: str, status: str, duplicate: bool
) -> None:
    hold(shell, put, "k")

    ran = shell.run("resolve", "k", option, "--why", "asked them")

    told = shell.json("show", "k")
    assert ran.out == f"k is {status} now.\n"
    assert (told["status"], told["maybe_duplicate"]) == (status, duplicate)
    assert told["interventions"][0]["detail"] == f"{option[2:]}: asked them"


def test_only_unknown_sends_can_be_resolved(shell: Shell) -> None:
    shell.send("k")

    ran = shell.run("resolve", "k", "--accepted")

    assert (ran.code, ran.out) == (1, "k: there is nothing to resolve: it is pending\n")


def test_all_held_sends_are_resolved_and_no_other(shell: Shell, put: Put) -> None:
    hold(shell, put, "a")
    hold(shell, put, "b")
    hold(shell, put, "code", "--type", "one-time-code")
    shell.send("asked")
    put("asked", status="unknown")

    first = shell.json("resolve", "--all-held", "--failed", "--type", "one-time-code")
    second = shell.json("resolve", "--all-held", "--accepted")

    assert [made["key"] for made in first["done"]] == ["code"]
    assert [made["key"] for made in second["done"]] == ["a", "b"]
    assert status_of(shell, "asked") == "unknown"


def test_the_content_of_security_mail_goes_when_a_person_says_it_was_accepted(
    shell: Shell, put: Put, opened: Any
) -> None:
    hold(shell, put, "receipt")
    hold(shell, put, "code", "--type", "one-time-code")

    shell.run("resolve", "receipt", "code", "--accepted")

    with opened.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM email_contents").scalar() == 1


def test_to_cancel_what_may_have_been_accepted_leaves_it_to_a_person(shell: Shell, put: Put) -> None:
    shell.send("k")
    put("k", unknown_since=1.0, unknown_fence=1, fence=1, attempts=1, route="main")

    ran = shell.run("cancel", "k")

    assert ran.out == "k is unknown and held (posthouse resolve) now.\n"
    assert shell.json("show", "k")["held"] is True


def test_a_held_send_is_not_called_again_by_reconcile(shell: Shell, put: Put) -> None:
    hold(shell, put, "k")

    ran = shell.run("reconcile", "k")

    assert ran.code == 1
    assert "posthouse resolve k" in ran.out


@pytest.mark.parametrize("status", [Status.PENDING, Status.ACCEPTED, Status.FAILED])
def test_there_is_nothing_to_reconcile_about_a_send_that_is_known(shell: Shell, put: Put, status: Status) -> None:
    shell.send("k")
    put("k", status=status.value)

    ran = shell.run("reconcile", "k")

    assert (ran.code, ran.out) == (1, f"k: there is nothing to find out: it is {status}\n")


def test_reconcile_without_unknown_sends_has_nothing_to_do(shell: Shell) -> None:
    ran = shell.run("reconcile")

    assert (ran.code, ran.out) == (0, "0 sends looked after; 0 unknown, 0 held.\n")
    assert shell.json("status")["workers"] == []


def test_the_document_of_an_intervention_is_stable(shell: Shell) -> None:
    shell.send("k")

    assert shell.json("cancel", "k", "nope", "--by", "ada", code=1) == {
        "action": "cancel",
        "by": "ada",
        "done": [{"key": "k", "status": "cancelled"}],
        "refused": [
            {
                "key": "nope",
                "error": "no send has the key or id 'nope'; look for it with: posthouse find nope",
                "hint": "posthouse find WORDS",
            }
        ],
    }
