"""What is shown while the hour is played."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from posthouse.demo.hour import Moment, SideNow
from posthouse.demo.scenario import Scenario
from posthouse.demo.screen import bar, clock, screen

SCENARIO = Scenario(orders=6000, hour_s=30.0, outage_min=4.0, timeouts=150, seed=1)
NAIVE, POSTHOUSE = SideNow(2300, 2270, 112), SideNow(2300, 2207, 0)


def shown(*story_s: float, terminal: bool, quiet: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=terminal, color_system=None)
    with screen(SCENARIO, console, quiet=quiet) as show:
        for at in story_s:
            show(Moment(at, NAIVE, POSTHOUSE))
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_gets_a_picture_of_both_sides(quiet: bool) -> None:
    text = shown(1380.0, terminal=True, quiet=quiet)
    assert "12:23" in text
    assert "the provider is ill" in text
    assert re.search(r"naive +2,300 +2,270 +30 +112\b", text)
    assert re.search(r"Posthouse +2,300 +2,207 +93 +0\b", text)


def test_the_picture_is_never_wider_than_80_columns() -> None:
    text = shown(0.0, 600.0, 1380.0, 1500.0, 3599.0, 3700.0, terminal=True)
    assert max(map(len, text.splitlines())) <= 80


def test_elsewhere_a_line_tells_of_every_ten_minutes_and_of_the_outage() -> None:
    text = shown(0.0, 30.0, 590.0, 610.0, 1210.0, 1220.0, 1450.0, 3700.0, terminal=False)
    assert re.findall(r"^\d\d:\d\d", text, re.MULTILINE) == ["12:00", "12:10", "12:20", "12:24", "13:01"]
    assert "12:20  the provider is ill" in text
    assert "12:24  the provider is well again" in text
    assert "naive: orders 2,300, emails accepted 2,270, twice 112" in text


def test_where_there_is_no_terminal_a_quiet_one_says_nothing() -> None:
    assert shown(0.0, 700.0, terminal=False, quiet=True) == ""


def test_the_outage_is_marked_in_the_hour() -> None:
    assert bar(SCENARIO, 1320.0).plain == "━" * 20 + "▓▓░░" + "─" * 36


def test_the_hour_begins_at_noon() -> None:
    assert [clock(at) for at in (0.0, 59.0, 1260.0, 3600.0)] == ["12:00", "12:00", "12:21", "13:00"]
