"""Reports of delivery: what each recipient's lines mean, whatever else is broken."""

from __future__ import annotations

import base64

import pytest

from posthouse.core.events import Cause, Event, EventKind
from posthouse.returned.reading import Kind, read_returned
from tests.returned.mails import GONE, KEY, NOW, OURS, RETURNED, bytes_of, each_without_one, recipient, report

AN_HOUR_AGO = NOW - 3600.0


def events(content: bytes) -> list[Event]:
    return list(read_returned(content, NOW).events)


def the_event(content: bytes) -> Event:
    (event,) = events(content)
    return event


def test_a_report_says_what_became_of_a_send() -> None:
    read = read_returned(report(GONE), NOW)

    assert read.kind is Kind.REPORT
    (event,) = read.events
    assert (event.kind, event.recipient, event.key) == (EventKind.BOUNCED, "bob@example.com", KEY)
    assert (event.cause, event.hard, event.code) == (Cause.NO_MAILBOX, True, "550 5.1.1")
    assert event.text == "550 5.1.1 <bob@example.com>: user unknown"
    assert event.at == AN_HOUR_AGO


def test_a_recipient_who_is_only_delayed_hides_none_who_failed() -> None:
    content = report(
        recipient("ada@example.com", "delayed", "4.4.1", "connection timed out"),
        recipient("bob@example.com", "failed", "5.1.1"),
        recipient("eve@example.com", "failed", "5.2.2", "552 mailbox full"),
    )

    told = [(event.kind, event.recipient, event.cause, event.hard) for event in events(content)]

    assert told == [
        (EventKind.DEFERRED, "ada@example.com", Cause.UNREACHABLE, False),
        (EventKind.BOUNCED, "bob@example.com", Cause.NO_MAILBOX, True),
        (EventKind.BOUNCED, "eve@example.com", Cause.MAILBOX_FULL, False),
    ]


@pytest.mark.parametrize(
    ("action", "status", "kind"),
    [
        ("failed", "5.1.1", EventKind.BOUNCED),
        ("FAILED (gave up)", "4.4.7", EventKind.BOUNCED),
        ("failure", "553 too large", EventKind.BOUNCED),
        ("delayed", "4.2.2", EventKind.DEFERRED),
        ("delivered", "2.0.0", EventKind.DELIVERED),
        ("expanded", "2.0.0", EventKind.DELIVERED),
        ("relayed", "2.0.0", EventKind.SENT),
        ("", "5.1.1 (unknown)", EventKind.BOUNCED),
        ("", "4.2.2", EventKind.DEFERRED),
        ("", "2.1.5", EventKind.DELIVERED),
        ("bewildered", "5.0.0", EventKind.BOUNCED),
    ],
)
def test_what_an_action_means_and_where_it_is_missing_the_class_of_the_status(
    action: str, status: str, kind: EventKind
) -> None:
    assert the_event(report(recipient("bob@example.com", action, status))).kind is kind


def test_without_action_and_status_nobody_can_tell() -> None:
    assert read_returned(report("Final-Recipient: rfc822; bob@example.com"), NOW).kind is Kind.UNREAD


@pytest.mark.parametrize(
    ("status", "said", "cause", "hard"),
    [
        ("5.1.1", "550 5.1.1 no such user", Cause.NO_MAILBOX, True),
        ("5.0.0", "550 5.1.1 no such user", Cause.NO_MAILBOX, True),
        ("5.2.1", "550 5.2.1 disabled", Cause.MAILBOX_DISABLED, True),
        ("4.1.1", "450 4.1.1 user unknown, for now", Cause.NO_MAILBOX, False),
        ("5.2.2", "552 5.2.2 full", Cause.MAILBOX_FULL, False),
        ("4.4.7", "message expired", Cause.EXPIRED, False),
        ("5.7.1", "550 5.7.1 blocked using zen.spamhaus.org", Cause.BLOCKED, False),
        ("5.7.26", "550 5.7.26 unauthenticated", Cause.NOT_AUTHENTIC, False),
        ("5.0.0", "something went wrong", Cause.OTHER, False),
    ],
)
def test_only_a_refusal_of_the_address_itself_is_for_good(status: str, said: str, cause: Cause, hard: bool) -> None:
    event = the_event(report(recipient("bob@example.com", "failed", status, said)))
    assert (event.cause, event.hard) == (cause, hard)


def test_a_delivery_has_no_cause() -> None:
    assert the_event(report(recipient("bob@example.com", "delivered", "2.1.1", "250 ok"))).cause is Cause.NONE


def test_the_address_is_the_one_that_we_had_sent_it_to() -> None:
    lines = f"Original-Recipient: rfc822;Bob@Example.com\n{recipient('elsewhere@example.net', 'failed', '5.1.1')}"
    assert the_event(report(lines)).recipient == "Bob@Example.com"


