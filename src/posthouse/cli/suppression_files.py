"""`posthouse suppressions import` and `export`: lists as CSV files, from and to wherever else they are kept.

One line is one address, whatever is in it: a quote that is never closed spoils its own line and no other.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from posthouse.address import Address
from posthouse.cli.failures import Exit, WrongUsage
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import iso, read_moment
from posthouse.cli.output import Answer, Json, count
from posthouse.cli.progress import tracked
from posthouse.core.suppression import Suppress, Suppression, SuppressionCause, parse_scope
from posthouse.errors import InvalidEmail
from posthouse.store.suppressions import Suppressions
from posthouse.text import storable

COLUMNS: Final = ("address", "cause", "scope", "until", "reason", "who", "at")
ADDRESS_NAMES: Final = ("address", "email")
"""What the column of the addresses may be called."""

CHUNK: Final = 500
TOLD_MAX: Final = 20
"""So many bad lines are told on a terminal; --json tells all."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What the command line says for lines that don't say it themselves, and who imports when."""

    cause: SuppressionCause
    scope: str
    reason: str
    who: str
    now: float


@dataclass
class _Result:
    """How far an import has come."""

    imported: int = 0
    new: int = 0
    bad: list[Json] = field(default_factory=list)


def import_(
    call: Invocation,
    file: Annotated[Path, typer.Argument(help="Its first line names the columns; `address` is enough.")],
    cause: Annotated[SuppressionCause, typer.Option(help="Why, for lines that don't say.")] = SuppressionCause.MANUAL,
    scope: Annotated[
        str, typer.Option(metavar="SCOPE", help="The scope of lines that name none.", show_default=False)
    ] = "",
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason of lines that give none.", show_default=False)
    ] = "",
) -> Answer:
    """Suppress the addresses of a CSV file. May be run again; a bad line is told and holds up no other."""
    app, now = call.app, call.app.store.ledger.now()
    told = _Told(cause, _scope(scope), reason, call.who, now)
    with _opened(file, "r") as lines:
        total = sum(1 for _ in lines)
        lines.seek(0)
        result = _import(app.store.suppressions, tracked(lines, total, "import", quiet=call.output.as_json), told)
    said = f"{count(result.imported, 'line')}, {result.new:,} new, {len(result.bad):,} bad"
    app.store.operations.audit(call.who, "import suppressions", file.name[-255:], said, now)
    document: Json = {"file": str(file), "imported": result.imported, "new": result.new, "bad": result.bad}
    summary = f"{count(result.imported, 'address', 'addresses')} imported, {result.new:,} of them new."
    return Answer(document, [summary, *_bad_lines(result.bad)], Exit.NOT_POSSIBLE if result.bad else Exit.OK)


def _scope(text: str) -> str:
    try:
        return parse_scope(text)
    except ValueError as error:
        raise WrongUsage(f"--scope: {error}") from None


def _opened(file: Path, mode: str) -> IO[str]:
    """A file that is not UTF-8 spoils those of its lines that aren't. Raises WrongUsage."""
    try:
        encoding = "utf-8-sig" if mode == "r" else "utf-8"
        return file.open(mode, encoding=encoding, errors="surrogateescape", newline="" if mode == "w" else None)
    except OSError as error:
        raise WrongUsage(f"{file}: {error.strerror}") from None


def _import(table: Suppressions, lines: Iterator[str], told: _Told) -> _Result:
    result = _Result()
    columns: Sequence[str] | None = None
    wishes: list[Suppress] = []
    for number, line in enumerate(lines, 1):
        try:
            cells = next(csv.reader([line.rstrip("\r\n")], strict=True), [])
            if columns is None and any(map(str.strip, cells)):
                columns = _header(cells)
                if columns is not None:
                    continue
                columns = COLUMNS
            if any(map(str.strip, cells)):
                wishes.append(_wish(dict(zip(columns or (), map(str.strip, cells), strict=False)), told))
        except (csv.Error, InvalidEmail, ValueError) as error:
            result.bad.append(
                {"line": number, "error": str(error), "text": line.strip()[:200].encode("utf-8", "replace").decode()}
            )
        if len(wishes) == CHUNK:
            _write(table, wishes, told.now, result)
    _write(table, wishes, told.now, result)
    return result


def _write(table: Suppressions, wishes: list[Suppress], now: float, result: _Result) -> None:
    result.new += table.import_(wishes, now)
    result.imported += len(wishes)
    wishes.clear()


def _header(cells: Sequence[str]) -> list[str] | None:
    """The names of the columns; None where the first line is no header but an address."""
    names = [cell.strip().casefold() for cell in cells]
    if not any(name in ADDRESS_NAMES for name in names):
        return None
    return ["address" if name in ADDRESS_NAMES else name for name in names]


def _wish(cells: Mapping[str, str], told: _Told) -> Suppress:
    """Raises ValueError, InvalidEmail."""
    cause = cells.get("cause") or told.cause.value
    if cause not in set(SuppressionCause):
        raise ValueError(f"cause: {cause!r} is none (there are: {', '.join(SuppressionCause)})")
    until = cells.get("until")
    return Suppress(
        Address.parse(cells.get("address", "")).folded,
        SuppressionCause(cause),
        parse_scope(cells.get("scope") or told.scope),
        read_moment(until, "until", told.now).timestamp() if until else None,
        storable(cells.get("reason") or told.reason, "reason"),
        told.who,
    )


def _bad_lines(bad: Sequence[Json]) -> list[str]:
    lines = [f"line {each['line']} is left out: {each['error']}" for each in bad[:TOLD_MAX]]
    if len(bad) > TOLD_MAX:
        lines.append(f"… and {len(bad) - TOLD_MAX:,} more (--json names them all)")
    return lines


def export(
    call: Invocation,
    file: Annotated[Path | None, typer.Argument(help="Default: standard output.", show_default=False)] = None,
) -> Answer | None:
    """Write all suppressions as CSV, as `posthouse suppressions import` reads it."""
    if file is None and call.output.as_json:
        raise WrongUsage("--json goes with a FILE; what is written to standard output is CSV")
    table = call.app.store.suppressions
    with ExitStack() as held:
        out = sys.stdout if file is None else held.enter_context(_opened(file, "w"))
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        written = 0
        for each in tracked(every(table), table.count(), "export", quiet=file is None or call.output.as_json):
            writer.writerow(_cells(each))
            written += 1
    if file is None:
        return None
    return Answer({"file": str(file), "exported": written}, [f"{count(written, 'suppression')} written to {file}."])


def every(table: Suppressions) -> Iterator[Suppression]:
    """All of them, in the order in which they were first written."""
    after = 0
    while page := table.page(after, CHUNK):
        yield from page
        after = page[-1].id


def _cells(each: Suppression) -> list[str]:
    one_line = " ".join(each.reason.split())
    return [each.address, each.cause.value, each.scope, iso(each.until) or "", one_line, each.who, iso(each.at) or ""]
