"""Bounces in words, automatic mail, and what must not be taken for either."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.core.answers import rule_faults
from posthouse.core.events import Cause, EventKind
from posthouse.returned.reading import Kind, read_returned
from posthouse.returned.shapes import SHAPES, Shape, refusals_in
from posthouse.returned.signs import SIGNS, SignRule
from tests.returned.mails import GONE, KEY, NOW, RETURNED, complaint, mail, report

QMAIL = """\
Hi. This is the qmail-send program at mx.example.net.
I'm afraid I wasn't able to deliver your message to the following addresses.
This is a permanent error; I've given up. Sorry it didn't work out.

<bob@example.com>:
192.0.2.1 does not like recipient.
Remote host said: 550 5.1.1 <bob@example.com>: user unknown
Giving up on 192.0.2.1.

<eve@example.com>:
The mailbox is over quota. (#5.2.2)
"""
EXIM_WARNING = """\
This message was created automatically by mail delivery software.
A message that you sent has not yet been delivered to one or more of its
recipients after more than 24 hours on the queue on mx.example.net.

The following address(es) have not yet been delivered:

  bob@example.com
    Delay reason: Connection timed out

No action is required on your part.
"""


@pytest.mark.parametrize(("shape", "example"), [(shape, e) for shape in SHAPES for e in shape.matches])
def test_every_shape_reads_its_own_examples(shape: Shape, example: str) -> None:
    assert refusals_in(example) == list(shape.refusals(example))


def test_no_shape_and_no_sign_is_dead_shadowed_or_too_wide() -> None:
    assert rule_faults(SHAPES) == []
    assert rule_faults(SIGNS) == []


def test_a_bounce_in_words_is_about_each_recipient_that_it_names() -> None:
    read = read_returned(mail(QMAIL, returned=RETURNED), NOW)

    assert read.kind is Kind.BOUNCE
    assert [(e.kind, e.recipient, e.cause, e.hard, e.key) for e in read.events] == [
        (EventKind.BOUNCED, "bob@example.com", Cause.NO_MAILBOX, True, KEY),
        (EventKind.BOUNCED, "eve@example.com", Cause.MAILBOX_FULL, False, KEY),
    ]


def test_a_warning_in_words_is_no_bounce() -> None:
    (event,) = read_returned(mail(EXIM_WARNING, returned=RETURNED), NOW).events
    assert (event.kind, event.cause, event.hard) == (EventKind.DEFERRED, Cause.UNREACHABLE, False)


def test_words_without_a_code_are_never_for_good() -> None:
    words = QMAIL.replace("550 5.1.1 ", "").replace("(#5.2.2)", "")
    assert not any(event.hard for event in read_returned(mail(words, returned=RETURNED), NOW).events)


def test_nobody_is_refused_by_what_stands_in_the_returned_message() -> None:
    quoted = RETURNED + "\n<ada@example.com>:\nNo such user\n"
    read = read_returned(mail(QMAIL, returned=quoted), NOW)
    assert "ada@example.com" not in {event.recipient for event in read.events}


@pytest.mark.parametrize(
    "content",
    [
        mail("I was on holiday. user unknown to me!", of="bob@example.com"),
        mail("550 5.1.1 user unknown: bob@example.com", of="bob@example.com"),
        mail("> This is the qmail-send program at x.\n>\n> <bob@example.com>:\n> gone", of="bob@example.com"),
        mail("Ihre Nachricht konnte nicht zugestellt werden: bob@example.com"),
        b"",
        b"\r\n\r\n",
        b"\0" * 100,
        b"no header at all",
    ],
)
def test_what_nobody_recognises_is_kept_for_a_person(content: bytes) -> None:
    read = read_returned(content, NOW)
    assert (read.kind, read.events) == (Kind.UNREAD, ())
    assert read.reason


@pytest.mark.parametrize(("rule", "number"), [(rule, n) for rule in SIGNS for n in range(len(rule.matches))])
def test_automatic_mail_changes_nothing(rule: SignRule, number: int) -> None:
    headers = [f"{name}: {value}" for name, value in rule.matches[number].pairs]
    read = read_returned(mail("I am away.", *headers, of="bob@example.com"), NOW)
    assert (read.kind, read.events, read.reason) == (Kind.AUTOMATIC, (), rule.name)


def test_a_bounce_is_automatic_and_a_bounce_all_the_same() -> None:
    content = mail(QMAIL, "Auto-Submitted: auto-replied", "Precedence: bulk", returned=RETURNED)
    assert read_returned(content, NOW).kind is Kind.BOUNCE


def test_what_a_mail_server_says_in_a_language_of_its_own_is_for_a_person() -> None:
    content = mail("Käyttäjää ei ole.", "Auto-Submitted: auto-replied", "Precedence: bulk")
    assert read_returned(content, NOW).kind is Kind.UNREAD


# Nothing that a stranger can write is an error.


@given(st.binary(max_size=2000))
def test_whatever_bytes_come_they_are_read(content: bytes) -> None:
    assert read_returned(content, NOW).kind in Kind


@settings(max_examples=300)
@given(
    st.sampled_from([report(GONE), complaint("Feedback-Type: abuse"), mail(QMAIL, returned=RETURNED)]),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 40), st.binary(max_size=20)), max_size=4),
)
def test_a_message_that_is_broken_anywhere_is_read_as_far_as_it_goes(
    content: bytes, wounds: list[tuple[int, int, bytes]]
) -> None:
    for at, length, instead in wounds:
        content = content[:at] + instead + content[at + length :]
    for event in read_returned(content, NOW).events:
        event.text.encode("utf-8", "replace")
        assert event.at <= NOW


@pytest.mark.parametrize(
    "content",
    [
        b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(20_000)),
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + b"--b\r\n\r\n" * 100_000,
        b"Content-Type: message/rfc822\r\n\r\n" * 30_000,
        b"Content-Type: multipart/report; boundary=" + b"b" * 900_000,
        b"Subject: " + b"(" * 900_000,
        b"a:\r\n" * 250_000,
        b"From: MAILER-DAEMON\r\n\r\nyour message could not be delivered\r\n" + b"<a@b.example>:\r\n" * 50_000,
        b"From: MAILER-DAEMON\r\n\r\nmessage that you sent could not be delivered\r\n" + b"a@b.example" * 90_000,
        b"From: MAILER-DAEMON\r\n\r\nyour message could not be delivered\r\n" + b"-" * 900_000,
        b"From: MAILER-DAEMON\r\n\r\nyour message could not be delivered\r\n" + b"\r\n \r\n" * 150_000,
        report(*[GONE] * 6_000),
    ],
    ids=lambda content: f"{len(content)} bytes of {content[-8:]!r}",
)
@pytest.mark.timeout(5)
def test_nothing_that_is_huge_takes_long(content: bytes) -> None:
    assert read_returned(content, NOW).kind in Kind
