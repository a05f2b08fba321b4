"""What is written to standard output: aligned, whole, tame, and one document with --json."""

from __future__ import annotations

import json

import pytest
from rich.text import Text

from posthouse.cli.output import Answer, Output, columns, count, size, tame
from posthouse.cli.story_lines import wrapped


def test_cells_are_aligned_and_never_cut() -> None:
    key = "order-" + "1" * 184
    rows = columns([["STATUS", "KEY"], ["accepted", key], ["ok", "k"]])

    assert [row.plain for row in rows] == ["STATUS    KEY", f"accepted  {key}", "ok        k"]


def test_wide_characters_take_their_place() -> None:
    rows = columns([["日本", "a"], ["x", "b"]])

    assert [row.cell_len for row in rows] == [7, 7]


def test_no_rows_are_no_lines() -> None:
    assert columns([]) == []


@pytest.mark.parametrize("steering", ["\x1b[2J", "\x9b31m", "\r", "\x07", "\u202e", "\x00"])
def test_what_others_wrote_cannot_steer_the_terminal(steering: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"before{steering}after"

    Output(as_json=False).show(Answer({}, [line, Text(line)]))

    for tamed in capsys.readouterr().out.splitlines():
        assert steering[0] not in tamed
        assert tamed.startswith("before")
        assert tamed.endswith("after")


def test_line_breaks_and_tabs_of_a_body_stay(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).show(Answer({}, ["a\n\tb"]))

    assert capsys.readouterr().out == "a\n\tb\n"
    assert tame(Text("a\n\tb")).plain == "a\n\tb"


def test_taming_keeps_the_styles() -> None:
    line = Text.assemble("a\x1b", ("red", "red"))

    assert [(span.start, span.end, span.style) for span in tame(line).spans] == [(2, 5, "red")]


def test_markup_in_what_others_wrote_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).show(Answer({}, ["[bold]not bold[/bold] :smile:"]))

    assert capsys.readouterr().out == "[bold]not bold[/bold] :smile:\n"


def test_a_long_line_is_left_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).show(Answer({}, ["x " * 200]))

    assert capsys.readouterr().out.count("\n") == 1


def test_with_json_only_the_document_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).show(Answer({"key": "größe"}, ["words"]))

    assert json.loads(capsys.readouterr().out) == {"key": "größe"}


def test_a_process_that_goes_on_writes_its_document_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).show(Answer({"a": [1, 2]}), one_line=True)

    assert capsys.readouterr().out == '{"a": [1, 2]}\n'


def test_numbers_are_counted_in_words() -> None:
    assert [count(1, "send"), count(0, "send"), count(12_000, "send")] == ["1 send", "0 sends", "12,000 sends"]


def test_sizes_are_told_in_the_unit_that_people_read() -> None:
    sizes = [size(bytes_) for bytes_ in (1, 999, 1000, 26_214_400, 3_000_000_000)]

    assert sizes == ["1 byte", "999 bytes", "1.0 KB", "26.2 MB", "3,000.0 MB"]


def test_words_are_wrapped_and_keys_stay_whole() -> None:
    key = "k" * 100

    assert wrapped(f"see {key} and more", 40, "  ") == ["  see", f"  {key}", "  and more"]
    assert wrapped("one\n\ntwo", 40, "  ") == ["  one", "  two"]
    assert wrapped("", 40, "  ") == ["  "]
