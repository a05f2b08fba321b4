"""`posthouse find`: the sends that match some words."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from posthouse.cli.failures import Exit
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import iso, local_short, zone
from posthouse.cli.output import Answer, Json, Line, columns, status_text
from posthouse.cli.story import is_held
from posthouse.core.delivery import Delivery
from posthouse.core.lifecycle import Status


def find(
    call: Invocation,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Keys, addresses, message ids, tags, or parts of them; all must match.", show_default=False
        ),
    ] = None,
    status: Annotated[Status | None, typer.Option(help="Only sends in this state.", show_default=False)] = None,
    campaign: Annotated[str | None, typer.Option(help="Only sends of this campaign.", show_default=False)] = None,
    held: Annotated[bool, typer.Option("--held", help="Only unknown sends that wait for `posthouse resolve`.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest first.")] = 20,
) -> Answer:
    """Find sends. Without words: the newest ones."""
    ledger = call.app.store.ledger
    found = ledger.find(words or [], status, limit, held=held, campaign=campaign)
    document: Json = {"sends": [_send_document(send) for send in found], "limit": limit}
    if not found:
        return Answer(document, ["Nothing found."], Exit.NOT_POSSIBLE)
    return Answer(document, _lines(found, limit, ledger.now()))


def _send_document(send: Json) -> Json:
    return {
        "key": send["dedupe_key"],
        "id": send["id"],
        "type": send["type"],
        "campaign": send["campaign"],
        "status": send["status"],
        "delivery": send["delivery"],
        "held": is_held(send),
        "recipients": json.loads(send["recipients"]),
        "created_at": iso(send["created_at"]),
        "accepted_at": iso(send["accepted_at"]),
        "next_try_at": iso(send["next_try_at"]),
        "last_error": send["last_error"],
        "maybe_duplicate": send["maybe_duplicate"],
        "combined_into": send["carrier_key"],
    }


def _lines(found: list[Json], limit: int, now: float) -> list[Line]:
    head: list[Line] = ["STATUS", f"ASKED ({zone(now)})", "TYPE", "TO", "KEY"]
    rows = columns([head, *(_row(send, now) for send in found)])
    more = [f"The newest {limit}; there may be more (--limit)."] if len(found) == limit else []
    return [*rows, *more]


def _row(send: Json, now: float) -> list[Line]:
    status = Status(send["status"])
    others = len(json.loads(send["recipients"])) - 1
    return [
        status_text(status, _standing(send)),
        local_short(send["created_at"], now),
        send["type"],
        send["to_address"] + (f" +{others}" if others else ""),
        send["dedupe_key"] + (f", in {send['carrier_key']}: {send['carrier_status']}" if send["carrier_key"] else ""),
    ]


def _standing(send: Json) -> str:
    if is_held(send):
        return "held"
    return ", ".join([send["status"], *([] if send["delivery"] == Delivery.NONE else [send["delivery"]])])
