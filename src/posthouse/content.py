"""What is stored of an email apart from the ledger, and sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.header import HeaderPairs
from posthouse.text import unstorable

CONTENT_VERSION: Final = 1


_BASE64_LINE: Final = (57, 78)
"""So many bytes become a line of so many in base64, its end included (RFC 2045 section 6.8)."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An attachment whose bytes are stored apart, under their digest."""

    digest: str  # SHA-256 in hexadecimal
    size: int  # in bytes
    filename: str = ""
    content_type: str = ""
    content_id: str = ""
    headers: HeaderPairs = ()

    @staticmethod
    def of(attachment: Attachment) -> StoredFile:
        """What is stored of an attachment beside its bytes."""
        return StoredFile(
            attachment.digest,
            len(attachment.content),
            attachment.filename,
            attachment.content_type,
            attachment.content_id,
            attachment.headers,
        )

    def with_bytes(self, content: bytes) -> Attachment:
        """The attachment again."""
        return Attachment(content, self.filename, self.content_type, self.content_id, self.headers)

    @property
    def encoded_size(self) -> int:
        """Its bytes on the wire."""
        given, made = _BASE64_LINE
        return -(-self.size // given) * made


@dataclass(frozen=True, slots=True)
class Content:
    """What is stored apart from the ledger and sent: addresses, words, headers. Plain values only.

    `envelope_to` are those of the recipients who still get a copy, where the others have theirs.
    """

    to: tuple[Address, ...]
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    reply_to: tuple[Address, ...] = ()
    sender: Address | None = None
    envelope_sender: Address | None = None
    envelope_to: tuple[str, ...] = ()
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    alternatives: tuple[Alternative, ...] = ()
    attachments: tuple[StoredFile, ...] = ()
    raw: StoredFile | None = None
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    message_id: str | None = None
    track_opens: bool | None = None
    track_clicks: bool | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def recipients(self) -> tuple[Address, ...]:
        """Everybody who gets a copy, in the order to, cc, bcc."""
        everybody = self.to + self.cc + self.bcc
        return tuple(a for a in everybody if a.email in self.envelope_to) if self.envelope_to else everybody

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """Everything whose bytes are stored apart."""
        return self.attachments if self.raw is None else (*self.attachments, self.raw)

    @property
    def encoded_size(self) -> int:
        """About how many bytes the message has on the wire; the words of a template are not known yet."""
        if self.raw is not None:
            return self.raw.size
        words = [self.text or "", self.html or "", *(alternative.content for alternative in self.alternatives)]
        return sum(len(part.encode()) for part in words) + sum(file.encoded_size for file in self.attachments)

    def to_json(self) -> str:
        """The stored form: versioned, canonical (sorted keys, no spaces), so that it can also be hashed."""
        document = {
            "version": CONTENT_VERSION,
            "to": _plain(self.to),
            "cc": _plain(self.cc),
            "bcc": _plain(self.bcc),
            "reply_to": _plain(self.reply_to),
            "from": _plain([self.sender])[0] if self.sender else None,
            "envelope_sender": _plain([self.envelope_sender])[0] if self.envelope_sender else None,
            "envelope_to": self.envelope_to,
            "subject": self.subject,
            "text": self.text,
            "html": self.html,
            "alternatives": [[item.content_type, item.content] for item in self.alternatives],
            "attachments": [_plain_file(file) for file in self.attachments],
            "raw": _plain_file(self.raw) if self.raw else None,
            "template": self.template,
            "variables": self.variables,
            "headers": self.headers,
            "tags": self.tags,
            "metadata": self.metadata,
            "message_id": self.message_id,
            "track_opens": self.track_opens,
            "track_clicks": self.track_clicks,
            "options": self.options,
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
            envelope_sender=_stored_address(document["envelope_sender"], "envelope_sender")
            if "envelope_sender" in document
            else None,
            envelope_to=_stored_texts(document, "envelope_to"),
            subject=_stored_text(document, "subject"),
            text=_stored_text(document, "text"),
            html=_stored_text(document, "html"),
            alternatives=tuple(_stored_alternative(parts) for parts in _stored(document, "alternatives", list)),
            attachments=tuple(_stored_file(parts, "attachments") for parts in _stored(document, "attachments", list)),
            raw=_stored_file(document["raw"], "raw") if "raw" in document else None,
            template=_stored_text(document, "template"),
            variables=_stored(document, "variables", dict),
            headers=_stored_headers(document, "headers"),
            tags=_stored_texts(document, "tags"),
            metadata={name: _sound(value, "metadata") for name, value in _stored(document, "metadata", dict).items()},
            message_id=_stored_text(document, "message_id"),
            track_opens=document.get("track_opens"),
            track_clicks=document.get("track_clicks"),
            options=_stored(document, "options", dict),
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


def _stored_texts(document: dict[str, Any], name: str) -> tuple[str, ...]:
    return tuple(_sound(text, name) for text in _stored(document, name, list))


def _stored_headers(document: dict[str, Any], name: str) -> HeaderPairs:
    return tuple(_stored_pair(pair, name) for pair in _stored(document, name, list))


def _stored_pair(parts: object, name: str) -> tuple[str, str]:
    first, second = _sound_parts(parts, name, (2,))
    return first, second


def _stored_alternative(parts: object) -> Alternative:
    content_type, content = _stored_pair(parts, "alternatives")
    return Alternative(content, content_type)


def _stored_file(parts: object, name: str) -> StoredFile:
    if not isinstance(parts, dict):
        raise ValueError(f"the stored content is damaged: {name} has an entry that is not one")
    return StoredFile(
        digest=_sound(parts.get("digest"), name),
        size=_stored(parts, "size", int),
        filename=_sound(parts.get("filename", ""), name),
        content_type=_sound(parts.get("content_type", ""), name),
        content_id=_sound(parts.get("content_id", ""), name),
        headers=_stored_headers(parts, "headers"),
    )


def _sound_parts(parts: object, name: str, counts: tuple[int, ...]) -> list[str]:
    if not isinstance(parts, list) or len(parts) not in counts:
        raise ValueError(f"the stored content is damaged: {name} has an entry that is not one")
    return [_sound(part, name) for part in parts]


def _plain_file(file: StoredFile) -> dict[str, Any]:
    parts = {
        "digest": file.digest,
        "size": file.size,
        "filename": file.filename,
        "content_type": file.content_type,
        "content_id": file.content_id,
        "headers": file.headers,
    }
    return {name: value for name, value in parts.items() if value not in ("", ())}


def _plain(addresses: Iterable[Address]) -> list[list[str]]:
    return [[a.email, a.name] if a.name else [a.email] for a in addresses]
