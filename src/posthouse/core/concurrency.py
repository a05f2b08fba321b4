"""How many calls at once a route takes well, found out from its own latency: in one worker, and only from its calls.

More calls at once than a provider can work on make none of them faster; they wait there, and time out there, where
nobody can give them back. So the limit grows while calls take about as long as they take an unhurried provider, and
shrinks when they take twice as long: then about half of them are waiting.

A worker keeps one `Adaptive` for each route. It starts a call only while fewer than `allowed` are under way, and tells
of each that ended: its latency, whether that is what the provider takes for an acceptance (`tells`; neither a refusal
nor a refused connection is), and how many were under way, itself included. It is kept in memory only: a new worker
finds out anew within seconds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.values import value

FIRST_SAMPLES_MIN: Final = 10
SAMPLES_MIN: Final = 50
"""A window ends after so many calls (the first while it still doubles), or after as many as are allowed where that is
more: about one round trip. With fewer, chance would look like waiting."""

TRIMMED: Final = 0.125
"""What is typical of a window is the mean without so many of its fastest and its slowest calls."""

SLOW: Final = 2.0
"""A window is slow when its typical latency is so many times the baseline; two in a row shrink the limit."""

QUICK_S: Final = 0.05
"""No window is slow whose calls typically take less, whatever the baseline: nobody waits long there, and in so short
a time it may as well be this worker itself that was busy, with more calls than before."""

SHRUNK: Final = 0.4
"""What is left then: a little less than where calls would not wait, so that the next windows show the baseline."""

FAILED: Final = 0.8
"""What a throttled call or one without an answer leaves of the limit; once for all that were under way together."""

GROWTH: Final = 0.05

LEARNT_DOWN: Final = 0.2
LEARNT_UP: Final = 0.01
LEARNT_IN_VAIN: Final = 0.5
"""How much of the way to a window's typical latency the baseline goes: fast to a lower one, slowly to a higher one,
and half of it where shrinking has not helped."""

HELPED: Final = 0.85
"""If shrinking leaves more than this of the latency, it wasn't our hurry: the provider has become slower by itself."""


@value
class Adaptive:
    """What one worker has found out about one route."""

    limit: float = 1.0
    baseline_s: float = 0.0  # what a call typically takes there; 0 = not known yet
    doubles: bool = True  # each window, until it first shrinks
    changed_at: float = -math.inf  # when it shrank: calls that had begun before say nothing about the limit now
    slow: bool = False  # whether the last window was
    shrunk_s: float = 0.0  # the one that made it shrink, until the next window shows whether that helped
    samples: tuple[float, ...] = ()  # of the window
    peak: int = 0  # the most calls under way in it

    def allowed(self, maximum: int) -> int:
        """How many calls may be under way, of `maximum` that are configured; at least one."""
        return max(1, min(int(self.limit), maximum))

    def with_sample(self, latency_s: float, in_flight: int) -> Adaptive:
        """One more; put together by hand, as there is one for each call."""
        return Adaptive(
            self.limit,
            self.baseline_s,
            self.doubles,
            self.changed_at,
            self.slow,
            self.shrunk_s,
            (*self.samples, latency_s),
            max(self.peak, in_flight),
        )


def claim_ahead(at_once: int, call_s: float, claim_s: float) -> int:
    """How many sends to claim beyond the calls that may be under way at once, so that others begin in their place while
    the next claim is: as many as typically end meanwhile, none where calls take much longer than claims, and at most
    as many again. `call_s` is 0 where it is not known yet."""
    return min(int(at_once * claim_s / call_s), at_once) if call_s else 0


def tells(verdict: Verdict) -> bool | None:
    """Whether a call's latency counts (True), or it says that there were too many (False), or nothing (None)."""
    if verdict.outcome is Outcome.ACCEPTED:
        return True
    unanswered = verdict.outcome is Outcome.UNKNOWN and verdict.subject is Subject.ROUTE
    return False if unanswered or verdict.outcome is Outcome.THROTTLED else None


def ended(
    state: Adaptive, latency_s: float, ok: bool, in_flight: int, now: float, maximum: int, *, shared: bool = False
) -> Adaptive:
    """What is known after a call; `in_flight` counts it too.

    One that several sends `shared` takes the longer the more they are, so its latency says nothing; that it was taken
    does.
    """
    if now - latency_s <= state.changed_at:
        return state
    if not ok:
        return _shrunk(state, FAILED, now)
    told_s = (state.baseline_s or latency_s) if shared else latency_s
    state = state.with_sample(told_s, in_flight)
    enough = max(FIRST_SAMPLES_MIN if state.doubles else SAMPLES_MIN, state.allowed(maximum))
    return _judged(state, now, maximum) if len(state.samples) >= enough else state


def _judged(state: Adaptive, now: float, maximum: int) -> Adaptive:
    """The state at the end of a window."""
    typical_s = _typical_s(state.samples)
    baseline_s = _learnt_s(state, typical_s)
    slow = typical_s > max(SLOW * baseline_s, QUICK_S)
    next_ = replace(state, baseline_s=baseline_s, slow=slow, shrunk_s=0.0, samples=(), peak=0)
    if slow and state.slow:
        in_use = min(state.limit, float(state.peak))
        return _shrunk(replace(next_, limit=in_use, slow=False, shrunk_s=typical_s), SHRUNK, now)
    used = state.peak >= state.allowed(maximum)
    return next_ if slow or not used else replace(next_, limit=min(_grown(state), float(maximum)))


def _typical_s(samples: tuple[float, ...]) -> float:
    cut = int(TRIMMED * len(samples))
    usual = sorted(samples)[cut : len(samples) - cut]
    return sum(usual) / len(usual)


def _learnt_s(state: Adaptive, typical_s: float) -> float:
    """The baseline after a window."""
    if not state.baseline_s:
        return typical_s
    if typical_s < state.baseline_s:
        part = LEARNT_DOWN
    elif state.shrunk_s and typical_s > HELPED * state.shrunk_s:
        part = LEARNT_IN_VAIN
    else:
        part = LEARNT_UP
    return state.baseline_s + part * (typical_s - state.baseline_s)


def _grown(state: Adaptive) -> float:
    return 2 * state.limit if state.doubles else state.limit + max(1.0, GROWTH * state.limit)


def _shrunk(state: Adaptive, factor: float, now: float) -> Adaptive:
    limit = max(1.0, factor * state.limit)
    return replace(state, limit=limit, doubles=False, changed_at=now, samples=(), peak=0)
