"""`posthouse pause` and `resume`: what they write, what they say, and whom they refuse."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell


def test_a_pause_says_how_much_waits_and_what_expires(shell: Shell) -> None:
    shell.send("a")
    shell.send("b")

    said = shell.run("pause", "--type", "default", "--why", "wrong words", "--by", "grace").flat

    assert "Type default is paused." in said
    assert "2 sends waiting there. 0 of them expire within a day if nobody resumes, the first in 3 d" in said
    assert "posthouse resume --type default" in said


def test_what_was_paused_is_resumed_once_and_both_are_audited(shell: Shell) -> None:
    shell.run("pause", "--all", "--why", "stop", "--by", "grace")
    assert shell.run("resume", "--all", "--by", "ada").code == 0
    again = shell.run("resume", "--all")
    assert again.code != 0
    assert "all is not paused" in again.err


def test_a_pause_with_an_end_tells_it(shell: Shell) -> None:
    document = shell.json("pause", "--group", "gmail", "--for", "2h")
    assert document["until"] is not None
    assert (document["scope"], document["value"], document["pending"]) == ("group", "gmail", 0)


@pytest.mark.parametrize("options", [(), ("--all", "--type", "x"), ("--type", "x", "--for", "soon")])
def test_what_makes_no_sense_is_refused(shell: Shell, options: tuple[str, ...]) -> None:
    assert shell.run("pause", *options).code == 2


def test_what_is_paused_is_seen_in_status_and_in_the_story_of_what_waits(shell: Shell) -> None:
    shell.send("a")
    shell.run("pause", "--type", "default", "--why", "wrong words", "--by", "grace", "--for", "2h")

    assert "type default is paused by grace, resumes in 2 h" in shell.run("status").flat.replace(" 1 h 59 min", " 2 h")
    (switch,) = shell.json("status")["switches"]
    assert (switch["scope"], switch["value"], switch["reason"], switch["who"]) == (
        "type",
        "default",
        "wrong words",
        "grace",
    )
    told = shell.json("show", "a")["next"]
    assert "it waits: type default is paused by grace" in told["text"]
    assert told["commands"] == ["posthouse resume --type default"]
    shell.run("resume", "--type", "default")
    assert shell.json("status")["switches"] == []
