"""The one executor through which async code calls the synchronous store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from posthouse.errors import DatabaseUnavailable
from posthouse.store.limits import CALL_TIMEOUT_S, POOL_SIZE

P = ParamSpec("P")
T = TypeVar("T")


class StoreExecutor(Protocol):
    """Runs one store call. Raises DatabaseUnavailable when it does not return in time: its effect is unknown."""

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...


class StoreThreads:
    """Runs store calls in threads: one for SQLite, whose file has one writer anyway, a few for a server."""

    def __init__(self, *, single: bool) -> None:
        self._threads = ThreadPoolExecutor(1 if single else POOL_SIZE, thread_name_prefix="store")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, lambda: call(*args, **kwargs))
        try:
            return await asyncio.wait_for(future, CALL_TIMEOUT_S)
        except TimeoutError:
            raise DatabaseUnavailable(f"the database did not answer within {CALL_TIMEOUT_S} s") from None

    def close(self) -> None:
        """Waits for no call that hangs."""
        self._threads.shutdown(wait=False, cancel_futures=True)
