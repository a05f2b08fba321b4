"""A provider's own rate limit: so many sends a window, and what still fits."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SendLimit:
    """So many sends in each window."""

    sends: int
    window_s: float


@dataclass(frozen=True, slots=True)
class Standing:
    """What a limit lets through in the window under way. Times are seconds since 1970."""

    sends: int
    remaining: int
    ends_at: float
    now: float

    @property
    def ends_in_s(self) -> int:
        """Whole seconds, and never too few."""
        return math.ceil(self.ends_at - self.now)


class LimitCounter:
    """Counts sends; a window begins with the first send after the one before."""

    def __init__(self, limit: SendLimit) -> None:
        self._limit = limit
        self._since = -math.inf
        self._sends = 0

    def takes(self, now: float) -> bool:
        """Whether one more send fits; then it is counted."""
        if now >= self._since + self._limit.window_s:
            self._since, self._sends = now, 0
        if self._sends >= self._limit.sends:
            return False
        self._sends += 1
        return True

    def standing(self, now: float) -> Standing:
        """How it stands."""
        return Standing(self._limit.sends, self._limit.sends - self._sends, self._since + self._limit.window_s, now)
