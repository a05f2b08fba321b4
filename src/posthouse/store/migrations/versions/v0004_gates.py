"""What all workers share of the gates: breakers, limits, switches and alerts."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import add_column, create_table

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")
EMPTY = sa.text("('')")


def upgrade() -> None:
    """Creates the tables, and adds the column."""
    add_column("email_routes", sa.Column("breaker", LONG_TEXT))
    create_table(
        "email_limits",
        sa.Column("name", sa.String(190), primary_key=True),
        sa.Column("tat", INSTANT, nullable=False),
        sa.Column("parts", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("warned_at", INSTANT, nullable=False),
    )
    create_table(
        "email_switches",
        sa.Column("scope", sa.String(12), primary_key=True),
        sa.Column("value", sa.String(190), primary_key=True),
        sa.Column("reason", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("since", INSTANT, nullable=False),
        sa.Column("until", INSTANT),
        sa.Column("resumed_at", INSTANT),
    )
    create_table(
        "email_alerts",
        sa.Column("name", sa.String(190), primary_key=True),
        sa.Column("text", LONG_TEXT, nullable=False, server_default=EMPTY),
        sa.Column("raised_at", INSTANT, nullable=False),
        sa.Column("times", sa.Integer(), nullable=False, server_default="0"),
    )
