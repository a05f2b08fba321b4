"""Whether this worker may still start calls, and whether it may judge that others are dead."""

from __future__ import annotations

from collections.abc import Callable


class Pulse:
    """The worker's own heartbeat as it sees it, on its monotonic clock.

    A worker that could not say that it lives for half of `dead_after_s` starts no call: by the time the others
    take it for dead, nothing new of it is under way. And one that was cut off itself can't know who is dead; it
    judges only after it has been in touch for all of `dead_after_s`.
    """

    def __init__(self, dead_after_s: float, clock: Callable[[], float]) -> None:
        self._dead_after_s = dead_after_s
        self._clock = clock
        self._last = self._steady_since = clock()

    def beat(self, begun_at: float) -> None:
        """A heartbeat that was begun at `begun_at` was written."""
        if begun_at - self._last > self._dead_after_s / 2:
            self._steady_since = begun_at
        self._last = max(self._last, begun_at)

    @property
    def may_start(self) -> bool:
        """Whether a call may be started now."""
        return self._clock() - self._last < self._dead_after_s / 2

    @property
    def may_judge(self) -> bool:
        """Whether a silent worker may be declared dead now."""
        return self.may_start and self._clock() - self._steady_since >= self._dead_after_s
