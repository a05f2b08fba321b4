"""SendGrid's suppressions: several lists, of which one can be added to.

Facts: twilio.com/docs/sendgrid/api-reference (suppressions), as of 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from posthouse.core.answers import Answer
from posthouse.core.suppression import SuppressionCause
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

LISTS: Final[Mapping[str, SuppressionCause | None]] = {
    "bounces": BOUNCE,
    "invalid_emails": BOUNCE,
    "spam_reports": COMPLAINT,
    "unsubscribes": UNSUBSCRIBE,
    "blocks": None,  # refused once, by the receiver's policy: SendGrid itself goes on sending there
}

PUSHES: Final = frozenset({UNSUBSCRIBE, MANUAL})
"""What may be told as a global unsubscription; bounces and complaints can't be told at all."""

COUNT_MAX: Final = 500
BATCH: Final = 1000


def sendgrid_lists(url: Callable[[str], str]) -> SuppressionLists:
    """The lists of one account."""
    read = tuple(name for name, cause in LISTS.items() if cause is not None)
    return SuppressionLists(first=_page(url, read, 0), pushes=PUSHES, push=partial(_push, url), batch=BATCH)


def _page(url: Callable[[str], str], names: tuple[str, ...], offset: int) -> ListCall[ListPage]:
    path = f"/v3/suppression/{names[0]}?limit={COUNT_MAX}&offset={offset}"
    return ListCall("GET", url(path), partial(_listed, url, names, offset))


def _listed(
    url: Callable[[str], str], names: tuple[str, ...], offset: int, answer: Answer, document: Any
) -> ListPage | None:
    items = items_at(answer, document, "")
    if items is None:
        return None
    further = _page(url, names, offset + len(items)) if items else _page(url, names[1:], 0) if names[1:] else None
    found = (listed_at(item, LISTS[names[0]], address="email", since="created", reason="reason") for item in items)
    return ListPage(tuple(one for each in found for one in each), further)


def _push(url: Callable[[str], str], _: SuppressionCause, addresses: Sequence[str]) -> ListCall[Pushed]:
    body = encoded({"recipient_emails": list(addresses)})
    return ListCall("POST", url("/v3/asm/suppressions/global"), taken(200, 201), body)
