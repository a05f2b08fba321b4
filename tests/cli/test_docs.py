"""The pages about the command say what is true: every command and exit code is there, and every query runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.main import get_command

from posthouse.cli.failures import Exit
from posthouse.cli.main import app
from posthouse.store.database import Database
from posthouse.store.schema import metadata

DOCS = Path(__file__).parents[2] / "docs"
CLI = (DOCS / "cli.md").read_text(encoding="utf-8")
OPERATIONS = (DOCS / "operations.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", OPERATIONS, re.DOTALL)


def commands() -> dict[str, Any]:
    """Every command by what is typed for it."""
    found: dict[str, Any] = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        group = getattr(command, "commands", None)
        found |= {name: command} if group is None else {f"{name} {sub}": one for sub, one in group.items()}
    return found


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_is_described(name: str) -> None:
    common, _, sections = CLI.partition("\n## ")
    section = next(part for part in f"\n## {sections}".split("\n## ") if part.startswith(f"{name}\n"))
    options = [option for parameter in commands()[name].params for option in parameter.secondary_opts or parameter.opts]

    missing = [option for option in options if option.startswith("--") and option not in section + common]

    assert missing == []
    assert f"$ posthouse {name}" in section


def test_every_exit_code_is_described() -> None:
    described = {int(code) for code in re.findall(r"^\| (\d+) \|", OPERATIONS, re.MULTILINE)}

    assert described == {int(code) for code in Exit}


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_every_query_runs(number: int, database: Database) -> None:
    with database.read() as connection:
        connection.execute(text(QUERIES[number]))


def test_there_are_queries_and_every_table_is_described() -> None:
    described = set(re.findall(r"^\| `(email_\w+)` \|", OPERATIONS, re.MULTILINE))

    assert len(QUERIES) >= 5
    assert described == set(metadata.tables)


@pytest.mark.parametrize("page", ["cli.md", "operations.md"])
def test_links_within_the_pages_lead_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", (DOCS / page).read_text(encoding="utf-8")):
        headings = re.findall(r"^#+ (.+)$", (DOCS / (target or page)).read_text(encoding="utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert anchor in anchors, (page, anchor)
