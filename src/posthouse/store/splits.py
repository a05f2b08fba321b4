"""A send of its own for recipients whom a provider refused while it took the message for the others, or who must not
get it.

It has the whole message, with the headers that everybody sees, and goes to them alone. What the call meant for them is
its first attempt. The send that was split keeps those who got it, or are to get it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, literal, select, update

from posthouse.address import fold
from posthouse.content import Content
from posthouse.core.lifecycle import Happening, Status
from posthouse.core.sends import Change, SendState, Split
from posthouse.email import fingerprint
from posthouse.fields import KEY_CHARS_MAX
from posthouse.store.database import Database
from posthouse.store.rows import Step, lock, record, storable
from posthouse.store.schema import ADDRESS_CHARS, ERROR_CHARS_MAX, blob_uses, contents, sends

_INHERITED: Final = (
    "type",
    "lane",
    "delivery",
    "expires_at",
    "campaign",
    "service",
    "tags",
    "metadata",
    "created_at",
)


def split(connection: Connection, database: Database, steps: Sequence[Step], worker: int, now: float) -> None:
    """Writes the sends that these changes split off.

    To be called before the changes are applied, since a content may go with one, and in the same transaction.
    """
    for step in steps:
        if step.change.splits:
            _split_off(connection, database, step, worker, now)


def _split_off(connection: Connection, database: Database, step: Step, worker: int, now: float) -> None:
    whole = connection.execute(select(sends).where(sends.c.id == step.state.id)).one()
    body = connection.scalar(select(contents.c.body).where(contents.c.send_id == whole.id))
    content = _readable(body)
    kept = json.loads(whole.recipients)
    for part in step.change.splits:
        made = _new_send(connection, whole, content, part, now)
        if part.attempt is not None:
            record(connection, database, [replace(part.attempt, send_id=made)], worker)
        kept = [address for address in kept if address not in part.addresses]
    connection.execute(update(sends).where(sends.c.id == whole.id).values(**_recipients(kept)))


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What a claimed send is, now that some of its recipients are left out."""

    idempotency_key: str
    body: str


def leave_out(
    connection: Connection, database: Database, send: SendState, reasons: Mapping[str, str], now: float
) -> Narrowed | None:
    """Takes recipients out of a claimed send before its call, each into a suppressed send with the reason.

    None where the send is no longer its claimer's. No earlier call of it may be open: what was called before was
    certainly not accepted, and since a provider may remember it under its key, the rest goes out under a new one.
    """
    state = lock(connection, database, [send.id]).get(send.id)
    if state is None or (state.status, state.fence) != (Status.SENDING, send.fence) or state.unresolved:
        return None
    whole = connection.execute(select(sends).where(sends.c.id == send.id)).one()
    content = _readable(connection.scalar(select(contents.c.body).where(contents.c.send_id == send.id)))
    if content is None:
        return None
    for address, reason in reasons.items():
        change = Change(Happening.SUPPRESSED, Status.SUPPRESSED, None, last_error=reason)
        _new_send(connection, whole, content, Split((address,), content.message_id, None, change), now)
    kept = [address for address in json.loads(whole.recipients) if address not in reasons]
    key = whole.idempotency_key if not state.attempts else _token(whole.idempotency_key, kept)
    body = replace(content, envelope_to=tuple(kept)).to_json()
    connection.execute(
        update(sends).where(sends.c.id == send.id).values(**_recipients(kept), idempotency_key=key, updated_at=now)
    )
    connection.execute(update(contents).where(contents.c.send_id == send.id).values(body=body))
    return Narrowed(key, body)


def _new_send(connection: Connection, whole: Row[Any], content: Content | None, part: Split, now: float) -> int:
    token = _token(whole.idempotency_key, part.addresses)
    stored = None
    if content is not None:
        stored = replace(content, envelope_to=part.addresses, message_id=part.message_id).to_json()
    change, attempt = part.change, part.attempt
    row = {
        **{name: getattr(whole, name) for name in _INHERITED},
        "dedupe_key": f"{whole.dedupe_key[: KEY_CHARS_MAX - 13]}#{token[:12]}",
        "fingerprint": fingerprint(whole.type, whole.service, whole.campaign, None, (stored or "").encode()),
        "idempotency_key": token,
        **_recipients(part.addresses),
        "status": change.status.value,
        "attempts": 0 if attempt is None else 1,
        "failures": change.failures,
        "fence": 0 if attempt is None else attempt.fence,
        "next_try_at": change.next_try_at,
        "route": None if attempt is None else attempt.route,
        "last_error": storable(change.last_error, ERROR_CHARS_MAX),
        "split_from": whole.id,
        "first_attempt_at": None if attempt is None else whole.first_attempt_at,
        "updated_at": now,
    }
    (made,) = connection.execute(insert(sends).values(**row)).inserted_primary_key or (0,)
    if stored is not None:
        connection.execute(insert(contents).values(send_id=made, body=stored))
        shared = select(literal(made), blob_uses.c.blob_id).where(blob_uses.c.send_id == whole.id)
        connection.execute(insert(blob_uses).from_select(["send_id", "blob_id"], shared))
    return int(made)


def _token(key: str, addresses: Sequence[str]) -> str:
    """An idempotency key made from another one: the same for the same addresses."""
    return hashlib.sha256("\0".join((key, *addresses)).encode()).hexdigest()[:32]


def _readable(body: str | None) -> Content | None:
    """The content; None where it is gone or damaged, which must not keep an acceptance from being written."""
    try:
        return None if body is None else Content.from_json(body)
    except ValueError:
        return None


def _recipients(addresses: Sequence[str]) -> dict[str, str]:
    return {
        "to_address": fold(addresses[0])[:ADDRESS_CHARS],
        "recipients": json.dumps(addresses, ensure_ascii=False),
    }
