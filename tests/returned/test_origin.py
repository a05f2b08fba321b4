"""Which send it is about: by the address that it came to, by our header, by the Message-ID."""

from __future__ import annotations

import pytest

from posthouse.core.events import Event
from posthouse.returned.reading import Kind, read_returned
from tests.returned.mails import GONE, KEY, NOW, OURS, RETURNED, complaint, mail, report

OTHER = "f" * 32
ADDRESSES = {"main": "bounces+{id}@shop.example", "standby": "back-{id}@mail.shop.example"}
UNNAMED = RETURNED.replace(f"Message-ID: {OURS}\n", "")
BOUNCE = """\
This is the mail system at host mx.example.net.

<bob@example.com>: host mx.example.com said: 550 5.1.1 user unknown
"""


def about(content: bytes, recipient: str = "") -> Event:
    (event,) = read_returned(content, NOW, recipient=recipient, bounce_addresses=ADDRESSES).events
    return event


@pytest.mark.parametrize(
    "content",
    [
        report(GONE),
        report(GONE, returned=UNNAMED.replace("Subject", f"X-Posthouse-Id: {KEY}\nSubject")),
        report(GONE, returned=UNNAMED, head=f"References: <a@b.example>\n {OURS}\n"),
        report(GONE, returned=UNNAMED, head=f"In-Reply-To: {OURS}\n"),
        report(GONE, returned=UNNAMED, head=f"X-Original-Message-ID: {OURS}\n"),
        report(GONE, returned=UNNAMED, head=f"Original-Message-ID: {OURS}\n"),
        report(GONE).replace(b"message/rfc822", b"text/rfc822-headers"),
        report(GONE).replace(b"message/rfc822", b"text/plain"),
        report(GONE).replace(b"Content-Type: message/rfc822\r\n", b""),
        complaint("Feedback-Type: abuse"),
        mail(BOUNCE, returned=RETURNED),
        mail(f"{BOUNCE}\n> Subject: Your order\n> Message-ID:\n>  {OURS}\n"),
    ],
)
def test_our_id_is_found_wherever_it_stands(content: bytes) -> None:
    assert about(content).key == KEY


def test_a_message_id_that_is_not_ours_is_kept_as_the_providers() -> None:
    event = about(report(GONE, returned=RETURNED.replace(OURS, "<20270115.7@mail.provider.example>")))
    assert (event.key, event.message_id) == (None, "20270115.7@mail.provider.example")


def test_the_reports_own_message_id_is_not_that_of_what_came_back() -> None:
    content = report(GONE, returned=UNNAMED).replace(b"<report-1@mx.example.net>", OURS.encode())
    assert read_returned(content, NOW).kind is Kind.UNREAD


@pytest.mark.parametrize(
    "head",
    [
        f"Delivered-To: bounces+{OTHER}@shop.example\n",
        f"X-Original-To: bounces+{OTHER}@shop.example\n",
        f"Envelope-To: <BOUNCES+{OTHER.upper()}@SHOP.example>\n",
        f"To: Bounces <bounces+{OTHER}@shop.example>, ada@example.com\n",
    ],
)
def test_the_address_that_it_came_to_comes_first(head: str) -> None:
    read = read_returned(report(GONE, head=head), NOW, bounce_addresses=ADDRESSES)
    assert (read.events[0].key, read.route) == (OTHER, "main")


def test_the_mail_server_knows_best_to_whom_it_came() -> None:
    head = f"To: bounces+{OTHER}@shop.example\n"
    read = read_returned(
        report(GONE, head=head), NOW, recipient=f"back-{KEY}@mail.shop.example", bounce_addresses=ADDRESSES
    )
    assert (read.events[0].key, read.route) == (KEY, "standby")


@pytest.mark.parametrize("address", [f"bounces+{OTHER[1:]}@shop.example", f"x+{OTHER}@shop.example", "nonsense"])
def test_another_address_says_nothing(address: str) -> None:
    assert about(report(GONE), recipient=address).key == KEY


def test_a_bounce_in_any_words_is_about_the_send_whose_address_it_came_to() -> None:
    assert about(mail(BOUNCE), recipient=f"bounces+{OTHER}@shop.example").key == OTHER
