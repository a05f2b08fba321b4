"""Replies out of bytes."""

from __future__ import annotations

import pytest

from posthouse.providers.smtp_framing import LINE_BYTES_MAX, REPLY_BYTES_MAX, BadReply, Incoming, Said

TALK = (
    b"220 hi\r\n250-mail\r\n250-SIZE 10\r\n250 HELP\r\n250\r\n250-\r\n250 \r\n"
    b"354 go\n550 5.1.1 niemand: Gr\xc3\xbc\xdfe\r\n"
)
SAID = [
    Said(220, "hi"),
    Said(250, "mail\nSIZE 10\nHELP"),
    Said(250, ""),
    Said(250, "\n"),
    Said(354, "go"),
    Said(550, "5.1.1 niemand: Grü\ufffde"),
]


@pytest.mark.parametrize("size", range(1, len(TALK) + 1))
def test_replies_are_the_same_in_whatever_pieces_they_come(size: int) -> None:
    incoming, said = Incoming(), list[Said]()
    for place in range(0, len(TALK), size):
        incoming.feed(TALK[place : place + size])
        while (reply := incoming.next_reply()) is not None:
            said.append(reply)
    assert said == SAID
    assert not incoming


@pytest.mark.parametrize(
    "octets", [b"hello\r\n", b"25\r\n", b"-12 x\r\n", b"099 x\r\n", b"600 x\r\n", b"\r\n", b"2 50\r\n"]
)
def test_what_does_not_begin_with_a_code_is_no_reply(octets: bytes) -> None:
    incoming = Incoming()
    incoming.feed(octets)
    with pytest.raises(BadReply):
        incoming.next_reply()


@pytest.mark.parametrize(
    "octets",
    [
        b"250 " + b"x" * LINE_BYTES_MAX + b"\r\n",
        b"250 " + b"x" * LINE_BYTES_MAX,
        b"250-and so on\r\n" * (REPLY_BYTES_MAX // 15 + 1),
    ],
    ids=["a line that is too long", "a line without end", "a reply without end"],
)
def test_a_reply_is_kept_within_bounds(octets: bytes) -> None:
    incoming = Incoming()
    incoming.feed(octets)
    with pytest.raises(BadReply):
        incoming.next_reply()


def test_of_a_reply_that_was_cut_the_first_line_counts() -> None:
    incoming = Incoming()
    incoming.feed(b"250-2.0.0 Ok\r\n250 que")
    assert incoming.next_reply() is None
    assert incoming.cut_reply() == Said(250, "2.0.0 Ok")
    assert incoming.cut_reply() == Said(250, "2.0.0 Ok"), "to look changes nothing"


@pytest.mark.parametrize("octets", [b"", b"25", b"250 2.0.0 Ok"])
def test_a_line_that_was_cut_is_no_reply(octets: bytes) -> None:
    incoming = Incoming()
    incoming.feed(octets)
    assert incoming.cut_reply() is None
