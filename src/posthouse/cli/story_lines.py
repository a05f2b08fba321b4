"""The story of one send as lines for a terminal, at most `width` columns wide where words allow it. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from posthouse.cli.moments import local_clock, local_day, took
from posthouse.cli.output import Line, assembled, columns, status_text, styled
from posthouse.cli.story import Entry, NextStep, expiry, is_held, standing
from posthouse.core.events import EventKind
from posthouse.core.lifecycle import Status
from posthouse.core.outcome import Outcome
from posthouse.store.ledger import Story

if TYPE_CHECKING:
    from rich.text import Text

INDENT: Final = "  "
NAMED_MAX: Final = 20
"""So many of the sends that go out in one are named."""
_BENEATH: Final = INDENT + " " * len("14:02:11.5  ")
_AFTER_LABEL: Final = " " * len("Next:  ")

_OUTCOME_STYLES: Final[Mapping[str, str]] = {
    Outcome.ACCEPTED: "green",
    Outcome.REJECTED: "red",
    Outcome.MISCONFIGURED: "red",
    Outcome.UNKNOWN: "yellow",
    EventKind.DELIVERED: "green",
    EventKind.DEFERRED: "yellow",
    EventKind.BOUNCED: "red",
    EventKind.COMPLAINED: "red",
}


def heading_lines(story: Story, subject: str | None, now: float, width: int) -> Iterator[Line]:
    """Which send it is. `subject` is None where it is not to be shown."""
    send = story.send
    status = Status(send["status"])
    yield assembled((send["dedupe_key"], "bold"), INDENT, status_text(status, standing(story)))
    if subject:
        yield from wrapped(f'"{subject}"', width, INDENT)
    yield from wrapped(f"to {', '.join(json.loads(send['recipients']))}", width, INDENT)
    of_campaign = f"campaign {send['campaign']}" if send["campaign"] else None
    yield from wrapped(", ".join(filter(None, [f"type {send['type']}", of_campaign, expiry(send, now)])), width, INDENT)
    yield from wrapped(f"id {send['id']}, providers know it as {send['idempotency_key']}", width, INDENT)
    if send["split_from"]:
        yield from wrapped(
            f"split off send {send['split_from']}, whose other recipients have the message", width, INDENT
        )
    for part in story.splits:
        whom = ", ".join(json.loads(part["recipients"]))
        yield from wrapped(f"not to {whom}: see {part['dedupe_key']}, {part['status']}", width, INDENT)
    if story.combined:
        keys = [member["dedupe_key"] for member in story.combined]
        more = f" and {len(keys) - NAMED_MAX:,} more (--json)" if len(keys) > NAMED_MAX else ""
        yield from wrapped(f"with it go {', '.join(keys[:NAMED_MAX])}{more}", width, INDENT)
    if send["maybe_duplicate"]:
        yield styled(f"{INDENT}Marked maybe_duplicate: a second copy may have gone out.", "yellow")


def time_lines(entries: Sequence[Entry], width: int, *, raw: bool) -> Iterator[Line]:
    """What happened, under the day it happened on."""
    rows = columns(
        [[local_clock(e.at), e.what, _outcome(e.outcome), "" if e.took_s is None else took(e.took_s)]
         for e in entries],
        indent=INDENT,
    )  # fmt: skip
    day = ""
    for entry, row in zip(entries, rows, strict=True):
        if (its_day := local_day(entry.at)) != day:
            day = its_day
            yield styled(day, "dim")
        yield row
        for said in entry.said:
            yield from wrapped(said, width, _BENEATH)
        if raw and entry.raw:
            yield from wrapped(f"answer: {entry.raw}", width, _BENEATH)


def _outcome(text: str) -> Text:
    return styled(text, _OUTCOME_STYLES.get(text.partition(" ")[0], ""))


def standing_lines(story: Story, step: NextStep, width: int) -> Iterator[Line]:
    """Why it is held, where it is; and what happens next."""
    if is_held(story.send) and story.send["last_error"]:
        yield from _labelled("Held:", story.send["last_error"], width)
    yield from _labelled("Next:", step.text, width)
    yield from (f"{_AFTER_LABEL}{INDENT}{command}" for command in step.commands)


def _labelled(label: str, text: str, width: int) -> list[str]:
    first, *rest = wrapped(text, width, _AFTER_LABEL)
    return [f"{label:{len(_AFTER_LABEL)}}{first.lstrip()}", *rest]


def wrapped(text: str, width: int, indent: str) -> list[str]:
    """The text in lines of `width` at most; a word that is longer (a key, an address) stays whole."""
    wrapper = textwrap.TextWrapper(
        width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [part for line in text.splitlines() for part in wrapper.wrap(line)] or [indent]
