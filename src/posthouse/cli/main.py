"""The command `posthouse`: its commands put together, and every way of going wrong turned into an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any, Final, NoReturn, cast

import typer
from typer.core import TyperGroup

from posthouse.cli import (
    bounce,
    config_check,
    demo,
    find,
    init,
    interventions,
    pause,
    plan,
    reconcile,
    route,
    sandbox,
    send,
    show,
    status,
    worker,
)
from posthouse.cli.failures import Exit, Failure
from posthouse.cli.invocation import ByOption, ConfigOption, Everywhere, JsonOption, add_command, report
from posthouse.cli.output import Answer, Output

NAME: Final = "posthouse"

# The base of all errors in what was typed. Typer gives it no name of its own.
_TYPED_WRONG: Final = cast(type[Exception], typer.BadParameter.__mro__[1])


class _Posthouse(TyperGroup):
    """Ends in an exit code, and never in a traceback for what was typed."""

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


SET_UP, RUN, ASK, ACT = "Set up", "Run", "Ask", "Act"

configuration = typer.Typer(no_args_is_help=True, help="The configuration.")
app.add_typer(configuration, name="config", rich_help_panel=SET_UP)

routes = typer.Typer(no_args_is_help=True, help="Take a route out of use, and back.")
app.add_typer(routes, name="route", rich_help_panel=ACT)

add_command(app, demo.demo, panel=SET_UP)
add_command(app, init.init, panel=SET_UP)
add_command(app, init.migrate, panel=SET_UP)
add_command(configuration, config_check.check)
add_command(app, worker.worker, panel=RUN)
add_command(app, sandbox.sandbox, panel=RUN)
add_command(app, send.send, panel=ACT)
add_command(app, status.status, panel=ASK)
add_command(app, find.find, panel=ASK)
add_command(app, show.show, panel=ASK)
add_command(app, plan.plan, panel=ASK)
add_command(app, interventions.retry, panel=ACT)
add_command(app, interventions.cancel, panel=ACT)
add_command(app, interventions.resolve, panel=ACT)
add_command(app, bounce.bounce, panel=RUN)
add_command(app, reconcile.reconcile, panel=ACT)
add_command(app, pause.pause, panel=ACT)
add_command(app, pause.resume, panel=ACT)
add_command(routes, route.close)
add_command(routes, route.open_, name="open")


def main() -> None:
    """The entry point."""
    app()
