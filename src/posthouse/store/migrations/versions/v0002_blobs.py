"""The bytes of attachments and finished messages: blobs, their parts, and which send uses which."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from posthouse.store.migrations.steps import create_index, create_table

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")
PART_BYTES = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql")


def upgrade() -> None:
    """Creates the tables."""
    create_table(
        "email_blobs",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sqlite_autoincrement=True,
    )
    create_index("email_blobs_digest", "email_blobs", ["digest", "created_at"])
    create_table(
        "email_blob_parts",
        sa.Column("blob_id", BIG_ID, primary_key=True, autoincrement=False),
        sa.Column("part", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("body", PART_BYTES, nullable=False),
    )
    create_table(
        "email_blob_uses",
        sa.Column("send_id", BIG_ID, primary_key=True, autoincrement=False),
        sa.Column("blob_id", BIG_ID, primary_key=True, autoincrement=False),
    )
    create_index("email_blob_uses_blob", "email_blob_uses", ["blob_id"])
