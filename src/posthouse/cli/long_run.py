"""How a command that runs until it is told to stop ends."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from posthouse.cli.failures import Exit
from posthouse.cli.invocation import Invocation
from posthouse.cli.output import Answer
from posthouse.errors import PosthouseError

log = logging.getLogger("posthouse.cli")


def run_to_the_end(call: Invocation, run: Callable[[], None], what: str) -> NoReturn:
    """Runs it and ends the process with the code for how it ended.

    A thread may still be waiting for a database that hangs, and Python would wait for that thread: so this leaves
    without it, once everything that was said has been written. Whatever could be settled has been.
    """
    code = Exit.OK
    try:
        run()
        call.output.show(Answer({what: "left"}), one_line=True)
    except PosthouseError:
        raise  # before any thread was started, or after all have ended: told as in every command
    except BaseException:
        log.exception("the %s ended by a fault", what)
        code = Exit.FAULT
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
