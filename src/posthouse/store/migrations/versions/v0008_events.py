"""What became of a send: events, what of them could not be read, and addresses that must not get mail."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import create_index, create_table

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")
EMPTY = sa.text("('')")


def upgrade() -> None:
    """Adds the index, and creates the tables."""
    create_index("email_sends_idempotency_key", "email_sends", ["idempotency_key"])
    create_table(
        "email_events",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("route", sa.String(63), nullable=False),
        sa.Column("provider_event_id", sa.String(255)),
        sa.Column("send_id", BIG_ID),
        sa.Column("send_key", sa.String(255)),
        sa.Column("message_id", sa.String(255)),
        sa.Column("recipient", sa.String(320), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("cause", sa.String(24), nullable=False, server_default=""),
        sa.Column("hard", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("code", sa.String(64), nullable=False, server_default=""),
        sa.Column("text", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("url", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("received_at", INSTANT, nullable=False),
        sa.Column("join_at", INSTANT),
        sa.UniqueConstraint("digest", name="email_events_once"),
        sa.UniqueConstraint("route", "provider_event_id", name="email_events_provider_id"),
        sqlite_autoincrement=True,
    )
    create_index("email_events_send", "email_events", ["send_id", "id"])
    create_index("email_events_recipient", "email_events", ["recipient", "id"])
    create_index("email_events_joining", "email_events", ["join_at"], only="join_at IS NOT NULL")
    create_index("email_events_received", "email_events", ["received_at"])
    create_table(
        "email_quarantine",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("route", sa.String(63), nullable=False),
        sa.Column("received_at", INSTANT, nullable=False),
        sa.Column("reason", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("item", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.UniqueConstraint("route", "digest", name="email_quarantine_once"),
        sqlite_autoincrement=True,
    )
    create_index("email_quarantine_received", "email_quarantine", ["received_at"])
    create_table(
        "email_suppressions",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("address", sa.String(320), nullable=False),
        sa.Column("cause", sa.String(16), nullable=False),
        sa.Column("scope", sa.String(80), nullable=False, server_default=""),
        sa.Column("until", INSTANT),
        sa.Column("reason", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("event_id", BIG_ID),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.UniqueConstraint("address", "cause", "scope", name="email_suppressions_once"),
        sqlite_autoincrement=True,
    )
