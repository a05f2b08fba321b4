"""`posthouse suppressions import` and `export`: lists as CSV files, from and to wherever else they are kept.

One line is one address, whatever is in it: a quote that is never closed spoils its own line and no other.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from posthouse.cli.failures import Exit, WrongUsage
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import iso, read_moment
from posthouse.cli.output import Answer, Json, count
from posthouse.cli.progress import tracked
from posthouse.core.suppression import Suppress, Suppression, SuppressionCause, address_of, parse_scope
from posthouse.errors import InvalidEmail, NotPossible
from posthouse.store.suppressions import Suppressions
from posthouse.text import shorten, storable

COLUMNS: Final = ("address", "cause", "scope", "until", "reason", "who", "at")
ADDRESS_NAMES: Final = ("address", "email", "emailaddress", "recipient")
"""What the column of the addresses may be called, but for case, spaces and signs."""

DELIMITERS: Final = (",", ";", "\t")
_ADDRESS: Final = re.compile(r"[^,;\t]+@[^,;\t]+")

STDIO: Final = Path("-")

CHUNK: Final = 500
ERROR_CHARS: Final = 300
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

    @property
    def known(self) -> int:
        """Those that were there already, or twice in the file."""
        return self.imported - self.new


def import_(
    call: Invocation,
    file: Annotated[
        Path, typer.Argument(help="Its first line names the columns; `address` is enough. `-`: standard input.")
    ],
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
    lines = [*io.StringIO(_content(file), newline=None)]
    columns = _columns(file, lines)
    read = tracked(lines, len(lines), "import", quiet=call.output.as_json)
    result = _import(app.store.suppressions, read, columns, told)
    said = f"{count(result.imported, 'line')}, {result.new:,} new, {result.known:,} known, {len(result.bad):,} bad"
    app.store.operations.audit(call.who, "import suppressions", file.name[-255:], said, now)
    document: Json = {"file": str(file), "imported": result.imported, "new": result.new}
    document |= {"known": result.known, "bad": result.bad}
    summary = (
        f"{count(result.imported, 'address', 'addresses')} read, {result.new:,} new, {result.known:,} known already."
    )
    return Answer(document, [summary, *_bad_lines(result.bad)], Exit.NOT_POSSIBLE if result.bad else Exit.OK)


def _scope(text: str) -> str:
    try:
        return parse_scope(text)
    except ValueError as error:
        raise WrongUsage(f"--scope: {error}") from None


def _content(file: Path) -> str:
    """All of a file. One that is not in the encoding that it begins with spoils those of its lines that aren't.

    Raises WrongUsage.
    """
    try:
        read = sys.stdin.buffer.read() if file == STDIO else file.read_bytes()
    except OSError as error:
        raise WrongUsage(f"{file}: {error.strerror}") from None
    if read.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what spreadsheets call Unicode text
        return read.decode("utf-16", "replace")
    return read.decode("utf-8-sig", "surrogateescape")


@dataclass(frozen=True, slots=True)
class _Columns:
    """How the lines of a file are to be read."""

    delimiter: str
    names: Sequence[str]
    named_by: int  # the line that names them, from 1; 0 where none does

    def cells(self, line: str) -> Sequence[str]:
        """The cells of one line. Raises csv.Error."""
        return _cells_of(line, self.delimiter)


def _cells_of(line: str, delimiter: str) -> Sequence[str]:
    cells = next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, strict=True), [])
    return [cell.strip() for cell in cells]


def _columns(file: Path, lines: Sequence[str]) -> _Columns:
    """As the first line says that can be read: it names them, or has an address already. Raises WrongUsage."""
    for number, line in enumerate(lines, 1):
        for delimiter in DELIMITERS:
            try:
                cells = _cells_of(line, delimiter)
            except csv.Error:
                continue
            names = [_name(cell) for cell in cells]
            if "address" in names:
                return _Columns(delimiter, names, number)
            if any(map(_ADDRESS.fullmatch, cells)):
                return _Columns(delimiter, COLUMNS, 0)
        if line.strip(" \r\n\t,;"):
            raise WrongUsage(
                f"{file}: line {number} names no column `address` or `email`, and has no address: {shorten(line)!r}"
            )
    return _Columns(",", COLUMNS, 0)


def _name(cell: str) -> str:
    name = cell.casefold()
    return "address" if re.sub("[^a-z]", "", name) in ADDRESS_NAMES else name


def _import(table: Suppressions, lines: Iterator[str], columns: _Columns, told: _Told) -> _Result:
    result = _Result()
    wishes: list[Suppress] = []
    for number, line in enumerate(lines, 1):
        try:
            if number != columns.named_by and any(cells := columns.cells(line)):
                wishes.append(_wish(dict(zip(columns.names, cells, strict=False)), told))
        except (csv.Error, InvalidEmail, ValueError) as error:
            said = line.strip()[:200].encode("utf-8", "replace").decode()
            result.bad.append({"line": number, "error": shorten(str(error), ERROR_CHARS), "text": said})
        if len(wishes) == CHUNK:
            _write(table, wishes, told.now, result)
    _write(table, wishes, told.now, result)
    return result


def _write(table: Suppressions, wishes: list[Suppress], now: float, result: _Result) -> None:
    result.new += table.import_(wishes, now)
    result.imported += len(wishes)
    wishes.clear()


def _wish(cells: Mapping[str, str], told: _Told) -> Suppress:
    """Raises ValueError, InvalidEmail."""
    cause = (cells.get("cause") or told.cause.value).casefold()
    if cause not in set(SuppressionCause):
        raise ValueError(f"cause: {cause!r} is none (there are: {', '.join(SuppressionCause)})")
    until = cells.get("until")
    return Suppress(
        address_of(cells.get("address", "")),
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
    file: Annotated[Path, typer.Argument(help="Default, and `-`: standard output.", show_default=False)] = STDIO,
) -> Answer | None:
    """Write all suppressions as CSV, as `posthouse suppressions import` reads it."""
    if file == STDIO and call.output.as_json:
        raise WrongUsage("--json goes with a FILE; what is written to standard output is CSV")
    table = call.app.store.suppressions
    if file == STDIO:
        _export(sys.stdout, every(table))
        return None
    try:
        with file.open("w", encoding="utf-8", newline="") as out:
            written = _export(out, tracked(every(table), table.count(), "export", quiet=call.output.as_json))
    except OSError as error:
        raise NotPossible(f"{file}: {error.strerror}") from None
    return Answer({"file": str(file), "exported": written}, [f"{count(written, 'suppression')} written to {file}."])


def _export(out: IO[str], found: Iterator[Suppression]) -> int:
    """How many were written."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    written = 0
    for each in found:
        writer.writerow(_cells(each))
        written += 1
    return written


def every(table: Suppressions) -> Iterator[Suppression]:
    """All of them, in the order in which they were first written."""
    after = 0
    while page := table.page(after, CHUNK):
        yield from page
        after = page[-1].id


def _cells(each: Suppression) -> list[str]:
    one_line = " ".join(each.reason.split())
    return [each.address, each.cause.value, each.scope, iso(each.until) or "", one_line, each.who, iso(each.at) or ""]
