"""The circuit breaker of a route, one for all workers: closed, open, and one probe at a time.

Only what says something about the provider counts (`counts`); fifty refused recipients are fifty refused recipients.
How a worker uses it, so that a route that is well costs nothing:

- It counts its successes itself, in a `Tally`. At a failure that counts it lets `after` change the shared row, under
  the row's lock, and hands over what it has tallied. It does the same without a failure when it refreshes what it
  knows, at most once a second, while the breaker is not clean: so the others learn that it works for somebody.
- Open: no call starts, sends stay pending and lose nothing, failover applies. From `held_until` on, `may_probe`; who
  gets a changed breaker from `begin_probe`, under the row's lock, makes one call. Each call that ends now is
  told with `end_probe`, which knows the probe from those that had begun before. The probe of a worker that died lapses
  with its lease, which is a little more than the call may take.
- Closed again (and after a hold by Retry-After) traffic comes back slowly: `ramp`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.core.retry import Backoff
from posthouse.values import value

STREAK_MAX: Final = 5
"""So many failures in a row, with no success between, open it."""

STREAK_GAP_S: Final = 3600.0
"""Failures further apart than this are not in a row.

A standby with 1 % of a hundred emails an hour has a call an hour, and has to be found dead all the same. What lies
further back belongs to another incident.
"""

WINDOW_S: Final = 60.0
OUTCOMES_MIN: Final = 20
FAILURES_SHARE: Final = 0.5
"""It also opens when, of at least so many outcomes within the window, so large a part failed."""

OPEN_BACKOFF: Final = Backoff(first_s=5.0, max_s=300.0)
"""How long it stays open, growing with each time that it didn't help."""

FORGIVEN_AFTER_S: Final = 300.0
"""When it stayed closed for so long, the next time counts as the first again."""

RAMP_S: Final = 10.0
"""From one call at once to all of them."""


class BreakerState(StrEnum):
    """Whether calls may start."""

    CLOSED = "closed"  # in use
    OPEN = "open"  # nothing starts; after `held_until` one probe at a time


@dataclass(frozen=True, slots=True)
class Breaker:
    """What all workers know of a route's provider. All zero is one that nothing ever happened to."""

    state: BreakerState = BreakerState.CLOSED
    held_until: float = 0.0  # while open: no probe before
    strikes: int = 0  # how often it opened, each time soon after the last
    streak: int = 0  # failures since the last success
    failed_at: float = 0.0  # the latest of them
    window_start: float = 0.0
    successes: int = 0  # in the window that began then
    failures: int = 0
    probe_by: int = 0  # the worker that probes
    probe_until: float = 0.0  # when its lease lapses
    closed_at: float = 0.0  # when it last closed; traffic ramps from here

    def is_clean(self, now: float) -> bool:
        """Whether successes need not be handed over: they could change nothing."""
        in_window = self.failures > 0 and _is_live(self.window_start, now)
        return self.state is BreakerState.CLOSED and not self.streak and not in_window

    @property
    def opens_at(self) -> float:
        """While it is open: when the next call may start, if the probe under way is not heard of again."""
        return max(self.held_until, self.probe_until)


@value
class Tally:
    """The successes of one worker on one route that it has not handed over; those of the last minute, about."""

    since: float = 0.0
    count: int = 0

    def with_success(self, now: float) -> Tally:
        """One more."""
        return Tally(self.since, self.count + 1) if _is_live(self.since, now) else Tally(now, 1)

    def successes(self, now: float) -> int:
        """What to hand over; then begin with a new tally."""
        return self.count if _is_live(self.since, now) else 0


NO_TALLY: Final = Tally()


def counts(verdict: Verdict) -> bool | None:
    """True for a failure of the provider, False for a success, None for what says nothing about its health.

    A provider that refuses a recipient or a message, or says that it has seen the key, is well; how fast it may be
    asked is the limiter's business.
    """
    if verdict.outcome is Outcome.ACCEPTED:
        return False
    if verdict.outcome is Outcome.THROTTLED:
        return None
    of_the_route = verdict.subject is Subject.ROUTE or verdict.outcome is Outcome.MISCONFIGURED
    return True if of_the_route else None


