"""Mailbox groups: what counts against one, when it is slowed, how it comes back, and that it converges."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.config import parse_config
from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.group_health import (
    BUCKET_S,
    DAY_S,
    KEPT_S,
    PUSHED_BACK_MIN,
    Bucket,
    CountKey,
    Counts,
    GroupRoute,
    HealthPolicy,
    Signal,
    bucket_of,
    count_key,
    count_key_of_call,
    health_policy,
    trouble,
)
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.core.slowdown import LEFT_ALONE_S, PER_MINUTE_MIN, STEPS, Slowdown, Slowdowns, judge
from posthouse.core.smtp_replies import Phase, Reply
from posthouse.core.smtp_rules import judge_reply

NOW = bucket_of(1_800_000_000.0)
GMAIL = GroupRoute("gmail", "main")
POLICY = HealthPolicy()
NO_PAST = Counts()
QUICK, SLOW = STEPS[Signal.PUSHED_BACK], STEPS[Signal.COMPLAINTS]


def event(kind: EventKind = EventKind.DEFERRED, **fields: object) -> Event:
    return Event(**{"kind": kind, "at": NOW, "recipient": "ada@gmail.com"} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("heard", "counts_as"),
    [
        (event(), CountKey(NOW, "gmail", "main", EventKind.DEFERRED, Cause.NONE)),
        (event(at=NOW + 299.9), CountKey(NOW, "gmail", "main", EventKind.DEFERRED, Cause.NONE)),
        (event(at=NOW - 1), CountKey(NOW - BUCKET_S, "gmail", "main", EventKind.DEFERRED, Cause.NONE)),
        (event(at=NOW + DAY_S), CountKey(NOW + BUCKET_S, "gmail", "main", EventKind.DEFERRED, Cause.NONE)),
        (event(recipient="eve@shop.example"), CountKey(NOW, "other", "main", EventKind.DEFERRED, Cause.NONE)),
        (event(EventKind.COMPLAINED), CountKey(NOW, "gmail", "main", EventKind.COMPLAINED, Cause.NONE)),
        (event(cause=Cause.TOO_FAST), CountKey(NOW, "gmail", "main", EventKind.DEFERRED, Cause.TOO_FAST)),
        (event(EventKind.SENT), None),  # calls are counted, not what a provider says of them
        (event(EventKind.OPENED), None),
        (event(recipient=""), None),
        (event(at=NOW - KEPT_S), None),
    ],
)
def test_an_event_counts_for_its_group_in_its_own_time(heard: Event, counts_as: CountKey | None) -> None:
    assert count_key(heard, "main", NOW + BUCKET_S) == counts_as


def of_the_recipient(outcome: Outcome, text: str) -> Verdict:
    return Verdict(outcome, maybe_accepted=outcome is Outcome.UNKNOWN, subject=Subject.RECIPIENT, text=text)


@pytest.mark.parametrize(
    ("verdict", "kind", "cause"),
    [
        (Verdict(Outcome.ACCEPTED, text="250 queued"), EventKind.SENT, Cause.NONE),
        (of_the_recipient(Outcome.REJECTED, "550 5.1.1 no such user"), EventKind.BOUNCED, Cause.NO_MAILBOX),
        (of_the_recipient(Outcome.TRANSIENT, "450 4.2.0 Greylisted"), EventKind.DEFERRED, Cause.GREYLISTED),
        (Verdict(Outcome.REJECTED, text="550 5.1.1 no such user"), None, None),
        (of_the_recipient(Outcome.THROTTLED, "too fast"), None, None),  # holds the whole route already
        (of_the_recipient(Outcome.UNKNOWN, ""), None, None),
    ],
)
def test_the_answer_to_a_call_counts_where_it_is_about_the_recipient(
    verdict: Verdict, kind: EventKind | None, cause: Cause | None
) -> None:
    key = count_key_of_call(verdict, "gmail", "main", NOW + 1)
    assert key == (None if kind is None else (NOW, "gmail", "main", kind, cause))


@pytest.mark.parametrize("code", [450, 550])
@pytest.mark.parametrize("phase", [Phase.RCPT, Phase.DOT])
def test_our_own_faulty_dmarc_at_the_call_slows_nobody(phase: Phase, code: int) -> None:
    text = f"{code // 100}.7.26 This mail has been blocked because the sender is unauthenticated"
    key = count_key_of_call(judge_reply(Reply(phase, code, text)), "gmail", "main", NOW)
    assert key is None or Counts.of(key.kind, key.cause, 1).pushed_back == 0


@pytest.mark.parametrize("kind", [EventKind.DEFERRED, EventKind.BOUNCED])
@pytest.mark.parametrize("cause", Cause)
def test_only_what_less_mail_may_help_against_is_a_push_back(kind: EventKind, cause: Cause) -> None:
    about_pace = cause in (Cause.TOO_FAST, Cause.BLOCKED)
    unsaid = kind is EventKind.DEFERRED and cause in (Cause.NONE, Cause.OTHER, Cause.UNREACHABLE)
    assert Counts.of(kind, cause, 7).pushed_back == (7 if about_pace or unsaid else 0)


def buckets(ago_s: float = BUCKET_S, **counts: int) -> list[Bucket]:
    """One bucket, so long ago."""
    return [Bucket(NOW - ago_s, Counts(**counts))]


PUT_OFF = {"sent": 1000, "deferred": 200, "pushed_back": 200}
TENTH = Counts(sent=10_000, deferred=1000, pushed_back=1000)
HALF = Counts(sent=10_000, deferred=5000, pushed_back=5000)


@pytest.mark.parametrize(
    ("seen", "past", "signal"),
    [
        (buckets(**PUT_OFF), NO_PAST, Signal.PUSHED_BACK),
        (buckets(**PUT_OFF), Counts(sent=10_000, deferred=10, pushed_back=10), Signal.PUSHED_BACK),
        (buckets(**PUT_OFF), TENTH, None),  # 20 %, where 10 % is everyday
        (buckets(sent=1000, deferred=310, pushed_back=310), TENTH, Signal.PUSHED_BACK),
        (buckets(sent=1000, deferred=700, pushed_back=700), HALF, None),
        (buckets(sent=1000, deferred=750, pushed_back=750), HALF, Signal.PUSHED_BACK),
        (buckets(sent=1000, deferred=99, pushed_back=99), NO_PAST, None),
        (buckets(sent=1000, delivered=1000, deferred=100, pushed_back=100), NO_PAST, Signal.PUSHED_BACK),
        (buckets(sent=1000, deferred=900, pushed_back=99), NO_PAST, None),  # most of it greylisting
        (buckets(sent=9, deferred=9, pushed_back=9), NO_PAST, None),  # too few to say anything
        (buckets(ago_s=4 * BUCKET_S, **PUT_OFF), NO_PAST, None),  # over
        (buckets(deferred=20, delivered=20, pushed_back=20), NO_PAST, Signal.PUSHED_BACK),  # what was sent is not known
        (buckets(ago_s=DAY_S / 2, sent=1000, complained=5), NO_PAST, Signal.COMPLAINTS),
        (buckets(ago_s=DAY_S / 2, sent=2000, complained=5), NO_PAST, None),
        (buckets(ago_s=DAY_S / 2, sent=10, complained=4), NO_PAST, None),
        (buckets(ago_s=DAY_S / 2, sent=10_000, complained=15), Counts(sent=100_000, complained=10), Signal.COMPLAINTS),
        (buckets(ago_s=DAY_S / 2, sent=10_000, complained=15), Counts(sent=100_000, complained=100), None),
        (buckets(ago_s=DAY_S / 2, sent=10_000, complained=9), Counts(sent=100_000), None),
        (buckets(ago_s=2 * DAY_S, sent=100, complained=50), NO_PAST, None),
        ([], NO_PAST, None),
    ],
)
def test_trouble_is_what_is_more_than_a_share_and_more_than_the_past(
    seen: list[Bucket], past: Counts, signal: Signal | None
) -> None:
    found = trouble(seen, past, POLICY, NOW)
    assert (found and found.signal) == signal


def test_the_reason_tells_how_much_and_against_what() -> None:
    found = trouble(buckets(**PUT_OFF), Counts(sent=10_000, deferred=10, pushed_back=10), POLICY, NOW)
    assert found is not None
    assert found.reason == "20% of 1,000 were put off or refused within 15 min, against 0.10% before"
    found = trouble(buckets(sent=200, delivered=200, deferred=150, pushed_back=150), NO_PAST, POLICY, NOW)
    assert found is not None
    assert found.reason == "75% of 200 were put off or refused within 15 min", (
        "what was delivered then is no second email"
    )
    found = trouble(buckets(sent=20, deferred=20, bounced=20, pushed_back=40), NO_PAST, POLICY, NOW)
    assert found is not None
    assert found.reason == "100% of 20 were put off or refused within 15 min"
    found = trouble(buckets(sent=1000, complained=5), NO_PAST, POLICY, NOW)
    assert found is not None
    assert found.reason == "0.50% complained within 24 h"


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 500), st.integers(0, 500), st.integers(0, 20))),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_more_push_backs_never_make_it_better_and_a_worse_past_never_makes_it_worse(
    drawn: list[tuple[int, int, int, int]], past_sent: int, past_put_off: int
) -> None:
    seen = [
        Bucket(NOW - age * BUCKET_S, Counts(sent=sent, deferred=put_off, complained=complained, pushed_back=put_off))
        for age, sent, put_off, complained in drawn
    ]
    past = Counts(sent=past_sent, deferred=past_put_off, pushed_back=past_put_off)
    if (found := trouble(seen, past, POLICY, NOW)) and found.signal is Signal.PUSHED_BACK:
        worse = [replace(b, counts=b.counts + Counts(deferred=1, pushed_back=1)) for b in seen]
        assert trouble(worse, past, POLICY, NOW) is not None
        if past.base >= 100:
            better_past = replace(past, deferred=past_put_off // 2, pushed_back=past_put_off // 2, sent=past.base)
            assert trouble(seen, better_past, POLICY, NOW) is not None


def slowed(per_minute: int = 100, was: int = 400, **fields: object) -> Slowdown:
    plain = {"signal": Signal.PUSHED_BACK, "reason": "r", "since": NOW, "changed_at": NOW}
    return Slowdown("gmail", "main", per_minute, was, **plain | fields)  # type: ignore[arg-type]


def pace_after(known: Slowdown, later_s: float, seen: list[Bucket]) -> int | None:
    """How much may start a minute after a look so much later; None: as much as there is."""
    now = NOW + later_s
    moved = [Bucket(now - BUCKET_S, bucket.counts) for bucket in seen]
    after = judge(GMAIL, known, moved, NO_PAST, POLICY, now)
    return None if after is None else after.per_minute


WELL = buckets(sent=1000, delivered=1000)
BAD = buckets(**PUT_OFF)
COMPLAINED = buckets(sent=5000, complained=50)


@pytest.mark.parametrize(
    ("known", "later_s", "seen", "pace"),
    [
        (slowed(), QUICK.step_s - 1, BAD, 100),  # what was done must show first
        (slowed(), QUICK.step_s, BAD, 50),
        (slowed(1000, 4000), QUICK.step_s, BAD, 100),  # half of what went: a limit that nothing reached helps nobody
        (slowed(25), QUICK.step_s, BAD, 13),  # so that one step takes it back
        (slowed(15), QUICK.step_s, BAD, PER_MINUTE_MIN),
        (slowed(PER_MINUTE_MIN), QUICK.step_s, BAD, PER_MINUTE_MIN),
        (slowed(), QUICK.step_s - 1, WELL, 100),
        (slowed(), QUICK.step_s, WELL, 200),
        (slowed(), QUICK.step_s, [], 200),
        (slowed(300), QUICK.step_s, WELL, 400),
        (slowed(400), QUICK.step_s - 1, WELL, 400),  # watched
        (slowed(400), QUICK.step_s, WELL, None),
        (slowed(400), QUICK.step_s, buckets(sent=1900, delivered=1900), 800),  # more waits than went there before
        (slowed(too_fast_per_minute=200), QUICK.retry_s - 1, WELL, 100),
        (slowed(too_fast_per_minute=200), QUICK.retry_s, WELL, 200),
        (slowed(too_fast_per_minute=400), QUICK.step_s, WELL, 200),
        (slowed(400, too_fast_per_minute=800), QUICK.step_s, WELL, 400),
        (slowed(200, too_fast_per_minute=200), QUICK.step_s, WELL, 400),  # it is not too fast any more
        (slowed(signal=Signal.COMPLAINTS), SLOW.step_s - 1, WELL, 100),
        (slowed(signal=Signal.COMPLAINTS), SLOW.step_s, WELL, 200),
        (slowed(signal=Signal.COMPLAINTS), SLOW.step_s - 1, COMPLAINED, 100),
        (slowed(signal=Signal.COMPLAINTS), SLOW.step_s, COMPLAINED, 50),
        (slowed(ended_at=NOW), LEFT_ALONE_S - 1, BAD, 100),
        (slowed(ended_at=NOW), LEFT_ALONE_S, BAD, None),
    ],
)
def test_the_pace_halves_while_it_stays_bad_and_doubles_when_it_is_well(
    known: Slowdown, later_s: float, seen: list[Bucket], pace: int | None
) -> None:
    assert pace_after(known, later_s, seen) == pace


@given(st.integers(PER_MINUTE_MIN + 1, 100_000), st.integers(20, 100_000))
def test_a_pace_that_was_too_fast_is_not_tried_again_within_an_hour(pace: int, went: int) -> None:
    seen = [Bucket(NOW + QUICK.step_s - BUCKET_S, Counts(sent=went, deferred=went, pushed_back=went))]
    slower = judge(GMAIL, slowed(pace, was=10**6), seen, NO_PAST, POLICY, NOW + QUICK.step_s)
    assert slower is not None
    assert slower.per_minute < pace
    for waited_s, faster in ((QUICK.retry_s - 1, False), (QUICK.retry_s, True)):
        later = judge(GMAIL, slower, [], NO_PAST, POLICY, slower.changed_at + waited_s)
        assert later is not None
        assert (later.per_minute > slower.per_minute) is faster


def test_a_slow_down_begins_with_half_of_what_went_there_lately() -> None:
    begun = judge(GMAIL, None, BAD, NO_PAST, POLICY, NOW)
    assert begun is not None
    assert (begun.per_minute, begun.was_per_minute, begun.since) == (100, 200, NOW)
    assert begun.words.startswith("gmail on main is slowed to 100 a minute: 20% of 1,000 were put off or refused")


@given(st.integers(5 * 2 * PER_MINUTE_MIN, 100_000))
def test_one_step_takes_back_what_the_first_one_took(sent: int) -> None:
    begun = judge(GMAIL, None, buckets(sent=sent, pushed_back=sent), NO_PAST, POLICY, NOW)
    assert begun is not None
    assert pace_after(begun, QUICK.step_s, WELL) == begun.was_per_minute


@pytest.mark.parametrize(
    ("where", "policy", "seen"),
    [
        (GroupRoute("other", "main"), POLICY, BAD),  # nobody: others there are well
        (GMAIL, HealthPolicy(slow_down=False), BAD),
        (GMAIL, POLICY, buckets(sent=5 * 2 * PER_MINUTE_MIN - 10, deferred=50, pushed_back=50)),  # hardly any mail
        (GMAIL, POLICY, WELL),
    ],
)
def test_none_begins_where_it_would_help_nobody(where: GroupRoute, policy: HealthPolicy, seen: list[Bucket]) -> None:
    assert judge(where, None, seen, NO_PAST, policy, NOW) is None


def test_what_is_slowed_ends_when_the_settings_say_so() -> None:
    assert judge(GMAIL, slowed(), BAD, NO_PAST, HealthPolicy(slow_down=False), NOW) is None


def test_a_slow_down_is_a_limit_of_its_group_on_its_route_alone() -> None:
    known = Slowdowns([slowed(90), slowed(30, ended_at=NOW)][:1])
    (limit,) = known.limits("newsletter/shop//gmail", "main")
    assert limit.rate is not None
    assert (limit.rate.count, limit.rate.per_s, limit.rate.burst) == (90, 60.0, 1)
    assert "gmail on main is slowed to 90 a minute: r" in limit.why
    assert known.limits("newsletter/shop//gmail", "standby") == []
    assert known.limits("newsletter/shop//yahoo", "main") == []
    assert known.limits("newsletter", "main") == []
    assert Slowdowns([slowed(ended_at=NOW)]).limits("x///gmail", "main") == []


def test_the_settings_reach_the_policy() -> None:
    config = parse_config(
        {"database": "sqlite://", "health": {"slow_down": False, "pushed_back": "5%", "complaints": "0.1%"}},
        environment={},
    )
    assert health_policy(config) == HealthPolicy(False, 0.05, 0.001)
    assert health_policy(parse_config({"database": "sqlite://"}, environment={})) == POLICY


class Receiver:
    """A receiver that takes so many a minute and pushes the rest back, asked for more; judged each minute."""

    def __init__(self, group: str, demand: int) -> None:
        self.where, self.demand = GroupRoute(group, "main"), demand
        self.known: Slowdown | None = None
        self.day: dict[float, Counts] = {}
        self.paces: list[int] = []
        self.begun = self.ended = 0

    def minute(self, now: float, takes: int) -> None:
        pace = self.demand if self.known is None else min(self.demand, self.known.per_minute)
        put_off = max(0, pace - takes)
        told = Counts(pace, pace - put_off, put_off, pushed_back=put_off)
        self.day[bucket_of(now)] = self.day.get(bucket_of(now), Counts()) + told
        recent = [Bucket(at, counts) for at, counts in self.day.items() if at > now - DAY_S]
        before, self.known = self.known, judge(self.where, self.known, recent, NO_PAST, POLICY, now + 60)
        self.begun += before is None and self.known is not None
        self.ended += before is not None and self.known is None
        self.paces.append(pace)


@pytest.mark.parametrize("takes", [70, 130, 400, 990])
def test_a_receiver_that_takes_only_so_much_gets_hardly_more_and_all_of_it_when_it_takes_all_again(takes: int) -> None:
    narrow, others = Receiver("gmail", 1600), Receiver("yahoo", 1600)
    for minute in range(12 * 60):
        narrow.minute(NOW + minute * 60, takes)
        others.minute(NOW + minute * 60, 10**9)
    settled = narrow.paces[120:]
    too_fast = sum(pace > 1.1 * takes for pace in settled)
    assert too_fast / len(settled) < 0.2
    assert sum(min(pace, takes) for pace in settled) > 0.45 * takes * len(settled)
    assert (narrow.begun, narrow.ended) == (1, 0), "it flaps"
    for minute in range(12 * 60, 15 * 60):
        narrow.minute(NOW + minute * 60, 10**9)
    assert (narrow.begun, narrow.ended, narrow.known) == (1, 1, None)
    assert set(others.paces) == {1600}


def test_few_push_backs_are_everyday() -> None:
    assert trouble(buckets(sent=20, pushed_back=PUSHED_BACK_MIN - 1), NO_PAST, POLICY, NOW) is None
