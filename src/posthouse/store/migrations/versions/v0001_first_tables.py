"""The first tables: the ledger, contents, attempts, routes, workers, audit."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import create_index, create_table

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")
EMPTY = sa.text("('')")


def upgrade() -> None:
    """Creates the tables."""
    create_table(
        "email_attempts",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("send_id", BIG_ID, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("via", sa.String(12), nullable=False),
        sa.Column("route", sa.String(63), nullable=False),
        sa.Column("worker", BIG_ID),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("maybe_accepted", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("code", sa.String(64), nullable=False, server_default=""),
        sa.Column("text", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("rule", sa.String(128), nullable=False, server_default=""),
        sa.Column("message_id", sa.String(255)),
        sa.Column("request_id", sa.String(255)),
        sa.Column("raw", LONG_TEXT),
        sa.UniqueConstraint("send_id", "fence", "via", name="email_attempts_once"),
        sqlite_autoincrement=True,
    )
    create_index("email_attempts_ended", "email_attempts", ["ended_at"])
    create_table(
        "email_audit",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("detail", LONG_TEXT, nullable=False, server_default=EMPTY),
        sqlite_autoincrement=True,
    )
    create_table(
        "email_contents",
        sa.Column("send_id", BIG_ID, primary_key=True, autoincrement=False),
        sa.Column("body", LONG_TEXT, nullable=False),
    )
    create_table(
        "email_routes",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("held_until", INSTANT, nullable=False),
        sa.Column("reason", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("strikes", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("changed_at", INSTANT, nullable=False),
    )
    create_table(
        "email_sends",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("dedupe_key", sa.String(190), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("idempotency_key", sa.String(40), nullable=False),
        sa.Column("type", sa.String(63), nullable=False),
        sa.Column("lane", sa.String(190), nullable=False),
        sa.Column("to_address", sa.String(320), nullable=False),
        sa.Column("recipients", LONG_TEXT, nullable=False),
        sa.Column("status", sa.String(12), nullable=False),
        sa.Column("delivery", sa.String(12), nullable=False, server_default="none"),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("fence", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("claimed_by", BIG_ID),
        sa.Column("next_try_at", INSTANT),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("route", sa.String(63)),
        sa.Column("message_id", sa.String(255)),
        sa.Column("last_error", LONG_TEXT),
        sa.Column("maybe_duplicate", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("unknown_since", INSTANT),
        sa.Column("unknown_fence", sa.Integer()),
        sa.Column("after_key", sa.String(190)),
        sa.Column("campaign", sa.String(63)),
        sa.Column("service", sa.String(63)),
        sa.Column("tags", LONG_TEXT),
        sa.Column("metadata", LONG_TEXT),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("first_attempt_at", INSTANT),
        sa.Column("accepted_at", INSTANT),
        sa.Column("last_event_at", INSTANT),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.UniqueConstraint("dedupe_key", name="email_sends_dedupe_key"),
        sqlite_autoincrement=True,
    )
    create_index("email_sends_claimed", "email_sends", ["claimed_by", "id"], only="status = 'sending'")
    create_index("email_sends_due", "email_sends", ["lane", "next_try_at", "id"], only="status = 'pending'")
    create_index(
        "email_sends_ended",
        "email_sends",
        ["updated_at", "id"],
        only="status IN ('accepted', 'cancelled', 'expired', 'failed', 'suppressed')",
    )
    create_index("email_sends_expiring", "email_sends", ["expires_at", "id"], only="status IN ('pending', 'waiting')")
    create_index("email_sends_failed", "email_sends", ["id"], only="status = 'failed'")
    create_index("email_sends_message_id", "email_sends", ["message_id"])
    create_index("email_sends_to_address", "email_sends", ["to_address", "id"])
    create_index("email_sends_unknown", "email_sends", ["next_try_at", "id"], only="status = 'unknown'")
    create_index("email_sends_waiting", "email_sends", ["after_key", "id"], only="status = 'waiting'")
    create_table(
        "email_workers",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("heartbeat_at", INSTANT, nullable=False),
        sqlite_autoincrement=True,
    )
