"""`posthouse reconcile --events`: reads the providers' own logs for news whose webhook never came."""

from __future__ import annotations

from dataclasses import dataclass

from posthouse.app import App
from posthouse.cli.failures import Exit
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import duration_option, iso, local
from posthouse.cli.output import Answer, Json, count
from posthouse.cli.progress import moving
from posthouse.errors import ConfigError


@dataclass
class _Read:
    """What came of one route's log."""

    route: str
    begin: float | None = None
    end: float | None = None
    told: int = 0
    new: int = 0
    error: str = ""

    @property
    def document(self) -> Json:
        """As --json has it."""
        return {
            "route": self.route,
            "from": iso(self.begin),
            "until": iso(self.end),
            "events": self.told,
            "new": self.new,
            "error": self.error or None,
        }

    @property
    def line(self) -> str:
        """As people read it."""
        said = f"{self.route}: nothing to read yet"
        if self.begin is not None and self.end is not None:
            told = f"{count(self.told, 'event')}, {self.new:,} of them new"
            said = f"{self.route}: {told}; read from {local(self.begin)} to {local(self.end)}"
        elif self.error:
            said = f"{self.route}: nothing was read"
        return f"{said}. {self.error}; the next run goes on from there" if self.error else f"{said}."


def backfill(call: Invocation, route: str | None, since: str | None) -> Answer:
    """Reads the logs, route after route; one that can't be read holds up no other."""
    app = call.app
    routes = [route] if route is not None else _with_a_log(app)
    if not routes:
        raise ConfigError("routes", "none of them has a provider whose log can be read")
    since_s = None if since is None else duration_option(since, "--since")
    begin = None if since_s is None else app.store.ledger.now() - since_s
    read = [_read(app, name, begin, quiet=call.output.as_json) for name in routes]
    failed = any(each.error for each in read)
    return Answer(
        {"routes": [each.document for each in read]},
        [each.line for each in read],
        Exit.NOT_POSSIBLE if failed else Exit.OK,
    )


def _with_a_log(app: App) -> list[str]:
    return [name for name, provider in app.providers().items() if provider.log is not None]


def _read(app: App, route: str, since: float | None, *, quiet: bool) -> _Read:
    from posthouse.worker.backfill import Filled, LogFailed, TurnTaken

    read = _Read(route)
    with moving(f"log of {route}, minutes", quiet=quiet) as moved:

        def tell(filled: Filled) -> None:
            read.begin = filled.begin if read.begin is None else read.begin
            read.end = filled.end
            read.told += filled.told
            read.new += filled.new
            moved(int(filled.end - read.begin) // 60, int(filled.until - read.begin) // 60)

        try:
            app.read_log(route, since, tell)
        except (LogFailed, TurnTaken) as error:
            read.error = str(error)
    return read
