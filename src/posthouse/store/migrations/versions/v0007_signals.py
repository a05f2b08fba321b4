"""Since when a route is held, and when a call on it was last accepted."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import add_column

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Adds the columns."""
    add_column("email_routes", sa.Column("held_since", INSTANT))
    add_column("email_routes", sa.Column("last_accepted_at", INSTANT))
