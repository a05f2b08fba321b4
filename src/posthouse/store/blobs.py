"""The bytes of attachments and finished messages, stored once however many sends go out with them.

No enqueue may wait for another application's transaction, let alone deadlock with it. So a blob has an id of its own,
its digest is no key, and its row never changes. An enqueue looks, without a lock, for a young blob that is committed
or its own; where there is none, it writes one. Two transactions that bring the same new file at the same time both
write it, and that is all.

The purge deletes blobs older than PURGE_AFTER_S that no send uses. An enqueue takes none older than REUSE_S: one that
it has just decided to use is still there when its transaction commits, unless that takes a day.

Bytes travel in parts: some servers take and give only so much at once (`max_allowed_packet`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cache
from typing import Final

from sqlalchemy import select

from posthouse.store.batch import Batch, Kind, str_time
from posthouse.store.database import MYSQL, POSTGRESQL, SQLITE, Database
from posthouse.store.schema import blob_parts, blob_uses, blobs
from posthouse.store.script import Script

PART_BYTES: Final = 1024 * 1024
REUSE_S: Final = 86400
PURGE_AFTER_S: Final = 2 * REUSE_S

Files = Mapping[str, bytes]
"""Bytes by their digest."""


# Writing, on the caller's own connection.

_WANTED: Final = Batch("wanted", {"digest": Kind.TEXT})
_USED: Final = Batch("used", {"send_id": Kind.INTEGER, "blob_id": Kind.INTEGER})


class _Sql:
    """The statements for one dialect."""

    def __init__(self, dialect: str) -> None:
        mark = "?" if dialect == SQLITE else "%s"
        now, young = _CLOCK[dialect]
        index = " FORCE INDEX (email_blobs_digest)" if dialect == MYSQL else ""
        self.find = (
            f"SELECT email_blobs.digest, max(email_blobs.id) FROM {_WANTED.relation(dialect, mark)} "
            f"JOIN email_blobs{index} ON email_blobs.digest = wanted.digest AND email_blobs.created_at > {young} "
            "GROUP BY email_blobs.digest"
        )
        self.insert = f"INSERT INTO email_blobs (digest, size, created_at) VALUES ({mark}, {mark}, {now})"
        if dialect != MYSQL:
            self.insert += " RETURNING id"
        # As hexadecimal text: the character set of a caller's connection can't spoil it.
        body = "UNHEX(%s)" if dialect == MYSQL else mark
        self.insert_part = f"INSERT INTO email_blob_parts (blob_id, part, body) VALUES ({mark}, {mark}, {body})"
        used = _USED.relation(dialect, mark)
        self.insert_uses = f"INSERT INTO email_blob_uses (send_id, blob_id) SELECT send_id, blob_id FROM {used}"


_CLOCK: Final = {
    SQLITE: ("?", "?"),
    POSTGRESQL: ("clock_timestamp()", f"statement_timestamp() - interval '{REUSE_S} seconds'"),
    MYSQL: ("UTC_TIMESTAMP(6)", f"UTC_TIMESTAMP(6) - INTERVAL {REUSE_S} SECOND"),
}
"""Now, and since when a blob is young."""


@cache
def _sql(dialect: str) -> _Sql:
    return _Sql(dialect)


def insert_files(dialect: str, files: Mapping[int, Files], now: float) -> Script[None]:
    """Writes what goes along with each of these new sends, by their ids."""
    bodies = {digest: body for of_send in files.values() for digest, body in of_send.items()}
    if not bodies:
        return
    ids = yield from _find(dialect, bodies, now)
    for digest, body in bodies.items():
        if digest not in ids:
            ids[digest] = yield from _insert(dialect, digest, body, now)
    used = [(send_id, ids[digest]) for send_id, of_send in files.items() for digest in of_send]
    yield _sql(dialect).insert_uses, (_USED.document(dialect, used),)


def _find(dialect: str, digests: Collection[str], now: float) -> Script[dict[str, int]]:
    """The blobs there are that may be used, by their digest."""
    document = _WANTED.document(dialect, [(digest,) for digest in digests])
    young = (str_time(now - REUSE_S),) if dialect == SQLITE else ()
    found = yield _sql(dialect).find, (document, *young)
    return {digest: int(id_) for digest, id_ in found}


def _insert(dialect: str, digest: str, body: bytes, now: float) -> Script[int]:
    created = (str_time(now),) if dialect == SQLITE else ()
    made = yield _sql(dialect).insert, (digest, len(body), *created)
    if dialect == MYSQL:
        made = yield "SELECT LAST_INSERT_ID()", ()
    id_ = int(made[0][0])
    for part, start in enumerate(range(0, len(body), PART_BYTES)):
        piece = body[start : start + PART_BYTES]
        yield _sql(dialect).insert_part, (id_, part, piece.hex() if dialect == MYSQL else piece)
    return id_


# Reading, on the worker's.


class Blobs:
    """The bytes of the files that sends use."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, send_id: int, digests: Collection[str]) -> dict[str, bytes]:
        """Those of the send's files that are there, by their digest; they may be damaged."""
        query = (
            select(blobs.c.digest, blob_parts.c.part, blob_parts.c.body)
            .join_from(blob_uses, blobs, blobs.c.id == blob_uses.c.blob_id)
            .outerjoin(blob_parts, blob_parts.c.blob_id == blobs.c.id)  # an empty file has none
            .where(blob_uses.c.send_id == send_id, blobs.c.digest.in_(digests))
        )
        parts: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        with self._database.read() as connection:
            for digest, part, body in connection.execute(query):
                parts[digest][part or 0] = body or b""
        return {digest: b"".join(of_file[part] for part in sorted(of_file)) for digest, of_file in parts.items()}
