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
    SWAPPED = "swapped"  # the right answer, after the one to the following step
    LOST = "lost"  # a webhook that is never called
    TWICE = "twice"  # one that is called again with the same
    FORGED = "forged"  # somebody else calls it as well, with an untruth


TIMED: Final = frozenset({Action.SLOW, Action.DRIP})
"""Actions that take a duration."""

TOLD: Final = frozenset({Action.LOST, Action.TWICE, Action.FORGED})
"""Actions that only calls to webhooks know. They may be slow and swapped too."""

WORDED: Final = frozenset({Action.STATUS, Action.MALFORMED, Action.TRUNCATED, Action.HTML})
"""Actions that answer with a status of their own."""


def acceptance_choices(action: Action, status: int) -> tuple[bool, ...]:
    """Whether the provider may have taken the message all the same; what is usual stands first."""
    if action in WORDED:
        if status < 300:
            return (True, False)
        # Below 500 only where a step hands the message over: `Fault` sees to it.
        return (False, True) if status >= (400 if action is Action.STATUS else 500) else (False,)
    return {
        Action.SLOW: (True, False),
        Action.DRIP: (True,),
        Action.SWAPPED: (True,),
        Action.DROP: (False, True),
        Action.STALL: (False, True),
        Action.LOST: (True,),
        Action.TWICE: (True,),
        Action.FORGED: (True,),
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
    text: str = ""  # what an error answer says; "" for words of the sandbox's own

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
        if self.text and self.action is not Action.STATUS:
            raise ValueError("text goes with an error status, such as 452:at=rcpt,text=4.5.3 Too many recipients")
        if not self.text.isprintable() or self.text != self.text.strip() or "," in self.text:
            raise ValueError("text must be on one line, without a comma and without spaces around it")

    @property
    def reaches_provider(self) -> bool:
        """False: the request ends before anything that a provider does with it."""
        return self.accepted or self.action is Action.SLOW


class CallKind(StrEnum):
    """What a call asks the provider for, or which step of a conversation it is."""

    SEND = "send"
    LOOK_UP = "look-up"
    HEALTH = "health"
    BANNER = "banner"  # a connection is greeted
    EHLO = "ehlo"  # the client says who it is
    STARTTLS = "starttls"  # the client asks for encryption
    AUTH = "auth"  # the client says its password
    MAIL = "mail"  # a message begins: its sender
    RCPT = "rcpt"  # one recipient
    DATA = "data"  # the client asks whether to send the content
    DOT = "dot"  # the content is complete: the message is handed over
    IDLE = "idle"  # nothing has been asked for a while
    WEBHOOK = "webhook"  # the other way round: the provider tells what became of a message


STEPS: Final = frozenset(CallKind) - {CallKind.SEND, CallKind.LOOK_UP, CallKind.HEALTH, CallKind.WEBHOOK}
"""The steps of a conversation, in which one connection carries message after message."""


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
    at: CallKind | None = CallKind.SEND  # None: whatever the provider is called for
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
        if self.at is not call.kind and (self.at is not None or call.kind is CallKind.WEBHOOK):
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
        if (reason := _out_of_place(self.effect, self.target.at)) is not None:
            raise ValueError(reason)


def _out_of_place(effect: Effect, at: CallKind | None) -> str | None:
    """Why `effect` can't happen at this step."""
    if at is CallKind.WEBHOOK:
        if effect.action in TOLD | {Action.SWAPPED} or (effect.action is Action.SLOW and effect.accepted):
            return None
        return f"{effect.action} is an answer; a webhook can be lost, twice, forged, swapped or slow, such as slow=30s"
    if effect.action in TOLD:
        return f"{effect.action} is for webhooks; write {effect.action}:at=webhook"
    if effect.action is Action.SWAPPED and at not in STEPS - {CallKind.IDLE, CallKind.STARTTLS}:
        return (
            "swapped changes the order of a conversation's answers: give a step with a following one, such as at=rcpt"
        )
    if effect.retry_after is not None and at in STEPS:
        return f"at={at} has no retry-after"
    if at is CallKind.IDLE and effect.action not in (Action.STATUS, Action.DROP, Action.STALL):
        return f"{effect.action} is an answer, and at=idle nobody has asked; a status, drop and stall can happen there"
    if effect.action is Action.STATUS and effect.accepted and effect.status < 500 and at is not CallKind.DOT:
        return f"{effect.status} always means not accepted, except at=dot"
    silent = effect.action in (Action.STATUS, Action.DROP, Action.STALL)
    if silent and effect.accepted and at in STEPS - {CallKind.DOT}:
        return f"no message is accepted at={at}; at=dot is where it is"
    return None


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


def _step_once(effect: Effect, at: CallKind, times: int = 1) -> Fault:
    return Fault(effect, Target(first=times, per=Per.KEY, at=at))


MAGIC_RECIPIENTS_IN_STEPS: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "rejected": Fault(Effect(Action.STATUS, status=550), Target(at=CallKind.RCPT)),
        "throttled": _step_once(Effect(Action.STATUS, status=450, text="4.7.1 Too fast"), CallKind.RCPT),
        "twice-503": _step_once(Effect(Action.STATUS, status=451), CallKind.RCPT, times=2),
        "unavailable": Fault(Effect(Action.STATUS, status=451), Target(at=CallKind.RCPT)),
        "slow": Fault(Effect(Action.SLOW, accepted=True, delay_s=3.0), Target(at=CallKind.DOT)),
        "unknown": _step_once(Effect(Action.DROP, accepted=True), CallKind.DOT),
        "lost": _step_once(Effect(Action.DROP), CallKind.DOT),
        "stalled": _step_once(Effect(Action.STALL, accepted=True), CallKind.DOT),
        "garbled": Fault(Effect(Action.MALFORMED, accepted=True), Target(at=CallKind.DOT)),
    }
)
"""The same where a message is handed over step by step."""


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
        if call.recipients and (magic := self._draw_magic(call)) is not None:
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
        magic = MAGIC_RECIPIENTS_IN_STEPS if call.kind in STEPS else MAGIC_RECIPIENTS
        for recipient in call.recipients:
            name = recipient.partition("@")[0].partition("+")[0]
            fault = magic.get(name)
            if fault is not None and fault.target.at is call.kind and not self._used_up(name, fault, call):
                self._count(name, fault, call)
                return fault
        return None

    def _used_up(self, place: int | str, fault: Fault, call: Call) -> bool:
        first = fault.target.first
        return first is not None and self._hits[place, fault.target.counted_as(call)] >= first

    def _count(self, place: int | str, fault: Fault, call: Call) -> None:
        if fault.target.first is not None:
            self._hits[place, fault.target.counted_as(call)] += 1
