"""Reading a provider's pages one after the other."""

from __future__ import annotations

from typing import Final, Protocol

CIRCLE: Final = "its pages lead in a circle"
"""Why reading ends: it would go on for ever."""


class PageCall(Protocol):
    """A call for one page."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def body(self) -> bytes:
        """What goes with it."""


class Trail:
    """The calls that were made on the way."""

    def __init__(self) -> None:
        self._made: set[tuple[str, bytes]] = set()

    def comes_back(self, call: PageCall) -> bool:
        """Whether this very call was made before; from now on it was."""
        known = (call.url, call.body) in self._made
        self._made.add((call.url, call.body))
        return known
