"""`posthouse suppress`, `unsuppress` and `suppressions`: who must not get mail."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

from posthouse.address import fold
from posthouse.cli.failures import Exit, WrongUsage
from posthouse.cli.invocation import Invocation, add_command
from posthouse.cli.moments import iso, local, local_short, read_moment, zone
from posthouse.cli.output import Answer, Json, Line, columns, count
from posthouse.cli.suppression_files import export, import_
from posthouse.cli.suppression_lists import pull, push
from posthouse.core.policy import Category
from posthouse.core.suppression import (
    REVIEW_AFTER,
    REVIEW_WITHIN_S,
    STOPS,
    Suppress,
    Suppression,
    SuppressionCause,
    address_of,
    parse_scope,
    told,
)
from posthouse.store.suppressions import ToReview
from posthouse.text import shorten

DAY_S: Final = 86_400.0
REASON_CHARS: Final = 100
"""So much of a reason stands in the list; --json has all of it."""

Addresses = Annotated[list[str], typer.Argument(metavar="ADDRESS...", show_default=False)]
CauseOption = Annotated[SuppressionCause | None, typer.Option(help="Only those of this cause.", show_default=False)]


def suppress(
    call: Invocation,
    addresses: Addresses,
    cause: Annotated[
        SuppressionCause, typer.Option(help="Why: decides which mail is stopped.")
    ] = SuppressionCause.MANUAL,
    scope: Annotated[
        str, typer.Option(metavar="SCOPE", help="Only `type NAME` or `category NAME`.", show_default=False)
    ] = "",
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Until then: a time with its zone, or 30d.", show_default=False)
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="More about it.", show_default=False)] = "",
) -> Answer:
    """Send no mail to these addresses any more, within a second."""
    now = call.app.store.ledger.now()
    ends = None if until is None else read_moment(until, "--until", now).timestamp()
    if ends is not None and ends <= now:
        raise WrongUsage(f"--until: {until} is over already")
    try:
        narrowed = parse_scope(scope)
    except ValueError as error:
        raise WrongUsage(f"--scope: {error}") from None
    folded = dict.fromkeys(address_of(text) for text in addresses)
    wishes = [Suppress(each, cause, narrowed, ends, reason, call.who) for each in folded]
    new = call.app.store.suppressions.add(wishes, now)
    which = _which(cause, narrowed)
    long = "any more" if ends is None else f"until {local(ends)}"
    lines = [f"{each} gets no {which} {long}." for each in folded]
    lines += _doubt(narrowed, call.app.config.types)
    document: Json = {"suppressed": list(folded), "new": new, "cause": cause.value, "scope": narrowed}
    return Answer(document | {"until": iso(ends), "by": call.who}, lines)


def _doubt(scope: str, types: Collection[str]) -> list[str]:
    """What to say of a scope that is about no mail as far as is known here."""
    kind, _, name = scope.partition(" ")
    known = kind != "type" or name in types
    return [] if known else [f"But no type {name} is configured here (there are: {', '.join(sorted(types))})."]


def _which(cause: SuppressionCause, scope: str) -> str:
    if scope:
        return f"mail of the {scope}"
    stops = [category.value for category in Category if category in STOPS[cause].categories]
    return "mail" if len(stops) == len(Category) else f"{' and '.join(stops)} mail"


def unsuppress(call: Invocation, addresses: Addresses, cause: CauseOption = None) -> Answer:
    """Let mail to these addresses go out again; what was heard already never stops it again."""
    table, now = call.app.store.suppressions, call.app.store.ledger.now()
    removed: list[Suppression] = []
    missing: list[str] = []
    for each in dict.fromkeys(fold(text.strip()) for text in addresses):  # also what is no good address
        found = table.remove(each, who=call.who, now=now, cause=cause)
        removed += found
        missing += [] if found else [each]
    lines = [f"{each.address}, who {told(each)}, may get mail again." for each in removed]
    lines += [f"{each} was not suppressed{f' for {cause}' if cause else ''}." for each in missing]
    document: Json = {"removed": [document_of(each) for each in removed], "not_suppressed": missing, "by": call.who}
    return Answer(document, lines, Exit.NOT_POSSIBLE if missing else Exit.OK)


def list_(
    call: Invocation,
    words: Annotated[
        list[str] | None, typer.Argument(help="Addresses, or parts of them; all must match.", show_default=False)
    ] = None,
    cause: CauseOption = None,
    review: Annotated[
        bool, typer.Option("--review", help="Instead: addresses that bounced again and again, though not for good.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest first.")] = 20,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="The next page: those below this id.", show_default=False)
    ] = None,
) -> Answer:
    """Who must not get mail, and why."""
    table, now = call.app.store.suppressions, call.app.store.ledger.now()
    if review:
        if words or cause or before:
            raise WrongUsage("--review goes with --limit alone")
        return _review(table.to_review(now, limit))
    found = table.find(words or [], cause, limit, before)
    more = len(found) == limit
    document: Json = {
        "suppressions": [document_of(each) for each in found],
        "next": found[-1].id if more else None,
    }
    if not found:
        return Answer(document, ["Nobody." if not words else "Nobody like that."])
    lines = _rows(found, now)
    return Answer(document, [*lines, f"There may be more: --before {found[-1].id}"] if more else lines)


def _rows(found: Sequence[Suppression], now: float) -> list[Line]:
    head: list[Line] = ["ADDRESS", "CAUSE", "SCOPE", f"SINCE ({zone(now)})", "UNTIL", "BY", "REASON"]
    return [*columns([head, *(_row(each, now) for each in found)])]


def _row(each: Suppression, now: float) -> list[Line]:
    ends = "" if each.until is None else local_short(each.until, now) + ("" if each.is_on(now) else ", over")
    reason = shorten(" ".join(each.reason.split()), REASON_CHARS)
    return [each.address, each.cause.value, each.scope, local_short(each.at, now), ends, each.who, reason]


def document_of(each: Suppression) -> Json:
    """One suppression, for programs."""
    return {
        "id": each.id,
        "address": each.address,
        "cause": each.cause.value,
        "scope": each.scope,
        "until": iso(each.until),
        "reason": each.reason,
        "who": each.who,
        "at": iso(each.at),
    }


def _review(found: Sequence[ToReview]) -> Answer:
    document: Json = {
        "review": [
            {
                "address": each.address,
                "bounces": each.bounces,
                "first_at": iso(each.first_at),
                "last_at": iso(each.last_at),
            }
            for each in found
        ]
    }
    within = f"{REVIEW_WITHIN_S / DAY_S:.0f} days"
    if not found:
        return Answer(document, [f"No address bounced {REVIEW_AFTER} times in {within} without being suppressed."])
    lines = [f"{each.address} bounced {count(each.bounces, 'time')} in {within}" for each in found]
    return Answer(document, [*lines, "If nobody reads there any more: posthouse suppress ADDRESS --cause hard_bounce"])


class _Suppressions(TyperGroup):
    """Lists what it is not told to do otherwise: `posthouse suppressions ada@example.com`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args or args[0] not in (*self.commands, "-h", "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


suppressions = typer.Typer(cls=_Suppressions, help="Who must not get mail, and why: `list` it, by default.")
add_command(suppressions, list_, name="list")
add_command(suppressions, import_, name="import")
add_command(suppressions, export)
add_command(suppressions, pull)
add_command(suppressions, push)
