"""`posthouse init` and `migrate`: from an empty folder to something that works."""

from __future__ import annotations

import tomllib

from posthouse.cli.init import STARTER
from posthouse.config import load_config
from tests.cli.conftest import Shell
from tests.conftest import OwnPostgres


def test_init_writes_a_configuration_and_tables_that_pass_every_check(empty_shell: Shell) -> None:
    ran = empty_shell.run("init")

    assert ran.code == 0
    assert "posthouse.toml is written." in ran.out
    assert "posthouse sandbox" in ran.out
    assert empty_shell.json("config", "check")["ok"] is True


def test_init_writes_types_and_a_route_for_the_sandbox(empty_shell: Shell) -> None:
    empty_shell.run("init")
    config = load_config(empty_shell.config)

    assert list(config.types) == ["default", "one-time-code"]
    assert config.types["one-time-code"].category == "security"
    assert config.routes["main"].own["idempotency_header"] == "Idempotency-Key"
    assert str(config.sender) == '"Shop" <orders@shop.example>'


def test_what_is_commented_out_in_it_is_valid_as_well() -> None:
    commented = [
        line.removeprefix("# ") for line in STARTER.splitlines() if line.startswith(("# database", "# api_key"))
    ]

    assert [list(tomllib.loads(line)) for line in commented] == [["database"], ["api_key"]]


def test_init_never_changes_a_file_that_is_there(empty_shell: Shell) -> None:
    empty_shell.configure('database = "sqlite:///mine.db"\n')

    ran = empty_shell.run("init")

    assert ran.code == 0
    assert "was there already and is unchanged" in ran.out
    assert empty_shell.config.read_text() == 'database = "sqlite:///mine.db"\n'
    assert (empty_shell.folder / "mine.db").exists()


def test_init_writes_where_it_is_told_and_says_so_in_its_commands(empty_shell: Shell) -> None:
    (empty_shell.folder / "my conf").mkdir()

    document = empty_shell.json("init", "--config", "my conf/p.toml")

    assert (document["config"], document["written"]) == ("my conf/p.toml", True)
    assert "posthouse worker --config 'my conf/p.toml'" in document["next"]


def test_init_says_where_it_cannot_write(empty_shell: Shell) -> None:
    ran = empty_shell.run("init", "--config", "missing/p.toml")

    assert ran.code == 2
    assert ran.err == "posthouse: missing/p.toml can't be written: No such file or directory\n"


def test_migrate_creates_the_tables_and_then_has_nothing_to_do(empty_shell: Shell, postgres: OwnPostgres) -> None:
    empty_shell.configure(f'database = "{postgres.create(migrated=False)}"\n')

    first, second = empty_shell.json("migrate"), empty_shell.json("migrate")

    assert (first["before"], second["before"]) == (None, first["version"])
    assert "were at version" in empty_shell.run("migrate").out


def test_a_command_before_the_tables_exist_says_what_to_run(empty_shell: Shell) -> None:
    empty_shell.configure(STARTER)

    ran = empty_shell.run("status")

    assert ran.code == 2
    assert "posthouse migrate" in ran.err
    assert len(ran.err.splitlines()) == 1