def after(breaker: Breaker, successes: int, failure: bool, now: float, chance: float) -> Breaker:
    """The breaker after what a worker tallied, and then a failure where there was one.

    While it is open this changes nothing: such calls began before, and only the probe says what is true now.
    """
    if breaker.state is BreakerState.OPEN:
        return breaker
    told = _told(breaker, successes, failure, now)
    return _opened(told, now, chance) if _trips(told) else told


def may_probe(breaker: Breaker, now: float) -> bool:
    """Whether one call may find out if the provider is back."""
    return breaker.state is BreakerState.OPEN and now >= breaker.opens_at


def begin_probe(breaker: Breaker, worker: int, now: float, lease_s: float) -> Breaker | None:
    """The breaker while this worker probes, or None when it may not. The worker's id is not 0."""
    return replace(breaker, probe_by=worker, probe_until=now + lease_s) if may_probe(breaker, now) else None


def drop_probe(breaker: Breaker, worker: int) -> Breaker:
    """The breaker after a probe that found nothing to send: the next may begin at once."""
    return replace(breaker, probe_by=0, probe_until=0.0) if breaker.probe_by == worker else breaker


def end_probe(breaker: Breaker, worker: int, failed: bool | None, now: float, chance: float) -> Breaker:
    """The breaker after a call that ended while it was open; `failed` is what `counts` says of it.

    Whatever is no failure of the provider closes it when it comes from who probes. From anybody else only a success
    counts, and only once a probe may begin: before, it comes from a call that had begun before.
    """
    if breaker.state is BreakerState.CLOSED:
        return breaker
    probes = breaker.probe_by == worker
    if failed:
        return _opened(breaker, now, chance) if probes else breaker
    late_success = failed is False and now >= breaker.held_until
    return Breaker(strikes=breaker.strikes, closed_at=now) if probes or late_success else breaker


def ramp(concurrency: int, reopened_at: float, now: float, chance: float, paused_s: float = RAMP_S) -> int:
    """How many calls at once a worker may have after a pause: from 1, doubling, to all within RAMP_S.

    After a pause that was shorter it takes no longer than the pause. `chance`, best drawn once a worker and pause,
    spreads the workers: no two need to be in step.
    """
    whole_s = min(RAMP_S, paused_s) * (0.5 + 0.5 * chance)
    back_s = max(0.0, now - reopened_at)
    return concurrency if back_s >= whole_s else max(1, int(concurrency ** (back_s / whole_s)))


def _is_live(window_start: float, now: float) -> bool:
    return abs(now - window_start) < WINDOW_S


def _told(breaker: Breaker, successes: int, failure: bool, now: float) -> Breaker:
    live = _is_live(breaker.window_start, now)
    unbroken = not successes and abs(now - breaker.failed_at) <= STREAK_GAP_S
    return replace(
        breaker,
        window_start=breaker.window_start if live else now,
        successes=successes + (breaker.successes if live else 0),
        failures=failure + (breaker.failures if live else 0),
        streak=failure + (breaker.streak if unbroken else 0),
        failed_at=now if failure else breaker.failed_at,
    )


def _trips(breaker: Breaker) -> bool:
    outcomes = breaker.successes + breaker.failures
    many = outcomes >= OUTCOMES_MIN and breaker.failures >= FAILURES_SHARE * outcomes
    return many or breaker.streak >= STREAK_MAX


def _opened(breaker: Breaker, now: float, chance: float) -> Breaker:
    forgiven = breaker.state is BreakerState.CLOSED and now - breaker.closed_at >= FORGIVEN_AFTER_S
    strikes = 1 if forgiven else breaker.strikes + 1
    return Breaker(
        BreakerState.OPEN,
        held_until=now + OPEN_BACKOFF.delay_s(strikes, chance),
        strikes=strikes,
    )
