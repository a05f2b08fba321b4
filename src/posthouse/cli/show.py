"""`posthouse show`: one send, from the moment it was asked for to what happens next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from posthouse.app import App
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import iso
from posthouse.cli.output import Answer, Json, Line, size, styled
from posthouse.cli.standing import closed_now
from posthouse.cli.story import NextStep, Surroundings, folded, is_held, next_step, timeline
from posthouse.cli.story_lines import heading_lines, standing_lines, time_lines
from posthouse.content import Content, StoredFile
from posthouse.core.pace import Limit, in_the_way
from posthouse.core.policy import Category, TypePolicy
from posthouse.core.routing import RouteHealth, route_plan
from posthouse.core.slowdown import Slowdowns
from posthouse.core.switches import Switches
from posthouse.store.ledger import Story

EXCERPT_CHARS: Final = 2000

_NAMES: Final = ("id", "type", "status", "delivery", "attempts", "failures", "maybe_duplicate", "route", "message_id")
_MORE_NAMES: Final = ("idempotency_key", "last_error", "service", "campaign")
_TIMES: Final = ("created_at", "first_attempt_at", "next_try_at", "expires_at", "accepted_at", "unknown_since")
_ATTEMPT_NAMES: Final = (
    "via",
    "route",
    "worker",
    "outcome",
    "maybe_accepted",
    "code",
    "text",
    "rule",
    "message_id",
    "request_id",
)
_EVENT_NAMES: Final = ("kind", "route", "recipient", "cause", "hard", "code", "text", "url", "provider_event_id")


def show(
    call: Invocation,
    key: Annotated[str, typer.Argument(help="Its key, or its id.", show_default=False)],
    content: Annotated[bool, typer.Option("--content", help="Also what was to be sent.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Also what providers answered, word for word.")] = False,
) -> Answer:
    """Tell the story of one send: what happened, what happens next.

    Every attempt with its answer, and who did what. The content of security mail (codes, reset links) is never shown.
    """
    app, width = call.app, call.output.width
    story = app.store.ledger.story(key)
    policy = app.policies.get(story.send["type"])
    around = surroundings(app, policy, story)
    step = next_step(story, around)
    readable = _readable(story, policy)
    raw = raw and not readable.secret
    subject = readable.content.subject if readable.content else None
    document = _document(story, step, raw=raw)
    lines: list[Line] = [*heading_lines(story, subject, around.now, width), ""]
    lines += [*time_lines(folded(timeline(story)), width, raw=raw), "", *standing_lines(story, step, width)]
    if content:
        document["content"] = json.loads(readable.content.to_json()) if readable.content else None
        lines += ["", *_content_lines(readable)]
    return Answer(document, lines)


def surroundings(app: App, policy: TypePolicy | None, story: Story) -> Surroundings:
    """What the next step of a send depends on, as it stands now."""
    now, lane = app.store.ledger.now(), story.send["lane"]
    health = app.store.control.route_health()
    alive_since = now - app.config.worker.dead_after
    return Surroundings(
        now=now,
        policy=policy,
        facts={name: provider.facts for name, provider in app.providers().items()},
        health=health,
        closed_by=Switches(closed_now(app.store, now)).closing(lane, now),
        limited_by=_limited_by(app, policy, story, health, now),
        workers_alive={worker.id for worker in app.store.control.workers() if worker.heartbeat_at >= alive_since},
    )


def _limited_by(
    app: App, policy: TypePolicy | None, story: Story, health: Mapping[str, RouteHealth], now: float
) -> tuple[Limit, float] | None:
    """The limit that lets nothing of the send's lane start on its next route."""
    planned = None if policy is None else route_plan(policy, health, now)
    route = None if planned is None else planned.next_route(story.state)
    if route is None:
        return None
    states = {row.name: row.state for row in app.store.pacing.rows()}
    lane, slowdowns = story.send["lane"], Slowdowns(app.store.group_health.slowdowns())
    return in_the_way([*app.pace.limits(lane, route, now), *slowdowns.limits(lane, route)], states, now)


