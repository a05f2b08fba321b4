"""The breaker: what opens it, what never may, that one call at a time probes, and how traffic comes back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.answers import FailurePhase
from posthouse.core.breaker import (
    FORGIVEN_AFTER_S,
    OPEN_BACKOFF,
    OUTCOMES_MIN,
    RAMP_S,
    STREAK_GAP_S,
    STREAK_MAX,
    WINDOW_S,
    Breaker,
    BreakerState,
    Tally,
    after,
    begin_probe,
    counts,
    drop_probe,
    end_probe,
    may_probe,
    ramp,
)
from posthouse.core.http_rules import judge, judge_failure
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.core.smtp_replies import Fault, Phase, Reply
from posthouse.core.smtp_rules import judge_fault, judge_reply
from tests.core.strategies import NOW, chances

CLOSED, OPEN = BreakerState.CLOSED, BreakerState.OPEN
LEASE_S = 20.0


def failed(breaker: Breaker, times: int, *, now: float = NOW, every_s: float = 0.1, successes: int = 0) -> Breaker:
    for place in range(times):
        breaker = after(breaker, successes, True, now + place * every_s, chance=0.0)
    return breaker


def opened(strikes: int = 1, held_s: float = 2.5) -> Breaker:
    return Breaker(OPEN, held_until=NOW + held_s, strikes=strikes)


def probing(worker: int = 7, now: float = NOW + 10) -> Breaker:
    probed = begin_probe(opened(), worker, now, LEASE_S)
    assert probed is not None
    return probed


# What counts.


def http(status: int, body: str = "") -> Verdict:
    return judge(status, {}, body, complete=True, now=NOW)


def smtp(phase: Phase, code: int, text: str = "") -> Verdict:
    return judge_reply(Reply(phase, code, text))


@pytest.mark.parametrize(
    "verdict",
    [
        judge_failure(FailurePhase.CONNECT, "connect_refused", "refused"),
        judge_failure(FailurePhase.CONNECT, "dns", "no such host"),
        judge_failure(FailurePhase.CONNECT, "tls", "expired"),
        judge_failure(FailurePhase.EXCHANGE, "timeout", "no answer"),
        judge_failure(FailurePhase.EXCHANGE, "reset", "cut"),
        http(500),
        http(502, "<html><title>Bad gateway</title></html>"),
        http(503),
        http(504),
        http(200, "<html><title>Log in</title></html>"),
        http(401, '{"message":"bad key"}'),
        http(404, "<html>nginx</html>"),
        smtp(Phase.BANNER, 554, "5.7.1 Client host rejected"),
        smtp(Phase.AUTH, 535, "5.7.8 bad credentials"),
        smtp(Phase.RCPT, 554, "5.7.1 <bob@example.com>: Relay access denied"),
        smtp(Phase.MAIL, 550, "5.7.1 Sender address rejected: not owned by user"),
        smtp(Phase.EHLO, 421, "4.3.2 shutting down"),
        judge_fault(Fault(Phase.CONNECT, "connect_refused"), "refused"),
        judge_fault(Fault(Phase.DOT, "timeout"), "no answer"),
        Verdict(Outcome.MISCONFIGURED),
    ],
    ids=lambda verdict: f"{verdict.code} {verdict.rule}",
)
def test_a_failure_of_the_provider_counts(verdict: Verdict) -> None:
    assert counts(verdict) is True


@pytest.mark.parametrize(
    "verdict",
    [
        http(429),
        http(400, '{"message":"to: is not a valid address"}'),
        http(422, '{"message":"subject is missing"}'),
        http(413),
        http(409, '{"name":"concurrent_idempotent_requests","message":"Another request is in progress"}'),
        smtp(Phase.RCPT, 550, "5.1.1 User unknown"),
        smtp(Phase.RCPT, 451, "4.7.1 Greylisted, try again later"),
        smtp(Phase.RCPT, 452, "4.2.2 Mailbox full"),
        smtp(Phase.DOT, 550, "5.7.1 Blocked by SpamAssassin"),
        smtp(Phase.MAIL, 552, "5.3.4 Message size exceeds fixed limit"),
        smtp(Phase.BANNER, 421, "4.7.0 too many connections from 192.0.2.7"),
        Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="cut_off"),  # our own shutdown
    ],
    ids=lambda verdict: f"{verdict.code} {verdict.rule}",
)
def test_what_says_nothing_about_the_provider_does_not_count(verdict: Verdict) -> None:
    assert counts(verdict) is None


@pytest.mark.parametrize("verdict", [http(202, '{"id":"m-1"}'), smtp(Phase.DOT, 250, "2.0.0 Ok: queued as 4F1A2")])
def test_an_acceptance_is_a_success(verdict: Verdict) -> None:
    assert counts(verdict) is False


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("subject", Subject)
def test_every_outcome_about_everybody_is_decided(outcome: Outcome, subject: Subject) -> None:
    verdict = Verdict(outcome, maybe_accepted=outcome is Outcome.UNKNOWN, subject=subject)
    expected = {Outcome.ACCEPTED: False, Outcome.THROTTLED: None, Outcome.MISCONFIGURED: True}
    assert counts(verdict) is expected.get(outcome, True if subject is Subject.ROUTE else None)


# What opens it.


def test_five_refused_connections_in_a_row_open_it() -> None:
    assert failed(Breaker(), STREAK_MAX - 1).state is CLOSED
    breaker = failed(Breaker(), STREAK_MAX)
    assert breaker.state is OPEN
    assert breaker.held_until == pytest.approx(NOW + 0.4 + OPEN_BACKOFF.delay_s(1, 0.0))


def test_fifty_refused_recipients_in_a_row_leave_it_closed() -> None:
    breaker = Breaker()
    for verdict in [smtp(Phase.RCPT, 550, "5.1.1 User unknown")] * 50:
        if (failure := counts(verdict)) is not None:
            breaker = after(breaker, 0, failure, NOW, chance=0.0)
    assert breaker == Breaker()


def test_a_success_between_ends_the_row() -> None:
    breaker = failed(Breaker(), STREAK_MAX - 1)
    assert failed(breaker, STREAK_MAX - 1, successes=1).state is CLOSED


def test_a_success_of_another_worker_ends_the_row_when_it_is_handed_over() -> None:
    breaker = after(failed(Breaker(), STREAK_MAX - 1), 1, False, NOW + 1, chance=0.0)
    assert failed(breaker, STREAK_MAX - 1, now=NOW + 1).state is CLOSED


def test_a_hand_over_without_a_success_ends_no_row() -> None:
    breaker = after(failed(Breaker(), STREAK_MAX - 1), 0, False, NOW + 1, chance=0.0)
    assert failed(breaker, 1, now=NOW + 1).state is OPEN


def test_a_standby_with_a_call_an_hour_is_found_dead() -> None:
    assert failed(Breaker(), STREAK_MAX, every_s=STREAK_GAP_S).state is OPEN


def test_failures_of_different_incidents_are_not_in_a_row() -> None:
    assert failed(Breaker(), 50, every_s=STREAK_GAP_S + 1).state is CLOSED


def test_every_second_call_failing_opens_it_once_there_are_enough() -> None:
    breaker = failed(Breaker(), OUTCOMES_MIN // 2 - 1, successes=1)
    assert breaker.state is CLOSED
    assert failed(breaker, 1, successes=1).state is OPEN


def test_fewer_than_half_failing_leaves_it_closed() -> None:
    assert failed(Breaker(), 200, successes=2).state is CLOSED


def test_a_few_failures_among_few_calls_say_nothing_yet() -> None:
    assert failed(Breaker(), 200, every_s=WINDOW_S / 5, successes=1).state is CLOSED


def test_what_is_older_than_the_window_does_not_count() -> None:
    breaker = failed(Breaker(), OUTCOMES_MIN // 2 - 1, successes=1)
    assert failed(breaker, 1, now=NOW + WINDOW_S + 1, successes=1).state is CLOSED


def test_many_old_successes_do_not_hide_a_failing_provider() -> None:
    tally = Tally()
    for second in range(3600):
        tally = tally.with_success(NOW + second)
    assert tally.successes(NOW + 3600) <= WINDOW_S
    assert tally.successes(NOW + 3600 + WINDOW_S) == 0


def test_what_others_handed_over_long_ago_does_not_hide_it_either() -> None:
    breaker = after(failed(Breaker(), 1), 1000, False, NOW, chance=0.0)
    assert failed(breaker, OUTCOMES_MIN // 2, now=NOW + WINDOW_S + 1, successes=1).state is OPEN


def test_each_opening_soon_after_the_last_is_longer() -> None:
    breaker, waits, now = Breaker(), list[float](), NOW
    for _ in range(10):
        breaker = failed(breaker, STREAK_MAX, now=now, every_s=0.0)
        waits.append(breaker.held_until - now)
        now = breaker.held_until
        breaker = end_probe(breaker, 7, False, now, chance=0.0)
    assert waits == sorted(waits)
    assert waits[1] == pytest.approx(2 * waits[0])
    assert waits[-1] == pytest.approx(OPEN_BACKOFF.max_s / 2)


def test_an_opening_long_after_the_last_is_a_first_one() -> None:
    closed = end_probe(opened(strikes=6, held_s=0.0), 7, False, NOW, chance=0.0)
    later = failed(closed, STREAK_MAX, now=NOW + FORGIVEN_AFTER_S)
    assert later.strikes == 1
    assert failed(closed, STREAK_MAX, now=NOW + FORGIVEN_AFTER_S / 2).strikes == 7


@given(chances)
def test_workers_that_open_it_spread_the_probe(chance: float) -> None:
    breaker = after(failed(Breaker(), STREAK_MAX - 1), 0, True, NOW, chance)
    assert OPEN_BACKOFF.first_s / 2 <= breaker.held_until - NOW <= OPEN_BACKOFF.first_s


# While it is open.


@pytest.mark.parametrize("failure", [True, False])
def test_calls_that_had_begun_before_change_nothing(failure: bool) -> None:
    assert after(opened(), 3, failure, NOW + 10, chance=0.0) == opened()


def test_nobody_probes_before_its_time_nor_a_closed_one() -> None:
    assert begin_probe(opened(held_s=2.5), 7, NOW + 2, LEASE_S) is None
    assert begin_probe(Breaker(), 7, NOW, LEASE_S) is None
    assert may_probe(opened(held_s=2.5), NOW + 2.5)


def test_a_second_probe_at_once_is_impossible() -> None:
    breaker = probing(worker=7, now=NOW + 10)
    assert begin_probe(breaker, 8, NOW + 11, LEASE_S) is None
    assert begin_probe(breaker, 7, NOW + 11, LEASE_S) is None
    assert breaker.opens_at == NOW + 10 + LEASE_S


def test_the_probe_of_a_worker_that_died_lapses_and_the_next_may_probe() -> None:
    breaker = begin_probe(probing(worker=7, now=NOW + 10), 8, NOW + 10 + LEASE_S, LEASE_S)
    assert breaker is not None
    assert breaker.probe_by == 8


def test_a_probe_that_found_nothing_to_send_is_free_for_the_next() -> None:
    assert may_probe(drop_probe(probing(worker=7, now=NOW + 10), 7), NOW + 10)
    assert drop_probe(probing(worker=7), 8) == probing(worker=7)


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker = end_probe(probing(), 7, False, NOW + 11, chance=0.0)
    assert (breaker.state, breaker.closed_at, breaker.is_clean(NOW + 11)) == (CLOSED, NOW + 11, True)


def test_a_probe_that_fails_opens_it_for_longer_and_frees_the_next_probe() -> None:
    breaker = end_probe(probing(), 7, True, NOW + 11, chance=0.0)
    assert (breaker.state, breaker.strikes) == (OPEN, 2)
    assert breaker.held_until == NOW + 11 + OPEN_BACKOFF.delay_s(2, 0.0)
    assert may_probe(breaker, breaker.held_until)


def test_a_probe_that_says_nothing_about_the_provider_closes_it_too() -> None:
    assert end_probe(probing(), 7, None, NOW + 11, chance=0.0).state is CLOSED


def test_of_a_lapsed_probe_only_a_success_counts() -> None:
    breaker = begin_probe(probing(worker=7, now=NOW + 10), 8, NOW + 40, LEASE_S)
    assert breaker is not None
    assert end_probe(breaker, 7, True, NOW + 41, chance=0.0) == breaker
    assert end_probe(breaker, 7, None, NOW + 41, chance=0.0) == breaker
    assert end_probe(breaker, 7, False, NOW + 41, chance=0.0).state is CLOSED


@pytest.mark.parametrize("failed", [True, False, None])
def test_of_calls_that_were_under_way_when_it_opened_none_counts(failed: bool | None) -> None:
    breaker = opened(held_s=2.5)
    assert end_probe(breaker, 7, failed, NOW + 2.4, chance=0.0) == breaker


def test_a_probe_that_is_reported_after_it_closed_changes_nothing() -> None:
    closed = end_probe(probing(), 7, False, NOW + 11, chance=0.0)
    assert end_probe(closed, 7, True, NOW + 12, chance=0.0) == closed
    assert end_probe(closed, 7, False, NOW + 12, chance=0.0) == closed


# What it costs.


def test_a_route_that_is_well_needs_no_hand_over() -> None:
    assert Breaker().is_clean(NOW)
    assert end_probe(probing(), 7, False, NOW, chance=0.0).is_clean(NOW)


def test_after_a_failure_successes_are_handed_over_until_the_window_is_over() -> None:
    breaker = after(failed(Breaker(), 1), 1, False, NOW + 1, chance=0.0)
    assert not breaker.is_clean(NOW + 1)
    assert breaker.is_clean(NOW + WINDOW_S)


def test_a_row_of_failures_is_never_clean_before_a_success() -> None:
    assert not failed(Breaker(), 1).is_clean(NOW + 10 * WINDOW_S)


# How traffic comes back.


def test_traffic_comes_back_doubling() -> None:
    assert [ramp(32, NOW, NOW + part * RAMP_S, 0.999999) for part in (0, 0.2, 0.4, 0.6, 0.8001, 1)] == [
        *(1, 2, 4, 8, 16, 32)
    ]


@given(st.integers(1, 1000), st.floats(-100.0, 100.0), chances)
def test_a_ramp_is_never_nothing_and_over_in_time(concurrency: int, since_s: float, chance: float) -> None:
    allowed = ramp(concurrency, NOW, NOW + since_s, chance)
    assert 1 <= allowed <= concurrency
    assert since_s > 0.01 or allowed == 1
    assert since_s < RAMP_S or allowed == concurrency
    assert ramp(concurrency, NOW, NOW + since_s + 1.0, chance) >= allowed


def test_workers_are_not_in_step() -> None:
    assert len({ramp(32, NOW, NOW + 5.0, chance) for chance in (0.0, 0.3, 0.6, 0.9)}) > 2


# The whole, with several workers.


@dataclass
class Fleet:
    """Workers that share one row, and calls whose outcome the provider's true health decides."""

    workers: int
    breaker: Breaker = field(default_factory=Breaker)
    tallies: dict[int, Tally] = field(default_factory=dict)
    probes: list[tuple[float, float, int]] = field(default_factory=list)  # begun, lapses, worker
    writes: int = 0

    def call(self, worker: int, works: bool, now: float, chance: float) -> None:
        tally = self.tallies.get(worker, Tally())
        if self.breaker.state is OPEN:
            return
        if works:
            tally = tally.with_success(now)
        if not works or not self.breaker.is_clean(now):
            self.breaker = after(self.breaker, tally.successes(now), not works, now, chance)
            tally = Tally()
            self.writes += 1
        self.tallies[worker] = tally

    def try_probe(self, worker: int, now: float) -> bool:
        changed = begin_probe(self.breaker, worker, now, LEASE_S)
        if changed is None:
            return False
        self.breaker = changed
        self.probes.append((now, now + LEASE_S, worker))
        return True

    def end_probe(self, worker: int, works: bool, now: float, chance: float) -> None:
        if any(probe[2] == worker for probe in self.probes):
            before = self.breaker
            self.breaker = end_probe(before, worker, not works, now, chance)
            if before.probe_by == worker or works:
                self.probes = [(begun, min(until, now), by) for begun, until, by in self.probes]


