"""How the whole stands, gathered from the database; and what of it needs a person. Judging is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.app import App
from posthouse.cli.moments import coming, duration, iso
from posthouse.cli.output import Json, count
from posthouse.core.cap_policy import OUTBOX, Backlog, CapPolicy, Full, refused_words, setting_of
from posthouse.core.pace import Limit, LimitState
from posthouse.core.quotas import opens_at, used
from posthouse.core.routing import FOR_EVER, RouteHealth, RouteState
from posthouse.core.slowdown import Slowdown
from posthouse.core.switches import Switch
from posthouse.store.control import WorkerRow
from posthouse.store.ledger import LaneDepth
from posthouse.store.store import Store

RECENT_S: Final = 300.0
FULL_DO: Final = "see why so much waits: a held route, a pause, or too few workers"


@dataclass(frozen=True, slots=True)
class Whole:
    """One look at everything. Times are seconds since 1970 by the database's clock."""

    now: float
    counts: Mapping[str, int]  # by status: the open ones, and failed
    held: int  # unknown sends that only a person can move on
    lanes: Sequence[LaneDepth]
    routes: Mapping[str, RouteHealth]  # every configured route, and those that the table knows
    workers: Sequence[WorkerRow]
    switches: Sequence[Switch]  # what people keep closed now
    slowed: Sequence[Slowdown]  # mailbox groups
    outcomes: Mapping[str, int]  # of the last RECENT_S
    types: frozenset[str]  # configured here
    caps: CapPolicy
    quotas: Sequence[Limit]  # those that are configured
    limits: Mapping[str, LimitState]
    dead_after_s: float

    @property
    def due(self) -> int:
        """Pending sends whose time has come."""
        return sum(lane.due for lane in self.lanes)

    @property
    def backlog(self) -> Backlog:
        """What is pending, as the caps count it."""
        return self.caps.count((lane.lane, lane.pending) for lane in self.lanes)

    @property
    def oldest_due_s(self) -> float | None:
        """For how long the oldest due send has been due."""
        ages = [self.now - lane.oldest_due_at for lane in self.lanes if lane.oldest_due_at is not None]
        return max(ages, default=None)

    def is_alive(self, worker: WorkerRow) -> bool:
        """Whether it has said so lately."""
        return self.now - worker.heartbeat_at < self.dead_after_s


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that needs a person: a name that stays, the words, and what to do."""

    name: str
    text: str
    do: str


def look(app: App) -> Whole:
    """Reads everything once."""
    ledger, control = app.store.ledger, app.store.control
    now = ledger.now()
    known = {name: RouteHealth(name) for name in app.config.routes}
    return Whole(
        now=now,
        counts=ledger.open_counts(),
        held=ledger.held_unknown(),
        lanes=ledger.lanes(now),
        routes=known | control.route_health(),
        workers=control.workers(),
        switches=closed_now(app.store, now),
        slowed=app.store.group_health.slowdowns(),
        outcomes=ledger.recent_outcomes(now - RECENT_S),
        types=frozenset(app.policies),
        caps=app.caps,
        quotas=app.pace.quotas(now),
        limits={row.name: row.state for row in app.store.pacing.rows()},
        dead_after_s=app.config.worker.dead_after,
    )


def closed_now(store: Store, now: float) -> list[Switch]:
    """The kill switches that keep something closed."""
    return [row.switch for row in store.switches.rows() if row.resumed_at is None and row.switch.is_on(now)]


def slowdown_document(slowed: Slowdown) -> Json:
    """A slow-down for programs."""
    return {
        "group": slowed.group,
        "route": slowed.route,
        "per_minute": slowed.per_minute,
        "was_per_minute": slowed.was_per_minute,
        "signal": slowed.signal.value,
        "reason": slowed.reason,
        "since": iso(slowed.since),
        "changed_at": iso(slowed.changed_at),
    }


def switch_words(switch: Switch, now: float) -> str:
    """A kill switch in words."""
    what = f"{switch.scope} {switch.value}".strip()
    end = "" if switch.until is None else f", resumes {coming(switch.until, now)}"
    return f"{what} is paused by {switch.who}{end}" + (f": {switch.reason}" if switch.reason else "")


def problems(whole: Whole, oldest_s: float) -> list[Problem]:
    """What needs a person now. `oldest_s` is the age from which due mail is too old."""
    found = [*_worker_problems(whole), *_age_problems(whole, oldest_s)]
    for health in whole.routes.values():
        if health.state is RouteState.STOPPED:
            text = f"route {health.name} is stopped: {health.reason}"
            found.append(Problem("route_stopped", text, "mend its settings; it is tried again by itself"))
        elif health.is_tripped and not health.closed(whole.now):
            text = f"the provider of route {health.name} fails: {health.reason}"
            found.append(Problem("route_fails", text, "nothing, if it is theirs: it is tried again by itself"))
    found += [
        Problem("slowed", slowed.words, f"posthouse faults; posthouse resume --group {slowed.group} ends it")
        for slowed in whole.slowed
    ]
    found += [Problem("full", _full_words(full), FULL_DO) for full in whole.caps.full(whole.backlog)]
    if whole.held:
        text = f"{count(whole.held, 'send')} held: nobody knows whether they were accepted"
        found.append(Problem("held", text, "posthouse find --held, then posthouse resolve KEY"))
    return found


@dataclass(frozen=True, slots=True)
class CapUse:
    """One cap, and how far it is used."""

    setting: str
    max_pending: int
    pending: int


def cap_uses(whole: Whole) -> list[CapUse]:
    """Every configured cap."""
    backlog, caps = whole.backlog, whole.caps
    uses = [] if caps.outbox is None else [CapUse(OUTBOX, caps.outbox.count, backlog.total)]
    return uses + [
        CapUse(setting_of(type_), cap.count, backlog.types.get(type_, 0)) for type_, cap in caps.types.items()
    ]


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """One quota, how much of it is used, and when something fits again."""

    name: str
    count: int
    used: int
    opens_at: float  # now where something fits


def quota_uses(whole: Whole) -> list[QuotaUse]:
    """Every configured quota."""
    uses = []
    for limit in whole.quotas:
        if limit.quota is not None:
            parts = whole.limits.get(limit.name, LimitState()).parts
            opens = opens_at(parts, whole.now, limit.quota)
            uses.append(QuotaUse(limit.name, limit.quota.count, used(parts, whole.now, limit.quota), opens))
    return uses


def limit_words(limit: Limit, opens_at: float, now: float) -> str:
    """A limit that lets nothing start now, in words."""
    if limit.why:
        return f"{limit.why}; the next fits {coming(opens_at, now)}"
    what = "quota" if limit.quota is not None else "rate"
    return f"the {what} of {limit.name} is used up; the next fits {coming(opens_at, now)}"


def _full_words(full: Full) -> str:
    return f"{full.setting} is {full.cap.count:,}, {full.pending:,} sends are pending: {refused_words(full)} refused"


def _worker_problems(whole: Whole) -> list[Problem]:
    waiting = whole.due + whole.counts.get("sending", 0) + whole.counts.get("unknown", 0) - whole.held
    if not waiting:
        return []
    if not any(whole.is_alive(worker) for worker in whole.workers):
        return [Problem("no_worker", f"no worker is alive, and {count(waiting, 'send')} waiting", "posthouse worker")]
    return [_silent(worker, whole.now) for worker in whole.workers if not whole.is_alive(worker)]


def _silent(worker: WorkerRow, now: float) -> Problem:
    text = f"worker {worker.id} ({worker.host}:{worker.pid}) is silent for {duration(now - worker.heartbeat_at)}"
    return Problem("worker_silent", text, "look after it; what it had, others take over")


def _age_problems(whole: Whole, oldest_s: float) -> list[Problem]:
    if whole.oldest_due_s is None or whole.oldest_due_s <= oldest_s:
        return []
    text = f"the oldest due send has waited for {duration(whole.oldest_due_s)}"
    return [Problem("overdue", text, "see the routes and lanes above: a held route, or too few workers")]


def route_words(health: RouteHealth, now: float) -> str:
    """A route's health in words."""
    if health.state is RouteState.STOPPED:
        return f"stopped, tried again {_again(health, now)}: {health.reason}"
    if health.closed(now):
        for_ever = health.held_until >= FOR_EVER
        end = "until posthouse route open" if for_ever else f"opens {coming(health.held_until, now)}"
        return f"closed, {end}: {health.reason}"
    if health.is_tripped:
        return f"fails, tried again {_again(health, now)}: {health.reason}"
    if not health.takes(now):
        return f"held, opens {coming(health.held_until, now)}: {health.reason}"
    return "open"


def _again(health: RouteHealth, now: float) -> str:
    return "with the next send" if health.opens_at <= now else coming(health.opens_at, now)
