"""Every kind of connection that a caller may hand to `enqueue_async`: the scripts of the others, awaited."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from posthouse.errors import UnsupportedConnection
from posthouse.store.runners import AsyncPsycopgRunner, comes_from, sqlalchemy_async, type_name, write_through
from posthouse.store.script import Script, play_async

T = TypeVar("T")


async def write_through_async(connection: object, script_for: Callable[[str], Script[T]]) -> T:
    """Plays the script for the connection's dialect, on the caller's connection. Raises UnsupportedConnection."""
    if (awaited := sqlalchemy_async(connection)) is not None:
        return await awaited.run_sync(partial(write_through, script_for=script_for))
    if _is_psycopg(connection):
        runner = AsyncPsycopgRunner(connection)
        return await play_async(script_for(runner.dialect), runner)
    raise UnsupportedConnection(
        f"enqueue_async can't write through a {type_name(connection)}; hand it a SQLAlchemy AsyncConnection or "
        "AsyncSession, or a psycopg.AsyncConnection; a connection that is not async goes to outbox.enqueue"
    )


def _is_psycopg(connection: object) -> bool:
    if not comes_from("psycopg", connection):
        return False
    import psycopg

    return isinstance(connection, psycopg.AsyncConnection)
