"""One message that came back: read, and kept before anybody is told that it was."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from posthouse.core.policy import TypePolicy
from posthouse.returned.reading import Kind, Returned, read_returned
from posthouse.store.events import Stored
from posthouse.store.store import Store

NO_ROUTE: Final = ""
"""Where something came in that no route is known for."""

QUARANTINED_CHARS_MAX: Final = 100_000
"""So much of a message is kept for a person to look at."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a message."""

    returned: Returned
    route: str
    stored: Stored

    @property
    def quarantined(self) -> bool:
        """Whether it is kept for a person to look at, instead of anything else."""
        return self.returned.kind is Kind.UNREAD


class Inlet:
    """Keeps what came back. `bounce_addresses` are the routes' own, by name."""

    def __init__(self, store: Store, policies: Mapping[str, TypePolicy], bounce_addresses: Mapping[str, str]) -> None:
        self._store = store
        self._policies = policies
        self._bounce_addresses = bounce_addresses

    def take(self, content: bytes, *, route: str | None = None, recipient: str = "") -> Taken:
        """Reads a message and writes what it says, or the message itself where nobody can tell what it says.

        The same message again changes nothing. `route` is for what is about no send that is known. Raises
        DatabaseUnavailable; nothing is kept then.
        """
        now = self._store.ledger.now()
        returned = read_returned(content, now, recipient=recipient, bounce_addresses=self._bounce_addresses)
        stored = Stored()
        its_route = self._route(returned, route)
        if returned.kind is Kind.UNREAD:
            item = content.decode("utf-8", "backslashreplace")[:QUARANTINED_CHARS_MAX]
            digest = hashlib.sha256(content).hexdigest()
            self._store.events.quarantine(its_route, {digest: item}, returned.reason, now)
        else:
            stored = self._store.events.store(its_route, returned.events, self._policies, now, verified=False)
        return Taken(returned, its_route, stored)

    def _route(self, returned: Returned, given: str | None) -> str:
        of_send = self._store.events.route_of(returned.events[0]) if returned.events else None
        return of_send or returned.route or given or NO_ROUTE
