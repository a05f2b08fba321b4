"""Mailgun's own record: the events of a domain, the same that its webhooks tell.

Facts: documentation.mailgun.com (events), as of 2026.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from posthouse.core.answers import Answer
from posthouse.core.events import Event
from posthouse.providers.answer_paths import at
from posthouse.providers.logs import LogPage, LogQuestion, ProviderLog
from posthouse.providers.mailgun_events import read

COUNT_MAX: Final = 300


def mailgun_log(url: Callable[[str], str], lag_s: float, kept_s: float) -> ProviderLog:
    """The events below the address that `url` makes of what follows `/v3/DOMAIN/events`."""
    return ProviderLog(first=partial(_first, url), read=read_entry, lag_s=lag_s, kept_s=kept_s)


def _first(url: Callable[[str], str], begin: float, end: float) -> LogQuestion:
    query = {"begin": math.floor(begin), "end": math.ceil(end), "ascending": "yes", "limit": COUNT_MAX}
    return LogQuestion(url(f"?{urlencode(query)}"), partial(_listed, url))


def _listed(url: Callable[[str], str], answer: Answer, document: Any) -> LogPage | None:
    """A list ends with an empty page. Of the next page's address only the page is taken, never the host."""
    items = at(document, "items")
    if answer.status != 200 or not isinstance(items, list):
        return None
    if not items:
        return LogPage()
    following = at(document, "paging.next")
    page = urlsplit(following).path.rpartition("/events/")[2] if isinstance(following, str) else ""
    if not page or "/" in page:
        return None
    entries = tuple({"event-data": item} for item in items)
    return LogPage(entries, further=LogQuestion(url(f"/{quote(page, safe='=%')}"), partial(_listed, url)))


def read_entry(item: Any) -> Iterator[Event]:
    """Everything is told as by a webhook."""
    return read(item, {})
