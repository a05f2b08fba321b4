"""A refusal that is really the route's fault must not burn the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.core.refusals import ALONE_MIN, SAME_REFUSALS_MAX, RefusalStreak, Suspects, in_full, judge, judge_alone

REFUSED = Verdict(Outcome.REJECTED, code="422", text="the sender domain is not allowed")
ACCEPTED = Verdict(Outcome.ACCEPTED)


class Route:
    """One route's answers in a row, judged as a worker judges them."""

    def __init__(self) -> None:
        self.streak = RefusalStreak()
        self.failed: set[int] = set()

    def answers(self, send_id: int, verdict: Verdict = REFUSED) -> Verdict:
        self.streak, judged, revived = judge(self.streak, send_id, verdict)
        assert set(revived) <= self.failed
        self.failed -= set(revived)
        if judged.outcome is Outcome.REJECTED:
            self.failed.add(send_id)
        return judged


@pytest.fixture
def route() -> Route:
    return Route()


def test_a_few_refusals_alike_are_the_messages_own_fault(route: Route) -> None:
    for send_id in range(SAME_REFUSALS_MAX - 1):
        assert route.answers(send_id) is REFUSED
    assert len(route.failed) == SAME_REFUSALS_MAX - 1


def test_the_same_refusal_for_many_messages_in_a_row_is_the_routes_fault_and_revives_them(route: Route) -> None:
    for send_id in range(SAME_REFUSALS_MAX - 1):
        route.answers(send_id)
    judged = route.answers(99)
    assert (judged.outcome, judged.subject, judged.spends_attempt) == (
        Outcome.MISCONFIGURED,
        Subject.ROUTE,
        False,
    )
    assert "5 messages in a row" in judged.text
    assert REFUSED.text in judged.text
    assert route.failed == set()


def test_every_further_refusal_of_the_burst_is_the_routes_fault_too(route: Route) -> None:
    judged = [route.answers(send_id) for send_id in range(40)]
    assert all(verdict.outcome is Outcome.MISCONFIGURED for verdict in judged[SAME_REFUSALS_MAX - 1 :])
    assert route.failed == set()


def test_a_send_that_probes_the_route_again_is_no_new_proof_against_itself(route: Route) -> None:
    for send_id in range(SAME_REFUSALS_MAX):
        route.answers(send_id)
    for _ in range(3):
        for send_id in range(SAME_REFUSALS_MAX):
            assert route.answers(send_id).outcome is Outcome.MISCONFIGURED
    assert route.failed == set()


def test_one_message_refused_again_and_again_proves_nothing_about_the_route(route: Route) -> None:
    for _ in range(20):
        assert route.answers(7) is REFUSED


def test_an_acceptance_ends_the_streak(route: Route) -> None:
    for send_id in range(SAME_REFUSALS_MAX - 1):
        route.answers(send_id)
    assert route.answers(50, ACCEPTED) is ACCEPTED
    assert route.answers(51) is REFUSED
    assert route.streak.send_ids == (51,)


def test_another_refusal_starts_another_streak(route: Route) -> None:
    other = replace(REFUSED, text="the message is too large")
    for send_id in range(20):
        assert route.answers(send_id, (REFUSED, other)[send_id % 2]).outcome is Outcome.REJECTED


def test_fifty_unknown_addresses_are_fifty_unknown_addresses(route: Route) -> None:
    unknown = replace(REFUSED, subject=Subject.RECIPIENT, text="no such mailbox")
    for send_id in range(50):
        assert route.answers(send_id, unknown) is unknown
    assert len(route.failed) == 50


def test_a_refused_recipient_in_between_neither_counts_nor_excuses(route: Route) -> None:
    unknown = replace(REFUSED, subject=Subject.RECIPIENT)
    for send_id in range(SAME_REFUSALS_MAX - 1):
        route.answers(send_id)
    route.answers(50, unknown)
    assert route.answers(51).outcome is Outcome.MISCONFIGURED
    assert route.failed == {50}


