"""A provider's own suppression list, where it has an API: how it is read, and what can be put on it.

Data and pure functions; `worker/suppression_lists.py` makes the calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, TypeVar

from posthouse.core.answers import Answer
from posthouse.core.outcome import Verdict
from posthouse.core.provider_lists import Listed
from posthouse.core.suppression import SuppressionCause
from posthouse.providers.answer_paths import at
from posthouse.providers.webhook import Unreadable
from posthouse.providers.webhook_fields import address_at, moment_at, text_at

T = TypeVar("T")

BOUNCE: Final = SuppressionCause.HARD_BOUNCE
COMPLAINT: Final = SuppressionCause.COMPLAINT
UNSUBSCRIBE: Final = SuppressionCause.UNSUBSCRIBE
MANUAL: Final = SuppressionCause.MANUAL


@dataclass(frozen=True, slots=True)
class ListCall(Generic[T]):
    """One call. `read` gets the answer and its decoded JSON; it gives None where that is not as documented."""

    method: str
    url: str
    read: Callable[[Answer, Any], T | None]
    body: bytes = b""  # JSON


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of the list."""

    listed: Sequence[Listed] = ()
    further: ListCall[ListPage] | None = None


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of the addresses of one call: those that were not taken, and why."""

    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressionLists:
    """The list, or lists, of one route."""

    first: ListCall[ListPage]
    pushes: frozenset[SuppressionCause]  # what has a place there
    push: Callable[[SuppressionCause, Sequence[str]], ListCall[Pushed]]  # addresses of one cause
    batch: int  # so many of them at once


@dataclass(frozen=True, slots=True)
class OpenLists:
    """The lists of one route; a Verdict says why a call told nothing."""

    lists: SuppressionLists
    ask: Callable[[ListCall[Any]], Awaitable[Any | Verdict]]


def listed_at(
    item: Any, cause: SuppressionCause | None, *, address: str, since: str, reason: str = ""
) -> Sequence[Listed]:
    """An item of a list by the paths of its parts; nothing where it is no such item."""
    found = address_at(item, address)
    if cause is None or "@" not in found:
        return ()
    return (Listed(found, cause, _moment(item, since), text_at(item, reason) if reason else ""),)


def _moment(item: Any, path: str) -> float | None:
    try:
        return moment_at(item, path)
    except Unreadable:
        pass
    try:
        return parsedate_to_datetime(text_at(item, path)).timestamp()  # RFC 2822
    except ValueError:
        return None


def taken(*statuses: int) -> Callable[[Answer, Any], Pushed | None]:
    """Reads an answer that says no more than that all of them were taken."""
    return lambda answer, _: Pushed() if answer.status in statuses else None


def items_at(answer: Answer, document: Any, path: str) -> list[Any] | None:
    """The items of an answer; None where there are none to be found."""
    items = (document if not path else at(document, path)) if answer.status == 200 else None
    return items if isinstance(items, list) else None
