"""What stands at the way in: the backlog as it was counted, families of emails, and sends by campaign."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import create_index, create_table

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Adds the index, and creates the tables."""
    create_index("email_sends_campaign", "email_sends", ["campaign", "id"], only="campaign IS NOT NULL")
    create_table(
        "email_backlog",
        sa.Column("name", sa.String(190), primary_key=True),
        sa.Column("pending", sa.Integer(), nullable=False),
        sa.Column("counted_at", INSTANT, nullable=False),
    )
    create_table(
        "email_families",
        sa.Column("type", sa.String(63), primary_key=True),
        sa.Column("family", sa.String(190), primary_key=True),
        sa.Column("dedupe_key", sa.String(190), nullable=False),
        sa.Column("last_at", INSTANT, nullable=False),
    )
    create_index("email_families_last_at", "email_families", ["last_at"])
