"""What a receiver's words say about why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.answers import rule_faults
from posthouse.core.causes import CAUSE_RULES, CLOSER_THAN_BLOCKED, CauseRule, Diagnosis, cause_of, closer
from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.suppression import After, after_bounce


@pytest.mark.parametrize(("rule", "example"), [(rule, e) for rule in CAUSE_RULES for e in rule.matches])
def test_every_rule_decides_its_own_examples(rule: CauseRule, example: Diagnosis) -> None:
    assert cause_of(example.status, example.text) is rule.cause


def test_no_rule_is_dead_shadowed_or_too_wide() -> None:
    assert rule_faults(CAUSE_RULES) == []


# What must be understood, written down apart from the rules.
SAID = [
    ("5.1.1", "550 5.1.1 <bob@example.com>: Recipient address rejected: User unknown in local table", "no_mailbox"),
    ("", "550-5.1.1 The email account that you tried to reach does not exist. Please try", "no_mailbox"),
    ("", "smtp; 550 5.1.1 unknown", "no_mailbox"),
    ("", "550 the mailbox\r\n   is full", "mailbox_full"),
    ("5.0.0", "smtp; 550 5.1.1 unknown", "no_mailbox"),
    ("5.1.1", "550 5.1.1 <no-spam@blacklist.example>: user unknown", "no_mailbox"),
    ("5.1.2", "host unknown", "no_mailbox"),
    ("4.1.1", "450 4.1.1 <bob@example.com>: Recipient address rejected: unverified address", "no_mailbox"),
    ("5.1.0", "something about an address", "other"),
    ("5.1.4", "ambiguous", "other"),
    ("5.1.7", "bad sender syntax", "not_authentic"),
    ("5.2.1", "550 5.2.1 The email account that you tried to reach is inactive.", "mailbox_disabled"),
    ("5.2.2", "552 5.2.2 The email account that you tried to reach is over quota.", "mailbox_full"),
    ("4.2.2", "452 4.2.2 mailbox full", "mailbox_full"),
    ("4.4.7", "", "expired"),
    ("4.3.1", "Insufficient system storage", "other"),
    ("4.7.26", "421 4.7.26 This mail has been rate limited because it is unauthenticated.", "not_authentic"),
    ("4.7.0", "421-4.7.0 Try again later, closing connection.", "blocked"),
    ("5.7.1", "550 5.7.1 Requested action not taken: message refused", "blocked"),
    ("5.7.1", "550 5.7.1 <bob@example.com>: Recipient address rejected: no such user", "no_mailbox"),
    ("5.4.1", "550 5.4.1 [bob@example.com]: Recipient address rejected: Access denied. AS(201806281)", "no_mailbox"),
    ("", "host mx.example said: 554 5.7.1 blocked, see https://www.spamhaus.org/query/ip/192.0.2.7", "blocked"),
    ("", "554 mailbox unavailable. Your IP is on a blacklist", "blocked"),
    ("", "connect to 5.1.1.7: hello", "other"),
    ("", "", "other"),
    ("", "something went wrong", "other"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "text", "cause"), SAID)
def test_a_receiver_that_says_this_means(status: str, text: str, cause: str) -> None:
    assert cause_of(status, text) == cause


DMARC = "550-5.7.26 This mail has been blocked because the sender is unauthenticated."


@pytest.mark.parametrize(
    ("code", "text", "cause"),
    [
        ("550 5.7.26", DMARC, Cause.NOT_AUTHENTIC),
        ("550 5.7.26", "not taken", Cause.NOT_AUTHENTIC),  # its code alone says it
        ("421 4.7.0", "421 4.7.0 [TSS04] Messages temporarily deferred due to unexpected volume", Cause.TOO_FAST),
        ("451 4.7.1", "451 4.7.1 Greylisting in action", Cause.GREYLISTED),
        ("554 5.7.1", "554 5.7.1 Message looks like spam", Cause.CONTENT),
        ("552 5.2.2", "552 5.2.2 over quota", Cause.MAILBOX_FULL),
        ("550 5.7.1", "550 5.7.1 blocked using zen.spamhaus.org", Cause.BLOCKED),
        ("550 5.1.1", "550 5.1.1 no such user", Cause.BLOCKED),
        ("550", "550 Requested action not taken: mailbox unavailable", Cause.BLOCKED),
        ("550 5.2.1", "550 5.2.1 The account is disabled", Cause.BLOCKED),
        ("554", "554 on the suppression list", Cause.BLOCKED),
        ("421 4.4.2", "421 4.4.2 connection dropped", Cause.BLOCKED),
        ("", "", Cause.BLOCKED),
    ],
)
def test_a_bare_blocked_yields_to_what_has_another_cure_and_never_to_what_speaks_against_the_address(
    code: str, text: str, cause: Cause
) -> None:
    assert closer(Cause.BLOCKED, code, text) is cause


def test_what_nobody_explains_is_what_the_receiver_says_it_is() -> None:
    assert closer(Cause.OTHER, "550 5.1.1", "no such user") is Cause.NO_MAILBOX
    assert closer(Cause.OTHER, "550", "no") is Cause.OTHER


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in (Cause.OTHER, Cause.BLOCKED)])
def test_any_closer_word_of_a_provider_stands(cause: Cause) -> None:
    assert closer(cause, "550 5.7.26", DMARC) is cause


@pytest.mark.parametrize("hard", [True, False])
def test_what_a_bare_blocked_yields_to_suppresses_nobody(hard: bool) -> None:
    afters = {after_bounce(Event(EventKind.BOUNCED, 0.0, cause=cause, hard=hard)) for cause in CLOSER_THAN_BLOCKED}
    assert After.SUPPRESS not in afters


@given(st.text(max_size=9), st.text())
def test_whatever_is_said_has_a_cause(status: str, text: str) -> None:
    assert cause_of(status, text) in Cause


def test_a_long_text_is_judged_by_its_beginning() -> None:
    assert cause_of("", "user " * 200_000) is Cause.OTHER
