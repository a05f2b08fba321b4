"""The provider of one side: its sandbox's control API, which breaks it and tells what it accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from posthouse.demo.shop import order_of

PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One email that the provider took. `at` is in seconds since 1970."""

    order: int
    at: float


@dataclass(frozen=True, slots=True)
class Counts:
    """How a ledger stands."""

    accepted: int  # emails, duplicates included
    duplicates: int
    faults: Mapping[str, int]  # calls hit, by the fault's text

    def hits(self, fault: str | None) -> int:
        """How many calls a fault has hit; None is no fault."""
        return self.faults.get(fault, 0) if fault is not None else 0


class ProviderControl:
    """One sandbox, asked and told over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def break_down(self, faults: Sequence[str], seed: int) -> None:
        """From now on these faults happen, as this seed draws them. Their schedule begins now."""
        await self._ask("PUT", "faults", {"faults": list(faults), "seed": seed})

    async def counts(self) -> Counts:
        """How its ledger stands now."""
        stats = await self._ask("GET", "stats")
        return Counts(stats["accepted"], stats["duplicates"], stats["faults"])

    async def ledger(self) -> list[Acceptance]:
        """Everything it accepted, oldest first."""
        found: list[Acceptance] = []
        while True:
            page = await self._ask("GET", f"ledger?limit={PAGE}&offset={len(found)}")
            found += [Acceptance(order_of(row["recipients"][0]), row["at"]) for row in page["acceptances"]]
            if len(found) >= page["total"]:
                return found

    async def _ask(self, method: str, what: str, document: object = None) -> Any:
        async with self._session.request(method, f"{self._url}/_sandbox/{what}", json=document) as answer:
            answer.raise_for_status()
            return await answer.json()
