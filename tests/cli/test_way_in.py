"""What the command says of campaigns, caps and cooldowns."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

CAPPED = """
[outbox]
max_pending = 5

[types.digest]
priority = "bulk"
max_pending = 1

[types.one-time-code]
cooldown = "30s"
"""


@pytest.fixture
def capped(shell: Shell) -> Shell:
    text = shell.config.read_text(encoding="utf-8")
    assert "[types.one-time-code]" in text
    shell.configure(text.replace("[types.one-time-code]", CAPPED.rstrip() + "\n", 1))
    return shell


def test_a_campaign_is_found_and_paused_by_its_name(shell: Shell) -> None:
    shell.send("a", "ada@example.com", "--campaign", "spring")
    shell.send("b", "bob@example.com", "--campaign", "spring")
    shell.send("c", "cleo@example.com", "--campaign", "summer")

    assert [one["key"] for one in shell.json("find", "--campaign", "spring")["sends"]] == ["b", "a"]
    assert [one["key"] for one in shell.json("find", "bob", "--campaign", "spring")["sends"]] == ["b"]
    assert shell.json("find", "--campaign", "autumn", code=1)["sends"] == []
    assert shell.json("show", "a")["campaign"] == "spring"
    assert "type default, campaign spring, " in shell.run("show", "a").flat
    assert shell.json("pause", "--campaign", "spring")["pending"] == 2
    assert shell.json("show", "b")["next"]["commands"] == ["posthouse resume --campaign spring"]


def test_what_is_full_is_seen_in_status_and_needs_a_person(capped: Shell) -> None:
    capped.send("d", "ada@example.com", "--type", "digest")
    refused = capped.run("send", "--to", "ada@example.com", "--subject", "s", "--text", "t", "--type", "digest")
    assert refused.code == 1
    assert "1 sends are pending and types.digest.max_pending is 1: another email is refused (bulk mail)" in refused.err

    for number in range(4):
        capped.send(f"k{number}")
    status = capped.run("status", "--check")
    assert status.code == 1
    assert "outbox.max_pending: 5 of 5 pending" in status.flat
    assert "types.digest.max_pending: 1 of 1 pending" in status.flat
    said = [problem["text"] for problem in capped.json("status")["problems"] if problem["name"] == "full"]
    assert said == [
        "types.digest.max_pending is 1, 1 sends are pending: more of it is refused",
        "outbox.max_pending is 5, 5 sends are pending: normal and bulk mail are refused",
    ]


def test_without_caps_status_says_nothing_of_them(shell: Shell) -> None:
    assert "Caps" not in shell.run("status").out
    assert shell.json("status")["caps"] == []


def test_who_asks_for_another_code_too_soon_is_told_when(capped: Shell) -> None:
    capped.send("c1", "ada@example.com", "--type", "one-time-code", "--family", "code:ada")
    refused = capped.run(
        *("send", "--to", "ada@example.com", "--subject", "s", "--text", "t"),
        *("--type", "one-time-code", "--family", "code:ada"),
    )
    assert refused.code == 1
    assert "another email of the family 'code:ada' was asked for a moment ago" in refused.err
