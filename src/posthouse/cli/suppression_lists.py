"""`posthouse suppressions pull` and `push`: what the provider's own list and ours have to tell each other."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from posthouse.address import fold
from posthouse.cli.failures import Exit
from posthouse.cli.invocation import Invocation
from posthouse.cli.output import Answer, Json, count
from posthouse.cli.progress import moving
from posthouse.cli.suppression_files import every
from posthouse.core.provider_lists import to_push
from posthouse.core.suppression import SuppressionCause
from posthouse.providers.suppression_lists import OpenLists
from posthouse.worker.suppression_lists import ListFailed, put_on_list, read_list

CHUNK: Final = 500
TOLD_MAX: Final = 20
"""So many refused addresses are told on a terminal; --json tells all."""

RouteOption = Annotated[str, typer.Option("--route", metavar="NAME", help="Whose provider's list.")]


def pull(call: Invocation, route: RouteOption) -> Answer:
    """Suppress here whom the provider's own list has. Whom a person has let go again since is left alone."""
    app, now = call.app, call.app.store.ledger.now()
    read = new = 0
    error = ""

    async def work(opened: OpenLists) -> None:
        nonlocal read, new
        async for listed in read_list(opened):
            for begin in range(0, len(listed), CHUNK):
                new += app.store.suppressions.pull(listed[begin : begin + CHUNK], route, now)
            read += len(listed)
            moved(read, read)

    with moving(f"list of {route}", quiet=call.output.as_json) as moved:
        try:
            app.with_lists(route, work)
        except ListFailed as failed:
            error = str(failed)
    app.store.operations.audit(call.who, "pull suppressions", route, f"{read:,} read, {new:,} new", now)
    document: Json = {"route": route, "read": read, "new": new, "error": error or None}
    lines = [f"{count(read, 'address', 'addresses')} read, {new:,} of them new."]
    return _answer(document, lines, error)


def push(
    call: Invocation,
    route: RouteOption,
    cause: Annotated[
        list[SuppressionCause] | None,
        typer.Option(
            help="Only these. Default: all that have a place there, but for unsubscriptions.", show_default=False
        ),
    ] = None,
) -> Answer:
    """Put on the provider's own list whom we have and it lacks. What has a scope or an end stays here."""
    app, now = call.app, call.app.store.ledger.now()
    taken: list[str] = []
    refused: dict[str, str] = {}
    error = ""

    async def work(opened: OpenLists) -> None:
        theirs = {fold(each.address) async for listed in read_list(opened) for each in listed}
        causes = opened.lists.pushes & set(cause or set(SuppressionCause) - {SuppressionCause.UNSUBSCRIBE})
        wanted = to_push(list(every(app.store.suppressions)), theirs, causes, now)
        moved(0, len(wanted))
        async for put in put_on_list(opened, wanted):
            taken.extend(put.taken)
            refused.update(put.refused)
            moved(len(taken) + len(refused), len(wanted))

    with moving(f"list of {route}", quiet=call.output.as_json) as moved:
        try:
            app.with_lists(route, work)
        except ListFailed as failed:
            error = str(failed)
    app.store.operations.audit(
        call.who, "push suppressions", route, f"{len(taken):,} taken, {len(refused):,} refused", now
    )
    document: Json = {"route": route, "taken": len(taken), "refused": refused, "error": error or None}
    lines = [f"{count(len(taken), 'address', 'addresses')} put on the list of {route}, {len(refused):,} refused."]
    lines += [f"{address}: {why}" for address, why in list(refused.items())[:TOLD_MAX]]
    return _answer(document, lines, error, failed=bool(refused))


def _answer(document: Json, lines: list[str], error: str, *, failed: bool = False) -> Answer:
    if error:
        lines.append(f"It ended there: {error}. Run it again to go on.")
    return Answer(document, [*lines], Exit.NOT_POSSIBLE if error or failed else Exit.OK)
