"""A progress bar for long work, where there is a terminal to show it on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")

SHORT: Final = 20
"""Work of so few steps is done before a bar would be seen."""


def tracked(items: Iterable[T], total: int, what: str, *, quiet: bool) -> Iterator[T]:
    """The items, with a bar on standard error while they are gone through."""
    console = Console(stderr=True)
    if quiet or total <= SHORT or not console.is_terminal:
        yield from items
        return
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*bar, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            yield item
            progress.advance(task)
