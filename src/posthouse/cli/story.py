"""The story of one send in words: what happened when, how it stands, what happens next. Pure: facts in, words out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from posthouse.address import fold
from posthouse.cli.moments import coming, duration
from posthouse.cli.standing import limit_words, route_words, switch_words
from posthouse.core.delivery import Delivery
from posthouse.core.events import Cause
from posthouse.core.lifecycle import TERMINAL, Status
from posthouse.core.outcome import Found
from posthouse.core.pace import Limit
from posthouse.core.policy import RouteFacts, TypePolicy
from posthouse.core.reconcile import Resolver, plan
from posthouse.core.routing import RouteHealth
from posthouse.core.sends import CALLS, SendState, Via
from posthouse.core.suppression import remedy
from posthouse.core.switches import Switch
from posthouse.store.ledger import Story

SHOWN_ALIKE: Final = 2
"""Of a long run of equal entries, so many are told at its beginning and at its end."""

IT_IS: Final = {
    Delivery.NONE: "the provider has it",
    Delivery.DEFERRED: "the provider has it, and goes on trying",
    Delivery.DELIVERED: "the receiver has it",
    Delivery.BOUNCED: "it did not arrive, or came back",
    Delivery.COMPLAINED: "it arrived, and was called spam",
}

LIMITED_S: Final = 1.0
"""What a limit lets start sooner need not be told."""

LOOK_UP_WORDS: Final = {
    f"look_up_{Found.ACCEPTED}": "it has it",
    f"look_up_{Found.MISSING}": "not found there",
    f"look_up_{Found.UNSURE}": "no clear answer",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the time-line, with what was said beneath it."""

    at: float
    what: str
    outcome: str = ""
    took_s: float | None = None
    said: tuple[str, ...] = ()
    raw: str | None = None
    kind: str = ""  # entries of one kind that follow each other can be told as one

    @property
    def alike(self) -> tuple[object, ...]:
        """What entries have in common that tell the same."""
        return (self.kind or self.what, self.outcome, self.said)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides about the next step besides the send itself."""

    now: float
    policy: TypePolicy | None  # None: its type is not configured here
    facts: Mapping[str, RouteFacts]
    health: Mapping[str, RouteHealth]
    workers_alive: Collection[int]
    closed_by: Switch | None = None  # the kill switch that keeps its lane closed
    limited_by: tuple[Limit, float] | None = None  # a limit that lets nothing of its lane start, and until when


@dataclass(frozen=True, slots=True)
class NextStep:
    """What happens next, and the commands with which a person can act."""

    text: str
    commands: tuple[str, ...] = ()


def timeline(story: Story) -> list[Entry]:
    """Everything that happened, in its order."""
    send = story.send
    calls = iter(range(1, len(story.attempts) + 1))
    entries = [Entry(send["created_at"], "asked for", said=_asked_for(send))]
    entries += [_attempt(row, next(calls) if row["via"] in CALLS else 0) for row in story.attempts]
    recipients = [fold(each) for each in json.loads(send["recipients"])]
    entries += [_event(row, "" if [row["recipient"]] == recipients else row["recipient"]) for row in story.events]
    entries += [_intervention(row) for row in story.audit]
    entries.sort(key=lambda entry: entry.at)
    if (status := Status(send["status"])) in TERMINAL - {Status.ACCEPTED}:
        entries.append(Entry(send["updated_at"], status.value, said=_words(send["last_error"])))
    return entries


def _asked_for(send: Mapping[str, Any]) -> tuple[str, ...]:
    parts = []
    if send["service"]:
        parts.append(f"by {send['service']}")
    if send["after_key"]:
        parts.append(f"to go out after {send['after_key']}")
    return _words(", ".join(parts))


def _attempt(row: Mapping[str, Any], number: int) -> Entry:
    via, route = Via(row["via"]), row["route"]
    if via is Via.REAPER:
        return Entry(row["ended_at"], f"attempt {number}: its worker died", row["outcome"], said=_words(row["text"]))
    took_s = row["ended_at"] - row["started_at"]
    kind = f"{via} {route}"
    if via is Via.LOOK_UP:
        outcome = LOOK_UP_WORDS.get(row["code"], row["code"])
        return Entry(row["started_at"], f"asked {route}", outcome, took_s, _said(row), row["raw"], kind)
    if via is Via.EVENT:
        return Entry(row["ended_at"], f"so {route} has it", row["outcome"])
    what = f"attempt {number} on {route}" + (", same key" if via is Via.REPLAY else "")
    outcome = f"{row['outcome']} {row['code']}".rstrip()
    return Entry(row["started_at"], what, outcome, took_s, _said(row), row["raw"], kind)


def _event(row: Mapping[str, Any], recipient: str) -> Entry:
    """What was heard; `recipient` where it is not clear whom it is about."""
    cause = "" if row["cause"] == Cause.OTHER else row["cause"].replace("_", " ")
    why = ", ".join(filter(None, [cause, "for good" if row["hard"] else ""]))
    said = (f"to {recipient}" if recipient else "", why, row["text"], row["url"])
    what = f"heard from {row['route']}"
    return Entry(row["at"], what, f"{row['kind']} {row['code']}".rstrip(), said=tuple(filter(None, said)))


def folded(entries: Sequence[Entry]) -> list[Entry]:
    """The time-line with long runs of the same told shortly: an outage of a day is hundreds of equal attempts."""
    told: list[Entry] = []
    for _, run in groupby(entries, key=lambda entry: entry.alike):
        same = list(run)
        left_out = same[SHOWN_ALIKE:-SHOWN_ALIKE]
        if len(left_out) < 2:
            told += same
            continue
        told += same[:SHOWN_ALIKE]
        told.append(Entry(left_out[0].at, f"… {len(left_out):,} more alike"))
        told += same[-SHOWN_ALIKE:]
    return told


def _said(row: Mapping[str, Any]) -> tuple[str, ...]:
    named = {"message id": row["message_id"], "request id": row["request_id"]}
    return _words(row["text"]) + tuple(f"{name} {value}" for name, value in named.items() if value)


def _intervention(row: Mapping[str, Any]) -> Entry:
    return Entry(row["at"], f"{row['who']}: {row['action']}", said=_words(row["detail"]))


def _words(text: str | None) -> tuple[str, ...]:
    return (text,) if text else ()


def standing(story: Story) -> str:
    """How it stands, in a few words."""
    send, status = story.send, Status(story.send["status"])
    if status is Status.UNKNOWN and is_held(send):
        return "unknown, held for a person"
    if status is Status.ACCEPTED:
        by = f" by {send['route']}" if send["route"] else ""
        heard = "" if send["delivery"] == Delivery.NONE else f", {send['delivery']}"
        return f"accepted{by}{heard}"
    if story.carrier is not None:
        return f"combined with {story.carrier['dedupe_key']}, {story.carrier['status']}"
    return status.value


def is_held(send: Mapping[str, Any]) -> bool:
    """Whether nothing but a person moves it on."""
    return send["status"] == Status.UNKNOWN and send["next_try_at"] is None


def next_step(story: Story, around: Surroundings) -> NextStep:
    """What happens next and when, in words."""
    status = Status(story.send["status"])
    if status is Status.PENDING:
        return _next_of_pending(story, around)
    if status is Status.UNKNOWN:
        return _next_of_unknown(story, around)
    if status is Status.SENDING:
        return _next_of_sending(story, around)
    if status is Status.WAITING:
        after = story.send["after_key"]
        return NextStep(f"it goes out once {after} is accepted", (command("show", after),))
    return _next_of_ended(story, status)


def _next_of_pending(story: Story, around: Surroundings) -> NextStep:
    send, now = story.send, around.now
    if around.policy is None:
        return NextStep(f"its type {send['type']} is not configured here: a worker that knows it has to send it")
    if not around.policy.routes:
        return NextStep("its type has no route, so nothing can send it; configure one", ("posthouse config check",))
    if (switch := around.closed_by) is not None:
        option = f"--{switch.scope} {switch.value}".strip()
        return NextStep(f"it waits: {switch_words(switch, now)}", (f"posthouse resume {option}",))
    routes = _possible_routes(story.state, around.policy)
    if not routes:
        text = f"its type no longer uses {send['route']}, which may have accepted it; it waits until it expires"
        return NextStep(text, (command("cancel", send["dedupe_key"]),))
    closed = [around.health[name] for name in routes if name in around.health and not around.health[name].takes(now)]
    if len(closed) == len(routes):
        first = min(closed, key=lambda health: health.opens_at)
        return NextStep(f"{first.name} is not in use: {route_words(first, now)}")
    if around.limited_by is not None and around.limited_by[1] > max(send["next_try_at"], now + LIMITED_S):
        return NextStep(limit_words(*around.limited_by, now))
    later = f"attempt {send['attempts'] + 1} {coming(send['next_try_at'], now)}" if send["next_try_at"] > now else ""
    if not around.workers_alive:
        missing = f"{later}, but no worker is running" if later else "it waits for a worker, and none is running"
        return NextStep(missing, ("posthouse worker",))
    return NextStep(later or "it is due now; a worker takes it as soon as it has a free slot")


def _possible_routes(send: SendState, policy: TypePolicy) -> tuple[str, ...]:
    """The type's routes; for a send with an unknown outcome, the one that knows it, if its type still has it."""
    if send.unresolved and not policy.unknown_may_change_route:
        return tuple(name for name in policy.routes if name == send.route)
    return policy.routes


