"""How commands go wrong: the exit code, one or two lines that say what to do, and the same as a document."""

from __future__ import annotations

import pytest

from posthouse.cli.failures import Exit, TryAgain, WrongUsage, failure_of
from posthouse.errors import (
    ConfigError,
    DatabaseUnavailable,
    InvalidEmail,
    KeyReused,
    MailboxUnavailable,
    NotPossible,
    PosthouseError,
    SchemaError,
    UnknownSend,
)
from tests.cli.conftest import Shell, free_port


@pytest.mark.parametrize(
    ("error", "code", "document"),
    [
        (
            ConfigError("routes.main.url", "is missing"),
            Exit.WRONG,
            {"error": "routes.main.url: is missing", "setting": "routes.main.url", "hint": "posthouse config check"},
        ),
        (
            ConfigError("", "p.toml does not exist; `posthouse init` writes one"),
            Exit.WRONG,
            {"error": "p.toml does not exist; `posthouse init` writes one", "hint": "posthouse init"},
        ),
        (
            ConfigError("fault '9'", "is not a fault"),
            Exit.WRONG,
            {"error": "fault '9': is not a fault", "setting": "fault '9'", "hint": None},
        ),
        (
            InvalidEmail("to", "no recipient"),
            Exit.WRONG,
            {"error": "to: no recipient", "field": "to", "hint": None},
        ),
        (SchemaError("old; run: posthouse migrate"), Exit.WRONG, {"hint": "posthouse migrate"}),
        (SchemaError("newer; upgrade posthouse"), Exit.WRONG, {"hint": None}),
        (DatabaseUnavailable("away"), Exit.NO_DATABASE, {"error": "away", "hint": "posthouse config check"}),
        (UnknownSend("no send has the key 'k'"), Exit.NOT_POSSIBLE, {"hint": "posthouse find WORDS"}),
        (NotPossible("it has ended"), Exit.NOT_POSSIBLE, {"error": "it has ended", "hint": None}),
        (KeyReused("a b", 7), Exit.NOT_POSSIBLE, {"hint": "posthouse show 'a b'"}),
        (WrongUsage("one of"), Exit.WRONG, {"error": "one of"}),
        (MailboxUnavailable("mailboxes.b: away"), Exit.TRY_AGAIN, {"error": "mailboxes.b: away", "hint": None}),
        (TryAgain("away"), Exit.TRY_AGAIN, {"error": "away", "hint": None}),
    ],
)
def test_every_kind_of_error_has_its_code_and_its_hint(
    error: PosthouseError, code: Exit, document: dict[str, object]
) -> None:
    failure = failure_of(error)

    assert failure.exit_code == code
    assert failure.document.items() >= document.items()
    assert len(failure.lines) <= 2


