"""Backoff, and what a Retry-After header asks for."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.retry import RETRY_AFTER_MAX_S, Backoff, asked_wait_s, parse_retry_after
from tests.core.strategies import NOW, chances

BACKOFF = Backoff(first_s=2.0, max_s=60.0)


@pytest.mark.parametrize(("tries", "longest"), [(1, 2.0), (2, 4.0), (3, 8.0), (5, 32.0), (6, 60.0), (10_000, 60.0)])
def test_waits_double_up_to_the_maximum(tries: int, longest: float) -> None:
    assert BACKOFF.delay_s(tries, 0.0) == longest / 2
    assert BACKOFF.delay_s(tries, 0.5) == longest * 0.75


def test_a_wait_before_any_try_is_the_first_wait() -> None:
    assert BACKOFF.delay_s(0, 0.0) == BACKOFF.delay_s(1, 0.0)


@given(tries=st.integers(-5, 10**9), chance=chances, first=st.floats(0.01, 100.0), longest=st.floats(0.01, 1e6))
def test_a_wait_is_positive_and_never_above_the_maximum(
    tries: int, chance: float, first: float, longest: float
) -> None:
    assert 0.0 < Backoff(first, longest).delay_s(tries, chance) <= longest


@given(tries=st.integers(1, 50), one=chances, other=chances)
def test_a_later_try_never_waits_less_than_half_of_an_earlier_one(tries: int, one: float, other: float) -> None:
    assert BACKOFF.delay_s(tries + 1, one) >= BACKOFF.delay_s(tries, other) / 2


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("9" * 400, RETRY_AFTER_MAX_S),
        ("Fri, 15 Jan 2027 08:01:00 GMT", 60.0),  # NOW is 08:00:00
        ("Friday, 15-Jan-27 08:01:00 GMT", 60.0),  # the obsolete forms of RFC 9110 section 5.6.7
        ("Fri Jan 15 08:01:00 2027", 60.0),
        ("Fri, 15 Jan 2027 07:59:00 GMT", 0.0),
        ("Fri, 15 Jan 2032 08:00:00 GMT", RETRY_AFTER_MAX_S),
    ],
)
def test_both_forms_of_retry_after_are_understood(header: str, seconds: float) -> None:
    assert parse_retry_after(header, NOW) == seconds


@pytest.mark.parametrize(
    "header", [None, "", "  ", "soon", "-5", "+5", "1e3", "5 seconds", "60, 60", "٥", "²", ".", "nan"]
)
def test_an_unusable_retry_after_asks_for_nothing(header: str | None) -> None:
    assert parse_retry_after(header, NOW) is None


@given(st.text() | st.from_regex(r"\A[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d{1,3}:\d\d(:\d\d)? [+-]?\w{0,6}\Z"))
def test_no_retry_after_header_breaks_anything(header: str) -> None:
    seconds = parse_retry_after(header, NOW)
    assert seconds is None or 0.0 <= seconds <= RETRY_AFTER_MAX_S


@pytest.mark.parametrize(("asked", "granted"), [(None, None), (0.0, None), (0.01, 1.0), (1.0, 1.0), (90.0, 90.0)])
def test_what_is_asked_for_is_granted_but_nothing_that_amounts_to_hammering(
    asked: float | None, granted: float | None
) -> None:
    assert asked_wait_s(asked) == granted


@given(st.integers(0, 86_400))
def test_a_date_asks_for_the_same_as_its_distance_in_seconds(seconds: int) -> None:
    date = format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)
    assert parse_retry_after(date, NOW) == parse_retry_after(str(seconds), NOW)
