"""The first tables: the ledger, contents, attempts, routes, workers, audit."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _only(condition: str) -> dict[str, Any]:
    return {"postgresql_where": sa.text(condition), "sqlite_where": sa.text(condition)}


def upgrade() -> None:
    """Creates the tables."""
    op.create_table(
        "email_attempts",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("send_id", BIG_ID, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("via", sa.String(12), nullable=False),
        sa.Column("route", sa.String(63), nullable=False),
        sa.Column("worker", BIG_ID),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("maybe_accepted", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("code", sa.String(64), nullable=False, server_default=""),
        sa.Column("text", sa.Text(), nullable=False, server_default=""),
        sa.Column("rule", sa.String(128), nullable=False, server_default=""),
        sa.Column("message_id", sa.String(255)),
        sa.Column("request_id", sa.String(255)),
        sa.Column("raw", sa.Text()),
        sa.UniqueConstraint("send_id", "fence", "via", name="email_attempts_once"),
        sqlite_autoincrement=True,
    )
    op.create_index("email_attempts_ended", "email_attempts", ["ended_at"])
    op.create_table(
        "email_audit",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False, server_default=""),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "email_contents",
        sa.Column("send_id", BIG_ID, primary_key=True, autoincrement=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_table(
        "email_routes",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("held_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("strikes", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "email_sends",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("dedupe_key", sa.String(190), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("idempotency_key", sa.String(40), nullable=False),
        sa.Column("type", sa.String(63), nullable=False),
        sa.Column("lane", sa.String(190), nullable=False),
        sa.Column("to_address", sa.String(320), nullable=False),
        sa.Column("recipients", sa.Text(), nullable=False),
        sa.Column("status", sa.String(12), nullable=False),
        sa.Column("delivery", sa.String(12), nullable=False, server_default="none"),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("fence", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("claimed_by", BIG_ID),
        sa.Column("next_try_at", sa.DateTime(timezone=True)),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("route", sa.String(63)),
        sa.Column("message_id", sa.String(255)),
        sa.Column("last_error", sa.Text()),
        sa.Column("maybe_duplicate", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("unknown_since", sa.DateTime(timezone=True)),
        sa.Column("unknown_fence", sa.Integer()),
        sa.Column("after_key", sa.String(190)),
        sa.Column("campaign", sa.String(63)),
        sa.Column("service", sa.String(63)),
        sa.Column("tags", sa.Text()),
        sa.Column("metadata", sa.Text()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("first_attempt_at", sa.DateTime(timezone=True)),
        sa.Column("accepted_at", sa.DateTime(timezone=True)),
        sa.Column("last_event_at", sa.DateTime(timezone=True)),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("dedupe_key", name="email_sends_dedupe_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("email_sends_claimed", "email_sends", ["claimed_by", "id"], **_only("status = 'sending'"))
    op.create_index("email_sends_due", "email_sends", ["lane", "next_try_at", "id"], **_only("status = 'pending'"))
    op.create_index(
        "email_sends_ended",
        "email_sends",
        ["updated_at", "id"],
        **_only("status IN ('accepted', 'cancelled', 'expired', 'failed', 'suppressed')"),
    )
    op.create_index(
        "email_sends_expiring", "email_sends", ["expires_at", "id"], **_only("status IN ('pending', 'waiting')")
    )
    op.create_index("email_sends_failed", "email_sends", ["id"], **_only("status = 'failed'"))
    op.create_index("email_sends_message_id", "email_sends", ["message_id"])
    op.create_index("email_sends_to_address", "email_sends", ["to_address", "id"])
    op.create_index("email_sends_unknown", "email_sends", ["next_try_at", "id"], **_only("status = 'unknown'"))
    op.create_index("email_sends_waiting", "email_sends", ["after_key", "id"], **_only("status = 'waiting'"))
    op.create_table(
        "email_workers",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sqlite_autoincrement=True,
    )
