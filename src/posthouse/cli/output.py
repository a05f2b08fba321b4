"""What a command answers: one document for programs, and the same in words for people."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from posthouse.core.lifecycle import Status

Json = dict[str, Any]
Line = str | Text

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
    lines: Sequence[Line] = ()
    exit_code: int = 0


class Output:
    """Standard output in one of its two forms. With JSON nothing but documents is written there."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        # Made anew for each command: whoever calls in-process (a test) has standard output of its own.
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

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
            self._console.print(tame(line))


def status_text(status: Status, words: str = "") -> Text:
    """A status in its colour."""
    return Text(words or status.value, STATUS_STYLES[status])


def tame(line: Line) -> Text:
    """The line without characters that steer a terminal. Its length stays the same, and so do its styles."""
    text = line.copy() if isinstance(line, Text) else Text(line)
    text.plain = _STEERING.sub("\N{REPLACEMENT CHARACTER}", text.plain)
    return text


def columns(rows: Iterable[Sequence[Line]], indent: str = "") -> list[Text]:
    """The rows with their cells aligned. Nothing is cut: who needs a key needs all of it."""
    texts = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = [max((cell.cell_len for cell in column), default=0) for column in zip(*texts, strict=True)]
    return [_aligned(row, widths, indent) for row in texts]


def _aligned(row: Sequence[Text], widths: Sequence[int], indent: str) -> Text:
    line = Text(indent)
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
