"""Whole lines and contents come out of the bytes, however they are cut on their way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.sandbox import smtp_framing
from posthouse.sandbox.smtp_framing import Incoming, Piece


def stuffed(content: bytes) -> bytes:
    """As RFC 5321 section 4.5.2 has a client send it."""
    lines = content.split(b"\r\n")[:-1]
    return b"".join((b"." + line if line.startswith(b".") else line) + b"\r\n" for line in lines) + b".\r\n"


LINES = st.lists(st.sampled_from([b"", b".", b"..", b"Hi", b".x", b"a.b", b"\n.", b"\r."]), max_size=8)


@given(LINES, st.lists(st.integers(1, 9), max_size=30))
def test_a_content_is_the_same_however_it_is_cut(lines: list[bytes], cuts: list[int]) -> None:
    content = b"".join(line + b"\r\n" for line in lines)
    wire = stuffed(content) + b"QUIT\r\n"
    incoming = Incoming()
    pieces: list[Piece] = []
    for size in [*cuts, len(wire)]:
        part, wire = wire[:size], wire[size:]
        incoming.feed(part)
        if not pieces and (piece := incoming.next_content()) is not None:
            pieces.append(piece)
    assert pieces == [Piece(content)]
    assert incoming.next_line() == Piece(b"QUIT")


def test_several_commands_at_once_are_several_lines() -> None:
    incoming = Incoming()
    incoming.feed(b"MAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDA")
    assert incoming.next_line() == Piece(b"MAIL FROM:<a@b.example>")
    assert incoming.next_line() == Piece(b"RCPT TO:<c@d.example>")
    assert incoming.next_line() is None
    incoming.feed(b"TA\r\n")
    assert incoming.next_line() == Piece(b"DATA")


@pytest.mark.parametrize("smuggled", [b"\n.\n", b"\n.\r\n", b"\r.\r", b"\r\n.\n", b"\r\n.\r"])
def test_nothing_but_cr_lf_dot_cr_lf_ends_a_content(smuggled: bytes) -> None:
    incoming = Incoming()
    incoming.feed(b"Hi" + smuggled + b"MAIL FROM:<evil@example.com>")
    assert incoming.next_content() is None


def test_what_is_too_long_is_read_to_its_end_and_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp_framing, "CONTENT_BYTES_MAX", 20)
    monkeypatch.setattr(smtp_framing, "LINE_BYTES_MAX", 20)
    incoming = Incoming()
    for octet in b"x" * 30 + b"\r\n.\r\n" + b"y" * 30 + b"\r\n" + b"NOOP\r\n":
        incoming.feed(bytes([octet]))
        if octet == ord("y"):
            break
        assert incoming.next_content() in (None, Piece(too_long=True))
    incoming.feed(b"y" * 29 + b"\r\nNOOP\r\n")
    assert incoming.next_line() == Piece(too_long=True)
    assert incoming.next_line() == Piece(b"NOOP")


def test_what_was_said_before_a_handshake_can_be_forgotten() -> None:
    incoming = Incoming()
    incoming.feed(b"MAIL FROM:<evil@example.com>\r\n")
    incoming.clear()
    assert incoming.next_line() is None
