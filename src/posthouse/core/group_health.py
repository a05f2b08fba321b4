"""How each mailbox group takes our mail on each route: counted by time, and held against the group's own past.

Two signals say that a group should get less: it pushes back (puts off, or refuses for our pace or reputation) within
minutes, and its people complain within a day. Either has to be said by enough of them, to be more than an absolute
share, and to be more than this group's own past explains. What follows from it stands in `core/slowdown.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Self

from posthouse.config import Config
from posthouse.core.causes import cause_of
from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.mailbox_groups import mailbox_group
from posthouse.core.outcome import Outcome, Subject, Verdict

BUCKET_S: Final = 300.0
"""What happens within so long is counted together."""

MINUTE_S: Final = 60.0
DAY_S: Final = 86_400.0
KEPT_S: Final = 14 * DAY_S
"""A group's past, and how long counts are kept."""

RECENT_S: Final = 3 * BUCKET_S
"""Push-backs come within minutes, so they are judged within this time; complaints within a day."""


class GroupRoute(NamedTuple):
    """One mailbox group on one route: what is counted, judged and slowed by itself."""

    group: str
    route: str

    def __str__(self) -> str:
        return f"{self.group} on {self.route}"


class CountKey(NamedTuple):
    """What is counted together: one row of `email_group_counts`."""

    bucket: float  # its beginning
    group: str
    route: str
    kind: EventKind  # `sent`: calls that were accepted; the others: what events, or calls, say of recipients
    cause: Cause


COUNTED: Final = frozenset({EventKind.DELIVERED, EventKind.DEFERRED, EventKind.BOUNCED, EventKind.COMPLAINED})

PUSHED_BACK: Final = frozenset(
    {
        *((EventKind.DEFERRED, cause) for cause in (Cause.NONE, Cause.OTHER, Cause.UNREACHABLE)),
        *(
            (kind, cause)
            for kind in (EventKind.DEFERRED, EventKind.BOUNCED)
            for cause in (Cause.TOO_FAST, Cause.BLOCKED)
        ),
    }
)
"""What less mail may help against: not a full mailbox, not greylisting, and not our own faulty DKIM."""

OUR_FAULTS: Final = (Cause.BLOCKED, Cause.NOT_AUTHENTIC, Cause.TOO_FAST)
"""Causes that say something about us, and nothing about the recipient: an operator's business."""


def bucket_of(at: float) -> float:
    """The beginning of the bucket that a moment is in."""
    return at // BUCKET_S * BUCKET_S


def count_key(event: Event, route: str, now: float) -> CountKey | None:
    """Where an event counts: in its own time, however late it is heard. None where it counts nowhere."""
    at = min(event.at, now)
    if event.kind not in COUNTED or not event.recipient or at <= now - KEPT_S:
        return None
    return CountKey(bucket_of(at), mailbox_group(event.recipient), route, event.kind, event.cause)


def count_key_of_call(verdict: Verdict, group: str, route: str, at: float) -> CountKey | None:
    """Where the answer to a call counts: what was accepted, and what was said of the recipient. None for the others,
    which say something of the route."""
    if verdict.outcome is Outcome.ACCEPTED:
        return CountKey(bucket_of(at), group, route, EventKind.SENT, Cause.NONE)
    kind = _OF_THE_RECIPIENT.get(verdict.outcome) if verdict.subject is Subject.RECIPIENT else None
    return None if kind is None else CountKey(bucket_of(at), group, route, kind, cause_of("", verdict.text))


_OF_THE_RECIPIENT: Final = {Outcome.REJECTED: EventKind.BOUNCED, Outcome.TRANSIENT: EventKind.DEFERRED}


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the mail to one group on one route within some time."""

    sent: int = 0
    delivered: int = 0
    deferred: int = 0
    bounced: int = 0
    complained: int = 0
    pushed_back: int = 0

    @classmethod
    def of(cls, kind: EventKind, cause: Cause, number: int) -> Self:
        """So many of one kind and cause."""
        pushed_back = number if (kind, cause) in PUSHED_BACK else 0
        return cls(**{kind.value: number}, pushed_back=pushed_back)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.sent + other.sent,
            self.delivered + other.delivered,
            self.deferred + other.deferred,
            self.bounced + other.bounced,
            self.complained + other.complained,
            self.pushed_back + other.pushed_back,
        )

    @property
    def base(self) -> int:
        """How much mail this is about: what was sent, or heard of where more was heard than sent. What was put off
        may have been delivered or refused since, so it is no mail of its own."""
        return max(self.sent, self.delivered + self.bounced, self.deferred)

    @property
    def pushed_back_share(self) -> float:
        """The part of it that was pushed back; all of it where much was put off first, and refused then."""
        return min(self.pushed_back / max(self.base, 1), 1.0)

    @property
    def complained_share(self) -> float:
        """The part of it that people complained about."""
        return self.complained / max(self.sent, self.delivered, 1)


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was counted from `at` on."""

    at: float
    counts: Counts


