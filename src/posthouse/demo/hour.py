"""The hour itself: both shops take the same orders, both providers break down in the same way; then it is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.app import App
from posthouse.core.lifecycle import OPEN
from posthouse.demo.designs import NaiveDesign, OutboxDesign
from posthouse.demo.provider import Acceptance, Counts, ProviderControl
from posthouse.demo.scenario import Scenario
from posthouse.demo.shop import Shop
from posthouse.demo.tally import Tally, tally

LOOK_S: Final = 0.2
DRAIN_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class SideNow:
    """One side at one moment."""

    orders: int
    accepted: int  # orders whose email the provider has
    duplicates: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Both sides at one moment of the story."""

    story_s: float
    naive: SideNow
    posthouse: SideNow


@dataclass(frozen=True, slots=True)
class Played:
    """How it came out."""

    naive: Tally
    posthouse: Tally
    ledgers: dict[str, Sequence[Acceptance]]  # by side, as the providers tell them
    late_answers: tuple[int, int]  # calls of each side that were accepted, and answered too late
    behind_s: float  # how much too late an order came at most, in real seconds
    timed_out_for_nothing: int  # naive calls that ran out of time although their answer was not late


class Side:
    """A shop of one design, and its provider."""

    def __init__(
        self, design: NaiveDesign | OutboxDesign, control: ProviderControl, clock: Callable[[], float]
    ) -> None:
        self.shop = Shop(design.take_order, clock)
        self.control = control

    async def now(self) -> SideNow:
        """How it stands."""
        counts = await self.control.counts()
        return SideNow(self.shop.taken, counts.accepted - counts.duplicates, counts.duplicates)


class Hour:
    """One hour. `app` is the outbox side's installation; its worker and both sandboxes are running."""

    def __init__(
        self,
        scenario: Scenario,
        app: App,
        naive: tuple[NaiveDesign, ProviderControl],
        posthouse: tuple[OutboxDesign, ProviderControl],
    ) -> None:
        self._scenario = scenario
        self._app = app
        self._naive_design = naive[0]
        self._naive = Side(*naive, app.clock)
        self._posthouse = Side(*posthouse, app.clock)

    async def play(self, show: Callable[[Moment], None]) -> Played:
        """From the first order until the last email is accounted for; `show` is told how it stands all the while."""
        scenario, sides = self._scenario, (self._naive, self._posthouse)
        arrivals, faults = scenario.arrivals(), scenario.faults()
        await asyncio.gather(*(side.control.break_down(faults, scenario.seed) for side in sides))
        began_at, opened_at = self._app.clock(), asyncio.get_running_loop().time()
        watching = asyncio.create_task(self._watch(opened_at, show))
        try:
            await asyncio.gather(*(side.shop.open(arrivals, opened_at) for side in sides))
            await self._drained()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        return await self._count(began_at)

    async def _watch(self, opened_at: float, show: Callable[[Moment], None]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            naive, posthouse = await asyncio.gather(self._naive.now(), self._posthouse.now())
            show(Moment((loop.time() - opened_at) * self._scenario.pace, naive, posthouse))
            await asyncio.sleep(LOOK_S)

    async def _drained(self) -> None:
        """Until the outbox has no open send: all are accepted, or have ended otherwise."""
        while any(self._app.store.ledger.count(status) for status in OPEN):  # noqa: ASYNC110  # other processes' doing
            await asyncio.sleep(DRAIN_POLL_S)

    async def _count(self, began_at: float) -> Played:
        naive, naive_counts = await self._books(self._naive)
        posthouse, counts = await self._books(self._posthouse)
        late = self._scenario.late_fault
        return Played(
            naive=tally(self._scenario, began_at, self._naive.shop.checkouts, naive),
            posthouse=tally(self._scenario, began_at, self._posthouse.shop.checkouts, posthouse),
            ledgers={"naive": naive, "posthouse": posthouse},
            late_answers=(naive_counts.hits(late), counts.hits(late)),
            behind_s=max(self._naive.shop.behind_s, self._posthouse.shop.behind_s),
            timed_out_for_nothing=max(0, self._naive_design.timed_out - naive_counts.hits(late)),
        )

    async def _books(self, side: Side) -> tuple[list[Acceptance], Counts]:
        return await side.control.ledger(), await side.control.counts()
