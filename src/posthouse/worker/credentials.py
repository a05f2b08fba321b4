"""A stopped route is tried again as soon as its credential reads otherwise, not only when its next try is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from posthouse.errors import DatabaseUnavailable
from posthouse.providers.port import Provider
from posthouse.worker.routes import Routes

LOOK_EVERY_S: Final = 1.0

log = logging.getLogger("posthouse.worker")


class CredentialWatch:
    """Looks at the credentials of stopped routes alone. What it saw is kept until the database knows."""

    def __init__(self, providers: Mapping[str, Provider], routes: Routes) -> None:
        self._providers = providers
        self._routes = routes
        self._changed: set[str] = set()

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except DatabaseUnavailable:
                continue
            except Exception:
                log.exception("the credentials of stopped routes can't be looked at; the next look tries again")

    async def look(self) -> None:
        """Once. Raises DatabaseUnavailable."""
        self._changed |= {name for name in self._routes.stopped() if self._providers[name].credential_changed()}
        for name in sorted(self._changed):
            await self._routes.try_again(name)
            self._changed.discard(name)