def _next_of_unknown(story: Story, around: Surroundings) -> NextStep:
    send, now = story.send, around.now
    key = send["dedupe_key"]
    if is_held(send):
        return NextStep(
            "a person decides; find out from the provider, then say so",
            tuple(command("resolve", key, option) for option in ("--accepted", "--failed", "--resend")),
        )
    if around.policy is None:
        return NextStep(f"its type {send['type']} is not configured here: a worker that knows it has to find out")
    if not around.workers_alive:
        return NextStep("it waits for a worker to find out, and none is running", ("posthouse worker",))
    at = max(send["next_try_at"], now)
    planned = plan(story.state, around.facts.get(send["route"] or ""), around.policy, at)
    when = "now" if at <= now else coming(at, now)
    words = {
        Resolver.REPLAY: f"{send['route']} is called again under the same key, which can make no second copy, {when}",
        Resolver.LOOK_UP: f"{send['route']} is asked whether it has it, {when}",
        Resolver.WAIT: f"it is looked at again {when}",
        Resolver.RESEND: f"it is sent again, marked as a possible duplicate, {when}",
        Resolver.HOLD: f"it is held for a person {when}",
    }
    return NextStep(words[planned.resolver], (command("reconcile", key),))


def _next_of_sending(story: Story, around: Surroundings) -> NextStep:
    worker = story.send["claimed_by"]
    if worker in around.workers_alive:
        return NextStep(f"worker {worker} has it; a call may be under way")
    if around.workers_alive:
        return NextStep(f"its worker {worker} is silent; another one takes it over as unknown")
    text = f"its worker {worker} is silent and no other is running; the next one takes it over as unknown"
    return NextStep(text, ("posthouse worker",))


