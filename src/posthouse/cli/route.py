"""`posthouse route close` and `open`: a person takes a route out of use, and back."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from posthouse.app import App
from posthouse.cli.failures import WrongUsage
from posthouse.cli.invocation import Invocation, add_command
from posthouse.cli.moments import coming, duration_option, iso
from posthouse.cli.output import Answer, count
from posthouse.core.routing import FOR_EVER, RouteHealth, RouteState

Name = Annotated[str, typer.Argument(help="The route.", metavar="ROUTE", show_default=False)]


def close(
    call: Invocation,
    route: Name,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="A reason; whoever looks sees it.")] = "",
    for_: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="Open it again by itself.")] = None,
) -> Answer:
    """Take a route out of use: its mail goes by the next one, or waits. Calls under way end."""
    app, now = call.app, call.app.store.ledger.now()
    _known(app, route)
    until = FOR_EVER if for_ is None else now + duration_option(for_, "--for")
    reason = f"{call.who}: {why}" if why else f"by {call.who}"
    closed = RouteHealth(route, RouteState.CLOSED, until, reason)
    app.store.operations.change_route(closed, who=call.who, action="close route", detail=why, now=now)
    left = [name for name, policy in app.policies.items() if policy.routes == (route,) and name in app.config.types]
    lines = [f"Route {route} is closed" + ("." if for_ is None else f", and opens {coming(until, now)}.")]
    if left:
        lines.append(f"Mail of {count(len(left), 'type')} has no other route and waits: {', '.join(left)}.")
    lines.append(f"Open it with: posthouse route open {route}")
    until_shown = None if for_ is None else iso(until)
    return Answer({"route": route, "state": "closed", "until": until_shown, "waiting_types": left}, lines)


def open_(call: Invocation, route: Name) -> Answer:
    """Put a route into use at once, whatever held it: a person, throttling, a fault in its settings."""
    app, now = call.app, call.app.store.ledger.now()
    _known(app, route)
    app.store.operations.change_route(RouteHealth(route), who=call.who, action="open route", detail="", now=now)
    return Answer({"route": route, "state": "open"}, [f"Route {route} is open."])


def _known(app: App, route: str) -> None:
    if route not in app.config.routes:
        near = difflib.get_close_matches(route, app.config.routes, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(app.config.routes) or 'none'}"
        raise WrongUsage(f"there is no route {route!r}; {hint}")


route = typer.Typer(no_args_is_help=True, help="Take a route out of use, and back.")
add_command(route, close)
add_command(route, open_, name="open")