def test_a_hint_that_the_error_names_itself_is_not_said_twice() -> None:
    assert failure_of(SchemaError("old; run: posthouse migrate")).lines == ["posthouse: old; run: posthouse migrate"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["show"], "Missing argument"),
        (["find", "--limit", "many"], "Invalid value for '--limit'"),
        (["find", "--limit", "0"], "Invalid value for '--limit'"),
        (["find", "--status", "lost"], "Invalid value for '--status'"),
        (["status", "--nonsense"], "No such option"),
        (["retry"], "name the sends by their keys, or give --failed"),
        (["retry", "k", "--failed"], "name the sends by their keys, or give --failed"),
        (["retry", "k", "--limit", "3"], "--type and --limit go with --failed"),
        (["cancel"], "name the sends by their keys"),
        (["resolve", "k"], "one of --accepted, --failed and --resend"),
        (["resolve", "k", "--accepted", "--failed"], "one of --accepted, --failed and --resend"),
        (["resolve", "--failed"], "name the sends by their keys, or give --all-held"),
        (["status", "--oldest", "5"], "'5' is not a duration"),
        (["send", "--to", "ada@example.com", "--subject", "s"], "nothing to send"),
        (["send", "--subject", "s", "--text", "t"], "no recipient"),
        (["send", "--to", "ada", "--subject", "s", "--text", "t"], "to[0]"),
        (["send", "--to", "a@b.example", "--template", "t", "--var", "x"], "not of the form NAME=VALUE"),
        (["send", "--to", "a@b.example", "--template", "t", "--var", "x=1", "--var", "x=2"], "x is given twice"),
        (["send", "--to", "a@b.example", "--subject", "s", "--html", "missing.html"], "missing.html can't be read"),
        (["send", "--to", "a@b.example", "--subject", "s", "--text", "t", "--send-at", "now"], "send_at"),
        (["send", "--to", "a@b.example", "--subject", "s", "--text", "t", "--type", "receit"], "is not configured"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_right(empty_shell: Shell, args: list[str], said: str) -> None:
    empty_shell.run("init")

    ran = empty_shell.run(*args)
    as_json = empty_shell.run(*args, "--json")

    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())
    assert ran.err.startswith("posthouse: ")
    assert len(ran.err.splitlines()) <= 2
    assert (as_json.code, as_json.err) == (2, "")
    assert said in as_json.document["error"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["show", "nope"], "no send has the key or id 'nope'"),
        (["retry", "nope"], "no send has the key or id 'nope'"),
        (["reconcile", "nope"], "no send has the key or id 'nope'"),
        (["find", "nope"], "Nothing found"),
    ],
)
def test_what_is_not_there_ends_with_1(shell: Shell, args: list[str], said: str) -> None:
    ran = shell.run(*args)

    assert ran.code == 1
    assert said in ran.out + ran.err


def test_a_missing_configuration_names_the_command_that_writes_one(empty_shell: Shell) -> None:
    ran = empty_shell.run("status")

    assert (ran.code, ran.err) == (2, "posthouse: posthouse.toml does not exist; `posthouse init` writes one\n")


def test_a_wrong_setting_is_named(empty_shell: Shell) -> None:
    empty_shell.configure('database = "sqlite:///p.db"\n[types.receipt]\nmax_agee = "3d"\n')

    ran = empty_shell.run("status", "--json")

    assert ran.code == 2
    assert ran.document["setting"] == "types.receipt.max_agee"
    assert "did you mean 'max_age'?" in ran.document["error"]


@pytest.mark.parametrize(
    "command", [["status"], ["find"], ["show", "k"], ["migrate"], ["worker"], ["retry", "--failed"]]
)
def test_a_database_that_is_away_ends_with_3(empty_shell: Shell, command: list[str]) -> None:
    empty_shell.configure(
        f'database = "postgresql://nobody@127.0.0.1:{free_port()}/nothing"\nsender = "a@b.example"\n'
        '[routes.main]\nprovider = "http"\nurl = "http://127.0.0.1:9/"\nauth = "none"\n'
    )

    ran = empty_shell.run(*command)

    assert ran.code == 3
    assert "the database is not available" in ran.err
    assert "posthouse config check" in ran.err


def test_a_key_with_other_content_ends_with_1_and_changes_nothing(shell: Shell) -> None:
    shell.send("k")

    ran = shell.run("send", "--key", "k", "--to", "bob@example.com", "--subject", "Other", "--text", "Hi")

    assert ran.code == 1
    assert "posthouse show k" in ran.err
    assert shell.json("show", "k")["recipients"] == ["ada@example.com"]


def test_the_command_alone_tells_its_commands(empty_shell: Shell) -> None:
    ran = empty_shell.run()

    assert ran.code == 2
    assert all(name in ran.out for name in ("init", "worker", "resolve", "Every command has"))


def test_the_version_is_told_in_words_and_as_a_document(empty_shell: Shell) -> None:
    assert empty_shell.run("--version").out.startswith("posthouse ")
    assert empty_shell.run("--version", "--json").document["version"]


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_common_options_may_stand_before_the_command_or_after_it(shell: Shell, place: str) -> None:
    shell.send("k")
    options = ["--config", str(shell.config), "--json", "--by", "ada"]

    ran = shell.run(*options, "cancel", "k") if place == "before" else shell.run("cancel", "k", *options)

    assert ran.code == 0
    assert ran.document["by"] == "ada"
