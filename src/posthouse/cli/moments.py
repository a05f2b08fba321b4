"""Times and durations as people read and write them. Times are seconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from posthouse.cli.failures import WrongUsage
from posthouse.errors import InvalidEmail
from posthouse.setting_values import parse_duration

_STEPS: Final = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
"""Unit in seconds and its name, and those of the next smaller one that may stand behind it."""


def iso(seconds: float | None) -> str | None:
    """ISO 8601 in UTC, with microseconds: `2026-07-30T12:02:11.500000Z`."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def local(seconds: float) -> str:
    """Local time with its zone: `2026-07-30 14:02:11 CEST`."""
    return f"{_local(seconds):%Y-%m-%d %H:%M:%S %Z}"


def local_short(seconds: float, now: float) -> str:
    """Local time to the minute, without the zone: `30 Jul 14:02`, or `30 Jul 2025` in another year."""
    that = _local(seconds)
    return f"{that:%d %b %H:%M}" if that.year == _local(now).year else f"{that:%d %b %Y}"


def local_day(seconds: float) -> str:
    """The day a time-line stands under: `Thursday 2026-07-30, times in CEST`."""
    return f"{_local(seconds):%A %Y-%m-%d, times in %Z}"


def local_clock(seconds: float) -> str:
    """Local time of the day to a tenth of a second: `14:02:11.5`."""
    return f"{_local(seconds):%H:%M:%S.%f}"[:-5]


def zone(seconds: float) -> str:
    """The local zone at that time: `CEST`."""
    return f"{_local(seconds):%Z}"


def duration(seconds: float) -> str:
    """A duration in at most two units: `3.4 s`, `12 s`, `2 min 5 s`, `3 d 4 h`."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, name, smaller, smaller_name in _STEPS:
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name} {rest} {smaller_name}" if rest else f"{whole // size} {name}"
    return f"{whole} s"


def took(seconds: float) -> str:
    """How long a call took: `12 ms`, `15.0 s`."""
    return f"{max(seconds, 0) * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def coming(at: float, now: float) -> str:
    """How far away a moment is: `in 12 s (14:02:23)`, with the day where that is another one."""
    that, this = _local(at), _local(now)
    clock = f"{that:%H:%M:%S}" if that.date() == this.date() else f"{that:%Y-%m-%d %H:%M:%S}"
    return f"in {duration(at - now)} ({clock})"


def duration_option(text: str, option: str) -> float:
    """Seconds in what somebody wrote behind an option, such as `5m`. Raises WrongUsage."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from None


def read_moment(text: str, field: str, now: float) -> datetime:
    """A moment that somebody wrote: ISO 8601 with a zone, or a duration from now. Raises InvalidEmail."""
    try:
        return datetime.fromtimestamp(now + parse_duration(text), UTC)
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidEmail(
            field, f"{text!r} is not a time with its zone such as 2026-08-01T09:00+02:00, nor a duration such as 10m"
        )
    return moment


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).astimezone()
