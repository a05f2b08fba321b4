"""Reading a provider's own log of what became of our messages: for news whose webhook never came.

Data and pure functions; `worker/backfill.py` makes the calls. What a log tells is told in the same words as by the
provider's webhooks, so that what both tell counts once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from posthouse.core.answers import Answer
from posthouse.core.events import Event
from posthouse.core.outcome import Verdict

LOG_BYTES_MAX: Final = 32 * 1024 * 1024
"""So much of one answer is read: a page of a log is long, and some have whole messages in them."""


WEBHOOKS_FIRST_S: Final = 1800.0
"""What happened later than so long ago is not asked for: its webhook may still come."""

MESSAGES_AGO_S: Final = (0.0, 6 * 3600.0, 2 * 86_400.0)
"""A log that lists messages by when they were handed in is read for them again so long afterwards: receivers may put
a message off for days."""


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """One call: GET, or POST where it has a body, in JSON.

    `read` gets the answer and its decoded JSON (None where it is none); it gives None where that is not as documented.
    """

    url: str
    read: Callable[[Answer, Any], LogPage | TooMuch | None]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class TooMuch:
    """The log doesn't give out so much: a shorter stretch of time is to be asked for."""


@dataclass(frozen=True, slots=True)
class LogPage:
    """What one call told."""

    entries: Sequence[Any] = ()  # as `ProviderLog.read` takes them
    details: Sequence[tuple[str, LogQuestion]] = ()  # a message's id, and where more is told of it
    further: LogQuestion | None = None  # where the stretch goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderLog:
    """How the log of a provider is asked for a stretch of time. Times in seconds; moments since 1970.

    `read` yields the events of one entry, none for what is no news of a message, and raises Unreadable.
    """

    first: Callable[[float, float], LogQuestion]  # of the stretch from one moment to another
    read: Callable[[Any], Iterable[Event]]
    lag_s: float  # what happened later than so long ago may be missing in it still
    kept_s: float  # what happened earlier than so long ago is no longer in it


@dataclass(frozen=True, slots=True)
class OpenLog:
    """The log of one route; a Verdict says why it told nothing."""

    log: ProviderLog
    ask: Callable[[LogQuestion], Awaitable[LogPage | TooMuch | Verdict]]
