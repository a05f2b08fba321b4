"""Postmark's own record: its list of bounces, and of each message without a known end what became of it.

Opens and clicks are left to the webhooks: their times here are others, so they would count twice.
Facts: postmarkapp.com/developer/api (bounce-api, messages-api), as of 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from posthouse.core.answers import Answer
from posthouse.core.events import Event
from posthouse.providers.answer_paths import at, id_at
from posthouse.providers.logs import MESSAGES_AGO_S, WEBHOOKS_FIRST_S, LogPage, LogQuestion, ProviderLog, TooMuch
from posthouse.providers.postmark_events import read
from posthouse.providers.webhook_fields import text_at

COUNT_MAX: Final = 500
REACH_MAX: Final = 10_000
"""Count and offset together."""

BOUNCES: Final = "Bounces"
MESSAGES: Final = "Messages"
PATHS: Final = {BOUNCES: "/bounces", MESSAGES: "/messages/outbound"}
"""What is listed where; the answer has it under the same name."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What is still to be listed: of each kind, from one moment to another; the first of them from `offset` on."""

    url: Callable[[str], str]
    stream: str
    lists: tuple[tuple[str, float, float], ...]
    offset: int = 0


def postmark_log(url: Callable[[str], str], stream: str, kept_s: float) -> ProviderLog:
    """The record of one message stream; `url` makes an address of a path."""
    return ProviderLog(first=partial(_first, url, stream), read=read_entry, lag_s=WEBHOOKS_FIRST_S, kept_s=kept_s)


def _first(url: Callable[[str], str], stream: str, begin: float, end: float) -> LogQuestion:
    messages = ((MESSAGES, begin - ago_s, end - ago_s) for ago_s in MESSAGES_AGO_S)
    return _next(_Stretch(url, stream, ((BOUNCES, begin, end), *messages)))


def _next(stretch: _Stretch) -> LogQuestion:
    what, begin, end = stretch.lists[0]
    query = {
        "count": COUNT_MAX,
        "offset": stretch.offset,
        "messagestream": stretch.stream,
        "fromdate": eastern(begin, latest=False),
        "todate": eastern(end, latest=True),
    }
    return LogQuestion(stretch.url(f"{PATHS[what]}?{urlencode(query)}"), partial(_listed, stretch))


def _listed(stretch: _Stretch, answer: Answer, document: Any) -> LogPage | TooMuch | None:
    what = stretch.lists[0][0]
    listed, total = at(document, what), at(document, "TotalCount")
    if answer.status != 200 or not isinstance(listed, list) or not isinstance(total, int):
        return None
    if total > REACH_MAX:
        return TooMuch()
    further = replace(stretch, offset=stretch.offset + len(listed))
    if further.offset >= total or not listed:
        further = replace(stretch, lists=stretch.lists[1:], offset=0)
    step = _next(further) if further.lists else None
    if what == BOUNCES:
        return LogPage(tuple(_as_told(bounce, "Bounce") for bounce in listed), further=step)
    ids = filter(None, (id_at(message, "MessageID") for message in listed))
    return LogPage(details=tuple((id_, _detail(stretch.url, id_)) for id_ in ids), further=step)


def _detail(url: Callable[[str], str], message_id: str) -> LogQuestion:
    return LogQuestion(url(f"/messages/outbound/{quote(message_id, safe='')}/details"), _detailed)


def _detailed(answer: Answer, document: Any) -> LogPage | None:
    """One that is gone, or can't be read, holds up no other."""
    if answer.status in (404, 422):
        return LogPage()
    if answer.status != 200 or not isinstance(document, dict):
        return LogPage() if answer.status == 200 else None
    told = document.get("MessageEvents")
    deliveries = [one for one in told if at(one, "Type") == "Delivered"] if isinstance(told, list) else []
    return LogPage(
        tuple(
            {
                "MessageID": document.get("MessageID"),
                "Metadata": document.get("Metadata"),
                "Recipient": one.get("Recipient"),
                "DeliveredAt": one.get("ReceivedAt"),
                "Details": text_at(one, "Details.DeliveryMessage"),
                "RecordType": "Delivery",
            }
            for one in deliveries
        )
    )


def _as_told(item: Any, record_type: str) -> Any:
    """An item of a list as a webhook has it."""
    return {**item, "RecordType": record_type} if isinstance(item, dict) else item


def read_entry(item: Any) -> Iterator[Event]:
    """Everything is told as by a webhook."""
    return read(item, {})


# Postmark takes times on the clocks of New York.


def eastern(moment: float, *, latest: bool) -> str:
    """A moment on those clocks. In the hour that they show twice, so that no reading of it comes too late or, for the
    `latest` one, too early."""
    hours = {_behind(moment), _behind(moment - 3600 if latest else moment + 3600)}
    behind = min(hours) if latest else max(hours)
    return f"{datetime.fromtimestamp(moment + latest, UTC) - timedelta(hours=behind):%Y-%m-%dT%H:%M:%S}"


def _behind(moment: float) -> int:
    """How many hours New York is behind UTC (15 U.S.C. 260a): from the second Sunday of March to the first of
    November, at two in the morning, one less than five."""
    there = datetime.fromtimestamp(moment, UTC)
    begin = _sunday(there.year, 3, 8) + timedelta(hours=7)
    end = _sunday(there.year, 11, 1) + timedelta(hours=6)
    return 4 if begin <= there < end else 5


def _sunday(year: int, month: int, day: int) -> datetime:
    """The first one from that day on."""
    from_day = datetime(year, month, day, tzinfo=UTC)
    return from_day + timedelta(days=6 - from_day.weekday())
