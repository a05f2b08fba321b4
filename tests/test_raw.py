"""Finished messages: only Bcc and the line ends are changed, nobody is left out, and what can't be sent is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.address import Address
from posthouse.email import Email
from posthouse.errors import InvalidEmail
from posthouse.raw import read_raw

unhurried = settings(deadline=None, print_blob=True)


def kept(raw: bytes | bytearray | memoryview) -> bytes:
    return read_raw(raw).content


def refusal(raw: Any, **fields: Any) -> InvalidEmail:
    with pytest.raises(InvalidEmail) as caught:
        Email(key="raw-1", raw=raw, **fields).checked()
    return caught.value


def recipients(head: bytes) -> dict[str, list[str]]:
    found = read_raw(head + b"\r\n\r\nbody").recipients()
    return {name: [str(address) for address in addresses] for name, addresses in found.items() if addresses}


# What is kept, and what is not.


@pytest.mark.parametrize(
    "raw",
    [
        b"Subject: a\r\n\r\nb\r\n",
        b"Subject: a\r\nX: 1\r\n  folded\r\n\r\n\r\nb\r\n\r\n",
        b"Subject: a\r\n",  # no body
        b"\r\nno headers\r\n",
        b"no headers, and no empty line\r\n",
        b"From somebody Fri Apr 06 16:46:09 2001\r\nSubject: a\r\n\r\nb\r\n",
        b"unreadable line\r\nSubject: a\r\n\r\nb\r\n",
        "Subject: Grüße\r\n\r\nÜ\r\n".encode(),
        b"Subject: a\r\n\r\n\xff\xfe\r\n",
        b"Subject: a\r\n\r\n" + b"x" * 998 + b"\r\n",
        b"Subject: a\r\n\r\n.\r\n..\r\nFrom me\r\n",
    ],
)
def test_a_message_that_smtp_can_carry_stays_as_it_is(raw: bytes) -> None:
    assert kept(raw) == raw
    assert kept(bytearray(raw)) == raw
    assert kept(memoryview(raw)) == raw


@pytest.mark.parametrize(
    ("given", "kept_as"),
    [
        (b"Subject: a\n\nb\n", b"Subject: a\r\n\r\nb\r\n"),
        (b"Subject: a\r\rb\r", b"Subject: a\r\n\r\nb\r\n"),
        (b"Subject: a\n\r\nb\r", b"Subject: a\r\n\r\nb\r\n"),
        (b"Subject: a\r\n\r\nb\r\r\nc", b"Subject: a\r\n\r\nb\r\n\r\nc\r\n"),
        (b"Subject: a\r\n\r\nb", b"Subject: a\r\n\r\nb\r\n"),
    ],
)
def test_every_line_ends_with_crlf(given: bytes, kept_as: bytes) -> None:
    assert kept(given) == kept_as


@pytest.mark.parametrize(
    ("given", "kept_as"),
    [
        (b"Bcc: eve@x.example\r\nSubject: a\r\n\r\nb\r\n", b"Subject: a\r\n\r\nb\r\n"),
        (b"Subject: a\r\nbCC : eve@x.example\r\n\r\nb\r\n", b"Subject: a\r\n\r\nb\r\n"),
        (b"Bcc:\r\n eve@x.example,\r\n\tmallory@x.example\r\nTo: b@x.example\r\n", b"To: b@x.example\r\n"),
        (b"Bcc: a@x.example\r\nX: 1\r\nBcc: b@x.example\r\n\r\nb\r\n", b"X: 1\r\n\r\nb\r\n"),
        (b"Resent-Bcc: eve@x.example\r\nX: 1\r\n\r\n", b"X: 1\r\n\r\n"),
        (b"unreadable\r\nBcc: eve@x.example\r\n\r\nb\r\n", b"unreadable\r\n\r\nb\r\n"),
        (b"X: 1\nBcc: eve@x.example\n\nb\n", b"X: 1\r\n\r\nb\r\n"),
        (b"X: 1\rBcc: eve@x.example\r\rb", b"X: 1\r\n\r\nb\r\n"),
        (b"X: 1\r\nBcc: eve@x.example", b"X: 1\r\n"),
        (b"Bcc: " + b"eve@x.example, " * 100 + b"\r\n\r\nb\r\n", b"\r\nb\r\n"),
    ],
)
def test_bcc_is_taken_out_in_any_dress(given: bytes, kept_as: bytes) -> None:
    assert kept(given) == kept_as


@pytest.mark.parametrize(
    "raw",
    [
        b"Subject: a\r\n\r\nBcc: eve@x.example\r\n",
        b"\r\nBcc: eve@x.example\r\n",
        b"Subject: a\r\n Bcc: folded\r\n\r\nb\r\n",
        b"X-Bcc: 1\r\nBccs: 2\r\n\r\nb\r\n",
    ],
)
def test_what_only_looks_like_bcc_stays(raw: bytes) -> None:
    assert kept(raw) == raw


HEADERS = st.sampled_from(
    ["Subject: a", "To: ada@x.example", "Bcc: eve@x.example", "bcc:eve@x.example", " eve@x.example"]
)


@unhurried
@given(st.lists(HEADERS, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), st.text("Bc: \n", max_size=10))
def test_nobody_hidden_is_seen_unless_the_body_says_so(lines: list[str], end: str, body: str) -> None:
    lines = ["X: 1", *(line for line in lines if not line.startswith(" ")), "Bcc: eve@x.example", " eve@x.example"]
    content = kept(end.join([*lines, "", body]).encode())
    assert b"eve" not in content
    assert content.endswith(b"\r\n")
    assert b"\r" not in content.replace(b"\r\n", b"")


# What can't be sent.


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("text", "must be bytes, not str"),
        (b"", "is empty"),
        (b"\r\n\r\n", "is empty"),
        (b"Bcc: eve@x.example\r\n", "is empty"),
        (b"Subject: a\r\n\r\n\0", "contains a NUL"),
        (b"Subject: a\0\r\n\r\nb", "contains a NUL"),
        (b"Bcc: b@x.example\nSubject: a\n\nb\n" + b"x" * 999, "line 5 is longer than 998 bytes"),
        (b"Subject: a" + b"x" * 999 + b"\n\nb", "line 1 is longer"),
        (b"X: 1\nSubject: Gr\xfc\xdfe\n\nb", "line 2, a header, is neither ASCII nor UTF-8"),
    ],
)
def test_what_no_server_takes_is_refused_with_its_line(raw: Any, reason: str) -> None:
    error = refusal(raw, to="ada@x.example")
    assert error.field == "raw"
    assert reason in error.reason


def test_a_large_message_is_read_in_no_time() -> None:
    """Lines just below the limit were once slow to look through."""
    line = b"x" * 998 + b"\r\n"
    raw = b"Subject: a\r\n\r\n" + line * 10_000
    assert kept(raw) == raw


# Who gets it.


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"To: ada@x.example", ["ada@x.example"]),
        (b"To: a@x.example,\r\n b@x.example", ["a@x.example", "b@x.example"]),
        (b"To: a@x.example\r\nTo: b@x.example", ["a@x.example", "b@x.example"]),
        (b'To: "Doe, Jane" <a@x.example>, b@x.example', ['"Doe, Jane" <a@x.example>', "b@x.example"]),
        (b"To: Dr. Who <a@x.example>", ['"Dr. Who" <a@x.example>']),
        (b"To: a@x.example; b@x.example", ["a@x.example", "b@x.example"]),
        (b"To: a@x.example,, b@x.example,", ["a@x.example", "b@x.example"]),
        (b"To: t: a@x.example, B <b@x.example>;, c@x.example", ["a@x.example", '"B" <b@x.example>', "c@x.example"]),
        (b'To: "our team": a@x.example;', ["a@x.example"]),
        (b"To: undisclosed-recipients:;", []),
        (b"To: a@x.example (Ada, of (old) London)", ["a@x.example"]),
        (b"To: (none) ", []),
        (b"To:", []),
        (b"To: =?utf-8?q?Zo=C3=AB=2C_Jane?= <a@x.example>", ['"Zoë, Jane" <a@x.example>']),
        (b'To: "=?utf-8?q?Zo=C3=AB?=" <a@x.example>', ['"Zoë" <a@x.example>']),
        (b"To: =?utf-8?q?a=0D=0ABcc=3A_x?= <a@x.example>", ['"a Bcc: x" <a@x.example>']),
        (b"To: =?nonsense?q?a?= <a@x.example>", ['"=?nonsense?q?a?=" <a@x.example>']),
        ("To: Zoë <zoë@bücher.example>".encode(), ['"Zoë" <zoë@bücher.example>']),
        (b"unreadable\r\nTo: a@x.example", ["a@x.example"]),
        (b'To: "a, b"@x.example', ['"a, b"@x.example']),
    ],
)
def test_its_headers_name_the_recipients(head: bytes, found: list[str]) -> None:
    assert recipients(head) == ({"to": found} if found else {})


def test_each_header_fills_its_own_list() -> None:
    assert recipients(b"To: a@x.example\r\nCC: b@x.example\r\nBcc: c@x.example\r\nFrom: d@x.example") == {
        "to": ["a@x.example"],
        "cc": ["b@x.example"],
        "bcc": ["c@x.example"],
    }


@pytest.mark.parametrize(
    "head",
    [
        b"To: ada",
        b"To: a@x.example b@x.example",
        b"To: Ada <a@x.example",
        b"To: <a@x.example> Ada",
        b"To: a@x.example: b@x.example",
        b"To: a@foo:bar.example",
        b"To: <@relay.example:a@x.example>",
        b'Cc: "open <a@x.example>',
        b'Cc: "a <b@x.example>, "c" <d@x.example>',
        b"Bcc: <>",
    ],
)
def test_a_recipient_that_can_not_be_read_is_refused_not_left_out(head: bytes) -> None:
    error = refusal(head + b"\r\n\r\nb")
    assert error.field == f"raw (its {head[: head.index(b':')].decode()})"
    assert refusal(b"Subject: a\r\n\r\nb").reason == "no recipient"


def test_recipients_of_the_email_itself_win_and_bcc_is_still_taken_out() -> None:
    raw = b"To: nobody\r\nBcc: eve@x.example\r\n\r\nb"
    checked = Email(key="raw-1", raw=raw, to="ada@x.example").checked()
    assert checked.content.recipients == (Address("ada@x.example"),)
    assert list(checked.files.values()) == [b"To: nobody\r\n\r\nb\r\n"]


def test_a_message_that_was_sent_before_must_name_its_recipients_anew() -> None:
    raw = b"Resent-To: bob@x.example\r\nTo: ada@x.example\r\n\r\nb"
    assert refusal(raw).reason == "is missing: the message was sent before (it has Resent-To)"
    assert Email(key="raw-1", raw=raw, to="bob@x.example").checked().content.recipients == (Address("bob@x.example"),)


def test_its_subject_and_sender_are_what_people_see() -> None:
    read = read_raw(
        b"From: Shop <a@x.example>, b@x.example\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n  there\r\n\r\nb"
    )
    assert read.subject == "Grüße there"
    assert read.sender == Address("a@x.example", "Shop")
    unreadable = read_raw(b"From: Shop\r\n\r\nb")
    assert (unreadable.subject, unreadable.sender) == ("", None)
