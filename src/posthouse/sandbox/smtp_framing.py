"""Lines and contents out of the bytes of an SMTP connection, whole ones only. RFC 5321 sections 2.3.8 and 4.5.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LINE_BYTES_MAX: Final = 12_288
"""The longest command: a line of AUTH (RFC 4954 section 4)."""

CONTENT_BYTES_MAX: Final = 32 * 1024 * 1024

_LINE_END: Final = b"\r\n"
_CONTENT_END: Final = b"\r\n.\r\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """A line without its end, or a content with its dots unstuffed. Of one that is too long nothing is kept."""

    octets: bytes = b""
    too_long: bool = False


class Incoming:
    """What has arrived and was not yet read.

    Only CR LF ends a line, and only CR LF . CR LF a content: a server that is lenient here lets a message smuggle a
    second one in.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0  # no end begins before this place
        self._too_long = False

    def feed(self, received: bytes) -> None:
        """More has arrived."""
        self._buffer += received

    def clear(self) -> None:
        """Forgets what was not read: before a TLS handshake anybody may have put it in (RFC 3207 section 6)."""
        self._buffer.clear()
        self._searched = 0
        self._too_long = False

    def next_line(self) -> Piece | None:
        """The next command, None until it is complete."""
        end = self._find(_LINE_END, LINE_BYTES_MAX)
        return None if end is None else self._take(end, len(_LINE_END))

    def next_content(self) -> Piece | None:
        """The message that follows a DATA command, None until it is complete."""
        if not self._too_long and self._buffer.startswith(b".\r\n"):
            return self._take(0, 3)
        end = self._find(_CONTENT_END, CONTENT_BYTES_MAX)
        if end is None:
            return None
        # The first CR LF of the end belongs to the content's last line.
        taken = self._take(end + 2, 3)
        return Piece(_without_stuffing(taken.octets), taken.too_long)

    def _find(self, end: bytes, bytes_max: int) -> int | None:
        place = self._buffer.find(end, self._searched)
        if place >= 0:
            self._too_long = self._too_long or place > bytes_max
            return place
        kept = len(end) - 1
        if len(self._buffer) > bytes_max + kept:
            self._too_long = True
            del self._buffer[:-kept]
        self._searched = max(0, len(self._buffer) - kept)
        return None

    def _take(self, length: int, end: int) -> Piece:
        piece = Piece(too_long=True) if self._too_long else Piece(bytes(self._buffer[:length]))
        del self._buffer[: length + end]
        self._searched = 0
        self._too_long = False
        return piece


def _without_stuffing(content: bytes) -> bytes:
    return content.removeprefix(b".").replace(b"\r\n.", b"\r\n")
