"""Whether a signature is of now: an old one may have been overheard, and be sent again by anybody."""

from __future__ import annotations

import re

_SECONDS = re.compile(r"\d{1,11}", re.ASCII)


def stale(timestamp: str, now: float, tolerance_s: float) -> str | None:
    """Why a timestamp in seconds since 1970 doesn't count; None where it does."""
    if not _SECONDS.fullmatch(timestamp):
        return "it has no timestamp"
    return off(int(timestamp), now, tolerance_s)


def off(moment: float, now: float, tolerance_s: float) -> str | None:
    """The same for a moment in seconds since 1970."""
    off_s = now - moment
    if abs(off_s) > tolerance_s:
        return f"its timestamp is {abs(off_s):.0f} s {'old' if off_s > 0 else 'ahead'} (webhook_tolerance)"
    return None