@dataclass(frozen=True, slots=True)
class _Readable:
    """The content, or why there is none to be seen."""

    content: Content | None = None
    why_not: str = ""
    secret: bool = False


def _readable(story: Story, policy: TypePolicy | None) -> _Readable:
    if policy is None:  # it might be a one-time code
        return _Readable(why_not="is not shown, because its type is not configured here", secret=True)
    if policy.category is Category.SECURITY:
        return _Readable(why_not="of security mail is not shown", secret=True)
    if story.carrier is not None:
        return _Readable(why_not=f"went into {story.carrier['dedupe_key']}")
    if story.body is None:
        return _Readable(why_not="is no longer kept")
    try:
        return _Readable(Content.from_json(story.body))
    except ValueError as error:
        return _Readable(why_not=f"can't be read: {error}")


def _content_lines(readable: _Readable) -> Iterator[Line]:
    content = readable.content
    if content is None:
        yield f"The content {readable.why_not}."
        return
    named = {
        "From": str(content.sender or "the configured sender"),
        "To": ", ".join(map(str, content.to)),
        "Cc": ", ".join(map(str, content.cc)),
        "Bcc": ", ".join(map(str, content.bcc)),
        "Reply-To": ", ".join(map(str, content.reply_to)),
        "Subject": content.subject,
        **dict(content.headers),
        "Template": content.template,
        "Variables": _json(list(content.items) or content.variables),
        "Tags": ", ".join(content.tags),
        "Metadata": _json(content.metadata),
        "Message": "finished, " + size(content.raw.size) if content.raw else None,
    }
    yield from (f"{name}: {value}" for name, value in named.items() if value)
    yield from map(_file_line, content.attachments)
    for kind, body in (("text", content.text), ("html", content.html)):
        if body is not None:
            yield from ("", styled(f"--- {kind} ---", "dim"), _excerpt(body))


def _file_line(file: StoredFile) -> str:
    shown = f", shown as cid:{file.content_id}" if file.content_id else ""
    return f"Attachment: {file.filename or 'without a name'} ({file.content_type}, {size(file.size)}{shown})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""


def _excerpt(body: str) -> str:
    more = len(body) - EXCERPT_CHARS
    return body if more <= 0 else f"{body[:EXCERPT_CHARS]}\n… {more:,} characters more, see --json"


def _document(story: Story, step: NextStep, *, raw: bool) -> Json:
    send = story.send
    return {
        "key": send["dedupe_key"],
        **{name: send[name] for name in _NAMES},
        "held": is_held(send),
        "recipients": json.loads(send["recipients"]),
        **{name: send[name] for name in _MORE_NAMES},
        "after": send["after_key"],
        "split_from": send["split_from"],
        "splits": [
            {"key": part["dedupe_key"], "status": part["status"], "recipients": json.loads(part["recipients"])}
            for part in story.splits
        ],
        "combined_into": _carrier_document(story.carrier),
        "combined": [member["dedupe_key"] for member in story.combined],
        "tags": json.loads(send["tags"] or "[]"),
        "metadata": json.loads(send["metadata"] or "{}"),
        **{name: iso(send[name]) for name in _TIMES},
        "timeline": [_attempt_document(row, raw=raw) for row in story.attempts],
        "events": [_event_document(row) for row in story.events],
        "interventions": [
            {"at": iso(row["at"]), **{name: row[name] for name in ("who", "action", "detail")}} for row in story.audit
        ],
        "next": {"text": step.text, "commands": list(step.commands)},
    }


def _event_document(row: Json) -> Json:
    return {
        "at": iso(row["at"]),
        "received_at": iso(row["received_at"]),
        **{name: row[name] for name in _EVENT_NAMES},
    }


def _carrier_document(carrier: Json | None) -> Json | None:
    return None if carrier is None else {"key": carrier["dedupe_key"], "status": carrier["status"]}


def _attempt_document(row: Json, *, raw: bool) -> Json:
    return {
        "started_at": iso(row["started_at"]),
        "ended_at": iso(row["ended_at"]),
        **{name: row[name] for name in _ATTEMPT_NAMES},
        **({"raw": row["raw"]} if raw else {}),
    }
