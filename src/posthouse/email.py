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
from enum import Enum
from typing import Any, Final

from email_validator import EmailNotValidError, validate_email

from posthouse.errors import InvalidEmail

CONTENT_VERSION: Final = 1
KEY_CHARS_MAX: Final = 190
SUBJECT_CHARS_MAX: Final = 998
NAME_CHARS_MAX: Final = 256
ADDRESS_TEXT_CHARS_MAX: Final = 1024
TAG_CHARS_MAX: Final = 128
TAGS_MAX: Final = 20
METADATA_MAX: Final = 50
HEADERS_MAX: Final = 100
RECIPIENTS_MAX: Final = 50
CONTENT_BYTES_MAX: Final = 10 * 1024 * 1024
NUMBER_BITS_MAX: Final = 4096  # far below what Python still turns into decimal digits

RESERVED_HEADERS: Final = frozenset(
    "from sender to cc bcc reply-to subject date message-id mime-version content-type content-transfer-encoding "
    "content-disposition return-path received dkim-signature".split()
)
"""Set from the email's own fields; naming them twice would make two of them."""

_HEADER_NAME = re.compile(r"[!-9;-~]+")  # RFC 5322 section 2.2: printable ASCII without the colon
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")  # PostgreSQL stores no NUL, UTF-8 has no lone surrogates
_NAMED = re.compile(
    r"""
    (?: "(?P<quoted> (?:[^"\\]|\\.)* )"  # RFC 5322 section 3.2.4
      | (?P<plain> [^"\\<>,;@]* )          # more than its section 3.2.5 allows: people write Zoë and Dr. Who
    ) \s* < (?P<bare> .* ) >
    """,
    re.VERBOSE,
)
_LANE_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Address:
    """One mailbox: `Address("ada@example.com", "Ada")`. Structured, so that no comma in a name can split it."""

    email: str
    name: str = ""

    @staticmethod
    def parse(text: str, field_name: str = "address") -> Address:
        """One address, bare or as `Name <ada@example.com>`. Raises InvalidEmail.

        A name with any of `, ; @ < > " \\` in it stands in double quotes, as `str(address)` writes it.
        """
        text = _one_line(text, field_name, ADDRESS_TEXT_CHARS_MAX)
        named = _NAMED.fullmatch(text.strip())
        bare = named["bare"] if named else text.strip()
        try:
            found = validate_email(
                bare,
                check_deliverability=False,
                allow_quoted_local=True,
                allow_smtputf8=True,
                globally_deliverable=False,
                test_environment=True,  # RFC 6761 keeps .test for just that
            )
        except EmailNotValidError as error:
            reason = f"{shorten(text)!r} is not an email address: {error}{_address_hint(text)}"
            raise InvalidEmail(field_name, reason) from None
        return Address(found.normalized, _name_of(named, field_name) if named else "")

    def checked(self, field_name: str) -> Address:
        """The same address, validated. Raises InvalidEmail."""
        bare = Address.parse(self.email, field_name)
        if bare.name:
            raise InvalidEmail(field_name, f"{self.email!r} carries a name; give it as Address(email, name)")
        return Address(bare.email, _one_line(self.name, f"{field_name} (the name)", NAME_CHARS_MAX))

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
    if not isinstance(value, str) or _unstorable(value):
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


def _unstorable(text: str) -> re.Match[str] | None:
    """What no database stores as text, if there is any; a look at plain ASCII costs next to nothing."""
    if text.isascii() and "\x00" not in text:
        return None
    return _UNSTORABLE.search(text)


def _storable(text: str, field_name: str) -> str:
    if found := _unstorable(text):
        raise InvalidEmail(field_name, f"contains {found.group()!r}, which no database stores as text")
    return text


def _text(value: object, field_name: str) -> str:
    if not isinstance(value, str):
        raise InvalidEmail(field_name, f"must be text, not {type(value).__name__}")
    return _storable(_frozen_text(value), field_name)


def _frozen_text(value: str) -> str:
    """The plain text behind a subclass: an enum member's value, a lazy text's words as they are now."""
    words = value.value if isinstance(value, Enum) else str(value)
    return str.__str__(words)


def _one_line(value: object, field_name: str, chars_max: int = CONTENT_BYTES_MAX) -> str:
    line = _text(value, field_name)
    refuse_control(line, field_name)
    if len(line) > chars_max:
        raise InvalidEmail(field_name, f"{len(line)} characters; at most {chars_max}")
    return line


def _name_of(named: re.Match[str], field_name: str) -> str:
    quoted = named["quoted"]
    name = named["plain"].strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return _one_line(name, f"{field_name} (the name)", NAME_CHARS_MAX)


def _address_hint(text: str) -> str:
    if text.count("@") == 1 and re.search(r'[,;"\\].*<', text):
        return ' (such a name stands in double quotes: "Doe, Jane" <jane@example.com>)'
    return " (several addresses are given as a list)" if "," in text or ";" in text else ""


def _key(value: object, field_name: str) -> str:
    key = _one_line(value, field_name, KEY_CHARS_MAX)
    if not key.strip():
        raise InvalidEmail(field_name, "is empty; it must name this one email, such as order-1042-receipt")
    if key != key.strip():
        raise InvalidEmail(field_name, f"{shorten(key)!r} begins or ends with a space")
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
    return None if value is None else _one_line(value, field_name, chars_max)


def _body(value: object, field_name: str) -> str | None:
    return None if value is None else _text(value, field_name)


def _address(value: object, field_name: str) -> Address:
    if isinstance(value, Address):
        return value.checked(field_name)
    return Address.parse(_text(value, field_name), field_name)


def _address_list(value: object, field_name: str) -> tuple[Address, ...]:
    if isinstance(value, str | Address):
        return (_address(value, field_name),)
    if isinstance(value, Mapping | set | frozenset) or not isinstance(value, Iterable):
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
        return _text(value, field_name)
    if isinstance(value, int):
        if value.bit_length() > NUMBER_BITS_MAX:
            raise InvalidEmail(field_name, f"a number of {value.bit_length()} bits; at most {NUMBER_BITS_MAX}")
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
    if isinstance(pairs, str | set | frozenset) or not isinstance(pairs, Iterable):
        raise InvalidEmail("headers", "must be a mapping or a list of (name, value) pairs")
    headers = tuple(_header(pair) for pair in pairs)
    if len(headers) > HEADERS_MAX:
        raise InvalidEmail("headers", f"{len(headers)} headers; at most {HEADERS_MAX}")
    return headers


def _header(pair: object) -> tuple[str, str]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidEmail("headers", "each is a pair of name and value")
    name = _text(pair[0], "headers")
    if not _HEADER_NAME.fullmatch(name) or len(name) > 76:
        raise InvalidEmail("headers", f"{shorten(name)!r} is not a header name")
    if name.casefold() in RESERVED_HEADERS:
        raise InvalidEmail(f"headers.{name}", "is set from the email's own fields")
    return name, _one_line(pair[1], f"headers.{name}")


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str | Mapping | set | frozenset) or not isinstance(value, Iterable):
        raise InvalidEmail("tags", f"must be a list of texts, not {type(value).__name__}")
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
    return dict(_metadata_entry(name, item) for name, item in value.items())


def _metadata_entry(name: object, item: object) -> tuple[str, str]:
    checked = _one_line(name, "metadata")
    return checked, _one_line(item, f"metadata.{checked}")


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
