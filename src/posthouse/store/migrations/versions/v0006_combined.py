"""Sends that go out in another one."""

import sqlalchemy as sa

from posthouse.store.migrations.steps import add_column, create_index, widen_index

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ENDED = "status IN ('accepted', 'cancelled', 'combined', 'expired', 'failed', 'suppressed')"


def upgrade() -> None:
    """Adds the column with its index, and the new status to the index of what has ended."""
    add_column("email_sends", sa.Column("combined_into", BIG_ID))
    create_index("email_sends_combined", "email_sends", ["combined_into"], only="combined_into IS NOT NULL")
    widen_index("email_sends_ended", "email_sends", ["updated_at", "id"], only=ENDED)
