"""`posthouse pause` and `resume`: the kill switches."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from posthouse.app import App
from posthouse.cli.failures import WrongUsage
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import coming, duration, duration_option, iso
from posthouse.cli.output import Answer, Json, count
from posthouse.core.slowdown import LEFT_ALONE_S
from posthouse.core.switches import PACED_FOR_S, Scope, Switch, Switches

_NAME: Final = {"metavar": "NAME", "show_default": False}
TypeOption = Annotated[str | None, typer.Option("--type", help="A message type.", **_NAME)]
ServiceOption = Annotated[str | None, typer.Option("--service", help="What one service asked for.", **_NAME)]
CampaignOption = Annotated[str | None, typer.Option("--campaign", help="One campaign.", **_NAME)]
GroupOption = Annotated[str | None, typer.Option("--group", help="One mailbox group, such as gmail.", **_NAME)]
LaneOption = Annotated[str | None, typer.Option("--lane", help="One lane, as posthouse status names it.", **_NAME)]
AllOption = Annotated[bool, typer.Option("--all", help="Everything.")]


def pause(
    call: Invocation,
    type_: TypeOption = None,
    service: ServiceOption = None,
    campaign: CampaignOption = None,
    group: GroupOption = None,
    lane: LaneOption = None,
    everything: AllOption = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="A reason; whoever looks sees it.")] = "",
    for_: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="Resume by itself.")] = None,
) -> Answer:
    """Send nothing of this kind from now on; calls under way end. (A route is taken out with posthouse route close.)"""
    scope, value = _scope(type_, service, campaign, group, lane, everything)
    app, now = call.app, call.app.store.ledger.now()
    until = None if for_ is None else now + duration_option(for_, "--for")
    switch = Switch(scope, value, why, call.who, now, until)
    app.store.switches.pause(switch)
    waiting, lines = _waiting(app, switch, now)
    name = _named(scope, value)
    ends = "" if until is None else f", and resumes {coming(until, now)}"
    again = f"Resume with: posthouse resume {_option(scope, value)}"
    document: Json = {"scope": scope.value, "value": value, "until": iso(until), **waiting}
    return Answer(document, [f"{name} is paused{ends}.", *lines, again])


def resume(
    call: Invocation,
    type_: TypeOption = None,
    service: ServiceOption = None,
    campaign: CampaignOption = None,
    group: GroupOption = None,
    lane: LaneOption = None,
    everything: AllOption = False,
) -> Answer:
    """Send what was paused again, slowly at first; or end the slow-down of a mailbox group."""
    scope, value = _scope(type_, service, campaign, group, lane, everything)
    app, now = call.app, call.app.store.ledger.now()
    was_paused = app.store.switches.resume(scope, value, who=call.who, now=now)
    name = _named(scope, value)
    still = [row for row in app.store.group_health.slowdowns() if scope is Scope.GROUP and row.group == value]
    lines = [
        f"{name} is resumed; its mail comes back within {PACED_FOR_S:.0f} s, slowly at first."
        if was_paused
        else f"{name} is slowed no more, and is left alone for {duration(LEFT_ALONE_S)}.",
        *(f"Still, {row.words}. The same command again ends that too." for row in still),
    ]
    document: Json = {"scope": scope.value, "value": value, "resumed_at": iso(now), "was_paused": was_paused}
    return Answer(document, lines)


def _scope(
    type_: str | None,
    service: str | None,
    campaign: str | None,
    group: str | None,
    lane: str | None,
    everything: bool,
) -> tuple[Scope, str]:
    given = {
        Scope.TYPE: type_,
        Scope.SERVICE: service,
        Scope.CAMPAIGN: campaign,
        Scope.GROUP: group,
        Scope.LANE: lane,
        Scope.ALL: "" if everything else None,
    }
    chosen = [(scope, value) for scope, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise WrongUsage("say what with one of --type, --service, --campaign, --group, --lane and --all")
    return chosen[0]


def _named(scope: Scope, value: str) -> str:
    return "Everything" if scope is Scope.ALL else f"{scope.capitalize()} {value}"


def _option(scope: Scope, value: str) -> str:
    return f"--{scope} {value}".strip()


def _waiting(app: App, switch: Switch, now: float) -> tuple[Json, list[str]]:
    """What waits now, and when the first of it is over."""
    closed = Switches([switch])
    lanes = [depth.lane for depth in app.store.ledger.lanes(now) if closed.closing(depth.lane, now)]
    if not lanes:
        return {"pending": 0, "expiring": 0, "first_expires_at": None}, ["Nothing waits there now."]
    until = now + 86400.0 if switch.until is None else switch.until
    waiting = app.store.switches.waiting(lanes, until)
    document = {
        "pending": waiting.pending,
        "expiring": waiting.expiring,
        "first_expires_at": iso(waiting.first_expires_at),
    }
    lines = [f"{count(waiting.pending, 'send')} waiting there."]
    if waiting.first_expires_at is not None:
        span = "until then" if switch.until is not None else "within a day"
        first = coming(waiting.first_expires_at, now)
        lines.append(f"{waiting.expiring:,} of them expire {span} if nobody resumes, the first {first}.")
    return document, lines
