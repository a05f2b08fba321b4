"""What is stored of an email apart from the ledger, and sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.header import HeaderPairs
from posthouse.text import unstorable
from posthouse.values import value

T = TypeVar("T")

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


@value
class Content:
    """What is stored apart from the ledger and sent: addresses, words, headers. Plain values only.

    `envelope_to` are those of the recipients who still get a copy, where the others have theirs. `items` are the
    variables of every send that goes out in this one, where several do.
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
    items: tuple[Mapping[str, Any], ...] = ()
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
            "items": self.items,
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
    def from_json(text: str, sender: Address | None = None) -> Content:
        """Reads the stored form of this release or an earlier one; `sender` is who sends it where it doesn't say.

        Raises ValueError when it can't.
        """
        try:
            document = json.loads(text)
        except RecursionError:
            raise ValueError("the stored content is damaged: it is nested too deep") from None
        if not isinstance(document, dict) or document.get("version") != CONTENT_VERSION:
            raise ValueError("the stored content has a version that this release can't read")
        read = {name: _READ[name](value, name) for name, value in document.items() if name in _READ}
        content = Content(to=read.pop("to", ()), sender=read.pop("from", sender), **read)
        if not content.recipients:
            raise ValueError("the stored content is damaged: it has no recipient")
        return content


def _of_kind(value: object, name: str, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"the stored content is damaged: {name} is a {type(value).__name__}")
    return value


def _table(value: object, name: str) -> dict[str, Any]:
    return _of_kind(value, name, dict)


def _sound(value: object, name: str) -> str:
    if not isinstance(value, str) or unstorable(value):
        raise ValueError(f"the stored content is damaged: {name} is not text")
    return value


def _address(value: object, name: str) -> Address:
    return Address(*_sound_parts(value, name, (1, 2)))


def _pair(value: object, name: str) -> tuple[str, str]:
    first, second = _sound_parts(value, name, (2,))
    return first, second


def _alternative(value: object, name: str) -> Alternative:
    content_type, content = _pair(value, name)
    return Alternative(content, content_type)


def _file(value: object, name: str) -> StoredFile:
    parts = _table(value, name)
    return StoredFile(
        digest=_sound(parts.get("digest"), name),
        size=_of_kind(parts.get("size", 0), name, int),
        filename=_sound(parts.get("filename", ""), name),
        content_type=_sound(parts.get("content_type", ""), name),
        content_id=_sound(parts.get("content_id", ""), name),
        headers=_each(_pair)(parts.get("headers", []), name),
    )


def _texts_by_name(value: object, name: str) -> dict[str, str]:
    return {key: _sound(text, name) for key, text in _table(value, name).items()}


def _as_it_is(value: Any, _name: str) -> Any:
    return value


def _each(read: Callable[[object, str], T]) -> Callable[[object, str], tuple[T, ...]]:
    return lambda value, name: tuple([read(item, name) for item in _of_kind(value, name, list)])


def _sound_parts(parts: object, name: str, counts: tuple[int, ...]) -> list[str]:
    if not isinstance(parts, list) or len(parts) not in counts:
        raise ValueError(f"the stored content is damaged: {name} has an entry that is not one")
    return [_sound(part, name) for part in parts]


_READ: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "to": _each(_address),
    "cc": _each(_address),
    "bcc": _each(_address),
    "reply_to": _each(_address),
    "from": _address,
    "envelope_sender": _address,
    "envelope_to": _each(_sound),
    "subject": _sound,
    "text": _sound,
    "html": _sound,
    "alternatives": _each(_alternative),
    "attachments": _each(_file),
    "raw": _file,
    "template": _sound,
    "variables": _table,
    "items": _each(_table),
    "headers": _each(_pair),
    "tags": _each(_sound),
    "metadata": _texts_by_name,
    "message_id": _sound,
    "track_opens": _as_it_is,
    "track_clicks": _as_it_is,
    "options": _table,
}
"""How each stored field is read; what has no value was left out."""


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
