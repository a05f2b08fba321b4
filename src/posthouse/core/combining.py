"""Several sends to one recipient that go out as one: which ones, and what the one then says.

A send of such a type is due some time after it was asked for. When the first of a recipient is, those that wait with
it join: they differ in nothing but what a template makes of them. The one that carries them has the variables of all,
written down before any call for it, so that every call says the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from posthouse.content import Content
from posthouse.core.lifecycle import Happening, Status
from posthouse.core.sends import Change

RESERVED: Final = ("items", "count")
"""The variables that the template is given beside the email's own."""

CHARS_MAX: Final = 64 * 1024
"""How large the stored content of one may be, and so what a digest can cost."""

DIGEST_CHARS_MAX: Final = 1024 * 1024
"""How large those together may be that go out as one; more goes out in the next."""

LIVES_APART: Final = 2.0
"""One joins another that has at most so many times as long to live as itself, and at least a part of so many."""

JOINED: Final = Change(Happening.COMBINED, Status.COMBINED, None, delete_content=True)
"""What becomes of a send that joins another one, which has what it says from now on."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """A send that no call was made for and that may go out with others. Times are seconds since 1970, UTC."""

    id: int
    to_address: str
    expires_at: float
    content: Content
    chars: int  # of its stored content
    due: bool


@dataclass(frozen=True, slots=True)
class Digest:
    """Sends that go out as one: the one that carries the others, which it then lives as long as, and what it says."""

    carrier: int
    joined: tuple[int, ...]
    content: Content
    expires_at: float


def refusal(content: Content, chars: int) -> tuple[str, str] | None:
    """Why an email can't be combined with others: the field and the reason; None where it can."""
    if content.template is None:
        return "template", "is needed: a template makes one email of several"
    if len(content.to) != 1 or content.cc or content.bcc:
        return "to", "one recipient, and no cc or bcc"
    for field in ("attachments", "alternatives"):
        if getattr(content, field):
            return field, "would be left out where several go out as one"
    if taken := next((name for name in RESERVED if name in content.variables), None):
        return f"variables.{taken}", "is what the template is given for all of them together"
    if chars > CHARS_MAX:
        return "variables", f"{chars} characters with all else that is stored; at most {CHARS_MAX}"
    return None


def digests(found: Sequence[Gathered], now: float) -> list[Digest]:
    """Who goes out with whom, the oldest first. Each digest is carried by its first send that is due."""
    alike: dict[tuple[str, str], list[Gathered]] = defaultdict(list)
    for send in sorted(found, key=lambda send: send.id):
        if refusal(send.content, 0) is None:
            alike[send.to_address, _look(send.content)].append(send)
    return [digest for group in alike.values() for digest in _digests_of(group, now)]


def _look(content: Content) -> str:
    """What must be the same in all that go out together, as text."""
    own: dict[str, Any] = {"to": (), "variables": {}, "items": (), "tags": (), "metadata": {}, "message_id": None}
    return replace(content, **own).to_json()


def _digests_of(group: Sequence[Gathered], now: float) -> Iterator[Digest]:
    left = list(group)
    while carrier := next((send for send in left if send.due), None):
        together = _joining(carrier, left, now)
        gone = {send.id for send in together}
        left = [send for send in left if send.id not in gone]
        if len(together) > 1:
            items = tuple(item for send in together for item in send.content.items or (send.content.variables,))
            yield Digest(
                carrier.id,
                tuple(send.id for send in together if send is not carrier),
                replace(carrier.content, items=items),
                min(send.expires_at for send in together),
            )


def _joining(carrier: Gathered, group: Collection[Gathered], now: float) -> list[Gathered]:
    """The carrier and those that fit in with it, in their order."""
    together, chars, life_s = [], carrier.chars, carrier.expires_at - now
    for send in group:
        if send is not carrier:
            if not life_s / LIVES_APART <= send.expires_at - now <= life_s * LIVES_APART:
                continue
            if chars + send.chars > DIGEST_CHARS_MAX:
                continue
            chars += send.chars
        together.append(send)
    return together
