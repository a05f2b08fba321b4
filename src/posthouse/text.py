"""What text may be: storable on every database, without what would start another header."""

from __future__ import annotations

import re
from enum import Enum

from posthouse.errors import InvalidEmail

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")  # PostgreSQL stores no NUL, UTF-8 has no lone surrogates


def shorten(text: str, chars: int = 80) -> str:
    """`text`, cut to `chars` characters."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def refuse_control(text: str, field_name: str) -> None:
    """Refuses line breaks and other control characters: in a header they would start another one."""
    if found := _CONTROL.search(text):
        raise InvalidEmail(field_name, f"contains the control character {found.group()!r} (header injection?)")
    storable(text, field_name)


def unstorable(text: str) -> re.Match[str] | None:
    """What no database stores as text, if there is any. Quick where there is none, as nearly always."""
    return None if "\x00" not in text and _has_utf8(text) else _UNSTORABLE.search(text)


def _has_utf8(text: str) -> bool:
    """Whether it has no lone surrogates: to encode it is several times as quick as to search it."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def storable(text: str, field_name: str) -> str:
    """The same text. Raises InvalidEmail where no database stores it."""
    if found := unstorable(text):
        raise InvalidEmail(field_name, f"contains {found.group()!r}, which no database stores as text")
    return text


def plain_text(value: object, field_name: str) -> str:
    """The plain text of a value, as it is now. Raises InvalidEmail."""
    if not isinstance(value, str):
        raise InvalidEmail(field_name, f"must be text, not {type(value).__name__}")
    return storable(_frozen_text(value), field_name)


def _frozen_text(value: str) -> str:
    """The plain text behind a subclass: an enum member's value, a lazy text's words as they are now."""
    words = value.value if isinstance(value, Enum) else str(value)
    return str.__str__(words)


def one_line(value: object, field_name: str, chars_max: int | None = None) -> str:
    """Text that can stand in a header. Raises InvalidEmail."""
    line = plain_text(value, field_name)
    refuse_control(line, field_name)
    if chars_max is not None and len(line) > chars_max:
        raise InvalidEmail(field_name, f"{len(line)} characters; at most {chars_max}")
    return line
