"""Whether a credential that was refused has been replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from posthouse.errors import ConfigError

T = TypeVar("T")


class Rotation(Generic[T]):
    """Compares what a credential reads as with what was refused last. `read` raises ConfigError."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._known = False
        self._seen: T | None = None

    def refused(self, credential: T | None) -> None:
        """This was refused; None: there was none to be read."""
        self._known, self._seen = True, credential

    def changed(self) -> bool:
        """Whether it reads otherwise now; said once for each change.

        Where this process was refused nothing (another one was), what it reads as the first time is taken for refused.
        """
        try:
            now = self._read()
        except ConfigError:
            return False  # in the middle of being replaced
        known, seen = self._known, self._seen
        self.refused(now)
        return known and now != seen
