"""`posthouse worker`: sends what is due, until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, NoReturn

import typer

from posthouse.cli.failures import Exit
from posthouse.cli.invocation import Invocation
from posthouse.cli.logs import log_to_stderr
from posthouse.cli.output import Answer
from posthouse.errors import PosthouseError

log = logging.getLogger("posthouse.cli")


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
    run_to_the_end(call, run)


def _command(call: Invocation) -> list[str]:
    """How each of several processes is started; what the environment says, they inherit."""
    command = [sys.executable, "-m", "posthouse", "worker"]
    if call.config_path is not None:
        command += ["--config", str(call.config_path)]
    return [*command, "--json"] if call.output.as_json else command


def run_to_the_end(call: Invocation, run: Callable[[], None]) -> NoReturn:
    """Runs it and ends the process with the code for how it ended.

    A thread may still be waiting for a database that hangs, and Python would wait for that thread: so this leaves
    without it, once everything that was said has been written. Whatever could be settled has been.
    """
    code = Exit.OK
    try:
        run()
        call.output.show(Answer({"worker": "left"}), one_line=True)
    except PosthouseError:
        raise  # before any thread was started, or after all have ended: told as in every command
    except BaseException:
        log.exception("the worker ended by a fault")
        code = Exit.FAULT
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