def total(buckets: Iterable[Bucket], since: float = 0.0) -> Counts:
    """All of it in the buckets that begin then or later."""
    return sum((bucket.counts for bucket in buckets if bucket.at >= since), Counts())


class Signal(StrEnum):
    """What speaks for sending a group less."""

    PUSHED_BACK = "pushed_back"  # the receiver's server puts off or refuses, for our pace or our reputation
    COMPLAINTS = "complaints"  # its people call it spam


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """From where on a group is slowed."""

    slow_down: bool = True
    pushed_back: float = 0.10
    complaints: float = 0.003  # Gmail's and Yahoo's published limit for senders; Gmail asks for less than a third of it


def health_policy(config: Config) -> HealthPolicy:
    """As the configuration says."""
    health = config.health
    return HealthPolicy(health.slow_down, health.pushed_back, health.complaints)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A signal that is bad, in words, and how fast mail went meanwhile."""

    signal: Signal
    reason: str
    per_minute: int  # in the busiest bucket


PUSHED_BACK_MIN: Final = 10
COMPLAINTS_MIN: Final = 5
"""Fewer say nothing."""

PAST_MIN: Final = 100
"""A past of fewer emails says nothing."""

TIMES_ITS_PAST: Final = 3.0
COMPLAINTS_WINDOW_MIN_S: Final = DAY_S / 2
"""Complaints come hours later: a step is judged by those of so long a time after it."""


def trouble(
    buckets: Sequence[Bucket], past: Counts, policy: HealthPolicy, now: float, since: float = 0.0
) -> Trouble | None:
    """What is bad now. `buckets` are those of the last day, `past` is what was before it, `since` when the pace was
    changed last: what was before that says nothing about the pace of now."""
    return _pushed_back(buckets, past, policy, now, since) or _complained(buckets, past, policy, now, since)


def _pushed_back(
    buckets: Sequence[Bucket], past: Counts, policy: HealthPolicy, now: float, since: float
) -> Trouble | None:
    recent = total(buckets, max(now - RECENT_S, since))
    share = recent.pushed_back_share
    if recent.pushed_back < PUSHED_BACK_MIN or share < pushed_back_limit(past, policy):
        return None
    words = f"{share:.0%} of {recent.base:,} were put off or refused within {RECENT_S / 60:.0f} min"
    pace = busiest(buckets, now - RECENT_S, now)
    return Trouble(Signal.PUSHED_BACK, words + _before(past, past.pushed_back_share), pace)


def pushed_back_limit(past: Counts, policy: HealthPolicy) -> float:
    """The share from which on push-backs are bad: the policy's; but for a group that has always put off much, three
    times its past, or half-way from there to all of it."""
    if past.base < PAST_MIN:
        return policy.pushed_back
    usual = past.pushed_back_share
    return max(policy.pushed_back, min(TIMES_ITS_PAST * usual, (1.0 + usual) / 2))


def _complained(
    buckets: Sequence[Bucket], past: Counts, policy: HealthPolicy, now: float, since: float
) -> Trouble | None:
    """Complaints of the time since the last step, for as much mail as an equal part of the day's."""
    begun_at = max(now - DAY_S, since)
    heard, day = total(buckets, begun_at), total(buckets, now - DAY_S)
    part = (now - begun_at) / DAY_S
    if heard.complained < COMPLAINTS_MIN or now - begun_at < COMPLAINTS_WINDOW_MIN_S:
        return None
    share = heard.complained / max(part * max(day.sent, day.delivered), heard.complained)
    if share < complaints_limit(past, policy):
        return None
    words = f"{share:.2%} complained within {(now - begun_at) / 3600:.0f} h"
    pace = busiest(buckets, now - DAY_S, now)
    return Trouble(Signal.COMPLAINTS, words + _before(past, past.complained_share), pace)


def complaints_limit(past: Counts, policy: HealthPolicy) -> float:
    """The share from which on complaints are bad: the policy's; a third of it where that is three times the past."""
    if past.base < PAST_MIN:
        return policy.complaints
    return min(policy.complaints, max(policy.complaints / 3, TIMES_ITS_PAST * past.complained_share))


def _before(past: Counts, share: float) -> str:
    return f", against {share:.2%} before" if past.base >= PAST_MIN else ""


def busiest(buckets: Iterable[Bucket], since: float, now: float) -> int:
    """The most that went out a minute, in the buckets that begin then or later; of the last one, so far."""
    paces = (
        (bucket.counts.sent or bucket.counts.base) / min(max(now - bucket.at, MINUTE_S), BUCKET_S)
        for bucket in buckets
        if bucket.at >= since
    )
    return round(max(paces, default=0.0) * MINUTE_S)