@pytest.mark.parametrize(
    "written",
    ["rfc822;bob@example.com", "rfc822; <bob@example.com>", "RFC822 ; bob@example.com (Bob)", "bob@example.com"],
)
def test_an_address_is_read_however_it_is_written(written: str) -> None:
    content = report(f"Final-Recipient: {written}\nAction: failed\nStatus: 5.1.1")
    assert the_event(content).recipient == "bob@example.com"


def test_addresses_beyond_ascii_are_read() -> None:
    lines = recipient("x", "failed", "5.1.1").replace("rfc822; x", "utf-8; jürgen@bücher.example")
    assert the_event(report(lines, type_="message/global-delivery-status")).recipient == "jürgen@bücher.example"


@pytest.mark.parametrize(
    "date",
    [
        "Fri, 15 Jan 2027 07:00:00 UTC",
        "Fri, 15 Jan 2027 07:00:00 GMT",
        "Fri, 15 Jan 2027 02:00:00 EST",
        "Fri, 15 Jan 2027 07:00:00 -0000",
        "Fri, 15 Jan 2027 07:00:00 +0000 (UTC)",
        "15 Jan 2027 08:00 +0100",
        "Fri,15 Jan 2027 07:00:00",
    ],
)
def test_zones_are_understood_in_every_dress(date: str) -> None:
    lines = recipient("bob@example.com", "failed", "5.1.1", "", f"Last-Attempt-Date: {date}")
    assert the_event(report(lines)).at == AN_HOUR_AGO


@pytest.mark.parametrize(
    "date",
    ["", "yesterday", "Fri, 99 Foo 2027 07:00:00 +0000", "Mon, 1 Jan 0000 00:00:00 +9999", "1 Jan 1970 0:0", "🦊" * 99],
)
def test_a_date_that_can_not_be_is_passed_over_for_the_reports_own(date: str) -> None:
    lines = recipient("bob@example.com", "failed", "5.1.1", "", f"Last-Attempt-Date: {date}")
    assert the_event(report(lines)).at == AN_HOUR_AGO


def test_nothing_has_happened_yet_that_happens_tomorrow() -> None:
    lines = recipient("bob@example.com", "failed", "5.1.1", "", "Last-Attempt-Date: Sat, 16 Jan 2027 08:00:00 +0000")
    assert the_event(report(lines)).at == NOW


@pytest.mark.parametrize("lines", each_without_one(GONE))
def test_a_report_without_one_of_its_lines_still_says_the_rest(lines: str) -> None:
    event = the_event(report(lines))
    assert (event.kind, event.key) == (EventKind.BOUNCED, KEY)


def test_two_to_headers_a_missing_end_and_bare_line_feeds_do_no_harm() -> None:
    content = report(GONE, head="To: somebody@else.example\n").replace(b"--b-1--", b"").replace(b"\r\n", b"\n")
    assert the_event(content).recipient == "bob@example.com"


def test_a_report_in_base64_is_read() -> None:
    status = base64.encodebytes(bytes_of(f"Reporting-MTA: dns; mx\n\n{GONE}\n")).decode()
    content = report("x").replace(b"Reporting-MTA: dns; mx.example.net\r\n\r\nx\r\n", status.encode())
    encoded = content.replace(
        b"message/delivery-status\r\n", b"message/delivery-status\r\nContent-Transfer-Encoding: base64\r\n"
    )
    assert the_event(encoded).recipient == "bob@example.com"


def test_a_report_that_somebody_forwards_is_not_about_their_message() -> None:
    inner = report(GONE).decode().replace("\r\n", "\n").replace("b-1", "b-2")
    forwarded = report("", returned=inner).replace(b'report-type=delivery-status; boundary="b-1"', b"boundary=b-1")
    assert read_returned(forwarded, NOW).kind is Kind.UNREAD


def test_a_huge_message_behind_the_report_is_not_read() -> None:
    content = report(GONE, returned=RETURNED + "x" * 70 + "\n") + b"y" * 30_000_000
    assert the_event(content).key == KEY


def test_null_bytes_do_no_harm() -> None:
    assert the_event(report(GONE).replace(b"failed", b"fai\0led")).kind is EventKind.BOUNCED


def test_a_report_that_says_nothing_of_its_message_is_for_a_person() -> None:
    read = read_returned(report(GONE, returned=RETURNED.replace(OURS, "")), NOW)
    assert (read.kind, read.events) == (Kind.UNREAD, ())
    assert "about which message" in read.reason


def test_the_same_report_again_has_the_same_events() -> None:
    first, again = events(report(GONE, GONE.replace("bob", "eve"))), events(report(GONE, GONE.replace("bob", "eve")))
    assert first == again
    assert len({event.provider_event_id for event in first}) == 2
    assert events(report(GONE, returned=RETURNED.replace("0", "1")))[0].provider_event_id != first[0].provider_event_id
