"""What makes a content unfit for SMTP, as the strictest servers see it. RFC 5321 sections 2.3.8 and 4.5.3.1.6."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from posthouse.sandbox.smtp_framing import Piece

LINE_OCTETS_MAX: Final = 998
"""The longest line of a message, without its CR LF."""

_BARE: Final = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_LONG: Final = re.compile(rb"[^\n]{%d}" % (LINE_OCTETS_MAX + 2))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message is not taken."""

    code: int
    text: str


def refusal_of(content: Piece) -> Refusal | None:
    """What is wrong with the content, None where nothing is."""
    if content.too_long:
        return Refusal(552, "5.3.4 The message is too long")
    if (bare := _BARE.search(content.octets)) is not None:
        name = "CR" if bare[0] == b"\r" else "LF"
        return Refusal(554, f"5.6.0 A bare {name} at octet {bare.start()}")
    if (long := _LONG.search(content.octets)) is not None:
        return Refusal(554, f"5.6.0 A line of more than {LINE_OCTETS_MAX} octets at octet {long.start()}")
    return None
