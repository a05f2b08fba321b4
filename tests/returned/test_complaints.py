"""Complaints (RFC 5965): who complained of what."""

from __future__ import annotations

import pytest

from posthouse.core.events import EventKind
from posthouse.returned.reading import Kind, read_returned
from tests.returned.mails import KEY, NOW, RETURNED, complaint


def test_a_complaint_is_about_its_send_and_its_recipient() -> None:
    content = complaint(
        "Feedback-Type: abuse", "Original-Rcpt-To: <bob@example.com>", "Arrival-Date: Fri, 15 Jan 2027 07:30:00 UTC"
    )

    read = read_returned(content, NOW)

    assert read.kind is Kind.COMPLAINT
    (event,) = read.events
    assert (event.kind, event.recipient, event.key) == (EventKind.COMPLAINED, "bob@example.com", KEY)
    assert (event.text, event.at) == ("abuse", NOW - 1800.0)


@pytest.mark.parametrize(
    ("type_", "kinds"),
    [
        ("abuse", [EventKind.COMPLAINED]),
        ("Fraud", [EventKind.COMPLAINED]),
        ("opt-out", [EventKind.UNSUBSCRIBED]),
        ("not-spam", []),
        ("auth-failure", []),
    ],
)
def test_what_a_type_of_feedback_means(type_: str, kinds: list[EventKind]) -> None:
    read = read_returned(complaint(f"Feedback-Type: {type_}"), NOW)
    assert read.kind is Kind.COMPLAINT
    assert [event.kind for event in read.events] == kinds


@pytest.mark.parametrize("line", ["Feedback-Type: virus", "Feedback-Type: other", "Feedback-Type: novel", "X: y"])
def test_feedback_that_says_nothing_certain_is_for_a_person(line: str) -> None:
    assert read_returned(complaint(line), NOW).kind is Kind.UNREAD


def test_each_of_several_complainers_counts() -> None:
    content = complaint(
        "Feedback-Type: abuse", "Original-Rcpt-To: bob@example.com", "Original-Rcpt-To: eve@example.com"
    )
    assert [event.recipient for event in read_returned(content, NOW).events] == ["bob@example.com", "eve@example.com"]


def test_a_complainer_who_is_not_named_is_the_only_one_who_got_it() -> None:
    (event,) = read_returned(complaint("Feedback-Type: abuse"), NOW).events
    assert event.recipient == "bob@example.com"


def test_of_several_who_got_it_nobody_is_guessed() -> None:
    returned = RETURNED.replace("To: bob@example.com", "To: bob@example.com, eve@example.com")
    (event,) = read_returned(complaint("Feedback-Type: abuse", returned=returned), NOW).events
    assert (event.recipient, event.key) == ("", KEY)
