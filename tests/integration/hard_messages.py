"""Messages that a mail system could damage on their way, and the reading of them by a parser that nobody here wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, Final

from posthouse.address import Address
from posthouse.providers.port import OutgoingMessage

HARD: Final[Mapping[str, Mapping[str, Any]]] = {
    "text and HTML": {"text": "Thank you.\nCome again.\n", "html": "<p>Thank you.</p>\n<p>Come again.</p>\n"},
    "HTML alone": {"text": None, "html": "<p>Thank you.</p>\n"},
    "beyond ASCII": {
        "sender": Address("orders@shop.example", "Søren & Co. 🛒"),
        "reply_to": (Address("help@shop.example", 'Ada "the Countess" Lovelace, London'),),
        "subject": "Grüße: Ihre Bestellung für 50 €, 領収書 📦",
        "text": "Grüße aus Köln\nこんにちは\n",
        "html": "<p>Grüße aus Köln – 50&nbsp;€</p>\n",
    },
    "dots at the beginnings of lines": {"text": ".\n..\n.hidden\n\n.\n", "html": ".\n<p>.</p>\n.\n"},
    "lines that are too long": {
        "text": "x" * 5000 + "\n" + "ü" * 3000 + "\n",
        "html": "<p>" + "word " * 900 + "</p>\n",
    },
    "a long subject": {"subject": "A subject that goes on " * 40 + "and ends"},
    "a long subject beyond ASCII": {"subject": "Ein Betreff, der nicht aufhört " * 20 + "🙂"},
    "blanks at the ends of lines": {"text": "two  \ntab\t\n\n\n   \nlast\n\n\n"},
    "lines that look like others": {"text": "From here on\n>From there\nSubject: none\n\n--\n=20=\n"},
    "line ends of all kinds": {"text": "one\r\ntwo\rthree\nfour"},
    "a header of its own": {"headers": (("X-Order", "42"), ("X-Note", "für später: " + "ein Wort " * 20 + "Ende"))},
}
"""By what is hard about them: how they differ from a plain message."""


def read(raw: bytes) -> EmailMessage:
    """The message as Python's own parser reads it; it finds nothing wrong with it."""
    parsed = message_from_bytes(raw, policy=default)
    assert isinstance(parsed, EmailMessage)
    assert not [defect for part in parsed.walk() for defect in part.defects]
    return parsed


def assert_says(raw: bytes, meant: OutgoingMessage) -> None:
    """What arrived says what was meant, header by header and part by part."""
    parsed = read(raw)
    assert parsed["Subject"] == meant.subject
    assert _addresses(parsed, "From") == [meant.sender]
    assert _addresses(parsed, "To") == list(meant.to)
    assert _addresses(parsed, "Reply-To") == list(meant.reply_to)
    assert [(name, parsed[name]) for name, _ in meant.headers] == list(meant.headers)
    assert parts_of(parsed) == (_as_text(meant.text), _as_text(meant.html))


def parts_of(parsed: EmailMessage) -> tuple[str | None, str | None]:
    """Its text and its HTML."""
    return _content(parsed, "plain"), _content(parsed, "html")


def _addresses(parsed: EmailMessage, name: str) -> list[Address]:
    header = parsed[name]
    found = header.addresses if header is not None else ()
    return [Address(one.addr_spec, one.display_name) for one in found]


def _content(parsed: EmailMessage, kind: str) -> str | None:
    part = parsed.get_body((kind,))
    return None if part is None else str(part.get_content()).replace("\r\n", "\n").removesuffix("\n")


def _as_text(words: str | None) -> str | None:
    """Lines end alike on the wire; where a part ends, its last line end is the boundary's (RFC 2046 section 5.1.1)."""
    return None if words is None else re.sub(r"\r\n|\r", "\n", words).removesuffix("\n")
