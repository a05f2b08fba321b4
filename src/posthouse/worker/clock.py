"""The worker's clock: the database's, carried on between heartbeats by the machine's monotonic clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ANSWER_MAX_S: Final = 1.0
"""The worker's time is right to within half of this."""


class DatabaseClock:
    """Seconds since 1970 by the database's clock, so that every worker and every limit means the same moment.

    `monotonic` carries it on: a machine whose wall clock is wrong or jumps expires nothing and delays nothing.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._offset_s: float | None = None

    def correct(self, asked_at: float, answered_at: float, database_now: float) -> bool:
        """Learns from one answer; the two monotonic times say when it was asked for and when it came.

        An answer that took long says too little about the time (it may be off by half of that): it is not used, and
        the result is False. A lasting jump of the database's clock is followed.
        """
        if answered_at - asked_at > ANSWER_MAX_S:
            return False
        self._offset_s = database_now - (asked_at + answered_at) / 2
        return True

    def now(self) -> float:
        """The database's time."""
        if self._offset_s is None:
            raise AssertionError("the clock was read before the database told the time")
        return self.monotonic() + self._offset_s
