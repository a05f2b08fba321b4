"""Every part that an email can have, and how a receiver sees that it has arrived."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.sandbox.ledger import Acceptance, CaughtFile
from posthouse.sandbox.received import Shown

BILL = Attachment(b"%PDF-1.7\r\x00\xff\nend", "Überblick & Co.pdf", "application/pdf")
TABLE = Attachment(b"a,b\n1,2\nFrom here\n.\n", "table.csv", "text/csv; header=present")
LOGO = Attachment(b"\x89PNG\r\n\x1a\n", "logo.png", "image/png", "logo@shop.example")
FORWARDED = Attachment(b"Subject: A question\r\n\r\nFrom whom?\r\n", "question.eml", "message/rfc822")
NOTED = Attachment(b"note", "note.bin", headers=(("Content-Description", "A note"),))
AMP = Alternative.amp('<!doctype html><html amp4email data-x="é">')
INVITATION = Alternative.calendar("BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nEND:VCALENDAR\r\n")
RAW = (
    b"From: shop@shop.example\r\nTo: ada@example.com\r\nSubject: As it is\r\nX-Odd:  two  spaces\r\n"
    b"Message-ID: <raw@shop.example>\r\nDate: Fri, 15 Jan 2027 08:00:00 +0000\r\n\r\n.dot\r\n\r\n"
)

Seen = Callable[[Acceptance, Shown], bool]


@dataclass(frozen=True)
class Part:
    """One part of an email."""

    name: str
    given: Mapping[str, Any]  # of the email
    seen: Seen  # by the receiver
    field: str = ""  # how a refusal begins, where not with the name

    def refused_by(self, reason: str) -> bool:
        """Whether a refusal names it."""
        return reason.startswith(self.field or self.name)


def _in_body(name: str, *texts: str) -> Seen:
    """In any of the shapes that a field has in a call or in a message's head."""
    return lambda _, shown: all(text in str(shown.body.get(name)) for text in texts)


def _header(name: str, value: str) -> Seen:
    def seen(_: Acceptance, shown: Shown) -> bool:
        headers = shown.body.get("headers", [])
        return [name, value] in [list(pair) for pair in (headers.items() if isinstance(headers, dict) else headers)]

    return seen


def _files(*attachments: Attachment) -> Seen:
    wanted = [CaughtFile(a.content, a.filename, a.content_type, a.content_id, a.inline) for a in attachments]

    def seen(_: Acceptance, shown: Shown) -> bool:
        return [_comparable(file) for file in shown.files] == [_comparable(file) for file in wanted]

    return seen


def _comparable(file: CaughtFile) -> tuple[object, ...]:
    return file.content, file.filename, file.content_type, file.content_id, file.inline


def _alternative(wanted: Alternative) -> Seen:
    def seen(_: Acceptance, shown: Shown) -> bool:
        return [(one["content_type"], one["content"].strip()) for one in shown.body.get("alternatives", [])] == [
            (wanted.content_type, wanted.content.strip())
        ]

    return seen


def _tracking(name: str, value: bool) -> Seen:
    return lambda _, shown: shown.body.get(name) is value


def _message_id(acceptance: Acceptance, shown: Shown) -> bool:
    wanted = "<order-42@shop.example>"
    return shown.body.get("message_id") == wanted or _header("Message-ID", wanted)(acceptance, shown)


PARTS = (
    Part("to", {"to": ["Ada <ada@example.com>", "bob@example.com"]}, _in_body("to", "Ada", "bob@example.com")),
    Part("cc", {"cc": ["Cy <cc@example.com>"]}, _in_body("cc", "Cy", "cc@example.com")),
    Part("bcc", {"bcc": ["bcc@example.com"]}, lambda acceptance, _: "bcc@example.com" in acceptance.recipients),
    Part("reply_to", {"reply_to": "Help <help@shop.example>"}, _in_body("reply_to", "Help", "help@shop.example")),
    Part("sender", {"sender": Address("other@shop.example", "Grüße")}, _in_body("from", "Grüße", "other@shop.example")),
    Part("subject", {"subject": "Grüße ✉ " * 20}, _in_body("subject", "Grüße ✉ Grüße ✉")),
    Part("text", {"text": "Grüße\n.\n\nFrom Ada\n"}, _in_body("text", "Grüße", "From Ada")),
    Part("html", {"html": f"<p>{'ü' * 2000}</p>"}, _in_body("html", "ü" * 2000)),
    Part("headers", {"headers": {"X-Order": "Grüße 42"}}, _header("X-Order", "Grüße 42")),
    Part("importance", {"importance": "high"}, _header("Importance", "high"), field="headers"),
    Part("tags", {"tags": ["receipt"]}, _in_body("tags", "receipt")),
    Part("metadata", {"metadata": {"order": "42"}}, _in_body("metadata", "order", "42")),
    Part("attachments", {"attachments": [BILL, TABLE]}, _files(BILL, TABLE)),
    Part("inline", {"attachments": [LOGO]}, _files(LOGO), field="attachments"),
    Part("forwarded", {"attachments": [FORWARDED]}, _files(FORWARDED), field="attachments"),
    Part(
        "part headers",
        {"attachments": [NOTED]},
        lambda acceptance, _: b"Content-Description: A note\r\n" in (acceptance.raw or b""),
        field="attachments",
    ),
    Part("amp", {"alternatives": [AMP]}, _alternative(AMP), field="alternatives"),
    Part("calendar", {"alternatives": [INVITATION]}, _alternative(INVITATION), field="alternatives"),
    Part("raw", {"raw": RAW}, lambda acceptance, _: acceptance.raw == RAW),
    Part("message_id", {"message_id": "<order-42@shop.example>"}, _message_id),
    Part(
        "envelope_sender",
        {"envelope_sender": "bounces@shop.example"},
        lambda acceptance, _: acceptance.envelope_sender == "bounces@shop.example",
    ),
    Part("track_opens", {"track_opens": False}, _tracking("track_opens", False)),
    Part("track_clicks", {"track_clicks": True}, _tracking("track_clicks", True)),
    Part("options", {"options": {"main": {"pool": "bulk"}}}, _in_body("pool", "bulk")),
)
