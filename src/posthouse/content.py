"""What is stored of an email apart from the ledger, and sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from posthouse.address import Address
from posthouse.text import unstorable

CONTENT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Content:
    """What is stored apart from the ledger and sent: addresses, words, headers. Plain values only."""

    to: tuple[Address, ...]
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    reply_to: tuple[Address, ...] = ()
    sender: Address | None = None
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def recipients(self) -> tuple[Address, ...]:
        """Everybody who gets a copy, in the order to, cc, bcc."""
        return self.to + self.cc + self.bcc

    def to_json(self) -> str:
        """The stored form: versioned, canonical (sorted keys, no spaces), so that it can also be hashed."""
        document = {
            "version": CONTENT_VERSION,
            "to": _plain(self.to),
            "cc": _plain(self.cc),
            "bcc": _plain(self.bcc),
            "reply_to": _plain(self.reply_to),
            "from": _plain([self.sender])[0] if self.sender else None,
            "subject": self.subject,
            "text": self.text,
            "html": self.html,
            "template": self.template,
            "variables": self.variables,
            "headers": self.headers,
            "tags": self.tags,
            "metadata": self.metadata,
        }
        used = {name: value for name, value in document.items() if value not in (None, (), {}, [])}
        return json.dumps(used, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Content:
        """Reads the stored form of this release or an earlier one. Raises ValueError when it can't."""
        try:
            document = json.loads(text)
        except RecursionError:
            raise ValueError("the stored content is damaged: it is nested too deep") from None
        if not isinstance(document, dict) or document.get("version") != CONTENT_VERSION:
            raise ValueError("the stored content has a version that this release can't read")
        content = Content(
            to=_stored_addresses(document, "to"),
            cc=_stored_addresses(document, "cc"),
            bcc=_stored_addresses(document, "bcc"),
            reply_to=_stored_addresses(document, "reply_to"),
            sender=_stored_address(document["from"], "from") if "from" in document else None,
            subject=_stored_text(document, "subject"),
            text=_stored_text(document, "text"),
            html=_stored_text(document, "html"),
            template=_stored_text(document, "template"),
            variables=_stored(document, "variables", dict),
            headers=tuple(_stored_header(pair) for pair in _stored(document, "headers", list)),
            tags=tuple(_sound(tag, "tags") for tag in _stored(document, "tags", list)),
            metadata={name: _sound(value, "metadata") for name, value in _stored(document, "metadata", dict).items()},
        )
        if not content.recipients:
            raise ValueError("the stored content is damaged: it has no recipient")
        return content


def _stored(document: dict[str, Any], name: str, kind: type[Any]) -> Any:
    """A field's value, or an empty one where it was left out. Raises ValueError when it is of another kind."""
    value = document.get(name, kind())
    if not isinstance(value, kind):
        raise ValueError(f"the stored content is damaged: {name} is a {type(value).__name__}")
    return value


def _stored_text(document: dict[str, Any], name: str) -> str | None:
    return _sound(document[name], name) if name in document else None


def _sound(value: object, name: str) -> str:
    if not isinstance(value, str) or unstorable(value):
        raise ValueError(f"the stored content is damaged: {name} is not text")
    return value


def _stored_addresses(document: dict[str, Any], name: str) -> tuple[Address, ...]:
    return tuple(_stored_address(parts, name) for parts in _stored(document, name, list))


def _stored_address(parts: object, name: str) -> Address:
    return Address(*_sound_parts(parts, name, (1, 2)))


def _stored_header(parts: object) -> tuple[str, str]:
    name, value = _sound_parts(parts, "headers", (2,))
    return name, value


def _sound_parts(parts: object, name: str, counts: tuple[int, ...]) -> list[str]:
    if not isinstance(parts, list) or len(parts) not in counts:
        raise ValueError(f"the stored content is damaged: {name} has an entry that is not one")
    return [_sound(part, name) for part in parts]


def _plain(addresses: Iterable[Address]) -> list[list[str]]:
    return [[a.email, a.name] if a.name else [a.email] for a in addresses]
