"""`posthouse plan`: what an outage would leave behind, by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from posthouse.cli.failures import WrongUsage
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import duration, duration_option
from posthouse.cli.output import Answer, Json, Line, columns, count
from posthouse.core.forecast import Forecast, Plan, forecast, picture
from posthouse.setting_values import parse_rate
from posthouse.store.ledger import HOUR_S, Traffic

CHART_COLUMNS: Final = 60
CHART_LINES: Final = 8


def plan(
    call: Invocation,
    arrivals: Annotated[
        str | None, typer.Option(metavar="RATE", help="How many emails come: 100/min, 5000/hour.", show_default=False)
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(metavar="RATE", help="How many can be sent at most.", show_default=False)
    ] = None,
    outage: Annotated[str, typer.Option(metavar="DURATION", help="For how long nothing can be sent.")] = "0s",
    pending: Annotated[
        int | None, typer.Option(min=0, max=10**9, help="How many wait when it begins.", show_default="0")
    ] = None,
    max_age: Annotated[str, typer.Option(metavar="DURATION", help="The age with which an email expires.")] = "3d",
    from_database: Annotated[
        bool, typer.Option("--from-database", help="Take what isn't given from the traffic of the last day.")
    ] = False,
) -> Answer:
    """Show what an outage would leave behind: the backlog, how long it takes to drain, and what expires."""
    traffic = _traffic(call) if from_database else None
    given = Plan(
        arrivals=_arrivals(arrivals, traffic, pending),
        capacity=_capacity(capacity, traffic),
        outage_s=duration_option(outage, "--outage"),
        pending=pending if pending is not None else traffic.pending if traffic else 0,
        max_age_s=_above_zero(duration_option(max_age, "--max-age"), "--max-age"),
    )
    told = forecast(given)
    return Answer(_document(told), list(_lines(told, capacity_seen=capacity is None)))


def _traffic(call: Invocation) -> Traffic:
    ledger = call.app.store.ledger
    return ledger.traffic(ledger.now())


def _arrivals(text: str | None, traffic: Traffic | None, pending: int | None) -> float:
    if text is not None:
        return _rate(text, "--arrivals")
    if traffic is not None:
        return traffic.created / HOUR_S
    if pending:
        return 0.0
    raise WrongUsage("say how many emails come (--arrivals) or wait (--pending), or --from-database to look it up")


def _capacity(text: str | None, traffic: Traffic | None) -> float:
    if text is not None:
        return _rate(text, "--capacity")
    if traffic is None:
        raise WrongUsage("say how many emails can be sent (--capacity), or --from-database to look it up")
    if not traffic.accepted:
        raise WrongUsage("nothing was accepted within the last day: say how many emails can be sent (--capacity)")
    return traffic.accepted / 60.0


def _rate(text: str, option: str) -> float:
    try:
        number, per_s = parse_rate(text)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from None
    return number / per_s


def _above_zero(seconds: float, option: str) -> float:
    if not seconds:
        raise WrongUsage(f"{option}: must be above 0")
    return seconds


def _lines(told: Forecast, *, capacity_seen: bool) -> Iterator[Line]:
    given = told.plan
    spare = given.capacity - given.arrivals
    enough = f"{_a_minute(spare)} to spare" if spare > 0 else f"{_a_minute(-spare)} too little" if spare else "no spare"
    yield from columns(
        [
            ["Arrivals", _a_minute(given.arrivals)],
            ["Capacity", f"{_a_minute(given.capacity)}, {enough}"],
            *([["", "as in the busiest minute of the last day; more may be possible"]] if capacity_seen else []),
            ["Outage", duration(given.outage_s) if given.outage_s else "none"],
            ["Pending", f"{given.pending:,} when it begins" if given.outage_s else f"{given.pending:,}"],
        ]
    )
    yield ""
    yield from picture(told, CHART_COLUMNS, CHART_LINES, duration)
    yield ""
    yield from columns(
        [
            ["Backlog", f"{count(round(told.backlog), 'email')} {'when the outage ends' if given.outage_s else 'now'}"],
            ["Drained", "never" if told.drain_s is None else f"{duration(told.drain_s)} later"],
            ["Oldest", f"{duration(told.oldest_s)} when it is sent{' or expires' if told.expired else ''}"],
            ["Expired", _expired(told)],
        ]
    )


def _expired(told: Forecast) -> str:
    if told.expiry:
        return f"{_a_minute(told.expiry)} for ever, once they are {duration(told.plan.max_age_s)} old"
    return count(round(told.expired), "email") if round(told.expired) else "none"


def _a_minute(per_s: float) -> str:
    return f"{per_s * 60:,.4g}/min" if per_s * 60 < 1000 else f"{per_s * 60:,.0f}/min"


def _document(told: Forecast) -> Json:
    given = told.plan
    return {
        "arrivals_per_min": round(given.arrivals * 60, 3),
        "capacity_per_min": round(given.capacity * 60, 3),
        "outage_s": given.outage_s,
        "pending": given.pending,
        "max_age_s": given.max_age_s,
        "backlog": round(told.backlog),
        "drain_s": None if told.drain_s is None else round(told.drain_s, 3),
        "oldest_s": round(told.oldest_s, 3),
        "expired": None if math.isinf(told.expired) else round(told.expired),
        "expiring_per_min": round(told.expiry * 60, 3),
    }
