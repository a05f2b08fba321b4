"""When to try again: backoff with jitter, and what an answer's Retry-After asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

RETRY_AFTER_MAX_S: Final = 24 * 3600.0
"""A provider that asks for more is not believed; the send's own expiry decides then."""

RETRY_AFTER_MIN_S: Final = 1.0
"""A provider that asks for less gets this much all the same."""

EXPONENT_MAX: Final = 30
"""Keeps 2**n finite; every sensible maximum is reached long before."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from `first_s` up to `max_s`."""

    first_s: float
    max_s: float

    def delay_s(self, tries: int, chance: float) -> float:
        """Seconds to wait after `tries` (>= 1) tries; `chance` in [0, 1) spreads them over the upper half."""
        full = min(self.max_s, self.first_s * 2.0 ** min(max(tries, 1) - 1, EXPONENT_MAX))
        return full * (0.5 + 0.5 * chance)


def asked_wait_s(retry_after_s: float | None) -> float | None:
    """The wait to grant for what an answer asked for; None where our own backoff must do.

    Zero, or a date in the past by the provider's clock, is no invitation to hammer.
    """
    return max(retry_after_s, RETRY_AFTER_MIN_S) if retry_after_s else None


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait that a Retry-After header asks for, or None when it asks for nothing usable.

    Takes both forms of RFC 9110 section 10.2.3, delay-seconds and HTTP-date; also a fraction, which some providers
    send. A date in the past means now.
    """
    if value is None or not (text := value.strip()):
        return None
    seconds = _delay_seconds(text)
    if seconds is None:
        seconds = _until_date(text, now)
    if seconds is None:
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_MAX_S)


def _delay_seconds(text: str) -> float | None:
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        return None
    return float(text)


def _until_date(text: str, now: float) -> float | None:
    moment = parse_http_date(text)
    return None if moment is None else moment - now


def parse_http_date(text: str) -> float | None:
    """The moment of an HTTP-date, in seconds since 1970; None where it is none."""
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return when.timestamp()
