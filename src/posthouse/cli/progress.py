"""A progress bar for long work, where there is a terminal to show it on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")

SHORT: Final = 20
"""Work of so few steps is done before a bar would be seen."""


def tracked(items: Iterable[T], total: int, what: str, *, quiet: bool) -> Iterator[T]:
    """The items, with a bar on standard error while they are gone through."""
    with moving(what, quiet=quiet or total <= SHORT) as moved:
        moved(0, total)
        for done, item in enumerate(items, start=1):
            yield item
            moved(done, total)


@contextmanager
def moving(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar for work that says itself how much of how much is done."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _done, _total: None
        return
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*bar, console=console, transient=True) as progress:
        task = progress.add_task(what)
        yield lambda done, total: progress.update(task, completed=done, total=total)
