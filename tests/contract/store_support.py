"""Words for the store's contract tests: emails enqueued, sends claimed and settled, rows read back, races, pauses.

A `Bench` stands a minute after its worker registered, by the database's clock, so that whatever was enqueued is due.
Sends reach their states through the store's own operations; only bulk is written into the table directly.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text, update

from posthouse.address import Address
from posthouse.core import intervention
from posthouse.core.intervention import Intervention
from posthouse.core.lifecycle import Status
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.policy import Category, TypePolicy
from posthouse.core.routing import RoutePlan
from posthouse.core.sends import Attempt, Change, SendState, Via
from posthouse.core.settlement import settle
from posthouse.email import Email
from posthouse.outbox import Outbox
from posthouse.store.database import Database
from posthouse.store.queue import Report
from posthouse.store.schema import sends
from posthouse.store.store import Store
from posthouse.store.taking import ClaimedSend

T = TypeVar("T")

DAY_S: Final = 86_400.0
LONG_S: Final = 60.0
"""No wait in these tests is meant to take this long; it only ends a test that would hang."""

RECEIPT: Final = TypePolicy("receipt", routes=(), max_age_s=3 * DAY_S)
NEWSLETTER: Final = TypePolicy("newsletter", routes=(), max_age_s=3 * DAY_S)
CODE: Final = TypePolicy("one-time-code", routes=(), category=Category.SECURITY, max_age_s=600.0)
NEWS: Final = TypePolicy("news", routes=(), max_age_s=3 * DAY_S, combine_s=600.0)
POLICIES: Final = {policy.name: policy for policy in (RECEIPT, NEWSLETTER, CODE, NEWS)}

_numbers = itertools.count(1)


def at(moment: Any) -> Any:
    """A moment, or several, to compare with what came back: a float of the epoch has no finer digits.

    Without this, `approx` would take moments half an hour apart for the same.
    """
    return pytest.approx(moment, abs=0.001)


def new_key() -> str:
    """An idempotency key that no other send of the test session has."""
    return f"ik-{next(_numbers)}"


def outbox(clock: Callable[[], float] = time.time) -> Outbox:
    """An outbox that knows the types above."""
    return Outbox(POLICIES, {}, sender=Address("shop@example.com", "Shop"), clock=clock, new_key=new_key)


def email(key: str, **fields: Any) -> Email:
    """A receipt for Ada, but for what `fields` says."""
    return Email(**{"key": key, "type": "receipt", "to": "ada@example.com", "subject": "Hello", "text": "Hi"} | fields)


def accepted(message_id: str | None = "m-1") -> Verdict:
    return Verdict(Outcome.ACCEPTED, code="202", message_id=message_id)


def transient(said: str = "try again later") -> Verdict:
    return Verdict(Outcome.TRANSIENT, code="503", text=said)


def rejected() -> Verdict:
    return Verdict(Outcome.REJECTED, code="422", text="no such mailbox")


def lost() -> Verdict:
    return Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="read_timeout")


def report(
    send: SendState, verdict: Verdict, at: float, *, via: Via = Via.SEND, policy: TypePolicy = RECEIPT
) -> Report:
    """What a worker says after a call of one second that ended at `at`."""
    attempt = Attempt(send.id, send.fence, "main", at - 1.0, at, verdict, via)
    return Report(send.id, send.fence, partial(settle, attempt=attempt, policy=policy, now=at, chance=0.5), attempt)


ROUTES = RoutePlan("main", {"main": "standby", "standby": "main"}, pins=True)
"""What the tests' claims write: the first call on main, the next on the other route."""


