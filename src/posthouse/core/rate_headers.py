"""What an answer's headers say about the provider's own rate limit: that nothing more fits, and until when.

Each form is data with examples, as the rules of `core.http_table` are: it reads windows out of headers. Only a window
that is used up says anything, but for the answer to a call that was too fast: there any reset does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from posthouse.core.retry import RETRY_AFTER_MAX_S, parse_http_date

Headers = Mapping[str, str]
"""The headers of an answer, names in lower case."""

RESET_MAX_S: Final = 32 * 86400.0
"""No provider counts over more than a month: what is further away is nonsense, or a moment."""

EPOCH_FROM: Final = 1e9
EPOCH_MS_FROM: Final = 1e12
"""A wait, a moment in seconds and one in milliseconds are told apart by their size."""

CLOCKS_APART_S: Final = 2.0
"""A Date has whole seconds: only from here on it says more about the time than our own clock."""

_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_COUNT: Final = re.compile(r"\d{1,15}", re.ASCII)
_MEMBER: Final = re.compile(r"\s*([a-z]+)\s*=\s*(\d+)\s*", re.ASCII)
_POLICY: Final = re.compile(
    r'\s*(?:"[^"]*"|[\w*./:-]+)((?:\s*;\s*[a-z][\w-]*\s*=\s*(?:"[^"]*"|[\w*./:+=-]+))+)\s*(?:,|$)'
)
_PARAMETER: Final = re.compile(r';\s*([a-z][\w-]*)\s*=\s*("[^"]*"|[\w*./:+=-]+)')


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a limit: what is left of it, and in how many seconds it begins anew."""

    remaining: int | None  # None: not said
    reset_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to write windows. `matches` says for how long nothing more fits."""

    name: str
    read: Callable[[Headers, float], list[Window]]  # with the present moment
    source: str
    matches: tuple[tuple[Headers, float], ...]
    not_matches: tuple[Headers, ...]


def full_for_s(headers: Headers, now: float) -> float | None:
    """For how many seconds nothing more fits, None where something does or nothing usable is said."""
    full = [window.reset_s for window in _windows(headers, now) if window.remaining == 0]
    return min(max(full), RETRY_AFTER_MAX_S) if full else None


def reset_after_s(headers: Headers, now: float) -> float | None:
    """What the answer to a call that was too fast says: the wait until something fits again.

    Where none of several windows is used up, nobody knows which one it was, so that the first reset counts.
    """
    resets = [window.reset_s for window in _windows(headers, now)]
    first = min(min(resets), RETRY_AFTER_MAX_S) if resets else None
    return full_for_s(headers, now) or first


def _windows(headers: Headers, now: float) -> list[Window]:
    if not any("ratelimit" in name or "rate-limit" in name for name in headers):
        return []  # nearly always
    return [window for form in FORMS for window in form.read(headers, _moment(headers, now))]


def _moment(headers: Headers, now: float) -> float:
    """The present moment by the provider's clock, where ours is another one: it knows its own resets by it."""
    said = parse_http_date(headers.get("date", ""))
    return said if said is not None and abs(said - now) > CLOCKS_APART_S else now


def _pair(prefix: str, headers: Headers, now: float) -> list[Window]:
    """`PREFIX-remaining` and `PREFIX-reset`."""
    return _window(headers.get(f"{prefix}-remaining"), headers.get(f"{prefix}-reset"), now)


def _members(headers: Headers, now: float) -> list[Window]:
    """`limit=10, remaining=0, reset=30`."""
    found = [_MEMBER.fullmatch(part) for part in headers.get("ratelimit", "").split(",")]
    told = {match[1]: match[2] for match in found if match is not None}
    return _window(told.get("remaining"), told.get("reset"), now) if all(found) else []


