"""What others have collected: the sample messages of CPython's tests, and the bounces that ship with flufl.bounce.

Where we differ from flufl.bounce, it is by name and for a reason.
"""

from __future__ import annotations

from email import message_from_bytes
from pathlib import Path
from typing import Final

import flufl.bounce

from posthouse.core.events import EventKind
from posthouse.returned.reading import Kind, read_returned
from tests.providers.test_smtp_samples import SAMPLES, needs_samples
from tests.returned.mails import NOW

HERE: Final = "bounces+{id}@shop.example"
CAME_TO: Final = f"bounces+{'0' * 32}@shop.example"
"""Each says by its recipient which send it is about: many of them don't have their original any more."""

BOUNCES: Final = sorted((Path(flufl.bounce.__file__).parent / "tests" / "data").glob("*.txt"))

OLD: Final = "words of a program that is not made any more, or of one company; kept for a person"
NO_ENTRY: Final = "the address stands in a sentence, not in a line of its own; kept for a person"
DIFFERENT: Final = {
    "aol_01": OLD,
    "bounce_03": OLD,
    "dsn_15": "a report about a report, within a message that something else made of it",
    "hotpop_01": OLD,
    "llnl_01": OLD,
    "microsoft_01": "no address at all but an X.400 name",
    "microsoft_03": "mail of a list in which somebody quotes a bounce",
    "microsoft_04": "an X.400 name is taken for the address there; here it is the address",
    "netscape_01": OLD,
    "qmail_03": OLD,
    "sendmail_01": "an alias and what it leads to are two recipients there; here one",
    "simple_01": OLD,
    "simple_02": OLD,
    "simple_04": OLD,
    "simple_07": NO_ENTRY,
    "simple_11": OLD,
    "simple_12": OLD,
    "simple_13": "a report without a recipient's lines",
    "simple_14": NO_ENTRY,
    "simple_15": NO_ENTRY,
    "simple_16": "the address is behind an undisclosed one",
    "simple_18": OLD,
    "simple_20": NO_ENTRY,
    "simple_22": NO_ENTRY,
    "simple_23": NO_ENTRY,
    "simple_24": NO_ENTRY,
    "simple_25": "words in HTML alone",
    "simple_26": NO_ENTRY,
    "simple_27": OLD,
    "simple_35": NO_ENTRY,
    "simple_37": OLD,
    "simple_38": "a receipt, in which a filter says that it threw the message away",
    "simple_39": NO_ENTRY,
    "simple_44": OLD,
    "sina_01": OLD,
    "smtp32_01": OLD,
    "smtp32_02": OLD,
    "smtp32_03": OLD,
    "smtp32_05": OLD,
    "smtp32_07": OLD,
    "yahoo_12": "the recipient is only named in the original's headers",
    "yale_01": OLD,
}
AGREED: Final = 68
ALL_BOUNCES: Final = 110


def ours(content: bytes) -> tuple[set[str], set[str]]:
    """Who failed for now and who for ever, as we read it."""
    events = read_returned(content, NOW, recipient=CAME_TO, bounce_addresses={"main": HERE}).events
    deferred = {event.recipient.casefold() for event in events if event.kind is EventKind.DEFERRED}
    return deferred, {event.recipient.casefold() for event in events if event.kind is EventKind.BOUNCED}


def theirs(content: bytes) -> tuple[set[str], set[str]]:
    temporary, permanent = flufl.bounce.all_failures(message_from_bytes(content))
    return {one.decode().casefold() for one in temporary}, {one.decode().casefold() for one in permanent}


def test_most_bounces_are_read_as_others_read_them_and_the_rest_differs_for_a_reason() -> None:
    read = {path.stem: path.read_bytes() for path in BOUNCES}
    bounces = {name: content for name, content in read.items() if any(theirs(content))}
    differing = {name for name, content in bounces.items() if ours(content) != theirs(content)}

    assert differing == set(DIFFERENT)
    assert (len(bounces) - len(differing), len(bounces)) == (AGREED, ALL_BOUNCES)


def test_what_others_take_for_no_bounce_is_none_here() -> None:
    no_bounces = [path for path in BOUNCES if not any(theirs(path.read_bytes()))]
    assert no_bounces
    assert [path.stem for path in no_bounces if any(ours(path.read_bytes()))] == []


def test_nobody_is_refused_whom_others_have_not_read() -> None:
    strangers = {
        path.stem: {*ours(path.read_bytes())[1]} - {*theirs(path.read_bytes())[1]}
        for path in BOUNCES
        if path.stem not in ("microsoft_04",)
    }
    assert {name: who for name, who in strangers.items() if who} == {}


@needs_samples
def test_the_reports_among_the_samples_of_python_are_read() -> None:
    said = {
        name: read_returned(content, NOW, recipient=CAME_TO, bounce_addresses={"main": HERE})
        for name, content in SAMPLES.items()
    }

    reports = {name: [(e.kind, e.recipient, e.code) for e in read.events] for name, read in said.items() if read.events}

    assert {read.kind for read in said.values()} <= set(Kind)
    assert set(reports) == {"msg_16.txt", "msg_43.txt"}
    assert reports["msg_16.txt"] == [(EventKind.BOUNCED, "jangel1@cougar.noc.ucla.edu", "5.0.0")]
    assert len(reports["msg_43.txt"]) == 25
    assert {(kind, code) for kind, _, code in reports["msg_43.txt"]} == {(EventKind.BOUNCED, "550 5.7.1")}
