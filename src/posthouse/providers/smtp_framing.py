"""Replies out of the bytes of an SMTP connection, whole ones only. RFC 5321 section 4.2."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LINE_BYTES_MAX: Final = 8192
REPLY_BYTES_MAX: Final = 4 * LINE_BYTES_MAX

_LINE = re.compile(rb"([1-5][0-9]{2})(.?)(.*)", re.DOTALL)
"""A code from 100 to 599, what tells whether more lines follow, and the words."""


class BadReply(Exception):
    """What came is no SMTP reply, or has no end."""


class Said(NamedTuple):
    """One reply: its code, and the text of its lines with a line break between them."""

    code: int
    text: str


class Incoming:
    """What has arrived and was not yet read. A line may end with LF alone, as some servers have it."""

    def __init__(self) -> None:
        self._octets = b""

    def __len__(self) -> int:
        return len(self._octets)

    def feed(self, received: bytes) -> None:
        """More has arrived."""
        self._octets = self._octets + received if self._octets else bytes(received)

    def next_reply(self) -> Said | None:
        """The next reply, None until all of its lines are there. Raises BadReply."""
        texts = ""
        begin = 0
        while (end := self._octets.find(b"\n", begin)) >= 0:
            code, text, last = _read_line(self._octets[begin : end + 1])
            begin = end + 1
            if last:
                self._octets = self._octets[begin:]
                return Said(code, texts + text)
            texts += f"{text}\n"
        if len(self._octets) > REPLY_BYTES_MAX or len(self._octets) - begin > LINE_BYTES_MAX:
            raise BadReply
        return None

    def cut_reply(self) -> Said | None:
        """The first line of a reply whose other lines were lost: its code counts (RFC 5321 section 4.2.1)."""
        line, end, _ = self._octets.partition(b"\n")
        if not end:
            return None
        code, text, _ = _read_line(line)
        return Said(code, text)


def _read_line(line: bytes) -> tuple[int, str, bool]:
    """The code, the text, and whether it is the reply's last line. Raises BadReply."""
    found = _LINE.fullmatch(line)
    if found is None or len(line) > LINE_BYTES_MAX:
        raise BadReply
    code, separator, said = found.groups()
    return int(code), said.decode("utf-8", "replace").strip(), separator != b"-"
