"""What a command doesn't use it doesn't import: hundreds of a shop's scripts and probes start one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from posthouse.cli.init import STARTER
from tests.cli.conftest import Shell

ROOT: Final = Path(__file__).parents[2]

HEAVY: Final = {
    "aiohttp": "makes calls, which only a worker does",
    "aiosmtplib": "belongs to routes over SMTP",
    "alembic": "migrates",
    "email_validator": "reads addresses that are not like other people's",
    "filelock": "belongs to the worker of a SQLite file",
    "jinja2": "renders templates, which only a worker does",
    "posthouse.demo": "is a command of its own",
    "posthouse.providers.postmark": "is a provider that no route has",
    "posthouse.sandbox": "is a command of its own",
    "posthouse.worker": "is a command of its own",
    "rich": "colours words, and aligns them",
    "sqlalchemy.orm": "is for callers who have a session, and they have imported it",
}

STEPS: Final = f"""
import contextlib, io, json, sys

def loaded(name, *args):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        if args:
            app(args)
    found[name] = sorted({set(HEAVY)} & set(sys.modules))

found = {{}}
import posthouse
outbox = posthouse.Outbox()
loaded("an application")
from posthouse.cli.main import app
loaded("send", "send", "--to", "ada@example.com", "--subject", "s", "--text", "t")
loaded("status", "status", "--json")
loaded("status in words", "status")
loaded("migrate, where there is nothing to do", "migrate")
print(json.dumps(found))
"""


def test_light_commands_import_nothing_heavy(empty_shell: Shell) -> None:
    empty_shell.configure(STARTER)
    empty_shell.run("migrate")

    ran = subprocess.run(
        [sys.executable, "-c", STEPS],
        cwd=empty_shell.folder,
        env={"PYTHONPATH": str(ROOT / "src")} | empty_shell.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert json.loads(ran.stdout) == {
        "an application": [],
        "send": [],
        "status": [],
        "status in words": ["rich"],
        "migrate, where there is nothing to do": ["rich"],
    }
