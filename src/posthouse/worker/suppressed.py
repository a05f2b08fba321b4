"""Whether a send's recipients may get it, asked right before its call, for all that are about to begin at once; where
its claim has said that there is anything to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from posthouse.content import Content
from posthouse.core.policy import TypePolicy
from posthouse.core.suppression import Suppression, stopped
from posthouse.store.access import StoreAccess
from posthouse.store.suppressions import Suppressions

FRESH_S: Final = 0.5
"""An answer counts for so long: a suppression is obeyed within this time."""

Known = Mapping[str, list[Suppression]]


class SuppressionCheck:
    """One query at a time; whoever asks meanwhile is in the next one. So a batch of claims is one query."""

    def __init__(
        self,
        table: Suppressions,
        access: StoreAccess,
        policies: Mapping[str, TypePolicy],
        now: Callable[[], float],
    ) -> None:
        self._table = table
        self._access = access
        self._policies = policies
        self._now = now
        self._wanted: set[str] = set()
        self._next: asyncio.Task[Known] | None = None
        self._asking = asyncio.Lock()

    async def stopped(self, type_: str, content: Content) -> dict[str, Suppression]:
        """Those of the recipients who must not get it, and what stops each. Raises DatabaseUnavailable."""
        policy = self._policies[type_]
        known = await self._known({each.folded for each in content.recipients})
        return stopped([each.email for each in content.recipients], known, type_, policy.category, self._now())

    async def is_clear(self, type_: str, content: Content) -> bool:
        """Whether all of the recipients may get it, by an answer that counts now. Raises DatabaseUnavailable."""
        asked_at = self._now()
        return not await self.stopped(type_, content) and self._now() - asked_at <= FRESH_S

    async def _known(self, addresses: set[str]) -> Known:
        self._wanted |= addresses
        if self._next is None:
            self._next = asyncio.create_task(self._ask())
        return await asyncio.shield(self._next)  # whoever is stopped meanwhile stops nobody else's answer

    async def _ask(self) -> Known:
        async with self._asking:
            wanted, self._wanted, self._next = self._wanted, set(), None
            return await self._access.run(self._table.active, wanted, self._now())
