"""`posthouse sandbox`: a provider that fails on request and catches mail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from posthouse.app import SandboxSettings, run_sandbox
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import duration_option
from posthouse.cli.output import Answer, Line
from posthouse.config import Secret
from posthouse.sandbox.api import SEND_PATH
from posthouse.sandbox.fault_text import FaultSettings, fault_text, parse_fault, read_faults_file

SANDBOX_PORT: Final = 8025


def sandbox(
    call: Invocation,
    host: Annotated[str, typer.Option(help="Where to listen. Its pages and its control API have no password.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any free one.")] = SANDBOX_PORT,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="What goes wrong, such as 503:share=0.2 or slow=8s:until=5m. May be given again."),
    ] = None,
    faults: Annotated[Path | None, typer.Option(help="A TOML or JSON file with faults.", metavar="FILE")] = None,
    seed: Annotated[int | None, typer.Option(help="Replays the chances of a run. Default: any.")] = None,
    idempotency: Annotated[bool, typer.Option("--idempotency/--no-idempotency", help="Honour idempotency keys.")] = (
        True
    ),
    look_up: Annotated[bool, typer.Option("--look-up/--no-look-up", help="Answer look-ups.")] = True,
    look_up_lag: Annotated[str, typer.Option(help="So long look-ups lie behind.", metavar="DURATION")] = "0s",
    api_key: Annotated[
        str | None, typer.Option(help="The bearer token that calls must carry: env:NAME, file:PATH or itself.")
    ] = None,
) -> None:
    """Run an email provider that sends nothing, and fails on request.

    It keeps the truth about what it accepted, and shows the mail in a browser. Ctrl-C ends it, and with it all that
    it keeps. Needs no configuration.
    """
    settings = SandboxSettings(
        host=host,
        port=port,
        faults=_faults(fault or [], faults, seed),
        api_key=None if api_key is None else Secret(api_key).reveal(),
        idempotency=idempotency,
        look_up=look_up,
        look_up_lag_s=duration_option(look_up_lag, "--look-up-lag"),
    )
    run_sandbox(settings, lambda url, drawn: call.output.show(_started(url, drawn, settings), one_line=True))


def _faults(texts: list[str], file: Path | None, seed: int | None) -> FaultSettings:
    """The command line's faults before the file's; the command line's seed instead of the file's."""
    read = FaultSettings() if file is None else read_faults_file(file)
    return FaultSettings((*map(parse_fault, texts), *read.faults), read.seed if seed is None else seed)


def _started(url: str, seed: int, settings: SandboxSettings) -> Answer:
    faults = [fault_text(fault) for fault in settings.faults.faults]
    lines: list[Line] = [f"Sandbox at {url}, seed {seed}. Ctrl-C ends it."]
    lines += [f"  mail caught   {url}/", f"  email API     {url}{SEND_PATH}", f"  truth         {url}/_sandbox/stats"]
    lines += [f"  fault         {text}" for text in faults] or ["  no faults     try --fault 503:share=0.2"]
    return Answer({"url": url, "seed": seed, "faults": faults}, lines)
