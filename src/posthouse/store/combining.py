"""Claiming sends of a type that is combined: those to one recipient go out as one.

Whoever claims merges, in the transaction of the claim, so that what goes out is written down before any call for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, Update, select, update

from posthouse.content import Content
from posthouse.core.combining import JOINED, Digest, Gathered, digests
from posthouse.core.lanes import type_of
from posthouse.core.lifecycle import Happening, sources
from posthouse.store.database import MYSQL, Database
from posthouse.store.pacing import locked_limits
from posthouse.store.rows import STATE_COLUMNS, Step, apply, by_index, locking, state_of
from posthouse.store.schema import contents, sends, status_is
from posthouse.store.taking import CLAIM, ClaimedSend, pick, take_picked

TOGETHER_MAX: Final = 500
"""Sends that one claim looks at; what is beyond them goes out with the next."""


def take_combined(
    connection: Connection, database: Database, parameters: dict[str, Any], combine_s: float
) -> list[ClaimedSend]:
    """Takes due sends of one lane as `take` does, after those that go out as one were merged.

    One claim of a type at a time: two would make two digests of what one recipient gets.
    """
    locked_limits(connection, database, [f"combine {type_of(parameters['lane'])}"])
    due = pick(connection, CLAIM, True, parameters)
    if not due:
        return []
    now = parameters["now"]
    found = _waiting_with(connection, database, due, parameters["lane"], now, combine_s)
    made = digests(list(_gathered(found, due)), now)
    _merge(connection, made, found, now)
    gone = {id_ for digest in made for id_ in digest.joined}
    return take_picked(connection, CLAIM, [id_ for id_ in due if id_ not in gone], parameters)


def _waiting_with(
    connection: Connection, database: Database, due: Sequence[int], lane: str, now: float, combine_s: float
) -> Sequence[Row[Any]]:
    """What waits for the recipients of those that are due, these too, but for what is to go out later or has expired.

    In the order of the ids, locked.
    """
    recipients = by_index(select(sends.c.to_address).where(sends.c.id.in_(due)), "PRIMARY")
    addresses = sorted(set(connection.scalars(recipients)))
    # The lane and the times are looked at afterwards: they have indexes that lead through all that waits there.
    uncalled = (
        status_is(*sources(Happening.COMBINED)),
        sends.c.type == type_of(lane),
        sends.c.attempts == 0,
        sends.c.unknown_since.is_(None),
    )
    theirs = select(sends.c.id).where(sends.c.to_address.in_(addresses), *uncalled).order_by(sends.c.id)
    ids = connection.scalars(by_index(theirs, "email_sends_to_address").limit(TOGETHER_MAX)).all()
    whole = (
        select(*STATE_COLUMNS, sends.c.lane, sends.c.next_try_at, sends.c.to_address, contents.c.body)
        .join_from(sends, contents, contents.c.send_id == sends.c.id)
        .where(sends.c.id.in_(ids), *uncalled)
        .order_by(sends.c.id)
    )
    locked = connection.execute(locking(by_index(whole, "PRIMARY"), database))
    return [row for row in locked if row.lane == lane and row.next_try_at <= now + combine_s and row.expires_at > now]


def _gathered(found: Sequence[Row[Any]], due: Collection[int]) -> Iterator[Gathered]:
    """Those that can be read; the others fail by themselves."""
    for row in found:
        try:
            content = Content.from_json(row.body)
        except ValueError:
            continue
        yield Gathered(row.id, row.to_address, row.expires_at, content, len(row.body), row.id in due)


def _merge(connection: Connection, made: Sequence[Digest], found: Sequence[Row[Any]], now: float) -> None:
    states = {row.id: state_of(row) for row in found}
    apply(connection, [Step(states[id_], JOINED) for digest in made for id_ in digest.joined], now)
    for digest in made:
        carried = {"combined_into": digest.carrier}
        connection.execute(_changing("PRIMARY").where(sends.c.id.in_(digest.joined)).values(carried))
        # What carried others itself, and was given back before any call, hands them on.
        handed_on = sends.c.combined_into.in_(digest.joined)
        connection.execute(_changing("email_sends_combined").where(handed_on).values(carried))
        mine = _changing("PRIMARY").where(sends.c.id == digest.carrier)
        connection.execute(mine.values(expires_at=digest.expires_at))
        said = update(contents).where(contents.c.send_id == digest.carrier)
        connection.execute(said.values(body=digest.content.to_json()))


def _changing(index: str) -> Update:
    """Given a list, MariaDB walks a small table instead, and waits for rows that are none of ours."""
    return update(sends).with_hint(f"FORCE INDEX ({index})", dialect_name=MYSQL)
