"""Resend's suppressions: one list for each account.

Facts: Resend's OpenAPI description (suppressions), as of 2026. It is new, and older accounts may lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from posthouse.core.answers import Answer
from posthouse.core.suppression import SuppressionCause
from posthouse.providers.answer_paths import as_id, at
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
from posthouse.providers.webhook_fields import text_at

CAUSES: Final[Mapping[str, SuppressionCause]] = {"bounce": BOUNCE, "complaint": COMPLAINT, "manual": MANUAL}
"""By `origin`."""

PUSHES: Final = frozenset({BOUNCE, COMPLAINT, UNSUBSCRIBE, MANUAL})
"""All of them become `manual`."""

COUNT_MAX: Final = 100


def resend_lists(url: Callable[[str], str]) -> SuppressionLists:
    """The list of one account."""
    return SuppressionLists(first=_page(url, None), pushes=PUSHES, push=partial(_push, url), batch=COUNT_MAX)


def _page(url: Callable[[str], str], after: str | None) -> ListCall[ListPage]:
    query = {"limit": COUNT_MAX, **({"after": after} if after else {})}
    return ListCall("GET", url(f"/suppressions?{urlencode(query)}"), partial(_listed, url))


def _listed(url: Callable[[str], str], answer: Answer, document: Any) -> ListPage | None:
    items = items_at(answer, document, "data")
    if items is None:
        return None
    last = as_id(at(items[-1], "id")) if items and at(document, "has_more") is True else None
    found = (
        listed_at(item, CAUSES.get(text_at(item, "origin")), address="email", since="created_at") for item in items
    )
    return ListPage(tuple(one for each in found for one in each), _page(url, last) if last else None)


def _push(url: Callable[[str], str], _: SuppressionCause, addresses: Sequence[str]) -> ListCall[Pushed]:
    return ListCall("POST", url("/suppressions/batch/add"), taken(200, 201), encoded({"emails": list(addresses)}))
