"""A long-running process's way to the store: says once that the database is away, and once that it is back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from posthouse.errors import DatabaseUnavailable
from posthouse.store.threads import StoreExecutor

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("posthouse.store")


class StoreAccess:
    """Runs store calls for every part of one process.

    `clock` is monotonic, in seconds; `meanwhile` is what an outage means to this process, for its log.
    """

    def __init__(self, executor: StoreExecutor, clock: Callable[[], float], meanwhile: str) -> None:
        self._executor = executor
        self._clock = clock
        self._meanwhile = meanwhile
        self._away_since: float | None = None

    @property
    def away(self) -> bool:
        """Whether the latest call failed."""
        return self._away_since is not None

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One store call. Raises DatabaseUnavailable. An answer asked for before another call failed doesn't say that
        the database is back."""
        begun_at = self._clock()
        try:
            result = await self._executor.run(call, *args, **kwargs)
        except DatabaseUnavailable as error:
            if self._away_since is None:
                self._away_since = self._clock()
                log.error("%s; %s until it is back", error, self._meanwhile)
            raise
        if self._away_since is not None and begun_at >= self._away_since:
            log.warning("the database is back after %.0f s", self._clock() - self._away_since)
            self._away_since = None
        return result
