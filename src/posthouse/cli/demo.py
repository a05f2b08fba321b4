"""`posthouse demo`: the whole story in half a minute, and what it comes to."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from posthouse.app import new_seed
from posthouse.cli.failures import Exit
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import duration
from posthouse.cli.output import Answer, Json, Line, columns, count, styled
from posthouse.cli.story_lines import wrapped
from posthouse.config import CONFIG_FILE
from posthouse.demo.hour import Played
from posthouse.demo.scenario import DELAYED_S, HOUR_S, SLOW_CHECKOUT_S, Scenario
from posthouse.demo.screen import screen
from posthouse.demo.stage import play_until_signal
from posthouse.demo.tally import Tally

if TYPE_CHECKING:
    from rich.text import Text

BEHIND_MAX_S: Final = 1.0
"""A shop that takes its orders up later than this says so: its figures are no longer those of the scenario."""

NONE: Final = "-"


def demo(
    call: Invocation,
    orders: Annotated[int, typer.Option(min=1, max=200_000, help="Orders in the hour.")] = 6000,
    hour: Annotated[float, typer.Option(min=2, max=3600, help="So many seconds the hour takes.")] = 30.0,
    outage: Annotated[float, typer.Option(min=0.5, max=50, help="Minutes of the hour that the outage lasts.")] = 4.0,
    timeouts: Annotated[
        int, typer.Option(min=0, help="Calls that are accepted but answered after the caller's time limit, at most.")
    ] = 150,
    seed: Annotated[int | None, typer.Option(min=0, help="Replays the chances of a run. Default: any.")] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the folder: configuration, databases, logs and ledgers.")
    ] = False,
) -> Answer:
    """Play an hour of a shop through an outage of its provider, twice: naively, and with the outbox.

    Both shops take the same orders from the same sandbox with the same faults. What comes out is counted in the
    sandboxes' ledgers. Needs no configuration, touches no other installation and leaves nothing behind.
    """
    scenario = Scenario(orders, hour, outage, timeouts, new_seed() if seed is None else seed)
    if not call.output.as_json:
        print(*wrapped(_title(scenario), call.output.width, ""), "", sep="\n", flush=True)
    with _folder(keep=keep) as folder:
        with screen(scenario, Console(stderr=True), quiet=call.output.as_json) as show:
            played = play_until_signal(scenario, folder, show)
        if played is None:
            raise typer.Abort
        if keep:
            _keep_ledgers(folder, played)
    broken = played.posthouse.duplicates or played.posthouse.lost
    return Answer(_document(played), list(_lines(played, call.output.width)), Exit.FAULT if broken else Exit.OK)


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """A folder for one run, gone afterwards unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="posthouse-demo-"))
    try:
        yield folder
    finally:
        if keep:
            show = f"posthouse show order-1-receipt --config {folder / CONFIG_FILE}"
            print(f"kept: {folder}", f"  try: {show}", sep="\n", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _keep_ledgers(folder: Path, played: Played) -> None:
    for side, ledger in played.ledgers.items():
        document = json.dumps([asdict(acceptance) for acceptance in ledger], indent=0)
        (folder / f"ledger-{side}.json").write_text(document, encoding="utf-8")


def _document(played: Played) -> Json:
    def sides(tally: Tally) -> Json:
        return {
            "orders": tally.orders,
            "duplicates": tally.duplicates,
            "lost": tally.lost,
            "slow_checkouts": tally.slow_checkouts,
        }

    posthouse = played.posthouse
    more = {"backlog_peak": posthouse.backlog_peak, "drain_s": round(posthouse.drain_s, 1)}
    return {"naive": sides(played.naive), "posthouse": sides(posthouse) | more}


def _title(scenario: Scenario) -> str:
    hour = f"An hour of a shop in {scenario.hour_s:g} s" if scenario.hour_s < HOUR_S else "An hour of a shop"
    late = f", and {count(scenario.timeouts, 'call')} are accepted but answered too late" if scenario.timeouts else ""
    return (
        f"{hour}: {count(scenario.orders, 'order')}, seed {scenario.seed}. For {scenario.outage_min:g} minutes of it "
        f"the email provider is ill{late}. Two shops go through it: one sends within the order's request, the other "
        "has an outbox."
    )


def _lines(played: Played, width: int) -> Iterator[Line]:
    yield from _table(played)
    yield ""
    for sentence in (*_meaning(played), *_doubts(played)):
        yield from wrapped(sentence, width, "")


def _table(played: Played) -> list[Text]:
    naive, posthouse = played.naive, played.posthouse
    rows = [
        ("", "naive", "Posthouse", ""),
        _row("orders", naive.orders, posthouse.orders, ""),
        _row("late answers", *played.late_answers, "calls accepted, but answered too late"),
        _row("slow checkouts", naive.slow_checkouts, posthouse.slow_checkouts, f"took over {SLOW_CHECKOUT_S:g} s"),
        _row("duplicates", naive.duplicates, posthouse.duplicates, "emails that came again"),
        _row("lost", naive.lost, posthouse.lost, "orders whose email never came"),
        _row("delayed", naive.delayed, posthouse.delayed, f"emails accepted after more than {duration(DELAYED_S)}"),
        ("backlog peak", NONE, f"{posthouse.backlog_peak:,}", "orders without their email at one moment"),
        ("time to drain", NONE, duration(posthouse.drain_s), "until the outage's last email was out"),
    ]
    widths = [max(len(row[place]) for row in rows) for place in (1, 2)]
    aligned: list[list[Line]] = [
        [name, one.rjust(widths[0]), two.rjust(widths[1]), styled(what, "dim")] for name, one, two, what in rows
    ]
    return columns(aligned, indent="  ")


def _row(name: str, naive: int, posthouse: int, what: str) -> tuple[str, str, str, str]:
    return name, f"{naive:,}", f"{posthouse:,}", what


def _meaning(played: Played) -> Iterator[str]:
    naive, posthouse = played.naive, played.posthouse
    if posthouse.duplicates or posthouse.lost:
        yield (
            "The outbox has lost or doubled an email, which must never be: please report it, with what --keep leaves "
            "behind after a run with the same --seed."
        )
        return
    cost = [
        count(naive.slow_checkouts, "slow checkout") if naive.slow_checkouts else "",
        count(naive.duplicates, "duplicate email") if naive.duplicates else "",
        count(naive.lost, "lost email") if naive.lost else "",
    ]
    patience = f"{count(posthouse.delayed, 'customer')} some patience" if posthouse.delayed else "nothing"
    yield (f"The outage cost the naive shop {_listed(cost)}; with the outbox it cost {patience}, and nobody an email.")
    yield "Next: `posthouse init` sets it up for an application of your own; docs/demo.md says how this was counted."


def _listed(parts: Iterable[str]) -> str:
    *first, last = [part for part in parts if part] or ["nothing"]
    return f"{', '.join(first)} and {last}" if first else last


def _doubts(played: Played) -> Iterator[str]:
    """Where this computer was too busy for the figures to say what they should."""
    if played.behind_s > BEHIND_MAX_S:
        yield (
            f"This computer was too busy to keep the pace: orders were taken up to {duration(played.behind_s)} late. "
            "Give it fewer --orders or a longer --hour."
        )
    if played.timed_out_for_nothing:
        yield (
            f"{count(played.timed_out_for_nothing, 'call')} of the naive shop ran out of time only because this "
            "computer was busy; what came of that is counted against it all the same."
        )
