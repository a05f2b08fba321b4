"""What a command answers: one document for programs, and the same in words for people."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from posthouse.core.lifecycle import Status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Rich is imported where there is something to colour or to measure: programs ask for JSON, and many answers are plain.

Json = dict[str, Any]
Line: TypeAlias = "str | Text"

WIDTH_MIN: Final = 80
GAP: Final = "  "

STATUS_STYLES: Final = {
    Status.WAITING: "cyan",
    Status.PENDING: "cyan",
    Status.SENDING: "cyan",
    Status.UNKNOWN: "yellow",
    Status.ACCEPTED: "green",
    Status.FAILED: "red",
    Status.EXPIRED: "red",
    Status.SUPPRESSED: "dim",
    Status.CANCELLED: "dim",
    Status.COMBINED: "dim",
}

# What providers and senders wrote must not steer the terminal: no escape sequences, no direction overrides.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has to say, and the exit code it ends with."""

    document: Json
    lines: Iterable[Line] = ()  # gone through once, where words are wanted
    exit_code: int = 0


class Output:
    """Standard output in one of its two forms. With JSON nothing but documents is written there."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    @cached_property
    def _console(self) -> Console:
        # Made anew for each command: whoever calls in-process (a test) has standard output of its own.
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def width(self) -> int:
        """Where words are wrapped; 80 columns where nobody says otherwise."""
        return max(self._console.width, WIDTH_MIN)

    def show(self, answer: Answer, *, one_line: bool = False) -> None:
        """Writes the document, or its words. `one_line` is for what goes on running: its readers wait for a line."""
        if self.as_json:
            sys.stdout.write(json.dumps(answer.document, ensure_ascii=False, indent=None if one_line else 2) + "\n")
            sys.stdout.flush()
            return
        for line in answer.lines:
            if isinstance(line, str):
                print(_without_steering(line))
            else:
                self._console.print(tame(line))
        sys.stdout.flush()


def styled(words: str, style: str) -> Text:
    """Words in a colour."""
    from rich.text import Text

    return Text(words, style)


def assembled(*parts: Line | tuple[str, str]) -> Text:
    """One line of several parts, some of them with their style."""
    from rich.text import Text

    return Text.assemble(*parts)


def status_text(status: Status, words: str = "") -> Text:
    """A status in its colour."""
    return styled(words or status.value, STATUS_STYLES[status])


def tame(text: Text) -> Text:
    """The text without characters that steer a terminal. Its length stays the same, and so do its styles."""
    tamed = text.copy()
    tamed.plain = _without_steering(text.plain)
    return tamed


def _without_steering(words: str) -> str:
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", words)


def columns(rows: Iterable[Sequence[Line]], indent: str = "") -> list[Text]:
    """The rows with their cells aligned. Nothing is cut: who needs a key needs all of it."""
    texts = [[styled(cell, "") if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = [max((cell.cell_len for cell in column), default=0) for column in zip(*texts, strict=True)]
    return [_aligned(row, widths, indent) for row in texts]


def _aligned(row: Sequence[Text], widths: Sequence[int], indent: str) -> Text:
    line = styled(indent, "")
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        line.append(GAP if place else "")
        line.append_text(cell)
        line.append(" " * (width - cell.cell_len))
    line.rstrip()
    return line


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 send`, `2,000 sends`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(bytes_: int) -> str:
    """`17 bytes`, `1.4 KB`, `25.0 MB`."""
    for factor, unit in ((1_000_000, "MB"), (1_000, "KB")):
        if bytes_ >= factor:
            return f"{bytes_ / factor:,.1f} {unit}"
    return count(bytes_, "byte")
