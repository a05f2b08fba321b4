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
    route: str | None = None  # of its latest call
    heard: bool = False  # something was heard of it before


def its_send(event: Event, candidates: Sequence[Candidate], route: str | None) -> Candidate | None:
    """The one that the event, which came in on `route`, is about: by our id, else by the provider's.

    Two providers may give the same id, and one provider's news may come in by another of its routes. So what went by
    that very route comes first, and of what went by others only what is to the recipient, where the event names one.
    A provider gives one id to a whole call, and a send whose recipients were split off shares it with what was split:
    then the recipient decides. None where nothing does. Without a route, all went by it.
    """
    ours = [one for one in candidates if event.key is not None and one.key == event.key]
    if ours:
        return ours[0]
    theirs = [one for one in candidates if event.message_id is not None and one.message_id == event.message_id]
    of_route = [one for one in theirs if route is None or one.route == route]
    if len(of_route) == 1:
        return of_route[0]
    address = fold(event.recipient)
    named = [one for one in of_route or theirs if not address or address in one.recipients]
    return named[0] if len(named) == 1 else None


def is_main(event: Event, recipients: Sequence[str]) -> bool:
    """Whether the event is about the recipient whose fate is the send's own `delivery`: the first one.

    So is one that names nobody. One that names somebody whom the email was not for is not, also where there is one
    recipient alone. Providers name the address that we gave, and a report after forwarding or an alias names it as
    the original recipient. Where neither does, a receiver had taken the message and sent it on, perhaps to several:
    what became of it there is not what became of ours; or the report is made up.
    """
    address = fold(event.recipient)
    if "@" not in address:
        return not address or len(recipients) == 1
    return address in recipients[:1]
