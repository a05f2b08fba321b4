"""A provider's own rate limit: so many sends a window, and headers that say how many still fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SendLimit:
    """So many sends in each window."""

    sends: int
    window_s: float


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

    def headers(self, now: float) -> Mapping[str, str]:
        """What an answer says, in whole seconds and never too few."""
        return {
            "RateLimit-Limit": str(self._limit.sends),
            "RateLimit-Remaining": str(self._limit.sends - self._sends),
            "RateLimit-Reset": str(math.ceil(self._since + self._limit.window_s - now)),
        }
