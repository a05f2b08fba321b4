"""The message model: `Email` is what an application asks for, `Content` is the part of it that is sent.

Everything that can be wrong with an email is refused here, with the field and the reason, before anything is
written.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from email_validator import EmailNotValidError, validate_email

from posthouse.errors import InvalidEmail

CONTENT_VERSION: Final = 1
KEY_CHARS_MAX: Final = 190
SUBJECT_CHARS_MAX: Final = 998
NAME_CHARS_MAX: Final = 256
TAG_CHARS_MAX: Final = 128
TAGS_MAX: Final = 20
METADATA_MAX: Final = 50
HEADERS_MAX: Final = 100
RECIPIENTS_MAX: Final = 50
CONTENT_BYTES_MAX: Final = 10 * 1024 * 1024

RESERVED_HEADERS: Final = frozenset(
    "from sender to cc bcc reply-to subject date message-id mime-version content-type content-transfer-encoding "
    "content-disposition return-path received dkim-signature".split()
)
"""Set from the email's own fields; naming them twice would make two of them."""

_HEADER_NAME = re.compile(r"[!-9;-~]+")  # RFC 5322 section 2.2: printable ASCII without the colon
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")  # PostgreSQL stores no NUL, UTF-8 has no lone surrogates
_LANE_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Address:
    """One mailbox: `Address("ada@example.com", "Ada")`. Structured, so that no comma in a name can split it."""

    email: str
    name: str = ""

    @staticmethod
    def parse(text: str, field_name: str = "address") -> Address:
        """One address, bare or as `Name <ada@example.com>`. Raises InvalidEmail."""
        if not isinstance(text, str):
            raise InvalidEmail(field_name, f"an address is text or an Address, not {type(text).__name__}")
        refuse_control(text, field_name)
        try:
            found = validate_email(
                text.strip(),
                check_deliverability=False,
                allow_display_name=True,
                allow_quoted_local=True,
                allow_smtputf8=True,
                globally_deliverable=False,
            )
        except EmailNotValidError as error:
            hint = " (several addresses are given as a list)" if "," in text or ";" in text else ""
            raise InvalidEmail(field_name, f"{shorten(text)!r} is not an email address: {error}{hint}") from None
        return Address(found.normalized, found.display_name or "")

    def checked(self, field_name: str) -> Address:
        """The same address, validated. Raises InvalidEmail."""
        if not isinstance(self.name, str) or not isinstance(self.email, str):
            raise InvalidEmail(field_name, "an Address has text as its email and its name")
        refuse_control(self.name, field_name)
        if len(self.name) > NAME_CHARS_MAX:
            raise InvalidEmail(field_name, f"the display name is longer than {NAME_CHARS_MAX} characters")
        bare = Address.parse(self.email, field_name)
        if bare.name:
            raise InvalidEmail(field_name, f"{self.email!r} carries a name; give it as Address(email, name)")
        return Address(bare.email, self.name)

    def __str__(self) -> str:
        if not self.name:
            return self.email
        quoted = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{quoted}" <{self.email}>'

    @property
    def folded(self) -> str:
        """The form in which addresses are compared and looked up."""
        return self.email.casefold()


