"""What a route can't carry: found at enqueue, so that nothing is dropped on the way without a word."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from typing import Final

from posthouse.content import Content
from posthouse.core.outcome import Outcome, Verdict
from posthouse.providers.body import OUR_ID, Body
from posthouse.providers.port import OutgoingMessage

_LISTED: Final = ("to", "cc", "bcc", "reply_to", "headers", "tags", "metadata")
_WORDS: Final = ("text", "html")


class Room:
    """What one route's body has place for; `ignored` parts may be left out."""

    def __init__(self, body: Body, ignored: Set[str]) -> None:
        rooms = {name: body.takes(name) for name in _LISTED if name not in ignored}
        self._limits = [(name, room) for name, room in rooms.items() if not math.isinf(room)]
        self._homeless = {name for name in _WORDS if not body.takes(name)}
        self._ignored = ignored
        self._headers_once = body.headers_as_table and "headers" not in ignored
        self._metadata = body.takes("metadata") > 0

    def lost(self, content: Content | OutgoingMessage) -> list[str]:
        """The parts of `content` that would be lost, one reason a line; empty when it is carried whole.

        The words of a template are not known at enqueue; they are looked at when the message goes out.
        """
        reasons = []
        for name, room in self._limits:
            if (count := len(getattr(content, name))) > room:
                reasons.append(f"{name}: this route takes {f'one, not {count}' if room else 'none'}")
        if self._homeless:
            reasons += self._lost_words(content)
        if self._headers_once and (twice := _repeated(name for name, _ in content.headers)):
            reasons.append(f"headers.{twice}: this route takes each header once")
        if self._metadata and OUR_ID in content.metadata:
            reasons.append(f"metadata.{OUR_ID}: our own id goes out under this name")
        return reasons

    def _lost_words(self, content: Content | OutgoingMessage) -> list[str]:
        given = [name for name in _WORDS if getattr(content, name) is not None]
        if given and self._homeless.issuperset(given):
            other = "html" if given[0] == "text" else "text"
            return [f"{given[0]}: this route takes {other} alone, and there is none"]
        return [f"{n}: this route takes none" for n in given if n in self._homeless and n not in self._ignored]


def too_large(content: Content, max_size: int) -> list[str]:
    """Whether a message of this content is larger than its route takes, as a reason or none."""
    if (size := content.encoded_size) <= max_size:
        return []
    return [f"content: about {size:,} bytes as it is sent; this route takes {max_size:,} (max_size)"]


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
