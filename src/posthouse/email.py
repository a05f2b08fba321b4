"""The message model: `Email` is what an application asks for.

Everything that can be wrong with an email is refused here, with the field and the reason, before anything is
written.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from posthouse.address import Address, AddressesLike, AddressLike
from posthouse.content import Content
from posthouse.errors import InvalidEmail
from posthouse.text import one_line, plain_text, shorten

KEY_CHARS_MAX: Final = 190
SUBJECT_CHARS_MAX: Final = 998
TAG_CHARS_MAX: Final = 128
TAGS_MAX: Final = 20
METADATA_MAX: Final = 50
HEADERS_MAX: Final = 100
RECIPIENTS_MAX: Final = 50
CONTENT_BYTES_MAX: Final = 10 * 1024 * 1024
STORABLE_YEARS: Final = range(1970, 9000)
"""Far enough from the ends of what databases and Python take, whatever the time zone and the maximum age."""
NUMBER_BITS_MAX: Final = 4096  # far below what Python still turns into decimal digits

RESERVED_HEADERS: Final = frozenset(
    "from sender to cc bcc reply-to subject date message-id mime-version content-type content-transfer-encoding "
    "content-disposition return-path received dkim-signature".split()
)
"""Set from the email's own fields; naming them twice would make two of them."""

_HEADER_NAME = re.compile(r"[!-9;-~]+")  # RFC 5322 section 2.2: printable ASCII without the colon
_LANE_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


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
        type_ = _word(self.type, "type")
        service = None if self.service is None else _word(self.service, "service")
        send_at, expires = _moment(self.send_at, "send_at"), _moment(self.expires, "expires")
        if send_at is not None and expires is not None and expires <= send_at:
            raise InvalidEmail("expires", "it would expire before its send_at")
        stored = content.to_json()
        stored_bytes = stored.encode()
        if (size := len(stored_bytes)) > CONTENT_BYTES_MAX:
            raise InvalidEmail("content", f"{size} bytes; at most {CONTENT_BYTES_MAX} can be stored")
        fingerprint = _fingerprint(type_, service, after, stored_bytes)
        return CheckedEmail(key, type_, service, content, stored, send_at, expires, after, fingerprint)


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
    fingerprint: str  # see `_fingerprint`


def _fingerprint(type_: str, service: str | None, after: str | None, stored: bytes) -> str:
    """Tells whether two emails under one key are the same: type, service, dependency and content.

    Not the times: a caller that tries again computes them anew, and means the same email. NUL is in none of the parts.
    """
    return hashlib.sha256("\0".join((type_, service or "", after or "", "")).encode() + stored).hexdigest()


def _key(value: object, field_name: str) -> str:
    key = one_line(value, field_name, KEY_CHARS_MAX)
    if not key.strip():
        raise InvalidEmail(field_name, "is empty; it must name this one email, such as order-1042-receipt")
    if key != key.strip():
        raise InvalidEmail(field_name, f"{shorten(key)!r} begins or ends with a space")
    return key


def _word(value: object, field_name: str) -> str:
    word = plain_text(value, field_name)
    if not _LANE_WORD.fullmatch(word):
        raise InvalidEmail(
            field_name,
            f"{shorten(word)!r} is not a name: small letters, digits and . _ -, at most 63 characters",
        )
    return word


def _line(value: object, field_name: str, chars_max: int) -> str | None:
    return None if value is None else one_line(value, field_name, chars_max)


def _body(value: object, field_name: str) -> str | None:
    return None if value is None else plain_text(value, field_name)


def _address(value: object, field_name: str) -> Address:
    if isinstance(value, Address):
        return value.checked(field_name)
    return Address.parse(plain_text(value, field_name), field_name)


def _address_list(value: object, field_name: str) -> tuple[Address, ...]:
    if isinstance(value, str | Address):
        return (_address(value, field_name),)
    if isinstance(value, Mapping | set | frozenset) or not isinstance(value, Iterable):
        raise InvalidEmail(field_name, f"must be an address or a list of them, not {type(value).__name__}")
    return tuple(_address(item, f"{field_name}[{place}]") for place, item in enumerate(value))


def _template(value: object) -> str:
    name = plain_text(value, "template")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*", name):
        raise InvalidEmail("template", f"{shorten(name)!r} is not the name of a template in the templates folder")
    return name


def _variables(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidEmail("variables", f"must be a mapping, not {type(value).__name__}")
    return {_variable_name(name): _frozen(item, f"variables.{name}") for name, item in value.items()}


def _variable_name(value: object) -> str:
    name = plain_text(value, "variables")
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
        return plain_text(value, field_name)
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
            plain_text(name, f"{field_name} (a key)"): _frozen(item, f"{field_name}.{name}", depth + 1)
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
    name = plain_text(pair[0], "headers")
    if not _HEADER_NAME.fullmatch(name) or len(name) > 76:
        raise InvalidEmail("headers", f"{shorten(name)!r} is not a header name")
    if name.casefold() in RESERVED_HEADERS:
        raise InvalidEmail(f"headers.{name}", "is set from the email's own fields")
    return name, one_line(pair[1], f"headers.{name}")


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
    checked = one_line(name, "metadata")
    return checked, one_line(item, f"metadata.{checked}")


def _moment(value: object, field_name: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidEmail(field_name, f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidEmail(field_name, f"{value} has no time zone; give datetime.now(UTC) or the like")
    if value.year not in STORABLE_YEARS:
        raise InvalidEmail(
            field_name, f"the year {value.year} is not between {STORABLE_YEARS[0]} and {STORABLE_YEARS[-1]}"
        )
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
