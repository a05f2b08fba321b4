"""Which of several sends an event is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.address import fold
from posthouse.core.events import Event


@dataclass(frozen=True, slots=True)
class Candidate:
    """A send that an event may be about."""

    send_id: int
    key: str  # what providers know it by
    message_id: str | None
    recipients: tuple[str, ...]  # folded
    heard: bool = False  # something was heard of it before


def its_send(event: Event, candidates: Sequence[Candidate]) -> Candidate | None:
    """The one that the event is about: by our id, else by the provider's.

    A provider gives one id to a whole call, and a send whose recipients were split off shares it with what was split:
    then the recipient decides. None where nothing does.
    """
    ours = [one for one in candidates if event.key is not None and one.key == event.key]
    if ours:
        return ours[0]
    theirs = [one for one in candidates if event.message_id is not None and one.message_id == event.message_id]
    if len(theirs) == 1:
        return theirs[0]
    named = [one for one in theirs if fold(event.recipient) in one.recipients]
    return named[0] if len(named) == 1 else None


def is_main(event: Event, recipients: Sequence[str]) -> bool:
    """Whether the event is about the recipient whose fate is the send's own `delivery`: the first one."""
    return len(recipients) == 1 or not event.recipient or fold(event.recipient) == recipients[0]