moves = st.tuples(
    st.sampled_from(["call", "try probe", "end probe"]),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([0.0, 0.01, 1.0, 7.0, 30.0]),
    chances,
)


@given(st.lists(moves, max_size=60))
def test_whatever_happens_two_workers_never_probe_at_once(
    happenings: list[tuple[str, int, bool, float, float]],
) -> None:
    fleet, now = Fleet(3), NOW
    for what, worker, works, passed, chance in happenings:
        now += passed
        if what == "call":
            fleet.call(worker, works, now, chance)
        elif what == "try probe":
            fleet.try_probe(worker, now)
        else:
            fleet.end_probe(worker, works, now, chance)
    for (_, until, _), (begun, _, _) in zip(fleet.probes, fleet.probes[1:], strict=False):
        assert begun >= until


@given(st.lists(moves, max_size=40), chances)
def test_from_every_state_a_provider_that_works_again_is_found(
    happenings: list[tuple[str, int, bool, float, float]], chance: float
) -> None:
    fleet, now = Fleet(3), NOW
    for what, worker, works, passed, drawn in happenings:
        now += passed
        if what == "call":
            fleet.call(worker, works, now, drawn)
        elif what == "try probe":
            fleet.try_probe(worker, now)
    if fleet.breaker.state is OPEN:
        now = max(now, fleet.breaker.opens_at)
        assert fleet.try_probe(1, now)
        fleet.end_probe(1, True, now + 1, chance)
    assert fleet.breaker.state is CLOSED


def test_a_busy_route_that_is_well_writes_nothing() -> None:
    fleet = Fleet(4)
    for call in range(10_000):
        fleet.call(call % 4, True, NOW + call / 100, chance=0.0)
    assert fleet.writes == 0


@pytest.mark.parametrize("each", [3, 5, 100])
def test_a_provider_that_fails_now_and_then_stays_in_use(each: int) -> None:
    fleet = Fleet(4)
    for call in range(5000):
        fleet.call(call % 4, call % each != 0, NOW + call / 50, chance=0.0)
        assert fleet.breaker.state is CLOSED


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_a_provider_that_dies_under_traffic_is_noticed_within_a_few_calls(workers: int) -> None:
    fleet = Fleet(workers)
    for call in range(1000):
        fleet.call(call % workers, True, NOW + call / 100, chance=0.0)
    calls = 0
    while fleet.breaker.state is CLOSED:
        fleet.call(calls % workers, False, NOW + 10 + calls / 100, chance=0.0)
        calls += 1
    assert calls <= STREAK_MAX + workers