def _policies(headers: Headers, now: float) -> list[Window]:
    """`"burst";r=0;t=1, "daily";r=500;t=3600`."""
    windows, value, place = [], headers.get("ratelimit", ""), 0
    while place < len(value):
        policy = _POLICY.match(value, place)
        if policy is None:
            return []
        told = dict(_PARAMETER.findall(policy[1]))
        windows += _window(told.get("r"), told.get("t"), now)
        place = policy.end()
    return windows


def _window(remaining: str | None, reset: str | None, now: float) -> list[Window]:
    """No window where its reset is no time to come."""
    if reset is None or not _NUMBER.fullmatch(reset := reset.strip()):
        return []
    at = float(reset)
    if at >= EPOCH_FROM:
        at = (at / 1000 if at >= EPOCH_MS_FROM else at) - now
    if not 0 < at <= RESET_MAX_S:
        return []
    left = (remaining or "").strip()
    return [Window(int(left) if _COUNT.fullmatch(left) else None, at)]


def _pair_form(prefix: str, source: str) -> Form:
    """Every example is of the moment 1,800,000,000."""

    def headers(remaining: str, reset: str) -> Headers:
        return {f"{prefix}-remaining": remaining, f"{prefix}-reset": reset}

    return Form(
        name=f"{prefix}-remaining",
        read=partial(_pair, prefix),
        source=source,
        matches=(
            (headers("0", "30"), 30.0),
            (headers("0", " 0.5 "), 0.5),
            (headers("0", "1800000020"), 20.0),
            (headers("0", "1800000020500"), 20.5),
            ({**headers("0", "1800000020"), "date": "Fri, 15 Jan 2027 08:00:10 GMT"}, 10.0),
            (headers("0", "604800"), RETRY_AFTER_MAX_S),
        ),
        not_matches=(
            headers("1", "30"),
            headers("0", "0"),
            headers("0", "-5"),
            headers("0", "later"),
            headers("0", "1799999980"),
            headers("0", "99999999"),
            headers("-1", "30"),
            headers("none", "30"),
            {f"{prefix}-remaining": "0"},
            {f"{prefix}-reset": "30"},
        ),
    )


FORMS: Final = (
    _pair_form("x-ratelimit", "usual; SendGrid means seconds since 1970"),
    _pair_form("ratelimit", "draft-ietf-httpapi-ratelimit-headers-02: a wait in seconds; Resend"),
    _pair_form("x-rate-limit", "older APIs"),
    _pair_form("x-sib-ratelimit", "Brevo: a wait in seconds"),
    Form(
        name="ratelimit, with members",
        read=_members,
        source="draft-ietf-httpapi-ratelimit-headers-07",
        matches=(
            ({"ratelimit": "limit=100, remaining=0, reset=30"}, 30.0),
            ({"ratelimit": "remaining=0,reset=7"}, 7.0),
        ),
        not_matches=(
            {"ratelimit": "limit=100, remaining=3, reset=30"},
            {"ratelimit": "limit=100, remaining=0"},
            {"ratelimit": "limit=100, remaining=0, reset=soon"},
            {"ratelimit": ""},
        ),
    ),
    Form(
        name="ratelimit, with policies",
        read=_policies,
        source="draft-ietf-httpapi-ratelimit-headers-10",
        matches=(
            ({"ratelimit": '"default";r=0;t=30'}, 30.0),
            ({"ratelimit": '"burst, of all; kinds";r=0;t=2, "daily";r=500;t=3600'}, 2.0),
            ({"ratelimit": '"burst";r=0;t=2,"daily"; r=0; t=60; pk=:Y2RmNA==:'}, 60.0),
            ({"ratelimit": "default;r=0;t=30"}, 30.0),
        ),
        not_matches=(
            {"ratelimit": '"default";r=1;t=30'},
            {"ratelimit": '"default";r=0'},
            {"ratelimit": '"default";r=0;t=30 and more'},
            {"ratelimit": '"a;r=0;t=30'},
            {"ratelimit": '"a";q=0;w=30'},
        ),
    ),
)
