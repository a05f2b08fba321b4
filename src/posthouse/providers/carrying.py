"""What a route can't carry: found at enqueue, so that nothing is dropped on the way without a word."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from posthouse.attachment import AMP_TYPE, CALENDAR_TYPE
from posthouse.config import RouteSettings
from posthouse.content import Content
from posthouse.core.outcome import Outcome, Verdict
from posthouse.providers.body import Body
from posthouse.providers.placeholders import CARRIES, OUR_ID
from posthouse.providers.port import OutgoingMessage

Mail = Content | OutgoingMessage
"""An email, as it is enqueued or as it goes out."""

_WORDS: Final = ("text", "html")

_PART_HEADERS: Final = "part_headers"
"""The further headers of an attachment's own part: no body has a place for them."""

_WHOLES: Final = {**CARRIES, "attachments": CARRIES["attachments"] | {_PART_HEADERS}}
"""What `ignore` means by a name that stands for several parts."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part that a route may have no place for."""

    name: str  # in the body and in `ignore`
    field: str  # of the email
    count: Callable[[Mail], int]
    which: str = ""  # of the field's values, in a refusal


def _several(name: str) -> _Part:
    get = attrgetter(name)
    return _Part(name, name, lambda mail: len(get(mail)))


def _single(name: str) -> _Part:
    get = attrgetter(name)
    return _Part(name, name, lambda mail: get(mail) is not None)


def _alternatives(name: str, which: str, chosen: Callable[[str], bool]) -> _Part:
    return _Part(name, "alternatives", lambda mail: sum(chosen(a.media_type) for a in mail.alternatives), which)


_PARTS: Final = (
    *map(_several, ("to", "cc", "bcc", "reply_to", "headers", "tags", "metadata")),
    _Part("files", "attachments", lambda mail: sum(not file.content_id for file in mail.attachments)),
    _Part(
        "inline",
        "attachments",
        lambda mail: sum(bool(file.content_id) for file in mail.attachments),
        " with a content id",
    ),
    _Part(
        _PART_HEADERS,
        "attachments",
        lambda mail: sum(bool(file.headers) for file in mail.attachments),
        " with headers of its own",
    ),
    _alternatives("amp", f" of {AMP_TYPE}", lambda kind: kind == AMP_TYPE),
    _alternatives(
        "calendar",
        f' of {CALENDAR_TYPE}; with ignore = ["alternatives"] an invitation goes out as its file alone',
        lambda kind: kind == CALENDAR_TYPE,
    ),
    _alternatives("alternatives", "", lambda kind: kind not in (AMP_TYPE, CALENDAR_TYPE)),
    *map(_single, ("raw", "envelope_sender", "track_opens", "track_clicks")),
    # Whoever is left of an email that others have already goes without its id rather than without a copy.
    _Part("message_id", "message_id", lambda mail: mail.message_id is not None and not mail.envelope_to),
)


class Room:
    """What one route's body has place for; `ignored` parts may be left out."""

    def __init__(self, body: Body, ignored: Set[str]) -> None:
        self._ignored = frozenset().union(*(_WHOLES.get(name, frozenset({name})) for name in ignored))
        rooms = [(part, body.takes(part.name)) for part in _PARTS if part.name not in self._ignored]
        self._limits = [(part, room) for part, room in rooms if not math.isinf(room)]
        self._homeless = {name for name in _WORDS if not body.takes(name)}
        self._headers_once = body.headers_as_table and "headers" not in ignored
        self._metadata = body.takes("metadata") > 0

    def lost(self, mail: Mail) -> list[str]:
        """The parts of `mail` that would be lost, one reason a line; empty when it is carried whole.

        The words of a template are not known at enqueue; they are looked at when the message goes out.
        """
        reasons = []
        for part, room in self._limits:
            if (count := part.count(mail)) > room:
                taken = f"one, not {count}," if room and part.which else f"one, not {count}" if room else "none"
                reasons.append(f"{part.field}: this route takes {taken}{part.which}")
        if self._homeless and mail.raw is None:
            reasons += self._lost_words(mail)
        if self._headers_once and (twice := _repeated(name for name, _ in mail.headers)):
            reasons.append(f"headers.{twice}: this route takes each header once")
        if self._metadata and OUR_ID in mail.metadata:
            reasons.append(f"metadata.{OUR_ID}: our own id goes out under this name")
        return reasons

    def _lost_words(self, mail: Mail) -> list[str]:
        if len(self._homeless) == len(_WORDS):
            return ["text: this route takes neither text nor html"]
        given = [name for name in _WORDS if getattr(mail, name) is not None]
        if given and self._homeless.issuperset(given):
            other = "html" if given[0] == "text" else "text"
            return [f"{given[0]}: this route takes {other} alone, and there is none"]
        return [f"{n}: this route takes none" for n in given if n in self._homeless and n not in self._ignored]


def refused_by_settings(content: Content, route: RouteSettings) -> Iterator[str]:
    """Why the route's own settings keep this content from it, one reason a line, whatever its provider can carry."""
    if (size := content.encoded_size) > route.max_size:
        yield f"content: about {size:,} bytes as it is sent; this route takes {route.max_size:,} (max_size)"
    if route.sender_domains and content.sender is not None:
        domain = content.sender.email.rpartition("@")[2].casefold()
        if not any(domain == own or domain.endswith(f".{own}") for own in route.sender_domains):
            yield f"sender: this route sends for {', '.join(route.sender_domains)}, not for {content.sender.email}"


def not_carried(reasons: Sequence[str]) -> Verdict:
    """The verdict on a message that a route can't carry, where that shows only when it goes out."""
    return Verdict(Outcome.REJECTED, code="unsupported", text="; ".join(reasons), rule="more than the route takes")


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None
