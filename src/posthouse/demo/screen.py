"""Shows the hour while it is played: as a picture on a terminal, as a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from posthouse.demo.hour import Moment, SideNow
from posthouse.demo.scenario import HOUR_S, Scenario

HOUR_OF_DAY: Final = 12
BAR_CELLS: Final = 60
LINE_EVERY_S: Final = 600.0

Show = Callable[[Moment], None]


@contextmanager
def screen(scenario: Scenario, console: Console, *, quiet: bool) -> Iterator[Show]:
    """What to tell each moment to. `quiet`: nothing is said where there is no terminal."""
    if console.is_terminal:
        # Drawn when there is something new, by whoever plays: a thread that draws would stand in the shops' way.
        with Live(_picture(scenario, None), console=console, auto_refresh=False, transient=True) as live:
            yield lambda moment: live.update(_picture(scenario, moment), refresh=True)
    elif quiet:
        yield lambda moment: None
    else:
        yield _Lines(scenario, console).show


def clock(story_s: float) -> str:
    """The shop's time of day: `12:21`."""
    minutes = int(story_s // 60)
    return f"{HOUR_OF_DAY + minutes // 60}:{minutes % 60:02}"


def phase(scenario: Scenario, story_s: float) -> str:
    """What is happening, in words."""
    if story_s < scenario.outage_from_s:
        return "all is well"
    if story_s < scenario.outage_until_s:
        return "the provider is ill: it answers slowly, with 503, or too late"
    if story_s < HOUR_S:
        return "the provider is well again"
    return "the hour is over; the last answers are awaited"


def _picture(scenario: Scenario, moment: Moment | None) -> Group:
    if moment is None:
        return Group(Text("Two sandboxes, a worker and two shops are starting."))
    ill = scenario.outage_from_s <= moment.story_s < scenario.outage_until_s
    return Group(
        Text.assemble(("  " + clock(moment.story_s) + "  ", "bold"), bar(scenario, moment.story_s)),
        Text(f"         {phase(scenario, moment.story_s)}", "red" if ill else "dim"),
        Text(),
        _row("", "orders", "emails accepted", "not yet", "twice", style="dim"),
        _side_row("naive", moment.naive),
        _side_row("Posthouse", moment.posthouse),
    )


def bar(scenario: Scenario, story_s: float) -> Text:
    """The hour as far as it has gone, with the outage marked in it."""
    line = Text()
    for cell in range(BAR_CELLS):
        at = (cell + 0.5) * HOUR_S / BAR_CELLS
        ill = scenario.outage_from_s <= at < scenario.outage_until_s
        if at <= story_s:
            line.append("▓" if ill else "━", "red" if ill else "cyan")
        else:
            line.append("░" if ill else "─", "red" if ill else "dim")
    return line


def _side_row(name: str, side: SideNow) -> Text:
    waiting = max(0, side.orders - side.accepted)
    return _row(
        name,
        f"{side.orders:,}",
        f"{side.accepted:,}",
        f"{waiting:,}",
        f"{side.duplicates:,}",
        twice=side.duplicates > 0,
    )


def _row(
    name: str, orders: str, accepted: str, waiting: str, duplicates: str, style: str = "", twice: bool = False
) -> Text:
    row = Text(f"  {name:<12}{orders:>9}{accepted:>18}{waiting:>10}", style)
    return row.append(f"{duplicates:>9}", "red" if twice else style)


class _Lines:
    """A line every ten minutes of the story, and when the provider falls ill or recovers."""

    def __init__(self, scenario: Scenario, console: Console) -> None:
        self._scenario = scenario
        self._console = console
        self._next_s = 0.0
        self._phase = ""

    def show(self, moment: Moment) -> None:
        now = phase(self._scenario, moment.story_s)
        if now == self._phase and moment.story_s < self._next_s:
            return
        self._phase = now
        self._next_s = (moment.story_s // LINE_EVERY_S + 1) * LINE_EVERY_S
        said = "; ".join(
            f"{name}: {_words(side)}" for name, side in (("naive", moment.naive), ("Posthouse", moment.posthouse))
        )
        self._console.print(
            f"{clock(moment.story_s)}  {now}", f"       {said}", sep="\n", highlight=False, soft_wrap=True
        )


def _words(side: SideNow) -> str:
    return f"orders {side.orders:,}, emails accepted {side.accepted:,}, twice {side.duplicates:,}"
