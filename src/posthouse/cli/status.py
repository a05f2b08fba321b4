"""`posthouse status`: how the whole stands, and whether somebody has to act."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from posthouse.cli.failures import Exit
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import coming, duration, duration_option, iso, local
from posthouse.cli.output import Answer, Json, Line, columns, count, styled
from posthouse.cli.standing import (
    RECENT_S,
    Problem,
    Whole,
    cap_uses,
    look,
    problems,
    quota_uses,
    route_words,
    slowdown_document,
    switch_words,
)
from posthouse.core.lanes import type_of
from posthouse.core.routing import FOR_EVER, RouteHealth, RouteState
from posthouse.core.switches import Switch
from posthouse.store.control import WorkerRow
from posthouse.store.ledger import LaneDepth


def status(
    call: Invocation,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 when something needs a person.")] = False,
    oldest: Annotated[str, typer.Option(help="Due mail older than this needs a person.", metavar="DURATION")] = "5m",
) -> Answer:
    """Show how everything stands, and what needs a person."""
    oldest_s = duration_option(oldest, "--oldest")
    app = call.app
    whole = look(app)
    found = problems(whole, oldest_s)
    shown = app.config.database_shown
    exit_code = Exit.NOT_POSSIBLE if check and found else Exit.OK
    return Answer(_document(whole, found, shown), _lines(whole, found, shown), exit_code)


def _lines(whole: Whole, found: Sequence[Problem], database: str) -> Iterator[Line]:
    yield f"{database}, {local(whole.now)}"
    yield ""
    yield from columns(
        [
            ["Sends", _sends(whole)],
            ["", _not_accepted(whole)],
            *_labelled("Workers", _workers(whole)),
            *_labelled("Routes", [_route_line(h, whole.now) for h in whole.routes.values()]),
            *_labelled("Paused", [switch_words(switch, whole.now) for switch in whole.switches]),
            *(_labelled("Slowed", [slowed.words for slowed in whole.slowed]) if whole.slowed else []),
            *(_labelled("Caps", _caps(whole)) if whole.caps else []),
            *(_labelled("Quotas", _quotas(whole)) if whole.quotas else []),
            [f"Last {duration(RECENT_S)}", _outcomes(whole)],
        ]
    )
    if whole.lanes:
        yield ""
        yield from columns([["LANE", "DUE", "LATER", "OLDEST DUE"], *(_lane(lane, whole) for lane in whole.lanes)])
    yield ""
    yield from _problem_lines(found)


def _sends(whole: Whole) -> str:
    counts = whole.counts
    due = f"{whole.due:,} due" + (f", the oldest for {duration(whole.oldest_due_s)}" if whole.oldest_due_s else "")
    return (
        f"{counts['pending']:,} pending ({due}), {counts['waiting']:,} waiting for another, "
        f"{counts['sending']:,} being sent"
    )


def _not_accepted(whole: Whole) -> str:
    return f"{whole.counts['unknown']:,} unknown ({whole.held:,} held for a person), {whole.counts['failed']:,} failed"


def _labelled(label: str, values: Sequence[Line]) -> list[list[Line]]:
    return [[label if place == 0 else "", value] for place, value in enumerate(values or ["none"])]


def _workers(whole: Whole) -> list[Line]:
    lines: list[Line] = []
    for worker in whole.workers:
        who = f"{worker.id} on {worker.host}, pid {worker.pid}, version {worker.version}"
        if whole.is_alive(worker):
            lines.append(f"{who}: at work for {duration(whole.now - worker.started_at)}")
        else:
            lines.append(styled(f"{who}: silent for {duration(whole.now - worker.heartbeat_at)}", "red"))
    return lines


def _route_line(health: RouteHealth, now: float) -> str:
    at = health.last_accepted_at
    accepted = "" if at is None else f"; accepted mail {duration(now - at)} ago"
    return f"{health.name}: {route_words(health, now)}{accepted}"


def _outcomes(whole: Whole) -> str:
    return ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(whole.outcomes.items())) or "no calls"


def _caps(whole: Whole) -> list[Line]:
    return [f"{use.setting}: {use.pending:,} of {use.max_pending:,} pending" for use in cap_uses(whole)]


def _quotas(whole: Whole) -> list[Line]:
    return [
        f"{use.name}: {use.used:,} of {use.count:,} used"
        + ("" if use.opens_at <= whole.now else f"; the next fits {coming(use.opens_at, whole.now)}")
        for use in quota_uses(whole)
    ]


def _lane(lane: LaneDepth, whole: Whole) -> list[Line]:
    age = "" if lane.oldest_due_at is None else duration(whole.now - lane.oldest_due_at)
    known = type_of(lane.lane) in whole.types
    note = "" if known else " (not configured here)"
    return [lane.lane + note, f"{lane.due:,}", f"{lane.pending - lane.due:,}", age]


def _problem_lines(found: Sequence[Problem]) -> Iterator[Line]:
    if not found:
        yield styled("Nothing needs a person.", "green")
        return
    yield styled(f"{count(len(found), 'thing')} for a person to look at:", "bold yellow")
    for problem in found:
        yield f"  {problem.text}"
        yield styled(f"    {problem.do}", "dim")


def _document(whole: Whole, found: Sequence[Problem], database: str) -> Json:
    oldest_s = whole.oldest_due_s
    return {
        "at": iso(whole.now),
        "database": database,
        "sends": {**whole.counts, "due": whole.due, "held": whole.held},
        "oldest_due_s": None if oldest_s is None else round(oldest_s, 3),
        "workers": [_worker_document(worker, whole) for worker in whole.workers],
        "routes": [_route_document(health, whole.now) for health in whole.routes.values()],
        "switches": [_switch_document(switch) for switch in whole.switches],
        "slowed": [slowdown_document(slowed) for slowed in whole.slowed],
        "caps": [
            {"setting": use.setting, "max_pending": use.max_pending, "pending": use.pending} for use in cap_uses(whole)
        ],
        "quotas": [
            {"name": use.name, "count": use.count, "used": use.used, "opens_at": iso(use.opens_at)}
            for use in quota_uses(whole)
        ],
        "lanes": [_lane_document(lane, whole) for lane in whole.lanes],
        "outcomes": {"since": iso(whole.now - RECENT_S), **whole.outcomes},
        "problems": [{"name": p.name, "text": p.text, "do": p.do} for p in found],
    }


def _worker_document(worker: WorkerRow, whole: Whole) -> Json:
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "alive": whole.is_alive(worker),
        "started_at": iso(worker.started_at),
        "heartbeat_at": iso(worker.heartbeat_at),
    }


def _route_document(health: RouteHealth, now: float) -> Json:
    held = not health.takes(now)
    return {
        "name": health.name,
        "state": _state(health, now),
        "held_until": iso(health.held_until) if held and health.held_until < FOR_EVER else None,
        "reason": health.reason,
        "last_accepted_at": iso(health.last_accepted_at),
    }


def _state(health: RouteHealth, now: float) -> str:
    if health.state is RouteState.STOPPED:
        return "stopped"
    if health.closed(now):
        return "closed"
    return "open" if health.takes(now) else "held"


def _switch_document(switch: Switch) -> Json:
    return {
        "scope": switch.scope.value,
        "value": switch.value,
        "reason": switch.reason,
        "who": switch.who,
        "since": iso(switch.since),
        "until": iso(switch.until),
    }


def _lane_document(lane: LaneDepth, whole: Whole) -> Json:
    return {
        "lane": lane.lane,
        "pending": lane.pending,
        "due": lane.due,
        "oldest_due_at": iso(lane.oldest_due_at),
        "configured": type_of(lane.lane) in whole.types,
    }
