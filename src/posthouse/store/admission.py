"""Whether new emails are let in: asked of what the workers counted last, and of what this process wrote since.

It is read at most once a second. Where no worker has counted lately, which is just when a queue fills, this process
counts by itself, at most every few seconds; and always once more before it refuses.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from posthouse.core.cap_policy import Backlog, CapPolicy, Full, Gate
from posthouse.errors import QueueFull
from posthouse.store.backlog import count_backlog, read_backlog
from posthouse.store.enqueue import CHUNK, NewSend, existing_keys
from posthouse.store.script import Script

READ_EVERY_S: Final = 1.0
COUNT_EVERY_S: Final = 3.0
COUNT_SHARE: Final = 0.05
"""The part of a process's time that counting may take, however long the queue is."""

STALE_S: Final = 30.0
"""What is older was counted by workers that live no more."""


class Admission:
    """One outbox's way in. Safe to share between threads; `clock` is in seconds."""

    def __init__(self, caps: CapPolicy, clock: Callable[[], float]) -> None:
        self._caps = caps
        self._clock = clock
        self._lock = threading.Lock()
        self._backlog = Backlog()
        self._known_at: float | None = None
        self._added: Counter[str] = Counter()  # since then, by type
        self._refusing: set[Gate] = set()
        self._read_at: float | None = None
        self._counted_at: float | None = None
        self._count_pause_s = COUNT_EVERY_S

    def admit(self, dialect: str, new: Sequence[NewSend]) -> Script[None]:
        """Raises QueueFull before anything is written; a key that is there already is never refused."""
        if not self._caps:
            return
        wanted = Counter(item.email.type for item in new)
        if any(map(self._caps.applies, wanted)):
            yield from self._look(dialect)
            full = self._refusal(wanted)
            if full is not None and (yield from self._count(dialect)):
                full = self._refusal(wanted)
            if full is not None:
                wanted = yield from self._without_repeats(dialect, new)
            if full is not None and self._refusal(wanted) is not None:
                self._refusing.add(full.gate)
                raise QueueFull(full.setting, full.cap.count, full.pending, full.priority.value, full.count)
            self._refusing -= self._caps.gates(wanted)
        with self._lock:
            self._added += wanted

    def _refusal(self, wanted: Mapping[str, int]) -> Full | None:
        with self._lock:
            backlog = self._caps.grown(self._backlog, self._added)
        return self._caps.refusal(backlog, wanted, self._refusing)

    def _without_repeats(self, dialect: str, new: Sequence[NewSend]) -> Script[Counter[str]]:
        """How many of each type are not in the ledger yet, or enough of them to be refused."""
        types = {item.email.key: item.email.type for item in new}
        wanted: Counter[str] = Counter()
        every = list(types)
        for begin in range(0, len(every), CHUNK):
            keys = every[begin : begin + CHUNK]
            known = yield from existing_keys(dialect, keys)
            wanted.update(types[key] for key in keys if key not in known)
            if self._refusal(wanted) is not None:
                break
        return wanted

    def _look(self, dialect: str) -> Script[None]:
        now = self._clock()
        if _within(self._read_at, now, READ_EVERY_S):
            return
        self._read_at = now
        found = yield from read_backlog(dialect, self._caps, now)
        if found is None or not 0.0 <= found[1] <= STALE_S:
            yield from self._count(dialect)
        elif self._is_news(now - found[1], now):
            self._know(found[0], now - found[1])

    def _is_news(self, at: float, now: float) -> bool:
        """Whether what was counted then is neither known already nor older than that."""
        known_at = self._known_at
        return known_at is None or at > known_at + READ_EVERY_S or known_at > now  # the clock was set back

    def _count(self, dialect: str) -> Script[bool]:
        """Counts, unless that was a moment ago. Whether it did."""
        began_at = self._clock()
        if _within(self._counted_at, began_at, self._count_pause_s):
            return False
        self._counted_at = began_at
        backlog = yield from count_backlog(dialect, self._caps)
        self._know(backlog, began_at)
        self._count_pause_s = max(COUNT_EVERY_S, (self._clock() - began_at) / COUNT_SHARE)
        return True

    def _know(self, backlog: Backlog, at: float) -> None:
        with self._lock:
            self._backlog, self._known_at, self._added = backlog, at, Counter()


def _within(moment: float | None, now: float, span_s: float) -> bool:
    """Whether the moment was less than this ago; a clock that was set back says no."""
    return moment is not None and 0.0 <= now - moment < span_s
