"""`posthouse init` and `migrate`: from nothing to tables and a configuration that works with the sandbox."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

from posthouse.cli.invocation import Invocation
from posthouse.cli.output import Answer, Line
from posthouse.config import CONFIG_FILE
from posthouse.errors import ConfigError
from posthouse.store import migrate as tables

SANDBOX_PORT: Final = 8025

STARTER: Final = f"""\
# Posthouse. Every setting is described in docs/configuration.md; `posthouse config check` tells what is wrong here.

# The application's own database, so that an email is written in the same transaction as what it is about.
# A SQLite path starts at the folder that Posthouse runs in, unless it is absolute (four slashes). For PostgreSQL
# (for MariaDB or MySQL it begins with mysql://):
# database = "postgresql://app@db.example.com/app"
# POSTHOUSE_DATABASE in the environment wins over this line. "env:NAME" and "file:PATH" keep it out of this file.
database = "sqlite:///posthouse.db"

# The From of emails that name no sender themselves.
sender = "Shop <orders@shop.example>"

# One table a provider account. This one is the local sandbox, which sends nothing: `posthouse sandbox`
[routes.main]
provider = "http"
url = "http://127.0.0.1:{SANDBOX_PORT}/v1/send"
auth = "none"                                # for a real provider: "bearer", and
# api_key = "env:MAIN_API_KEY"               # env:NAME or file:PATH
message_id = "id"                            # where its answer has the message's id
idempotency_header = "Idempotency-Key"       # only where the provider's documentation says so
look_up_url = "http://127.0.0.1:{SANDBOX_PORT}/v1/messages/by-key/{{id}}"
look_up_message_id = "id"
look_up_lag = "1s"                           # until then, that the provider doesn't know a message means nothing
health_url = "http://127.0.0.1:{SANDBOX_PORT}/v1/health"
timeout = "15s"                              # of a whole call; after it the outcome is unknown

# One table a message type. "default" always exists; this is where its settings would stand.
[types.default]

# Somebody is waiting for these, a late one is worthless, and a second one does no harm.
[types.one-time-code]
category = "security"                        # its content is deleted as soon as it is accepted
priority = "urgent"
max_age = "10m"
on_unknown = "resend"
unknown_wait = "30s"
"""


def init(call: Invocation) -> Answer:
    """Write a posthouse.toml for the sandbox, and create the tables.

    A file that is there already is never changed.
    """
    place = Path(call.config_path or os.environ.get("POSTHOUSE_CONFIG") or CONFIG_FILE)
    written = _write_starter(place)
    app = call.app
    reached = tables.migrate(app.database)
    option = f" --config {shlex.quote(str(call.config_path))}" if call.config_path else ""
    following = _following(option)
    document = {
        "config": str(place),
        "written": written,
        "database": app.config.database_shown,
        "version": reached,
        "next": [command for command, _ in following],
    }
    first = f"{place} is written." if written else f"{place} was there already and is unchanged."
    lines: list[Line] = [first, f"The tables are in {app.config.database_shown} (version {reached}).", "", "Next:"]
    return Answer(document, [*lines, *(line for step in following for line in (f"  {step[0]}", f"      {step[1]}"))])


def _write_starter(place: Path) -> bool:
    """Writes the file unless there is one; whether it did."""
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(STARTER)
    except FileExistsError:
        return False
    except OSError as error:
        raise ConfigError("", f"{place} can't be written: {error.strerror}") from None
    return True


def _following(option: str) -> list[tuple[str, str]]:
    return [
        ("posthouse sandbox", "a provider to try things with, in a terminal of its own"),
        (f"posthouse worker{option}", "sends what is due, in another one"),
        (f"posthouse send{option} --to ada@example.com --subject Hello --text Hi", "asks for an email"),
        (f"posthouse status{option}", "how it all stands"),
    ]


def migrate(call: Invocation) -> Answer:
    """Create the tables, or bring them to this release's shape.

    May be run at any time, also by several at once.
    """
    app = call.app
    before = tables.version(app.database)
    after = tables.migrate(app.database)
    document = {"database": app.config.database_shown, "before": before, "version": after}
    if before == after:
        return Answer(document, [f"The tables were at version {after} already."])
    return Answer(document, [f"The tables are at version {after} now{f' (before: {before})' if before else ''}."])