def _next_of_ended(story: Story, status: Status) -> NextStep:
    key = story.send["dedupe_key"]
    if status is Status.COMBINED:
        return _next_of_combined(story)
    if status is Status.ACCEPTED:
        return NextStep(f"nothing; {IT_IS[Delivery(story.send['delivery'])]}")
    if status is Status.SUPPRESSED:
        return _next_of_suppressed(story)
    if story.body is None:
        return NextStep("nothing; its content is no longer kept, so it can't be sent again")
    return NextStep("nothing by itself; it can be given another life", (command("retry", key),))


def _next_of_suppressed(story: Story) -> NextStep:
    recipients = json.loads(story.send["recipients"])
    return NextStep("nothing; its recipient must not get it", tuple(map(remedy, recipients)))


def _next_of_combined(story: Story) -> NextStep:
    if story.carrier is None:
        return NextStep("nothing; the email that it went out in is no longer kept")
    carrier = story.carrier["dedupe_key"]
    return NextStep(f"nothing of its own; what becomes of {carrier} becomes of it", (command("show", carrier),))


def command(name: str, key: str, *options: str) -> str:
    """A command as it can be pasted into a shell."""
    return " ".join(["posthouse", name, shlex.quote(key), *options])


def expiry(send: Mapping[str, Any], now: float) -> str:
    """When an open send ends by itself; empty for one that has ended."""
    if Status(send["status"]) in TERMINAL:
        return ""
    at = send["expires_at"]
    return f"expires {coming(at, now)}" if at > now else f"expired {duration(now - at)} ago"
