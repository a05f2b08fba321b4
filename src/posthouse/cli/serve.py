"""`posthouse serve`: takes in webhooks and unsubscriptions, until it is told to stop."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from posthouse.cli.invocation import Invocation
from posthouse.cli.logs import log_to_stderr
from posthouse.cli.long_run import run_to_the_end


def serve(
    call: Invocation,
    host: Annotated[
        str | None, typer.Option(help="Where to listen. Default: web.host of the configuration.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port; 0 for any free one. Default: web.port.", show_default=False),
    ] = None,
) -> None:
    """Take in what providers tell by webhooks, and who unsubscribes, until SIGTERM or Ctrl-C.

    It answers at /webhooks/ROUTE, /unsubscribe/TOKEN, /healthz and /readyz. Any number of these may run. Then it
    listens no longer, and answers what is under way within `web.shutdown_grace`. It logs to standard error; with --json
    one JSON object a line.
    """
    app = call.app
    log_to_stderr(as_json=call.output.as_json)
    run_to_the_end(call, partial(app.run_web, host, port), "server")
