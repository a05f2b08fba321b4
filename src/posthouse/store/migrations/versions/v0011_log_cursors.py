"""How far the log of each route's provider was read; and an index by which it is known what people took back."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import create_index, create_table

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")
EMPTY = sa.text("('')")


def upgrade() -> None:
    """Adds the index, and creates the table."""
    create_index("email_audit_subject", "email_audit", ["subject"])
    create_table(
        "email_log_cursors",
        sa.Column("route", sa.String(63), primary_key=True),
        sa.Column("read_until", INSTANT),
        sa.Column("turn_at", INSTANT, nullable=False),
        sa.Column("failing_since", INSTANT),
        sa.Column("error", LONG_TEXT, nullable=False, server_default=EMPTY),
    )
