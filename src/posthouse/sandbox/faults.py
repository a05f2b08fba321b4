"""What can go wrong at a provider, as small values: a `Fault` says what happens and to whom, a `FaultPlan` decides.

Free of any protocol, clock and randomness: `elapsed_s` and `chance` are arguments, so a run is replayed from its seed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol


class Chance(Protocol):
    """A source of randomness such as `random.Random`."""

    def random(self) -> float:
        """The next number in [0, 1)."""

    def seed(self, a: int, /) -> None:
        """Starts the numbers over from `a`."""


class Action(StrEnum):
    """What the caller sees. In a fault's text a status stands for itself: `503`."""

    STATUS = "status"  # an error answer
    SLOW = "slow"  # the right answer, after a while
    DRIP = "drip"  # the right answer, its body trickling in over a while
    MALFORMED = "malformed"  # a complete answer that is not JSON
    TRUNCATED = "truncated"  # an answer cut off half-way
    HTML = "html"  # a web page where JSON is due, as proxies send it
    DROP = "drop"  # the request is read, then the connection is reset
    STALL = "stall"  # the request is read, and nothing follows until the caller gives up
    REFUSE = "refuse"  # no connection is taken at all


TIMED: Final = frozenset({Action.SLOW, Action.DRIP})
"""Actions that take a duration."""

WORDED: Final = frozenset({Action.STATUS, Action.MALFORMED, Action.TRUNCATED, Action.HTML})
"""Actions that answer with a status of their own."""


def acceptance_choices(action: Action, status: int) -> tuple[bool, ...]:
    """Whether the provider may have taken the message all the same; what is usual stands first."""
    if action in WORDED:
        if status < 300:
            return (True, False)
        return (False, True) if status >= 500 else (False,)
    return {
        Action.SLOW: (True, False),
        Action.DRIP: (True,),
        Action.DROP: (False, True),
        Action.STALL: (False, True),
    }.get(action, (False,))


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """What an error answer asks for, as delay-seconds or as an HTTP date (RFC 9110 section 10.2.3)."""

    seconds: int
    as_date: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault does. Raises ValueError where the parts contradict each other."""

    action: Action
    accepted: bool = False  # the message is taken although the caller can't see it
    status: int = 200  # of the WORDED actions
    delay_s: float = 0.0  # of the TIMED actions
    retry_after: RetryAfter | None = None

    def __post_init__(self) -> None:
        lowest = 300 if self.action is Action.STATUS else 200
        if self.action in WORDED and not lowest <= self.status <= 599:
            raise ValueError(f"{self.status} is not a status from {lowest} to 599")
        if self.action in TIMED and not (self.delay_s > 0 and math.isfinite(self.delay_s)):
            raise ValueError(f"{self.action} needs a duration, such as {self.action}=8s")
        if self.accepted not in acceptance_choices(self.action, self.status):
            word = self.status if self.action is Action.STATUS else self.action
            raise ValueError(f"{word} always means {'not ' if self.accepted else ''}accepted")
        if self.retry_after is not None and self.action is not Action.STATUS:
            raise ValueError("retry-after goes with an error status, such as 429:retry-after=30")

    @property
    def reaches_provider(self) -> bool:
        """False: the request ends before anything that a provider does with it."""
        return self.accepted or self.action is Action.SLOW


class CallKind(StrEnum):
    """What a call asks the provider for."""

    SEND = "send"
    LOOK_UP = "look-up"
    HEALTH = "health"


class Per(StrEnum):
    """Whose calls a limited fault counts."""

    RECIPIENT = "recipient"
    KEY = "key"  # the idempotency key; the recipient where a call has none
    ALL = "all"  # everybody's together


@dataclass(frozen=True, slots=True)
class Call:
    """What a fault looks at. `recipients` are bare addresses, casefolded."""

    kind: CallKind
    recipients: Sequence[str] = ()
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a fault hits: every condition has to hold. Raises ValueError for impossible values."""

    share: float = 1.0  # of the calls that meet the other conditions
    to: str | None = None  # a recipient's address
    first: int | None = None  # hits for each recipient or key, or in all, then no more
    per: Per = Per.RECIPIENT
    at: CallKind | None = CallKind.SEND  # None: every kind
    from_s: float = 0.0  # seconds since the schedule began
    until_s: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share={self.share} is not a part from 0 to 1")
        if self.to is not None and ("@" not in self.to or "," in self.to):
            raise ValueError(f"to={self.to} is not an address such as ada@example.com")
        if self.first is not None and self.first < 1:
            raise ValueError(f"first={self.first} is not a number from 1")
        if self.first is None and self.per is not Per.RECIPIENT:
            raise ValueError("per says what first counts: give first as well")
        if self.until_s is not None and self.until_s <= self.from_s:
            raise ValueError("until must be later than from")

    def in_window(self, elapsed_s: float) -> bool:
        """Whether the schedule has the fault on."""
        return self.from_s <= elapsed_s and (self.until_s is None or elapsed_s < self.until_s)

    def concerns(self, call: Call, elapsed_s: float) -> bool:
        """Whether `call` meets every condition but `share` and `first`."""
        if self.at is not None and self.at is not call.kind:
            return False
        if self.to is not None and self.to.casefold() not in call.recipients:
            return False
        return self.in_window(elapsed_s)

    def counted_as(self, call: Call) -> str:
        """Under which name `first` counts `call`."""
        if self.per is Per.ALL:
            return ""
        if self.per is Per.KEY and call.key is not None:
            return call.key
        if self.to is not None:
            return self.to.casefold()
        return call.recipients[0] if call.recipients else ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. Raises ValueError where `target` can't apply to `effect`."""

    effect: Effect
    target: Target = Target()
    on: bool = True

    def __post_init__(self) -> None:
        window = Target(from_s=self.target.from_s, until_s=self.target.until_s)
        if self.effect.action is Action.REFUSE and self.target != window:
            raise ValueError("refuse hits every connection; it takes only from, until and off")


