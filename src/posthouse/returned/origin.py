"""Which send a message that came back is about, when something happened, and to whom."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_tz
from itertools import chain
from typing import Final

from posthouse.core.bounce_address import route_and_key
from posthouse.header import OUR_ID_HEADER
from posthouse.returned.parts import Part

CLOCKS_DIFFER_S: Final = 400 * 86_400.0
"""A date that is older was written by a clock that is wrong."""

OUR_ID: Final = OUR_ID_HEADER.lower()
_KEY = re.compile(r"[0-9a-f]{32}")
_MESSAGE_ID = re.compile(r"<?([^\s<>]{1,250}@[^\s<>]{1,250})>?")
_QUOTED = re.compile(
    rf"^[>| \t]{{0,20}}({OUR_ID}|message-id|references|in-reply-to):([^\n]*(?:\n[>|]{{0,5}}[ \t]+[^\n]*)?)",
    re.IGNORECASE | re.MULTILINE,
)
_OF_THE_ORIGINAL: Final = ("x-original-message-id", "original-message-id", "references", "in-reply-to")
_RECEIVED_FOR: Final = ("delivered-to", "x-original-to", "envelope-to", "x-envelope-to", "x-delivered-to", "to")
_ADDRESS = re.compile(r"[^\s<>;,:()\[\]\"']{1,64}@[^\s<>;,:()\"']{1,255}")


@dataclass(frozen=True, slots=True)
class Origin:
    """The send that a message is about, as far as it says."""

    key: str | None = None  # our id
    message_id: str | None = None  # of the message that was sent, without its brackets
    route: str | None = None  # the one whose bounce address it came to

    def __bool__(self) -> bool:
        return self.key is not None or self.message_id is not None


def origin_of(message: Part, recipient: str, bounce_addresses: Mapping[str, str]) -> Origin:
    """By the address that it came to, else by our header, else by the Message-ID of what was returned.

    `bounce_addresses` are the routes' own, by name.
    """
    named = list(_named(message))
    message_ids = [found[1] for name, value in named if name != OUR_ID for found in _MESSAGE_ID.finditer(value)]
    came_to = (recipient, *(value for name in _RECEIVED_FOR for value in message.fields.all(name)))
    for address in chain.from_iterable(map(addresses_in, came_to)):
        if (found := route_and_key(address, bounce_addresses)) is not None:
            route, key = found
            return Origin(key, None, route)
    ours = [value.strip() for name, value in named if name == OUR_ID and _KEY.fullmatch(value.strip())]
    ours += [left for left, _, _ in (one.partition("@") for one in message_ids) if _KEY.fullmatch(left)]
    return Origin(ours[0]) if ours else Origin(None, next(iter(message_ids), None))


def _named(message: Part) -> Iterator[tuple[str, str]]:
    """What names the message that was sent, best first: its own headers, then fields about it, then quoted lines."""
    below = [part for part in message.walk() if part is not message]
    for part in below:
        yield from ((name, value) for name in (OUR_ID, "message-id") for value in part.fields.all(name))
    yield from ((name, value) for name in _OF_THE_ORIGINAL for value in message.fields.all(name))
    for part in (message, *below):
        if not part.parts:
            for found in _QUOTED.finditer(part.text):
                yield found[1].lower(), " ".join(found[2].split())


def addresses_in(text: str) -> list[str]:
    """The addresses that stand in a field or a line, as they are written."""
    return [found.rstrip(".") for found in _ADDRESS.findall(text)]


def moment(dates: Iterable[str], now: float) -> float:
    """The first of these dates that can be read and can be true, as seconds since 1970; else now.

    Zones by name, `-0000`, comments and missing weekdays are understood (RFC 5322 sections 3.3 and 4.3).
    """
    for date in dates:
        at = _seconds(date)
        if at is not None and now - CLOCKS_DIFFER_S < at:
            return min(at, now)
    return now


def _seconds(date: str) -> float | None:
    try:
        read = parsedate_tz(date[:200])
        return None if read is None else float(calendar.timegm(read[:9]) - (read[9] or 0))
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
