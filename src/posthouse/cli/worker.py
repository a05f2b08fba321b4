"""`posthouse worker`: sends what is due, until it is told to stop."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from posthouse.cli.invocation import Invocation
from posthouse.cli.logs import log_to_stderr
from posthouse.cli.long_run import run_to_the_end


def worker(
    call: Invocation,
    processes: Annotated[int, typer.Option(min=1, max=256, help="So many worker processes under this one.")] = 1,
) -> None:
    """Send what is due, until SIGTERM or Ctrl-C.

    Then it claims nothing more, lets the calls under way end, writes their results and leaves, all within
    `worker.shutdown_grace`. It logs to standard error; with --json one JSON object a line.
    """
    app = call.app
    log_to_stderr(as_json=call.output.as_json)
    run = app.run_worker if processes == 1 else partial(app.run_worker_processes, processes, _command(call))
    run_to_the_end(call, run, "worker")


def _command(call: Invocation) -> list[str]:
    """How each of several processes is started; what the environment says, they inherit."""
    command = [sys.executable, "-m", "posthouse", "worker"]
    if call.config_path is not None:
        command += ["--config", str(call.config_path)]
    return [*command, "--json"] if call.output.as_json else command
