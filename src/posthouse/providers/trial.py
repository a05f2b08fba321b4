"""What a route would refuse, tried out with an email for each part: for `posthouse config check`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.content import Content, StoredFile
from posthouse.providers.port import Provider

_SOMEBODY: Final = Address("somebody@example.com")
_FILE: Final = StoredFile.of(Attachment(b"", "a.pdf", "application/pdf"))

_WORDS: Final[Mapping[str, Content]] = {
    "text with html": Content(to=(_SOMEBODY,), subject="", text="", html=""),
    "html alone": Content(to=(_SOMEBODY,), subject="", html=""),
    "text alone": Content(to=(_SOMEBODY,), subject="", text=""),
    "raw": Content(to=(_SOMEBODY,), subject="", raw=_FILE),
}

_PARTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "cc": {"cc": (_SOMEBODY,)},
    "bcc": {"bcc": (_SOMEBODY,)},
    "reply_to": {"reply_to": (_SOMEBODY,)},
    "attachments": {"attachments": (_FILE,)},
    "inline": {"attachments": (replace(_FILE, content_id="logo"),)},
    "amp": {"alternatives": (Alternative.amp(""),)},
    "calendar": {"alternatives": (Alternative.calendar(""),)},
    "headers": {"headers": (("X-A", "1"),)},
    "tags": {"tags": ("a",)},
    "metadata": {"metadata": {"a": "1"}},
    "message_id": {"message_id": "<a@example.com>"},
    "envelope_sender": {"envelope_sender": _SOMEBODY},
    "track_opens": {"track_opens": True},
    "track_clicks": {"track_clicks": True},
}


def refused_parts(provider: Provider) -> list[str]:
    """The parts of an email for which the route has no place."""
    refused = [words for words, content in _WORDS.items() if provider.refusals(content)]
    taken = next((content for words, content in _WORDS.items() if words not in refused), None)
    if taken is None:
        return refused
    return refused + [part for part, change in _PARTS.items() if provider.refusals(replace(taken, **change))]