class Bench:
    """A store, one registered worker, and a moment."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.worker = store.control.register("here", 1, "test")
        self.beat_at = store.control.heartbeat(self.worker) or 0.0
        self.now = self.beat_at + 60.0

    def another_worker(self) -> int:
        """The id of one more worker that lives."""
        return self.store.control.register("there", 2, "test")

    def enqueue(self, key: str, **fields: Any) -> int:
        """The id of a new email's send."""
        with self.store.database.write() as connection:
            return outbox(self.store.database.clock).enqueue(connection, email(key, **fields)).id

    def put(self, count: int, prefix: str = "bulk", **columns: Any) -> list[int]:
        """Writes many sends into the table as they stand, without contents; their ids."""
        plain = {
            "fingerprint": "f",
            "type": "receipt",
            "lane": "receipt",
            "to_address": "ada@example.com",
            "recipients": '["ada@example.com"]',
            "status": Status.PENDING.value,
            "next_try_at": self.now - 1.0,
            "expires_at": self.now + DAY_S,
            "created_at": self.now - 1.0,
            "updated_at": self.now - 1.0,
        }
        keys = [f"{prefix}-{n}" for n in range(count)]
        rows = [plain | {"dedupe_key": key, "idempotency_key": key[:40]} | columns for key in keys]
        with self.store.database.write() as connection:
            connection.execute(insert(sends), rows)
            query = select(sends.c.id).where(sends.c.dedupe_key.startswith(f"{prefix}-")).order_by(sends.c.id)
            return list(connection.scalars(query))

    def edit(self, key: str, **columns: Any) -> None:
        """Writes columns of one send directly."""
        with self.store.database.write() as connection:
            connection.execute(update(sends).where(sends.c.dedupe_key == key).values(**columns))

    def claim(
        self, count: int = 1, lane: str = "receipt", *, worker: int | None = None, now: float | None = None
    ) -> list[ClaimedSend]:
        return self.store.queue.claim(lane, count, worker or self.worker, now or self.now, ROUTES)

    def claim_one(self, lane: str = "receipt", *, worker: int | None = None, now: float | None = None) -> SendState:
        """Claims exactly one send."""
        (claimed,) = self.claim(1, lane, worker=worker, now=now)
        return claimed.state

    def settle(self, *reports: Report, worker: int | None = None, now: float | None = None) -> list[Change | None]:
        return self.store.queue.settle(reports, worker or self.worker, now or self.now)

    def intervene(
        self, key: str, decide: Callable[[SendState], Intervention], *, action: str = "test", max_age_s: float = DAY_S
    ) -> Status:
        """One intervention by Grace."""
        return self.store.operations.intervene(
            self.row(key)["id"],
            decide,
            action=action,
            who="grace",
            detail="because",
            now=self.now,
            max_age_s=max_age_s,
            new_key=new_key,
        )

    def row(self, key: str) -> dict[str, Any]:
        return self.store.ledger.story(key).send

    def status(self, key: str) -> Status:
        return Status(self.row(key)["status"])

    def state(self, key: str) -> SendState:
        return self.store.ledger.story(key).state

    def attempts(self, key: str) -> list[dict[str, Any]]:
        return self.store.ledger.story(key).attempts

    def bring_to(self, status: Status, key: str) -> SendState:
        """A new send in this state, alone in a lane of its own; claimed under fence 1 where it was claimed."""
        service = key.lower()
        lane = f"receipt/{service}"
        self.enqueue(
            key,
            service=service,
            after="never" if status is Status.WAITING else None,
        )
        if status is Status.SENDING:
            self.claim_one(lane)
        elif status is Status.UNKNOWN:
            self.settle(report(self.claim_one(lane), lost(), self.now))
        elif status is Status.ACCEPTED:
            self.settle(report(self.claim_one(lane), accepted(), self.now))
        elif status is Status.FAILED:
            self.settle(report(self.claim_one(lane), rejected(), self.now))
        elif status is Status.EXPIRED:
            self.edit(key, expires_at=self.now - 1.0)
            self.store.sweeps.end_lives(self.now)
            self.edit(key, expires_at=self.now + DAY_S)
        elif status is Status.CANCELLED:
            self.intervene(key, intervention.cancel)
        elif status is Status.SUPPRESSED:
            self.edit(key, status=status.value, next_try_at=None)  # no operation suppresses yet
        elif status is Status.COMBINED:
            self.edit(key, status=status.value, next_try_at=None)  # how it comes to that: test_store_combining
        state = self.state(key)
        assert state.status is status
        return state


def race(works: Sequence[Callable[[], T]]) -> list[T]:
    """Runs all at once, each in a thread of its own; their results, or the first error."""
    start = threading.Barrier(len(works))

    def one(work: Callable[[], T]) -> T:
        start.wait(LONG_S)
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return [running.result(LONG_S) for running in [threads.submit(one, work) for work in works]]


class Pause:
    """Stops the transactions of one database just before they commit, until `go`."""

    def __init__(self, database: Database) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()
        event.listen(database.engine, "commit", self._stop)

    def _stop(self, _connection: Connection) -> None:
        self.reached.set()
        if not self._go.wait(LONG_S):
            raise TimeoutError("the paused transaction was never told to go on")

    def go(self) -> None:
        self._go.set()

    @contextmanager
    def running(self, work: Callable[[], T]) -> Iterator[Future[T]]:
        """Runs `work` in a thread and enters when it stands at its commit; goes on by itself at the end."""
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(work)
            try:
                assert self.reached.wait(LONG_S), "the work never came to its commit"
                yield running
            finally:
                self.go()


_WAITING: Final = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx JOIN information_schema.processlist "
    "ON id = trx_mysql_thread_id WHERE db = database() AND trx_state = 'LOCK WAIT'",
}


def wait_until_blocked(engine: Engine) -> None:
    """Returns when some session of this database waits for a lock."""
    waiting = text(_WAITING[engine.dialect.name])
    deadline = time.monotonic() + LONG_S
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while not connection.scalar(waiting):
            if engine.dialect.name == "mysql":
                time.sleep(0.15)  # InnoDB looks anew only when nobody has asked for a tenth of a second
            assert time.monotonic() < deadline, "nobody ever waited for a lock"
