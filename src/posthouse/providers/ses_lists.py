"""The suppression list of an SES account in one region: two reasons, and one address a call.

Facts: botocore's model `sesv2/2019-09-27`, as of 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from posthouse.core.answers import Answer
from posthouse.core.suppression import SuppressionCause
from posthouse.providers.answer_paths import at
from posthouse.providers.body import encoded
from posthouse.providers.suppression_lists import (
    BOUNCE,
    COMPLAINT,
    ListCall,
    ListPage,
    Pushed,
    SuppressionLists,
    items_at,
    listed_at,
    taken,
)
from posthouse.providers.webhook_fields import text_at

REASONS: Final[Mapping[SuppressionCause, str]] = {BOUNCE: "BOUNCE", COMPLAINT: "COMPLAINT"}
CAUSES: Final[Mapping[str, SuppressionCause]] = {reason: cause for cause, reason in REASONS.items()}
"""Both ways. An unsubscription stays here: it would stand there as a complaint, and stop receipts."""

PATH: Final = "/v2/email/suppression/addresses"
COUNT_MAX: Final = 1000


def ses_lists(url: Callable[[str], str]) -> SuppressionLists:
    """The list of one account."""
    return SuppressionLists(first=_page(url, None), pushes=frozenset(REASONS), push=partial(_push, url), batch=1)


def _page(url: Callable[[str], str], token: str | None) -> ListCall[ListPage]:
    query = {"PageSize": COUNT_MAX, **({"NextToken": token} if token else {})}
    return ListCall("GET", url(f"{PATH}?{urlencode(sorted(query.items()), quote_via=quote)}"), partial(_listed, url))


def _listed(url: Callable[[str], str], answer: Answer, document: Any) -> ListPage | None:
    items = items_at(answer, document, "SuppressedDestinationSummaries")
    if items is None:
        return None
    token = at(document, "NextToken")
    found = (
        listed_at(item, CAUSES.get(text_at(item, "Reason")), address="EmailAddress", since="LastUpdateTime")
        for item in items
    )
    further = _page(url, token) if isinstance(token, str) and token else None
    return ListPage(tuple(one for each in found for one in each), further)


def _push(url: Callable[[str], str], cause: SuppressionCause, addresses: Sequence[str]) -> ListCall[Pushed]:
    (address,) = addresses
    return ListCall("PUT", url(PATH), taken(200), encoded({"EmailAddress": address, "Reason": REASONS[cause]}))
