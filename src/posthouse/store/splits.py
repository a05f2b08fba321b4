"""A send of its own for recipients whom a provider refused while it took the message for the others.

It has the whole message, with the headers that everybody sees, and goes to them alone. What the call meant for them is
its first attempt. The send that was split keeps those who got it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, literal, select, update

from posthouse.content import Content
from posthouse.core.sends import Split
from posthouse.email import fingerprint
from posthouse.fields import KEY_CHARS_MAX
from posthouse.store.database import Database
from posthouse.store.rows import Step, record, storable
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
        record(connection, database, [replace(part.attempt, send_id=made)], worker)
        kept = [address for address in kept if address not in part.addresses]
    connection.execute(update(sends).where(sends.c.id == whole.id).values(**_recipients(kept)))


def _new_send(connection: Connection, whole: Row[Any], content: Content | None, part: Split, now: float) -> int:
    token = hashlib.sha256("\0".join((whole.idempotency_key, *part.addresses)).encode()).hexdigest()[:32]
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
        "attempts": 1,
        "failures": change.failures,
        "fence": attempt.fence,
        "next_try_at": change.next_try_at,
        "route": attempt.route,
        "last_error": storable(change.last_error, ERROR_CHARS_MAX),
        "split_from": whole.id,
        "first_attempt_at": whole.first_attempt_at,
        "updated_at": now,
    }
    (made,) = connection.execute(insert(sends).values(**row)).inserted_primary_key or (0,)
    if stored is not None:
        connection.execute(insert(contents).values(send_id=made, body=stored))
        shared = select(literal(made), blob_uses.c.blob_id).where(blob_uses.c.send_id == whole.id)
        connection.execute(insert(blob_uses).from_select(["send_id", "blob_id"], shared))
    return int(made)


def _readable(body: str | None) -> Content | None:
    """The content; None where it is gone or damaged, which must not keep an acceptance from being written."""
    try:
        return None if body is None else Content.from_json(body)
    except ValueError:
        return None


def _recipients(addresses: Sequence[str]) -> dict[str, str]:
    return {
        "to_address": addresses[0].casefold()[:ADDRESS_CHARS],
        "recipients": json.dumps(addresses, ensure_ascii=False),
    }
