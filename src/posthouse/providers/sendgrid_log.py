"""SendGrid's own record: its Email Logs, of which each message without a known end is opened.

Facts: twilio.com/docs/sendgrid/api-reference/email-logs, as of 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from posthouse.core.answers import Answer
from posthouse.core.events import Event
from posthouse.providers.answer_paths import as_id, at
from posthouse.providers.body import encoded
from posthouse.providers.logs import MESSAGES_AGO_S, WEBHOOKS_FIRST_S, LogPage, LogQuestion, ProviderLog, TooMuch
from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.sendgrid_events import message_id_of, read

COUNT_MAX: Final = 1000
"""A longer list is cut off, and has no second page."""

NOT_TOLD: Final = frozenset({"received", "cancel_drop"})
"""Events that no webhook has."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What is still to be listed, from one moment to another each."""

    url: Callable[[str], str]
    lists: tuple[tuple[float, float], ...]


def sendgrid_log(url: Callable[[str], str], kept_s: float) -> ProviderLog:
    """The logs of one account; `url` makes an address of a path."""
    return ProviderLog(first=partial(_first, url), read=read_entry, lag_s=WEBHOOKS_FIRST_S, kept_s=kept_s)


def _first(url: Callable[[str], str], begin: float, end: float) -> LogQuestion:
    return _next(_Stretch(url, tuple((begin - ago_s, end - ago_s) for ago_s in MESSAGES_AGO_S)))


def _next(stretch: _Stretch) -> LogQuestion:
    begin, end = (datetime.fromtimestamp(moment, UTC) for moment in stretch.lists[0])
    query = (
        f'sg_message_id_created_at >= TIMESTAMP "{begin:%Y-%m-%dT%H:%M:%SZ}" '
        f'AND sg_message_id_created_at <= TIMESTAMP "{end:%Y-%m-%dT%H:%M:%SZ}"'
    )
    body = encoded({"query": query, "limit": COUNT_MAX})
    return LogQuestion(stretch.url("/v3/logs"), partial(_listed, stretch), body)


def _listed(stretch: _Stretch, answer: Answer, document: Any) -> LogPage | TooMuch | None:
    listed = at(document, "messages")
    if answer.status != 200 or not isinstance(listed, list):
        return None
    if len(listed) >= COUNT_MAX:
        return TooMuch()
    further = replace(stretch, lists=stretch.lists[1:])
    ids = filter(None, (as_id(at(entry, "sg_message_id")) for entry in listed))
    return LogPage(
        details=tuple((message_id_of(id_) or id_, _detail(stretch.url, id_)) for id_ in ids),
        further=_next(further) if further.lists else None,
    )


def _detail(url: Callable[[str], str], entry_id: str) -> LogQuestion:
    return LogQuestion(url(f"/v3/logs/{quote(entry_id, safe='')}"), _detailed)


def _detailed(answer: Answer, document: Any) -> LogPage | None:
    """One that is gone holds up no other."""
    if answer.status in (400, 404):
        return LogPage()
    told = at(document, "events")
    if answer.status != 200 or not isinstance(told, list):
        return None
    metadata = document.get("custom_args")
    about = {
        "email": document.get("to_email"),
        "sg_message_id": document.get("sg_message_id"),
        OUR_ID: metadata.get(OUR_ID) if isinstance(metadata, dict) else None,
    }
    return LogPage(
        tuple({**one, **about} if isinstance(one, dict) else one for one in told if at(one, "event") not in NOT_TOLD)
    )


def read_entry(item: Any) -> Iterator[Event]:
    """Everything is told as by a webhook."""
    return read(item, {})
