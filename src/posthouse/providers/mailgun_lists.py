"""Mailgun's suppressions: three lists for each domain.

Facts: documentation.mailgun.com (suppressions), as of 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from posthouse.core.answers import Answer
from posthouse.core.suppression import SuppressionCause
from posthouse.providers.answer_paths import at
from posthouse.providers.body import encoded
from posthouse.providers.suppression_lists import (
    BOUNCE,
    COMPLAINT,
    MANUAL,
    UNSUBSCRIBE,
    ListCall,
    ListPage,
    Pushed,
    SuppressionLists,
    items_at,
    listed_at,
    taken,
)

LISTS: Final[Mapping[SuppressionCause, str]] = {
    BOUNCE: "bounces",
    COMPLAINT: "complaints",
    UNSUBSCRIBE: "unsubscribes",
}

PLACES: Final[Mapping[SuppressionCause, str]] = {**LISTS, MANUAL: "unsubscribes"}
"""Where each cause is put."""

COUNT_MAX: Final = 1000


def mailgun_lists(url: Callable[[str], str]) -> SuppressionLists:
    """The lists of one domain; `url` makes an address of a list's name."""
    return SuppressionLists(
        first=_page(url, tuple(LISTS), f"?limit={COUNT_MAX}"),
        pushes=frozenset(PLACES),
        push=partial(_push, url),
        batch=COUNT_MAX,
    )


def _page(url: Callable[[str], str], causes: tuple[SuppressionCause, ...], query: str) -> ListCall[ListPage]:
    return ListCall("GET", f"{url(LISTS[causes[0]])}{query}", partial(_listed, url, causes))


def _listed(
    url: Callable[[str], str], causes: tuple[SuppressionCause, ...], answer: Answer, document: Any
) -> ListPage | None:
    """A list ends with an empty page. Of the next page's address only the question is taken, never the host."""
    items = items_at(answer, document, "items")
    if items is None:
        return None
    if not items:
        return ListPage(further=_page(url, causes[1:], f"?limit={COUNT_MAX}") if causes[1:] else None)
    following = at(document, "paging.next")
    query = urlsplit(following).query if isinstance(following, str) else ""
    if not query:
        return None
    found = (listed_at(item, causes[0], address="address", since="created_at", reason="error") for item in items)
    return ListPage(tuple(one for each in found for one in each), _page(url, causes, f"?{query}"))


def _push(url: Callable[[str], str], cause: SuppressionCause, addresses: Sequence[str]) -> ListCall[Pushed]:
    more = {"tags": ["*"]} if PLACES[cause] == "unsubscribes" else {}
    return ListCall(
        "POST", url(PLACES[cause]), taken(200), encoded([{"address": address, **more} for address in addresses])
    )
