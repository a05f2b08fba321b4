"""What is played: an hour of a shop, its outage, and how much faster than life both go. Pure.

Two paces. The hour runs fast, so that the orders come in as they would, only sooner. The waits within it (time
limits, slow answers, pauses before another try) run less fast: a time limit of a tenth of a second would measure how
busy this computer is, not how slow the provider is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from posthouse.sandbox.fault_text import fault_text
from posthouse.sandbox.faults import Action, Effect, Fault, Per, Target

HOUR_S: Final = 3600.0
OUTAGE_FROM_S: Final = 20 * 60.0
"""When the outage begins, where it is not so long that it has to begin earlier."""

WAIT_PACE_MAX: Final = 5.0

TIMEOUT_S: Final = 15.0
SLOW_ANSWER_S: Final = 8.0
LATE_ANSWER_S: Final = 18.0  # comes when the caller has given up
SLOW_CHECKOUT_S: Final = 2.0  # a customer who waits longer wonders
DELAYED_S: Final = 60.0
RETRY_FIRST_S: Final = 5.0
RETRY_MAX_S: Final = 60.0
SWEEP_S: Final = 5.0
POLL_MIN_S: Final = 0.25
POLL_MAX_S: Final = 1.0
CONCURRENCY: Final = 32
"""The settings of a real shop, in seconds of its own time."""

CONCURRENCY_MAX: Final = 1000
UNAVAILABLE_SHARE: Final = 0.3
LATE_SHARE_MAX: Final = 0.65
LATE_HASTE: Final = 1.3
"""Late answers are drawn so much more often than needed that their number is reached before the outage ends."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One hour. Its own times are story seconds; what is called `real` is in seconds of this computer."""

    orders: int
    hour_s: float  # real: how long the hour takes
    outage_min: float
    timeouts: int  # so many calls at most are accepted and answered too late
    seed: int

    @property
    def pace(self) -> float:
        """Story seconds of the hour in one real second."""
        return HOUR_S / self.hour_s

    @property
    def wait_pace(self) -> float:
        """Story seconds of a wait in one real second."""
        return max(1.0, min(self.pace, WAIT_PACE_MAX))

    @property
    def outage_from_s(self) -> float:
        """When the outage begins."""
        return min(OUTAGE_FROM_S, (HOUR_S - self.outage_s) / 2)

    @property
    def outage_s(self) -> float:
        """How long it lasts."""
        return self.outage_min * 60

    @property
    def outage_until_s(self) -> float:
        """When it is over."""
        return self.outage_from_s + self.outage_s

    def real(self, story_s: float) -> float:
        """Where a moment of the hour stands, or how long a part of it takes, in real seconds."""
        return story_s / self.pace

    def real_wait(self, story_s: float) -> float:
        """How long a wait takes in real seconds."""
        return story_s / self.wait_pace

    @property
    def concurrency(self) -> int:
        """Calls at once: as many more as waits are too long against the hour."""
        return min(CONCURRENCY_MAX, round(CONCURRENCY * max(1.0, self.pace / self.wait_pace)))

    def arrivals(self) -> list[float]:
        """When each order comes, in real seconds since the hour began: by chance, as customers do."""
        chance = random.Random(self.seed)  # noqa: S311  # draws customers, keeps no secrets
        return sorted(chance.uniform(0.0, self.hour_s) for _ in range(self.orders))

    @property
    def late_fault(self) -> str | None:
        """The calls that are accepted and whose answer comes when nobody waits for it any more, if there are any."""
        if not self.timeouts:
            return None
        calls = max(1.0, self.orders * self.outage_s / HOUR_S)
        share = min(LATE_SHARE_MAX, LATE_HASTE * self.timeouts / calls)
        late = Effect(Action.SLOW, accepted=True, delay_s=self.real_wait(LATE_ANSWER_S))
        return self._during_outage(late, Target(share=share, first=self.timeouts, per=Per.ALL))

    def faults(self) -> list[str]:
        """The outage, as the sandbox is told it: late answers, answers of 503, and for all others slow ones."""
        late = [self.late_fault] if self.late_fault is not None else []
        unavailable = self._during_outage(Effect(Action.STATUS, status=503), Target(share=UNAVAILABLE_SHARE))
        slow = Effect(Action.SLOW, accepted=True, delay_s=self.real_wait(SLOW_ANSWER_S))
        return [*late, unavailable, self._during_outage(slow, Target())]

    def _during_outage(self, effect: Effect, target: Target) -> str:
        begins_s, ends_s = self.real(self.outage_from_s), self.real(self.outage_until_s)
        return fault_text(Fault(effect, replace(target, from_s=begins_s, until_s=ends_s)))
