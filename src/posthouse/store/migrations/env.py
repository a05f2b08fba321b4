"""Alembic's environment: runs the migrations on the connection that `store.migrate` hands over."""

from alembic import context

from posthouse.store.migrate import VERSION_TABLE
from posthouse.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=False,  # the caller's transaction is the one
)
context.run_migrations()
