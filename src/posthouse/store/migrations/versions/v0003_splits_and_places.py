"""Sends that were split off another one, and places: a route's calls at once over all workers."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import add_column, create_index, create_table

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Adds the column with its index, and the table."""
    add_column("email_sends", sa.Column("split_from", BIG_ID))
    create_index("email_sends_split", "email_sends", ["split_from"], only="split_from IS NOT NULL")
    create_table(
        "email_places",
        sa.Column("route", sa.String(63), primary_key=True),
        sa.Column("worker", BIG_ID, primary_key=True, autoincrement=False),
        sa.Column("places", sa.Integer(), nullable=False),
        sa.Column("wanted", sa.Integer(), nullable=False),
        sa.Column("changed_at", INSTANT, nullable=False),
    )