AddressLike = str | Address
AddressesLike = AddressLike | Sequence[AddressLike]


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
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("version") != CONTENT_VERSION:
            raise ValueError("the stored content has a version that this release can't read")
        try:
            return Content(
                to=_addresses(document.get("to", ())),
                cc=_addresses(document.get("cc", ())),
                bcc=_addresses(document.get("bcc", ())),
                reply_to=_addresses(document.get("reply_to", ())),
                sender=_addresses([document["from"]])[0] if document.get("from") else None,
                subject=document.get("subject"),
                text=document.get("text"),
                html=document.get("html"),
                template=document.get("template"),
                variables=document.get("variables", {}),
                headers=tuple((name, value) for name, value in document.get("headers", ())),
                tags=tuple(document.get("tags", ())),
                metadata=document.get("metadata", {}),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the stored content is damaged: {error!r}") from error


def _plain(addresses: Iterable[Address]) -> list[list[str]]:
    return [[a.email, a.name] if a.name else [a.email] for a in addresses]


def _addresses(stored: Iterable[Sequence[str]]) -> tuple[Address, ...]:
    return tuple(Address(*parts) for parts in stored)


@dataclass(slots=True)
class Email:
    """What an application asks for.

    `key` is the dedupe key: one key, one email, whatever calls `enqueue` how often. `to`, `cc`, `bcc` and `reply_to`
    take one address or a list; an address is text (`"Ada <ada@example.com>"`) or an `Address`. Give `subject` and
    `text` and/or `html`, or `template` and its `variables` (a subject given as well wins over the template's).
    `send_at` and `expires` are aware datetimes; `after` is the key of an email that must be accepted first.
    """

    key: str
    to: AddressesLike = ()
    type: str = "default"
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    sender: AddressLike | None = None
    cc: AddressesLike = ()
    bcc: AddressesLike = ()
    reply_to: AddressesLike = ()
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    send_at: datetime | None = None
    expires: datetime | None = None
    after: str | None = None
    service: str | None = None

    def checked(self) -> CheckedEmail:
        """A frozen, validated copy: later changes to this object change nothing. Raises InvalidEmail."""
        key = _key(self.key, "key")
        content = Content(
            to=_address_list(self.to, "to"),
            cc=_address_list(self.cc, "cc"),
            bcc=_address_list(self.bcc, "bcc"),
            reply_to=_address_list(self.reply_to, "reply_to"),
            sender=None if self.sender is None else _address(self.sender, "sender"),
            subject=_line(self.subject, "subject", SUBJECT_CHARS_MAX),
            text=_body(self.text, "text"),
            html=_body(self.html, "html"),
            template=None if self.template is None else _template(self.template),
            variables=_variables(self.variables),
            headers=_headers(self.headers),
            tags=_tags(self.tags),
            metadata=_metadata(self.metadata),
        )
        _check_whole(content)
        after = None if self.after is None else _key(self.after, "after")
        if after == key:
            raise InvalidEmail("after", "an email can't wait for itself")
        checked = CheckedEmail(
            key=key,
            type=_word(self.type, "type"),
            service=None if self.service is None else _word(self.service, "service"),
            content=content,
            stored=content.to_json(),
            send_at=_moment(self.send_at, "send_at"),
            expires=_moment(self.expires, "expires"),
            after=after,
        )
        if checked.send_at is not None and checked.expires is not None and checked.expires <= checked.send_at:
            raise InvalidEmail("expires", "it would expire before its send_at")
        size = len(checked.stored.encode())
        if size > CONTENT_BYTES_MAX:
            raise InvalidEmail("content", f"{size} bytes; at most {CONTENT_BYTES_MAX} can be stored")
        return checked


@dataclass(frozen=True, slots=True)
class CheckedEmail:
    """An email that passed every check. Times are seconds since 1970, UTC."""

    key: str
    type: str
    service: str | None
    content: Content
    stored: str  # the content's stored form
    send_at: float | None
    expires: float | None
    after: str | None

    @property
    def fingerprint(self) -> str:
        """Tells whether two emails under one key are the same: type, service, dependency and content.

        Not the times: a caller that tries again computes them anew, and means the same email.
        """
        parts = json.dumps([self.type, self.service, self.after, self.stored])
        return hashlib.sha256(parts.encode()).hexdigest()


def shorten(text: str, chars: int = 80) -> str:
    """`text`, cut to `chars` characters."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def refuse_control(text: str, field_name: str) -> None:
    """Refuses line breaks and other control characters: in a header they would start another one."""
    if found := _CONTROL.search(text):
        raise InvalidEmail(field_name, f"contains the control character {found.group()!r} (header injection?)")
    _storable(text, field_name)


def _storable(text: str, field_name: str) -> str:
    if found := _UNSTORABLE.search(text):
        raise InvalidEmail(field_name, f"contains {found.group()!r}, which no database stores as text")
    return text


def _text(value: object, field_name: str) -> str:
    if not isinstance(value, str):
        raise InvalidEmail(field_name, f"must be text, not {type(value).__name__}")
    return _storable(str(value), field_name)


def _key(value: object, field_name: str) -> str:
    key = _text(value, field_name)
    refuse_control(key, field_name)
    if not key.strip():
        raise InvalidEmail(field_name, "is empty; it must name this one email, such as order-1042-receipt")
    if key != key.strip():
        raise InvalidEmail(field_name, f"{shorten(key)!r} begins or ends with a space")
    if len(key) > KEY_CHARS_MAX:
        raise InvalidEmail(field_name, f"{len(key)} characters; at most {KEY_CHARS_MAX}")
    return key


def _word(value: object, field_name: str) -> str:
    word = _text(value, field_name)
    if not _LANE_WORD.fullmatch(word):
        raise InvalidEmail(
            field_name,
            f"{shorten(word)!r} is not a name: small letters, digits and . _ -, at most 63 characters",
        )
    return word


def _line(value: object, field_name: str, chars_max: int) -> str | None:
    if value is None:
        return None
    line = _text(value, field_name)
    refuse_control(line, field_name)
    if len(line) > chars_max:
        raise InvalidEmail(field_name, f"{len(line)} characters; at most {chars_max}")
    return line


def _body(value: object, field_name: str) -> str | None:
    return None if value is None else _text(value, field_name)


def _address(value: object, field_name: str) -> Address:
    if isinstance(value, Address):
        return value.checked(field_name)
    return Address.parse(_text(value, field_name), field_name)


def _address_list(value: object, field_name: str) -> tuple[Address, ...]:
    if isinstance(value, str | Address):
        return (_address(value, field_name),)
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise InvalidEmail(field_name, f"must be an address or a list of them, not {type(value).__name__}")
    return tuple(_address(item, f"{field_name}[{place}]") for place, item in enumerate(value))


def _template(value: object) -> str:
    name = _text(value, "template")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*", name):
        raise InvalidEmail("template", f"{shorten(name)!r} is not the name of a template in the templates folder")
    return name


def _variables(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidEmail("variables", f"must be a mapping, not {type(value).__name__}")
    return {_variable_name(name): _frozen(item, f"variables.{name}") for name, item in value.items()}


def _variable_name(value: object) -> str:
    name = _text(value, "variables")
    if not name.isidentifier():
        raise InvalidEmail("variables", f"{shorten(name)!r} can't be used as a variable's name in a template")
    return name


def _frozen(value: object, field_name: str, depth: int = 0) -> Any:
    """A deep copy that JSON gives back unchanged, or a refusal."""
    if depth > 20:
        raise InvalidEmail(field_name, "is nested more than 20 levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _storable(str(value), field_name)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidEmail(field_name, f"{value} has no JSON form")
        return float(value)
    if isinstance(value, list | tuple):
        return [_frozen(item, f"{field_name}[{place}]", depth + 1) for place, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {
            _text(name, f"{field_name} (a key)"): _frozen(item, f"{field_name}.{name}", depth + 1)
            for name, item in value.items()
        }
    raise InvalidEmail(
        field_name,
        f"a {type(value).__name__} can't be stored; give text, numbers, true/false, lists or mappings of them",
    )


def _headers(value: object) -> tuple[tuple[str, str], ...]:
    pairs = value.items() if isinstance(value, Mapping) else value
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise InvalidEmail("headers", "must be a mapping or a list of (name, value) pairs")
    headers = tuple(_header(pair) for pair in pairs)
    if len(headers) > HEADERS_MAX:
        raise InvalidEmail("headers", f"{len(headers)} headers; at most {HEADERS_MAX}")
    return headers


def _header(pair: object) -> tuple[str, str]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidEmail("headers", "each is a pair of name and value")
    name, value = _text(pair[0], "headers"), _text(pair[1], f"headers.{pair[0]}")
    if not _HEADER_NAME.fullmatch(name) or len(name) > 76:
        raise InvalidEmail("headers", f"{shorten(name)!r} is not a header name")
    if name.casefold() in RESERVED_HEADERS:
        raise InvalidEmail(f"headers.{name}", "is set from the email's own fields")
    refuse_control(value, f"headers.{name}")
    return name, value


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidEmail("tags", "must be a list of texts")
    tags = tuple(_line(item, "tags", TAG_CHARS_MAX) or "" for item in value)
    if not all(tags):
        raise InvalidEmail("tags", "an empty tag")
    if len(tags) > TAGS_MAX:
        raise InvalidEmail("tags", f"{len(tags)} tags; at most {TAGS_MAX}")
    return tags


def _metadata(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidEmail("metadata", f"must be a mapping of text to text, not {type(value).__name__}")
    if len(value) > METADATA_MAX:
        raise InvalidEmail("metadata", f"{len(value)} entries; at most {METADATA_MAX}")
    metadata = {}
    for name, item in value.items():
        refuse_control(_text(name, "metadata"), "metadata")
        metadata[str(name)] = _text(item, f"metadata.{name}")
        refuse_control(metadata[name], f"metadata.{name}")
    return metadata


def _moment(value: object, field_name: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidEmail(field_name, f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidEmail(field_name, f"{value} has no time zone; give datetime.now(UTC) or the like")
    return value.timestamp()


def _check_whole(content: Content) -> None:
    if not content.recipients:
        raise InvalidEmail("to", "no recipient")
    if len(content.recipients) > RECIPIENTS_MAX:
        raise InvalidEmail("to", f"{len(content.recipients)} recipients; at most {RECIPIENTS_MAX} in one email")
    written = content.text is not None or content.html is not None
    if content.template is not None and written:
        raise InvalidEmail("template", "give a template, or text and html, not both")
    if content.template is None and not written:
        raise InvalidEmail("text", "nothing to send: give text, html or a template")
    if content.template is None and content.subject is None:
        raise InvalidEmail("subject", "is missing (an empty subject is given as '')")
    if content.variables and content.template is None:
        raise InvalidEmail("variables", "are for a template, and there is none")
