"""Sends that were split off another one: recipients who were refused beside others who got the message."""

import sqlalchemy as sa

from posthouse.store.migrations.steps import add_column, create_index

revision = "0003"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Adds the column and its index."""
    add_column("email_sends", sa.Column("split_from", BIG_ID))
    create_index("email_sends_split", "email_sends", ["split_from"], only="split_from IS NOT NULL")
