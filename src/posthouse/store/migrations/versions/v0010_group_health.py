"""How each mailbox group takes our mail, which of them are slowed, and an index of our own faults."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import create_index, create_table

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")
EMPTY = sa.text("('')")
OUR_FAULTS = "cause IN ('blocked', 'not_authentic', 'too_fast')"


def upgrade() -> None:
    """Creates the tables and the index."""
    create_table(
        "email_group_counts",
        sa.Column("bucket", INSTANT, primary_key=True),
        sa.Column("mailbox_group", sa.String(63), primary_key=True),
        sa.Column("route", sa.String(63), primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("cause", sa.String(24), primary_key=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
    )
    create_table(
        "email_slowdowns",
        sa.Column("mailbox_group", sa.String(63), primary_key=True),
        sa.Column("route", sa.String(63), primary_key=True),
        sa.Column("per_minute", sa.Integer(), nullable=False),
        sa.Column("was_per_minute", sa.Integer(), nullable=False),
        sa.Column("signal", sa.String(16), nullable=False),
        sa.Column("reason", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("since", INSTANT, nullable=False),
        sa.Column("changed_at", INSTANT, nullable=False),
        sa.Column("too_fast_per_minute", sa.Integer()),
        sa.Column("ended_at", INSTANT),
    )
    create_index("email_events_faults", "email_events", ["cause", "received_at"], only=OUR_FAULTS)