def _once(effect: Effect, times: int = 1) -> Fault:
    return Fault(effect, Target(first=times, per=Per.KEY))


MAGIC_RECIPIENTS: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "rejected": Fault(Effect(Action.STATUS, status=422)),
        "throttled": _once(Effect(Action.STATUS, status=429, retry_after=RetryAfter(1))),
        "twice-503": _once(Effect(Action.STATUS, status=503), times=2),
        "unavailable": Fault(Effect(Action.STATUS, status=503)),
        "slow": Fault(Effect(Action.SLOW, accepted=True, delay_s=3.0)),
        "unknown": _once(Effect(Action.DROP, accepted=True)),
        "lost": _once(Effect(Action.DROP)),
        "stalled": _once(Effect(Action.STALL, accepted=True)),
        "garbled": Fault(Effect(Action.MALFORMED, accepted=True)),
    }
)
"""Faults that a recipient's local part asks for, at any domain and with any `+tag`."""


class FaultPlan:
    """Faults in order, and how often each limited one has hit: the first that hits a call decides it.

    The same plan, calls and chance give the same faults. `share` is a part of all the calls that a fault concerns: two
    faults of 0.2 hit four calls in ten, never two of them at once.
    """

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self.faults: Final = tuple(faults)
        self._active = [(place, fault) for place, fault in enumerate(self.faults) if fault.on]
        self._refusals = [fault for _, fault in self._active if fault.effect.action is Action.REFUSE]
        self._uses_chance = any(fault.target.share < 1.0 for _, fault in self._active)
        self._hits: Counter[tuple[int | str, str]] = Counter()

    def refusal(self, elapsed_s: float) -> Fault | None:
        """The fault that has every connection refused at this moment."""
        return next((fault for fault in self._refusals if fault.target.in_window(elapsed_s)), None)

    def draw(self, call: Call, elapsed_s: float, chance: Chance) -> Fault | None:
        """The fault that hits `call`, counted. Takes at most one number from `chance`, always the same for one plan."""
        dice = chance.random() if self._uses_chance else 0.0
        if (refusal := self.refusal(elapsed_s)) is not None:
            return refusal
        if call.kind is CallKind.SEND and (magic := self._draw_magic(call)) is not None:
            return magic
        for place, fault in self._active:
            if not fault.target.concerns(call, elapsed_s) or self._used_up(place, fault, call):
                continue
            if dice < fault.target.share:
                self._count(place, fault, call)
                return fault
            dice -= fault.target.share
        return None

    def _draw_magic(self, call: Call) -> Fault | None:
        for recipient in call.recipients:
            name = recipient.partition("@")[0].partition("+")[0]
            fault = MAGIC_RECIPIENTS.get(name)
            if fault is not None and not self._used_up(name, fault, call):
                self._count(name, fault, call)
                return fault
        return None

    def _used_up(self, place: int | str, fault: Fault, call: Call) -> bool:
        first = fault.target.first
        return first is not None and self._hits[place, fault.target.counted_as(call)] >= first

    def _count(self, place: int | str, fault: Fault, call: Call) -> None:
        if fault.target.first is not None:
            self._hits[place, fault.target.counted_as(call)] += 1
