"""A send as the deciding functions see it, one attempt on it, and the change that a decision makes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from posthouse.core.lifecycle import Happening, Status
from posthouse.core.outcome import Verdict
from posthouse.values import value


@value
class SendState:
    """The part of a row that decisions read. Times are seconds since 1970, UTC."""

    id: int
    type: str
    status: Status
    fence: int
    attempts: int  # calls made
    failures: int  # calls that count against max_attempts
    expires_at: float
    route: str | None = None  # of the latest attempt
    claimed_by: int | None = None
    unknown_since: float | None = None  # start of the latest send whose outcome nobody knows (a replay repeats it)
    unknown_fence: int | None = None  # fence of the first call whose outcome nobody knows yet
    maybe_duplicate: bool = False
    message_id: str | None = None  # the provider's, once it was accepted

    @property
    def unresolved(self) -> bool:
        """Whether some call may have been accepted and nobody knows."""
        return self.unknown_since is not None

    @property
    def tries_since_lost(self) -> int:
        """How often the send was taken up since the first call whose outcome nobody knows yet; at least 1."""
        return 1 if self.unknown_fence is None else max(1, self.fence - self.unknown_fence)


class Via(StrEnum):
    """How a call came about."""

    SEND = "send"  # a dispatcher's claim
    REPLAY = "replay"  # the reconciler, under the same idempotency key
    LOOK_UP = "look-up"  # the reconciler asked the provider
    REAPER = "reaper"  # written for a dead worker
    PERSON = "person"  # `posthouse resolve`
    EVENT = "event"  # the provider told of it by itself


CALLS: Final = frozenset({Via.SEND, Via.REPLAY, Via.REAPER})
"""Attempts that stand for a call (for the reaper: that may have been one). The others found out about one."""


@value
class Attempt:
    """One call to a provider for one send, as its worker reports it."""

    send_id: int
    fence: int
    route: str
    started_at: float
    ended_at: float
    verdict: Verdict
    via: Via = Via.SEND


@dataclass(frozen=True, slots=True)
class Split:
    """Recipients who get a send of their own: the provider took the message for the others only, or they must not get
    it."""

    addresses: tuple[str, ...]
    message_id: str | None  # the message's own, which the new send keeps; None: it has none yet
    attempt: Attempt | None  # the call as it was for them, the new send's first; None: there was none
    change: Change  # what that makes of the new send


@value
class Change:
    """What one decision writes to a send. Fields left at None stay as they are, but for the two `unknown_*`."""

    happening: Happening
    status: Status
    next_try_at: float | None  # when its owner looks at it again; None = never by itself
    spends_attempt: bool = False
    returns_attempt: bool = False  # one that was counted turned out not to be the send's own
    unknown_since: float | None = None
    unknown_fence: int | None = None
    message_id: str | None = None
    last_error: str | None = None
    maybe_duplicate: bool = False  # only ever sets the mark
    delete_content: bool = False
    splits: tuple[Split, ...] = ()

    @property
    def failures(self) -> int:
        """What it adds to the calls that count against max_attempts."""
        return int(self.spends_attempt) - int(self.returns_attempt)
