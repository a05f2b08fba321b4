"""`posthouse groups` and `faults`: how the mailbox groups take our mail, and what of it is our own fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import duration, duration_option, iso, local_short, zone
from posthouse.cli.output import Answer, Json, Line, columns, count
from posthouse.cli.standing import slowdown_document
from posthouse.core.events import Cause
from posthouse.core.group_health import KEPT_S, Counts, GroupRoute
from posthouse.core.mailbox_groups import mailbox_group
from posthouse.core.refusals import in_full, signature
from posthouse.core.slowdown import Slowdown
from posthouse.store.group_health import FAULTS_READ_MAX, Fault

TEXT_CHARS: Final = 200
FAULT_WORDS: Final = {
    Cause.TOO_FAST: "too fast",
    Cause.BLOCKED: "blocked, or our reputation",
    Cause.NOT_AUTHENTIC: "our SPF, DKIM, DMARC or reverse DNS",
}


def groups(
    call: Invocation,
    since: Annotated[str, typer.Option(help="Count from so long ago on; 14d at most.", metavar="DURATION")] = "1d",
) -> Answer:
    """Show how each mailbox group takes our mail, by route, and which of them are slowed."""
    since_s = min(duration_option(since, "--since"), KEPT_S)
    health, now = call.app.store.group_health, call.app.store.ledger.now()
    totals, slowed = health.totals(now - since_s), {row.where: row for row in health.slowdowns()}
    places = sorted(totals.keys() | slowed.keys())
    document: Json = {
        "since": iso(now - since_s),
        "groups": [_group_document(where, totals.get(where, Counts()), slowed.get(where)) for where in places],
    }
    if not places:
        return Answer(document, [f"Nothing was sent or heard of within {duration(since_s)}."])
    head: list[Line] = ["GROUP", "ROUTE", "SENT", "DELIVERED", "DEFERRED", "BOUNCED", "COMPLAINED"]
    rows = columns([head, *(_group_row(where, totals.get(where, Counts())) for where in places)])
    return Answer(document, [*rows, *_slowed_lines(slowed.values())])


def _group_row(where: GroupRoute, counts: Counts) -> list[Line]:
    heard = [(counts.delivered, counts.base), (counts.deferred, counts.base), (counts.bounced, counts.base)]
    parts: list[Line] = [f"{number:,} ({number / max(of, 1):.1%})" for number, of in heard]
    return [*where, f"{counts.sent:,}", *parts, f"{counts.complained:,} ({counts.complained_share:.2%})"]


def _slowed_lines(slowed: Iterable[Slowdown]) -> list[Line]:
    lines: list[Line] = []
    for row in slowed:
        lines += ["", f"{row.words}", f"    posthouse resume --group {row.group} ends it"]
    return lines


def _group_document(where: GroupRoute, counts: Counts, slowed: Slowdown | None) -> Json:
    return {
        "group": where.group,
        "route": where.route,
        "sent": counts.sent,
        "delivered": counts.delivered,
        "deferred": counts.deferred,
        "bounced": counts.bounced,
        "complained": counts.complained,
        "pushed_back": counts.pushed_back,
        "pushed_back_share": round(counts.pushed_back_share, 5),
        "complained_share": round(counts.complained_share, 5),
        "slowed": None if slowed is None else slowdown_document(slowed),
    }


@dataclass(frozen=True, slots=True)
class _Alike:
    """Faults that a group's servers tell in the same words."""

    group: str
    faults: Sequence[Fault]

    @property
    def newest(self) -> Fault:
        return max(self.faults, key=lambda fault: fault.at)

    @property
    def send_id(self) -> int | None:
        """One of the sends that they are about, where any is known."""
        return next((fault.send_id for fault in self.faults if fault.send_id is not None), None)


def faults(
    call: Invocation,
    since: Annotated[str, typer.Option(help="What was said from so long ago on.", metavar="DURATION")] = "3d",
) -> Answer:
    """Show what receivers hold against us, not against their users: our pace, reputation and authentication.

    Both what was heard later and what a server says at the call, on routes over SMTP.
    """
    app, now = call.app, call.app.store.ledger.now()
    since_s = duration_option(since, "--since")
    found = app.store.group_health.faults(now - since_s, app.smtp_routes)
    alike = _alike(found.found)
    keys = app.store.ledger.keys([one.send_id for one in alike if one.send_id is not None])
    documents = [_fault_document(one, keys.get(one.send_id or 0)) for one in alike]
    document: Json = {"since": iso(now - since_s), "faults": documents, "limit": FAULTS_READ_MAX}
    if not alike:
        return Answer(document, [f"No receiver has held anything against us within {duration(since_s)}."])
    more = [] if found.all else [f"Of the newest {FAULTS_READ_MAX:,}; there were more."]
    return Answer(document, [*_fault_lines(documents, alike, now), *more])


def _alike(found: Iterable[Fault]) -> list[_Alike]:
    """By group, route, cause and words, the most frequent first."""
    by_words: dict[tuple[str, ...], list[Fault]] = {}
    for fault in found:
        key = (mailbox_group(fault.recipient), fault.route, fault.cause, signature(fault.code, fault.text))
        by_words.setdefault(key, []).append(fault)
    return sorted((_Alike(key[0], each) for key, each in by_words.items()), key=lambda one: -len(one.faults))


def _fault_lines(documents: Sequence[Json], alike: Sequence[_Alike], now: float) -> list[Line]:
    lines: list[Line] = []
    for document, one in zip(documents, alike, strict=True):
        newest = one.newest
        where = f"{one.group} on {newest.route}"
        when = f"the latest {local_short(newest.at, now)} {zone(now)}"
        lines += [
            f"{count(len(one.faults), 'time')} {where}: {FAULT_WORDS[newest.cause]}, {when}",
            f"    {in_full(newest.code, newest.text)[:TEXT_CHARS]}",
        ]
        if document["example"] is not None:
            lines.append(f"    posthouse show {document['example']}")
    return lines


def _fault_document(one: _Alike, example: str | None) -> Json:
    newest = one.newest
    return {
        "group": one.group,
        "route": newest.route,
        "cause": newest.cause.value,
        "number": len(one.faults),
        "code": newest.code,
        "text": newest.text,
        "latest_at": iso(newest.at),
        "example": example,
    }
