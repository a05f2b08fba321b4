"""`posthouse bounce`: takes in messages that came back."""

from __future__ import annotations

import logging
import sys
from typing import Annotated, BinaryIO, Final

import typer

from posthouse.cli.failures import Exit, TryAgain, WrongUsage
from posthouse.cli.invocation import Invocation
from posthouse.cli.output import Answer, Json, count
from posthouse.cli.progress import moving
from posthouse.config import Config
from posthouse.core.events import Event
from posthouse.errors import DatabaseUnavailable, MailboxUnavailable, PosthouseError
from posthouse.inlet.messages import Taken
from posthouse.returned.parts import READ_BYTES_MAX

log = logging.getLogger("posthouse.cli.bounce")

CHUNK_BYTES: Final = 65_536


def bounce(
    call: Invocation,
    route: Annotated[
        str | None, typer.Option(help="The route for what is about no send that is known.", show_default=False)
    ] = None,
    recipient: Annotated[
        str | None,
        typer.Option(help="The address that it came to, as the mail server has it.", show_default=False),
    ] = None,
    mailbox: Annotated[
        str | None,
        typer.Option(help="All that is unread in this mailbox instead.", metavar="NAME", show_default=False),
    ] = None,
) -> Answer:
    """Take in a message that came back, from standard input or from a mailbox.

    For a mail server's pipe, or (--mailbox) for a schedule. A report, a bounce or a complaint is written down for its
    send; an automatic reply changes nothing; what nobody understands is kept for a person. Nothing is ever answered.
    Whatever goes wrong with a message here, the exit code (75) asks the mail server to keep it and to try again.
    """
    if mailbox is not None:
        if route is not None or recipient is not None:
            raise WrongUsage("--mailbox goes with neither --route nor --recipient: its own settings say it")
        return _emptied(call, mailbox)
    try:
        content = _bounded(sys.stdin.buffer)
        taken = call.app.inlet().take(content, route=_known(call.app.config, route), recipient=recipient or "")
    except PosthouseError as error:
        raise TryAgain(str(error)) from error
    except Exception as error:  # a fault of ours must not become a permanent failure of somebody's mail
        log.exception("a message that came back could not be kept")
        raise TryAgain(f"a fault in Posthouse: {error!r}") from error
    return Answer(_document(taken), [told(taken)])


def _emptied(call: Invocation, mailbox: str) -> Answer:
    taken: list[Taken] = []
    error = ""
    with moving(f"mailbox {mailbox}", quiet=call.output.as_json) as moved:
        try:
            for one in call.app.read_mailbox(mailbox):
                taken.append(one)
                moved(len(taken), len(taken))
        except (DatabaseUnavailable, MailboxUnavailable) as failed:
            if not taken:
                raise
            error = str(failed)
    said = [*map(told, taken), f"{count(len(taken), 'message')} read from {mailbox}."]
    said += [f"It ended there: {error}. The next run goes on."] if error else []
    document: Json = {"mailbox": mailbox, "messages": [_document(one) for one in taken], "error": error or None}
    return Answer(document, said, Exit.TRY_AGAIN if error else Exit.OK)


def _bounded(stream: BinaryIO) -> bytes:
    """The beginning, with all of it taken from the mail server: one that can't write to the end calls it a failure."""
    content = stream.read(READ_BYTES_MAX)
    while stream.read(CHUNK_BYTES):
        pass
    return content


def _known(config: Config, route: str | None) -> str | None:
    if route is not None and route not in config.routes:
        raise WrongUsage(f"{route!r} is not a route (there are: {', '.join(config.routes) or 'none'})")
    return route


def told(taken: Taken) -> str:
    """What came of a message, on one line."""
    returned, stored = taken.returned, taken.stored
    if taken.quarantined:
        return f"kept for a person to look at: {returned.reason}"
    if not returned.events:
        return f"nothing changes: {returned.reason}"
    if not stored.new:
        return f"{returned.kind}, known before: {_said(returned.events)}"
    whose = "" if stored.joined == stored.new else "; no send of ours is known for it"
    return f"{returned.kind}: {_said(returned.events)}{whose}"


def _said(events: tuple[Event, ...]) -> str:
    return ", ".join(" ".join(filter(None, (event.kind, event.recipient, _why(event)))) for event in events)


def _why(event: Event) -> str:
    why = ", ".join(filter(None, (event.cause, event.code, "for good" if event.hard else "")))
    return f"({why})" if why else ""


def _document(taken: Taken) -> Json:
    return {
        "kind": taken.returned.kind,
        "reason": taken.returned.reason,
        "route": taken.route,
        "quarantined": taken.quarantined,
        "events": [
            {
                "kind": event.kind,
                "recipient": event.recipient,
                "cause": event.cause,
                "hard": event.hard,
                "code": event.code,
                "text": event.text,
                "idempotency_key": event.key,
            }
            for event in taken.returned.events
        ],
        "new": taken.stored.new,
        "joined": taken.stored.joined,
    }
