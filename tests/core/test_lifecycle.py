"""The one table of transitions: complete, closed, and with a way on from every open state."""

from __future__ import annotations

import pytest

from posthouse.core.lifecycle import OPEN, TERMINAL, TRANSITIONS, Happening, Status, after, sources


def reachable_from(start: Status) -> set[Status]:
    found = {start}
    while True:
        grown = found | {to for (status, _), to in TRANSITIONS.items() if status in found}
        if grown == found:
            return found
        found = grown


@pytest.mark.parametrize("status", sorted(OPEN))
def test_every_open_state_can_be_left(status: Status) -> None:
    assert any(to is not status for (source, _), to in TRANSITIONS.items() if source is status)


@pytest.mark.parametrize("status", sorted(OPEN))
def test_every_open_state_can_end_as_accepted_and_in_another_way(status: Status) -> None:
    ends = reachable_from(status) & TERMINAL
    assert Status.ACCEPTED in ends
    assert ends - {Status.ACCEPTED}


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.WAITING}))
def test_late_good_news_wins_in_every_state_that_a_call_can_have_led_to(status: Status) -> None:
    assert after(status, Happening.ACCEPTED_LATE) is Status.ACCEPTED


def test_accepted_is_final() -> None:
    assert {to for (status, _), to in TRANSITIONS.items() if status is Status.ACCEPTED} == {Status.ACCEPTED}


def test_only_a_revival_or_late_good_news_leaves_an_ended_state() -> None:
    ways_out = {happening for (status, happening) in TRANSITIONS if status in TERMINAL}
    assert ways_out == {Happening.ACCEPTED_LATE, Happening.REVIVED}


def test_a_suppressed_send_is_never_revived() -> None:
    assert after(Status.SUPPRESSED, Happening.REVIVED) is None


def test_only_a_claim_leads_to_sending() -> None:
    assert {key for key, to in TRANSITIONS.items() if to is Status.SENDING} == {(Status.PENDING, Happening.CLAIMED)}


def test_a_send_whose_worker_died_is_unknown_and_nothing_else() -> None:
    assert sources(Happening.WORKER_DIED) == (Status.SENDING,)
    assert after(Status.SENDING, Happening.WORKER_DIED) is Status.UNKNOWN


def test_nothing_but_an_answer_or_a_person_ends_the_uncertainty_of_an_unknown_send() -> None:
    ways_out = {h for (status, h), to in TRANSITIONS.items() if status is Status.UNKNOWN and to is not Status.UNKNOWN}
    said_by_the_provider = {
        Happening.ACCEPTED,
        Happening.ACCEPTED_LATE,
        Happening.PUT_BACK,
        Happening.REFUSED,
        Happening.FOUND_MISSING,
    }
    decided = {Happening.RESENT, Happening.RESOLVED_FAILED}
    said_by_its_worker = {Happening.RELEASED}  # late: no call had begun
    assert ways_out == said_by_the_provider | decided | said_by_its_worker


def test_a_send_with_a_call_under_way_cannot_be_cancelled() -> None:
    assert after(Status.SENDING, Happening.CANCELLED) is None
    assert after(Status.UNKNOWN, Happening.CANCELLED) is None


def test_an_unlisted_happening_changes_nothing() -> None:
    assert after(Status.ACCEPTED, Happening.CLAIMED) is None


@pytest.mark.parametrize("happening", list(Happening))
def test_every_happening_can_happen_and_its_sources_are_the_table_s(happening: Happening) -> None:
    listed = {status for (status, h) in TRANSITIONS if h is happening}
    assert listed
    assert set(sources(happening)) == listed
    assert list(sources(happening)) == sorted(listed, key=list(Status).index)


def test_every_state_can_be_reached_from_a_new_send() -> None:
    assert reachable_from(Status.WAITING) == set(Status)
    assert reachable_from(Status.PENDING) == set(Status) - {Status.WAITING}
