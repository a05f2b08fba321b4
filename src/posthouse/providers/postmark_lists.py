"""Postmark's suppressions, a list for each message stream.

Facts: postmarkapp.com/developer/api/suppressions-api, as of 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

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
)
from posthouse.providers.webhook_fields import address_at, text_at

CAUSES: Final[Mapping[str, SuppressionCause]] = {
    "HardBounce": BOUNCE,
    "SpamComplaint": COMPLAINT,
    "ManualSuppression": MANUAL,  # of the Origin Recipient: an unsubscription
}
"""By `SuppressionReason`."""

PUSHES: Final = frozenset({BOUNCE, COMPLAINT, UNSUBSCRIBE, MANUAL})
"""All of them become ManualSuppression."""


def postmark_lists(url: Callable[[str], str], stream: str) -> SuppressionLists:
    """The list of one message stream."""
    place = f"/message-streams/{stream}/suppressions"
    return SuppressionLists(
        first=ListCall("GET", url(f"{place}/dump"), _listed), pushes=PUSHES, push=partial(_push, url(place)), batch=50
    )


def _listed(answer: Answer, document: Any) -> ListPage | None:
    items = items_at(answer, document, "Suppressions")
    if items is None:
        return None
    return ListPage(
        tuple(
            one
            for item in items
            for one in listed_at(item, _cause(item), address="EmailAddress", since="CreatedAt", reason="Origin")
        )
    )


def _cause(item: Any) -> SuppressionCause | None:
    cause = CAUSES.get(text_at(item, "SuppressionReason"))
    return UNSUBSCRIBE if cause is MANUAL and at(item, "Origin") == "Recipient" else cause


def _push(url: str, _: SuppressionCause, addresses: Sequence[str]) -> ListCall[Pushed]:
    body = encoded({"Suppressions": [{"EmailAddress": address} for address in addresses]})
    return ListCall("POST", url, _pushed, body)


def _pushed(answer: Answer, document: Any) -> Pushed | None:
    items = items_at(answer, document, "Suppressions")
    if items is None:
        return None
    failed = [item for item in items if at(item, "Status") == "Failed"]
    return Pushed({address_at(item, "EmailAddress"): text_at(item, "Message") or "refused" for item in failed})