@pytest.mark.parametrize("outcome", [Outcome.TRANSIENT, Outcome.THROTTLED, Outcome.MISCONFIGURED])
def test_other_failures_leave_the_streak_as_it_is(route: Route, outcome: Outcome) -> None:
    route.answers(1)
    before = route.streak
    route.answers(2, Verdict(outcome))
    assert route.streak == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mailbox ada@example.com is not verified", "mailbox bob+x@example.org is not verified"),
        ("request 4711 refused", "request 4712 refused"),
        ("id 0f8fad5b-d9cb-469f-a165-70867728950e", "id 7c9e6679-7425-40de-944b-e07fc1f90ae7"),
        ("trace 5d41402abc4b2a76b9719d911017c592", "trace 7d793037a0760186574b0282f2f435e7"),
    ],
)
def test_refusals_that_differ_only_in_what_they_quote_are_alike(route: Route, one: str, other: str) -> None:
    judged = [route.answers(n, replace(REFUSED, text=(one, other)[n % 2])) for n in range(SAME_REFUSALS_MAX)]
    assert judged[-1].outcome is Outcome.MISCONFIGURED


def test_the_same_words_under_another_code_are_not_alike(route: Route) -> None:
    for send_id in range(SAME_REFUSALS_MAX - 1):
        route.answers(send_id)
    assert route.answers(9, replace(REFUSED, code="400")).outcome is Outcome.REJECTED


# The other way round: one message that stops the route for all.


UNVERIFIED = Verdict(
    Outcome.MISCONFIGURED, spends_attempt=False, subject=Subject.ROUTE, code="403", text="the sender is not verified"
)
TAKEN = Verdict(Outcome.ACCEPTED, message_id="m")


def stopped(*calls: tuple[int, Verdict]) -> list[Outcome]:
    """What each call counts as, one after the other on one route."""
    suspects, counted = Suspects(), []
    for send_id, verdict in calls:
        suspects, verdict = judge_alone(suspects, send_id, verdict)
        counted.append(verdict.outcome)
    return counted


def test_a_message_that_alone_stops_the_route_again_and_again_is_rejected_in_the_end() -> None:
    calls = [(1, UNVERIFIED), (2, TAKEN)] * ALONE_MIN
    stops = [outcome for outcome in stopped(*calls) if outcome is not Outcome.ACCEPTED]
    assert stops == [Outcome.MISCONFIGURED] * (ALONE_MIN - 1) + [Outcome.REJECTED]


def test_a_route_that_is_stopped_for_everybody_rejects_nobody() -> None:
    assert set(stopped(*[(send_id, UNVERIFIED) for send_id in (1, 2, 3)] * 20)) == {Outcome.MISCONFIGURED}


def test_a_refused_credential_says_nothing_about_the_message() -> None:
    calls = [(1, replace(UNVERIFIED, code="401")), (2, TAKEN)] * 20
    assert Outcome.REJECTED not in stopped(*calls)


def test_a_message_that_is_accepted_is_no_suspect_any_more() -> None:
    calls = [*[(1, UNVERIFIED), (2, TAKEN)] * (ALONE_MIN - 1), (1, TAKEN), (1, UNVERIFIED), (2, TAKEN)]
    assert Outcome.REJECTED not in stopped(*calls)


@pytest.mark.parametrize(
    ("code", "text", "told"),
    [
        ("550 5.1.1", "no such user", "550 5.1.1 no such user"),
        ("550 5.1.1", "550 5.1.1 no such user", "550 5.1.1 no such user"),
        ("550 5.1.1", "550-5.1.1 no such user", "550-5.1.1 no such user"),
        ("550 5.1.1", "550 #5.1.1 no such user", "550 #5.1.1 no such user"),
        ("550 5.1.1", "mx.example said: 550 5.1.1 no such user", "mx.example said: 550 5.1.1 no such user"),
        ("550 5.1.1", "550 no such user (#5.1.1)", "550 no such user (#5.1.1)"),
        ("550 5.1.1", "5.1.1 no such user", "550 5.1.1 no such user"),
        ("550 5.1.1", "550 no such user", "550 5.1.1 no such user"),
        ("550 5.1.1", "550-no such user", "550 5.1.1 no such user"),
        ("550 5.1.1", "5.1.10 no such user", "550 5.1.1 5.1.10 no such user"),
        ("550", "at RCPT TO: 5.1.1 no such user", "550 at RCPT TO: 5.1.1 no such user"),
        ("550 5.1.1", "", "550 5.1.1"),
        ("", "no such user", "no such user"),
        ("", "", ""),
    ],
)
def test_a_code_stands_before_the_words_where_they_dont_have_it_themselves(code: str, text: str, told: str) -> None:
    assert in_full(code, text) == told
