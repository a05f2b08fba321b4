"""What an `http` route refuses, for want of a place in its body, and what it leaves out on purpose."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.content import Content, StoredFile
from posthouse.core.outcome import Outcome
from posthouse.errors import ConfigError
from posthouse.providers.mime import message_bytes
from tests.providers.messages import ADA, full_message, message
from tests.providers.scripted import Build, ScriptedTransport

FILE = Attachment(b"bill", "bill.pdf", "application/pdf")
LOGO = Attachment(b"logo", "logo.png", "image/png", "logo")
NOTED = Attachment(b"note", "note.txt", "text/plain", headers=(("Content-Description", "A note"),))
WORDS = {"from": "{from}", "to": "{to}", "subject": "{subject}", "text": "{text}", "html": "{html}"}
RAW = {"to": "{recipients|email}", "mime": "{raw}"}


def stored(*attachments: Attachment, **parts: Any) -> Content:
    """What an email with these parts is stored as."""
    files = tuple(StoredFile.of(attachment) for attachment in attachments)
    return Content(**({"to": (ADA,), "subject": "s", "text": "t", "attachments": files} | parts))


def finished(**parts: Any) -> Content:
    """What a finished message is stored as."""
    return stored(**({"text": None, "raw": StoredFile.of(Attachment(b"Subject: s\r\n\r\n"))} | parts))


CALENDAR = Alternative.calendar("BEGIN:VCALENDAR")
AMP = Alternative.amp("<html amp4email>")
WITHOUT_ALTERNATIVES = (
    "alternatives: this route takes none of text/calendar; with ignore = "
    '["alternatives"] an invitation goes out as its file alone'
)


@pytest.mark.parametrize(
    ("body", "content", "reasons"),
    [
        (WORDS, stored(FILE), ["attachments: this route takes none"]),
        (WORDS, stored(LOGO), ["attachments: this route takes none with a content id"]),
        (WORDS | {"a": "{files}"}, stored(FILE, LOGO), ["attachments: this route takes none with a content id"]),
        (WORDS | {"a": "{inline}"}, stored(FILE, LOGO), ["attachments: this route takes none"]),
        (WORDS | {"a": "{files}", "b": "{inline}"}, stored(FILE, LOGO), []),
        (WORDS | {"a": "{attachments}"}, stored(FILE, LOGO), []),
        (
            WORDS | {"a": "{attachments|object:name,content}"},
            stored(FILE, LOGO),
            ["attachments: this route takes none with a content id"],
        ),
        (
            WORDS | {"a": "{attachments}"},
            stored(NOTED),
            ["attachments: this route takes none with headers of its own"],
        ),
        (WORDS, stored(alternatives=(CALENDAR,)), [WITHOUT_ALTERNATIVES]),
        (WORDS | {"a": "{calendar}"}, stored(alternatives=(CALENDAR,)), []),
        (
            WORDS | {"a": "{calendar}"},
            stored(alternatives=(AMP,)),
            ["alternatives: this route takes none of text/x-amp-html"],
        ),
        (
            WORDS | {"a": "{amp|content}"},
            stored(alternatives=(AMP, AMP)),
            ["alternatives: this route takes one, not 2, of text/x-amp-html"],
        ),
        (
            WORDS | {"a": "{amp}", "c": "{calendar}"},
            stored(alternatives=(Alternative("# Hi", "text/markdown"),)),
            ["alternatives: this route takes none"],
        ),
        (WORDS | {"a": "{alternatives}"}, stored(alternatives=(AMP, CALENDAR)), []),
        (WORDS, stored(message_id="<a@shop.example>"), ["message_id: this route takes none"]),
        (WORDS, stored(envelope_sender=Address("b@shop.example")), ["envelope_sender: this route takes none"]),
        (WORDS, stored(track_opens=False), ["track_opens: this route takes none"]),
        (WORDS, stored(track_clicks=True), ["track_clicks: this route takes none"]),
        (WORDS, finished(), ["raw: this route takes none"]),
        (RAW, finished(cc=(ADA,), bcc=(ADA,)), []),
        (RAW, stored(), ["text: this route takes neither text nor html"]),
        (RAW, stored(text=None, template="receipt"), ["text: this route takes neither text nor html"]),
    ],
)
def test_what_the_body_has_no_place_for_is_refused_at_enqueue(
    build: Build, body: dict[str, Any], content: Content, reasons: list[str]
) -> None:
    assert build(body=body).refusals(content) == reasons


@pytest.mark.parametrize(
    ("ignore", "content"),
    [
        (["attachments"], stored(FILE, LOGO, NOTED)),
        (["inline"], stored(LOGO)),
        (["alternatives"], stored(alternatives=(CALENDAR, AMP))),
        (["message_id", "envelope_sender"], stored(message_id="<a@b.example>", envelope_sender=ADA)),
        (["track_opens", "track_clicks"], stored(track_opens=True, track_clicks=False)),
    ],
    ids=str,
)
def test_what_may_be_ignored_is_no_reason(build: Build, ignore: list[str], content: Content) -> None:
    assert build(body=WORDS).refusals(content)
    assert build(body=WORDS, ignore=ignore).refusals(content) == []


def test_headers_of_an_attachments_part_may_be_ignored_alone(build: Build) -> None:
    provider = build(body=WORDS | {"a": "{attachments}"}, ignore=["part_headers"])
    assert provider.refusals(stored(NOTED)) == []


async def test_an_only_route_says_itself_what_it_can_not_carry(build: Build, wire: ScriptedTransport) -> None:
    verdict = await build(body=WORDS).send(message(attachments=[FILE]))
    assert (verdict.outcome, verdict.text) == (Outcome.REJECTED, "attachments: this route takes none")
    assert wire.requests == []


async def test_a_route_for_finished_messages_names_everybody_and_no_words(
    build: Build, wire: ScriptedTransport
) -> None:
    raw = b"Subject: s\r\n\r\nHello\r\n"
    await build(body=RAW).send(
        full_message(raw=raw, text=None, html=None, headers=(), reply_to=(), tags=(), metadata={})
    )
    assert json.loads(wire.requests[0].body) == {
        "to": ["ada@example.com", "bob@example.com", "cc@example.com", "bcc@example.com"],
        "mime": base64.b64encode(raw).decode(),
    }


def test_all_recipients_in_one_list_would_show_bcc_unless_the_message_is_finished(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"\{recipients\} would show every Bcc"):
        build(body=WORDS | {"to": "{recipients}"})


async def test_a_whole_message_carries_its_parts_and_no_bcc(build: Build, wire: ScriptedTransport) -> None:
    provider = build(body={"to": "{recipients|email}", "mime": "{mime}"})
    assert provider.refusals(stored(FILE, LOGO, NOTED, alternatives=(CALENDAR, AMP), headers=(("X-A", "1"),))) == []
    assert provider.refusals(stored(tags=("a",))) == ["tags: this route takes none"]
    sent = full_message(tags=(), metadata={})
    await provider.send(sent)
    body = json.loads(wire.requests[0].body)
    assert base64.b64decode(body["mime"]) == message_bytes(sent)
    assert body["to"] == ["ada@example.com", "bob@example.com", "cc@example.com", "bcc@example.com"]


def test_options_that_would_change_the_recipients_are_refused(build: Build) -> None:
    provider = build()
    asked = {"main": {"to": ["eve@example.com"]}, "http": {"metadata": {"posthouse_id": "x"}, "priority": 1}}
    assert provider.refusals(stored(options=asked)) == [
        "options: metadata says who gets the message or which one it is",
        "options: to says who gets the message or which one it is",
    ]
    assert provider.refusals(stored(options={"standby": {"to": []}, "main": {"priority": 1}})) == []


async def test_a_routes_own_options_win_over_its_providers(build: Build, wire: ScriptedTransport) -> None:
    options = {"http": {"pool": "a", "settings": {"x": 1, "y": 1}}, "main": {"settings": {"y": 2}}, "other": {"z": 3}}
    await build().send(message(options=options))
    sent = json.loads(wire.requests[0].body)
    assert (sent["pool"], sent["settings"]) == ("a", {"x": 1, "y": 2})
    assert "z" not in sent


TO, CC, BCC = "to@example.com", "cc@example.com", "bcc@example.com"


@pytest.mark.parametrize(
    ("left", "listed"),
    [
        ((), {"to": [TO, "2" + TO], "cc": [CC, "2" + CC], "bcc": [BCC, "2" + BCC]}),
        (("2" + TO, CC, BCC), {"to": ["2" + TO], "cc": [CC], "bcc": [BCC]}),
        ((CC, "2" + CC, BCC), {"to": [CC], "cc": ["2" + CC], "bcc": [BCC]}),
        ((BCC, "2" + BCC), {"bcc": [BCC, "2" + BCC]}),
        ((BCC,), {"to": [BCC]}),
    ],
    ids=["everybody", "some of each", "nobody of to", "several bcc stay hidden from each other", "the last bcc"],
)
async def test_only_those_who_still_get_a_copy_are_listed(
    build: Build, wire: ScriptedTransport, left: tuple[str, ...], listed: dict[str, list[str]]
) -> None:
    def both(email: str) -> list[Address]:
        return [Address(email), Address("2" + email)]

    sent = message(to=both(TO), cc=both(CC), bcc=both(BCC), envelope_to=left)
    await build().send(sent)
    await build().send(sent)
    assert {
        name: value for name in ("to", "cc", "bcc") if (value := json.loads(wire.requests[0].body).get(name))
    } == listed
    assert wire.requests[0].body == wire.requests[1].body


async def test_who_is_left_of_an_email_gets_a_copy_even_without_its_message_id(
    build: Build, wire: ScriptedTransport
) -> None:
    sent = message(to=(ADA, Address(CC)), envelope_to=(CC,), message_id="<order@shop.example>")
    assert (await build(body=WORDS).send(sent)).outcome is Outcome.ACCEPTED
    assert json.loads(wire.requests[0].body)["to"] == [CC]
