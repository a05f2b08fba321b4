"""The shop: orders come in, are committed to its own database, and each checkout is timed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, create_engine, event, insert
from sqlalchemy.exc import OperationalError

_METADATA: Final = MetaData()
ORDERS: Final = Table(
    "orders", _METADATA, Column("id", Integer, primary_key=True), Column("customer", String, nullable=False)
)

LOCK_STEP_S: Final = 0.002
"""How long to wait before trying for the file's lock again. SQLite's own steps grow to a tenth of a second, which is
nothing at a checkout but much in an hour that takes half a minute."""


def customer(order: int) -> str:
    """Who placed an order. Each order has a customer of its own, so the provider's ledger tells them apart."""
    return f"customer-{order}@example.com"


def order_of(address: str) -> int:
    """The order whose customer this is."""
    return int(address.partition("@")[0].removeprefix("customer-"))


@dataclass(frozen=True, slots=True)
class Checkout:
    """One order from the customer's click to the shop's thank-you page."""

    order: int
    at: float  # the click, in seconds since 1970
    took_s: float


class OrderBook:
    """The shop's database: a SQLite file with one writer, as SQLite has it. Close it when done."""

    def __init__(self, file: Path) -> None:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="orders")
        self._closing = Event()
        self._engine = create_engine(f"sqlite:///{file}", connect_args={"timeout": 0})
        # A real shop waits for the disk once a second or two; an hour in half a minute would only measure the disk.
        event.listen(self._engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = NORMAL"))
        with self._engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            _METADATA.create_all(connection)

    async def commit(self, order: int, with_it: Callable[[Connection], object] | None = None) -> None:
        """Commits an order, and in the same transaction what `with_it` writes."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._commit, order, with_it)

    def _commit(self, order: int, with_it: Callable[[Connection], object] | None) -> None:
        while not self._try_to_commit(order, with_it) and not self._closing.wait(LOCK_STEP_S):
            pass

    def _try_to_commit(self, order: int, with_it: Callable[[Connection], object] | None) -> bool:
        """False, with nothing written, while somebody else is writing into the file."""
        try:
            with self._engine.begin() as transaction:
                transaction.execute(insert(ORDERS).values(id=order, customer=customer(order)))
                if with_it is not None:
                    with_it(transaction)
        except OperationalError as error:
            if not getattr(error.orig, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                raise
            return False
        return True

    def close(self) -> None:
        """Waits for the commit under way, and lets go of the file."""
        self._closing.set()
        self._writer.shutdown(cancel_futures=True)
        self._engine.dispose()


class Shop:
    """Takes orders when they come, each on its own, whatever the others wait for. `clock`: seconds since 1970."""

    def __init__(self, take_order: Callable[[int], Awaitable[None]], clock: Callable[[], float]) -> None:
        self.taken = 0
        self.checkouts: list[Checkout] = []  # of the orders that were answered
        self.behind_s = 0.0  # how much too late an order was taken up at most
        self._take_order = take_order
        self._clock = clock

    async def open(self, arrivals: Sequence[float], opened_at: float) -> None:
        """Until every customer has been served. `arrivals` count from `opened_at` on the event loop's clock."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as customers:
            for order, arrival in enumerate(arrivals, 1):
                if (wait_s := opened_at + arrival - loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                else:
                    self.behind_s = max(self.behind_s, -wait_s)
                customers.create_task(self._serve(order))

    async def _serve(self, order: int) -> None:
        loop = asyncio.get_running_loop()
        clicked_at, begun_at = self._clock(), loop.time()
        self.taken += 1
        await self._take_order(order)
        self.checkouts.append(Checkout(order, clicked_at, loop.time() - begun_at))
