"""Times and durations as people read and write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from posthouse.cli.failures import WrongUsage
from posthouse.cli.moments import coming, duration, duration_option, iso, local, local_short, read_moment, took
from posthouse.errors import InvalidEmail

SUMMER = datetime(2026, 7, 30, 12, 2, 11, 540_000, UTC).timestamp()
WINTER = datetime(2026, 12, 24, 12, 0, 0, tzinfo=UTC).timestamp()


def test_documents_give_times_in_utc_with_microseconds() -> None:
    assert iso(SUMMER) == "2026-07-30T12:02:11.540000Z"
    assert iso(None) is None


def test_people_get_local_time_with_the_zone_of_that_day() -> None:
    assert local(SUMMER) == "2026-07-30 14:02:11 CEST"
    assert local(WINTER) == "2026-12-24 13:00:00 CET"


def test_another_year_is_named() -> None:
    assert local_short(SUMMER, WINTER) == "30 Jul 14:02"
    assert local_short(SUMMER, WINTER + 86400 * 30) == "30 Jul 2026"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1.0, "0 s"),
        (0.04, "0 s"),
        (5.0, "5 s"),
        (3.44, "3.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3_599.6, "1 h"),
        (9_000, "2 h 30 min"),
        (86_400 * 3 + 3_600 * 4 + 59, "3 d 4 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_how_long_a_call_took_is_told_in_milliseconds_below_a_second() -> None:
    assert [took(0.0124), took(0.9), took(15.02), took(-0.001)] == ["12 ms", "900 ms", "15.0 s", "0 ms"]


def test_a_coming_moment_names_its_day_only_when_it_is_another_one() -> None:
    assert coming(SUMMER + 12, SUMMER) == "in 12 s (14:02:23)"
    assert coming(SUMMER + 86_400, SUMMER) == "in 1 d (2026-07-31 14:02:11)"


def test_a_moment_is_written_with_its_zone_or_as_a_duration_from_now() -> None:
    assert read_moment("2026-07-30T14:02:11.54+02:00", "send_at", 0.0).timestamp() == SUMMER
    assert read_moment("2026-07-30T12:02:11.54Z", "send_at", 0.0).timestamp() == SUMMER
    assert read_moment("10m", "send_at", SUMMER).timestamp() == SUMMER + 600


@pytest.mark.parametrize("text", ["2026-07-30T14:02:11", "tomorrow", "", "10", "2026-13-01T00:00Z", "999999999999d"])
def test_a_moment_without_a_zone_is_refused_with_the_name_of_its_field(text: str) -> None:
    with pytest.raises(InvalidEmail) as refused:
        read_moment(text, "send_at", SUMMER)

    assert refused.value.field == "send_at"
    assert "2026-08-01T09:00+02:00" in refused.value.reason


def test_a_duration_behind_an_option_is_refused_with_the_options_name() -> None:
    with pytest.raises(WrongUsage, match=r"--oldest: '5' is not a duration"):
        duration_option("5", "--oldest")
