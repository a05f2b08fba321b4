"""Work that says which statements it wants and decides by their rows, whoever runs them: one text, two ways to play it.

A script yields each statement, is sent its rows, or is thrown its error, and returns its result. So the same decisions
serve a connection that blocks and one that is awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Row = Sequence[Any]
Statement = tuple[str, Sequence[Any]]
"""Driver SQL and its parameters."""

Script = Generator[Statement, list[Row], T]


class Runner(Protocol):
    """A caller's connection: runs driver SQL inside the caller's transaction and returns the rows."""

    @property
    def dialect(self) -> str: ...

    def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]: ...


class AsyncRunner(Protocol):
    """A Runner that is awaited."""

    @property
    def dialect(self) -> str: ...

    async def run(self, sql: str, parameters: Sequence[Any]) -> list[Row]: ...


def play(script: Script[T], runner: Runner) -> T:
    """Runs the script to its end; what a statement raises is raised where the script yielded it."""
    step: Callable[[], Statement] = partial(next, script)
    while True:
        try:
            statement = step()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            step = partial(script.send, runner.run(*statement))
        except BaseException as error:
            step = partial(script.throw, error)


async def play_async(script: Script[T], runner: AsyncRunner) -> T:
    """The same, awaiting each statement. A cancellation is thrown into the script like any error."""
    step: Callable[[], Statement] = partial(next, script)
    while True:
        try:
            statement = step()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            step = partial(script.send, await runner.run(*statement))
        except BaseException as error:
            step = partial(script.throw, error)
