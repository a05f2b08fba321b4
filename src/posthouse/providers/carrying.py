"""What a route can't carry: found at enqueue, so that nothing is dropped on the way without a word."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from posthouse.email import Content
from posthouse.providers.body import OUR_ID, Body
from posthouse.providers.port import OutgoingMessage

_LISTED: Final = ("to", "cc", "bcc", "reply_to", "headers", "tags", "metadata")
_WORDS: Final = ("text", "html")


def lost_parts(content: Content | OutgoingMessage, body: Body, ignored: Set[str]) -> list[str]:
    """The parts of `content` that `body` has no place for, one reason a line; empty when it carries everything.

    The words of a template are not known yet; they are looked at again when the message goes out.
    """
    reasons = []
    for name in _LISTED:
        count, room = len(getattr(content, name)), body.takes(name)
        if count > room and name not in ignored:
            reasons.append(f"{name}: this route takes one, not {count}" if room else f"{name}: this route takes none")
    reasons += _lost_words(content, body, ignored)
    if body.headers_as_table and (twice := _repeated(name for name, _ in content.headers)):
        reasons.append(f"headers.{twice}: this route takes each header once")
    if OUR_ID in content.metadata and body.takes("metadata"):
        reasons.append(f"metadata.{OUR_ID}: our own id goes out under this name")
    return reasons


def _lost_words(content: Content | OutgoingMessage, body: Body, ignored: Set[str]) -> list[str]:
    given = [name for name in _WORDS if getattr(content, name) is not None]
    homeless = [name for name in given if not body.takes(name)]
    if given and homeless == given:
        return [f"{given[0]}: this route takes {_other(given[0])} alone, and there is none"]
    return [f"{name}: this route takes none" for name in homeless if name not in ignored]


def _other(name: str) -> str:
    return "html" if name == "text" else "text"


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None
