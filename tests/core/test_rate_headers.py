"""What an answer's headers say about the provider's own rate limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.rate_headers import FORMS, Form, Headers, full_for_s, reset_after_s
from posthouse.core.retry import RETRY_AFTER_MAX_S
from tests.core.strategies import NOW

MATCHES = [pytest.param(form, *match, id=f"{form.name}-{match[0]}") for form in FORMS for match in form.matches]
OTHERS = [pytest.param(form, headers, id=f"{form.name}-{headers}") for form in FORMS for headers in form.not_matches]

NAMES = ["x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "ratelimit-reset", "ratelimit-remaining", "date"]
VALUES = st.text() | st.sampled_from(["0", "30", "1800000020", '"a";r=0;t=5', "remaining=0, reset=5"])


@pytest.mark.parametrize(("form", "headers", "seconds"), MATCHES)
def test_a_form_is_read(form: Form, headers: Headers, seconds: float) -> None:
    assert full_for_s(headers, NOW) == seconds
    assert [other.name for other in FORMS if other.read(headers, NOW)] == [form.name], "by this form alone"


@pytest.mark.parametrize(("form", "headers"), OTHERS)
def test_a_form_says_nothing_where_something_fits_or_its_values_make_no_sense(form: Form, headers: Headers) -> None:
    assert not [window for window in form.read(headers, NOW) if window.remaining == 0]
    assert full_for_s(headers, NOW) is None


def test_of_several_windows_that_are_full_the_longest_counts() -> None:
    minute = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}
    second = {"ratelimit-remaining": "0", "ratelimit-reset": "1"}
    assert full_for_s({**minute, **second}, NOW) == 60.0
    assert full_for_s({**minute, "x-ratelimit-remaining": "5", **second}, NOW) == 1.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-reset": "30"}, 30.0),
        ({"ratelimit": '"second";r=0;t=1, "day";r=9;t=3600'}, 1.0),
        ({"ratelimit": '"second";r=2;t=1, "day";r=9;t=3600'}, 1.0),
        ({"ratelimit": "limit=10, remaining=0, reset=12"}, 12.0),
        ({"x-ratelimit-reset": "604800"}, RETRY_AFTER_MAX_S),
        ({"x-ratelimit-remaining": "0"}, None),
        ({}, None),
    ],
)
def test_a_call_that_was_too_fast_waits_for_the_reset_of_the_window_that_is_full(
    headers: Headers, seconds: float | None
) -> None:
    assert reset_after_s(headers, NOW) == seconds


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_whatever_the_headers_say_a_wait_is_one_that_can_be_kept(headers: Headers) -> None:
    for wait_s in (full_for_s(headers, NOW), reset_after_s(headers, NOW)):
        assert wait_s is None or 0 < wait_s <= RETRY_AFTER_MAX_S
