"""Which body a webhook's token came with first, where its signature covers nothing else."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Final

from sqlalchemy import TextClause, bindparam, select, text

from posthouse.store.database import MYSQL, Database
from posthouse.store.schema import Instant, webhook_tokens

TOKENS_KEPT_S: Final = 61 * 86_400.0
"""Longer than any signature counts: `webhook_tolerance` is 30 days at most, before its time and after it."""


class WebhookTokens:
    """`email_webhook_tokens`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def comes_with(self, route: str, token: str, body: bytes, now: float) -> bool:
        """Whether this is the body that the token came with first, here or in any other process."""
        digest = hashlib.sha256(json.dumps([route, token]).encode()).hexdigest()
        row = {"digest": digest, "body_digest": hashlib.sha256(body).hexdigest()}
        with self._database.write() as connection:
            connection.execute(_insert_sql(connection.dialect.name), {**row, "received_at": now})
            first = select(webhook_tokens.c.body_digest).where(webhook_tokens.c.digest == digest)
            return connection.scalar(first) == row["body_digest"]


@cache
def _insert_sql(dialect: str) -> TextClause:
    known = "ON DUPLICATE KEY UPDATE id = id" if dialect == MYSQL else "ON CONFLICT DO NOTHING"
    writing = (
        "INSERT INTO email_webhook_tokens (digest, body_digest, received_at) "
        f"VALUES (:digest, :body_digest, :received_at) {known}"
    )
    return text(writing).bindparams(bindparam("received_at", type_=Instant))
