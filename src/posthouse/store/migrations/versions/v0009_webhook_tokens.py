"""Tokens of webhooks whose signature doesn't cover what they tell: each comes with one body alone."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import create_index, create_table

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Creates the table."""
    create_table(
        "email_webhook_tokens",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("body_digest", sa.String(64), nullable=False),
        sa.Column("received_at", INSTANT, nullable=False),
        sa.UniqueConstraint("digest", name="email_webhook_tokens_once"),
        sqlite_autoincrement=True,
    )
    create_index("email_webhook_tokens_received", "email_webhook_tokens", ["received_at"])
