"""What every command is given, and the options that every command has."""

from __future__ import annotations

import getpass
import inspect
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from posthouse.app import App, read_config
from posthouse.cli.failures import Failure, WrongUsage, failure_of
from posthouse.cli.output import Answer, Output
from posthouse.errors import PosthouseError

_PANEL: Final = "Every command has"

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration. Default: $POSTHOUSE_CONFIG, else posthouse.toml here.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.", rich_help_panel=_PANEL)]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Who you are, for the audit. Default: your user name and this machine's.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The options that may stand before the command or after it."""

    config: Path | None = None
    as_json: bool = False
    by: str | None = None

    def overridden(self, after: Everywhere) -> Everywhere:
        """These, where nothing else stands after the command."""
        return Everywhere(after.config or self.config, after.as_json or self.as_json, after.by or self.by)


class Invocation:
    """One run of one command."""

    def __init__(self, options: Everywhere) -> None:
        self.config_path = options.config
        self.output = Output(as_json=options.as_json)
        self._by = options.by

    @cached_property
    def app(self) -> App:
        """The composition root over the configuration. Raises ConfigError."""
        return App(read_config(self.config_path))

    def close(self) -> None:
        """Lets go of what the command has opened."""
        if "app" in vars(self):
            self.app.close()

    @property
    def who(self) -> str:
        """Who acts, as the audit names them."""
        return self._by or f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number that has no name
        return f"uid-{os.getuid()}"


Command = Callable[..., Answer | None]
"""Takes an Invocation and its own options; what it returns is shown."""


def add_command(group: typer.Typer, command: Command, name: str | None = None, panel: str | None = None) -> None:
    """Makes a function a command: its parameters after the Invocation become its own arguments and options."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    def run(
        context: typer.Context,
        config: ConfigOption = None,
        as_json: JsonOption = False,
        by: ByOption = None,
        **given: Any,
    ) -> int:
        before = context.obj if isinstance(context.obj, Everywhere) else Everywhere()
        return _run(command, before.overridden(Everywhere(config, as_json, by)), given, context.command_path)

    shared = list(inspect.signature(run, eval_str=True).parameters.values())[:-1]
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared[1:])]
    run.__signature__ = inspect.Signature([shared[0], *keywords])  # type: ignore[attr-defined]
    run.__doc__ = command.__doc__
    group.command(name or command.__name__, rich_help_panel=panel)(run)


def _run(command: Command, options: Everywhere, given: dict[str, Any], path: str) -> int:
    """Runs a command to its answer, or to the words for what went wrong; its exit code."""
    invocation = Invocation(options)
    try:
        answer = command(invocation, **given)
    except WrongUsage as error:
        return report(replace(failure_of(error), hint=f"{path} --help"), as_json=options.as_json)
    except PosthouseError as error:
        return report(failure_of(error), as_json=options.as_json)
    finally:
        invocation.close()
    if answer is None:
        return 0
    invocation.output.show(answer)
    return answer.exit_code


def report(failure: Failure, *, as_json: bool) -> int:
    """Tells what went wrong, and returns the exit code for it."""
    if as_json:
        Output(as_json=True).show(Answer(failure.document))
    else:
        print(*failure.lines, sep="\n", file=sys.stderr)
    return failure.exit_code
