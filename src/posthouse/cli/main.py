"""The command `posthouse`: its commands put together, and every way of going wrong turned into an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final, NoReturn, cast

import typer
from typer.core import TyperGroup
from typer.main import get_group

from posthouse.cli.failures import Exit, Failure
from posthouse.cli.invocation import ByOption, ConfigOption, Everywhere, JsonOption, add_command, report
from posthouse.cli.output import Answer, Output

NAME: Final = "posthouse"

# The base of all errors in what was typed. Typer gives it no name of its own.
_TYPED_WRONG: Final = cast(type[Exception], typer.BadParameter.__mro__[1])


SET_UP, RUN, ACT, ASK = "Set up", "Run", "Act", "Ask"

MODULES: Final = {
    SET_UP: {"demo": "demo", "init": "init", "migrate": "init", "config": "config_check"},
    RUN: {"worker": "worker", "serve": "serve", "bounce": "bounce", "sandbox": "sandbox"},
    ACT: {
        "send": "send",
        "retry": "interventions",
        "cancel": "interventions",
        "resolve": "interventions",
        "reconcile": "reconcile",
        "pause": "pause",
        "resume": "pause",
        "suppress": "suppression",
        "unsuppress": "suppression",
        "route": "route",
    },
    ASK: {
        "status": "status",
        "find": "find",
        "show": "show",
        "groups": "groups",
        "faults": "groups",
        "plan": "plan",
        "suppressions": "suppression",
    },
}
"""The module of each command, which has it by its own name; in the panels and the order in which help shows them."""


class _Commands(Mapping[str, Any]):
    """The commands by name. A module is imported when its command is asked for: each needs much that others don't."""

    def __init__(self) -> None:
        self._places = {name: (panel, place) for panel, names in MODULES.items() for name, place in names.items()}

    def __getitem__(self, name: str) -> Any:
        panel, place = self._places[name]
        found = getattr(import_module(f"posthouse.cli.{place}"), name)
        if isinstance(found, typer.Typer):
            group = get_group(found)
            group.name, group.rich_help_panel = name, panel
            return group
        holder = typer.Typer()
        add_command(holder, found, panel=panel)
        return get_group(holder).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class _Posthouse(TyperGroup):
    """Ends in an exit code, and never in a traceback for what was typed."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = cast(dict[str, Any], _Commands())

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(given, prog_name=NAME, standalone_mode=False)
        except _TYPED_WRONG as error:
            code = report(_typed_wrong(error), as_json="--json" in given)
        except typer.Abort:
            code = Exit.INTERRUPTED
        sys.exit(code or Exit.OK)


def _typed_wrong(error: Exception) -> Failure:
    said = " ".join(cast(typer.BadParameter, error).format_message().split())
    context = getattr(error, "ctx", None)
    path = NAME if context is None else context.command_path
    return Failure(Exit.WRONG, said.rstrip(".") or "which command?", hint=f"{path} --help")


app = typer.Typer(
    name=NAME,
    cls=_Posthouse,
    help="Sends an application's email reliably.",
    no_args_is_help=False,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _everywhere(
    context: typer.Context,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    by: ByOption = None,
    show_version: Annotated[bool, typer.Option("--version", help="Tell the version.")] = False,
) -> None:
    """Sends an application's email reliably."""
    context.obj = Everywhere(config, as_json, by)
    if show_version:
        number = version(NAME)
        Output(as_json=as_json).show(Answer({"version": number}, [f"{NAME} {number}"]))
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(Exit.WRONG)


def main() -> None:
    """The entry point."""
    app()
