"""What can stand in a header: pairs of name and value, content types, ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from posthouse.errors import InvalidEmail
from posthouse.text import one_line, plain_text, shorten

HeaderPairs = tuple[tuple[str, str], ...]

OUR_ID_HEADER: Final = "X-Posthouse-Id"
"""The header that carries the send's id, where a message has one."""

NAME_CHARS_MAX: Final = 76
ID_CHARS_MAX: Final = 250
CONTENT_TYPE_CHARS_MAX: Final = 250

_NAME = re.compile(r"[!-9;-~]+")  # RFC 5322 section 2.2: printable ASCII without the colon
_CONTENT_TYPE = re.compile(
    r"""
    (?P<type> [a-z0-9!#$&^_.+-]+ / [a-z0-9!#$&^_.+-]+ )  # RFC 6838 section 4.2
    (?P<parameters> (?: \s* ; \s* [a-z0-9!#$&^_.+-]+ = (?: [a-z0-9!#$&^_.+'*~-]+ | "[ !#-:<-\[\]-~]*" ) )* )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_ATOMS: Final = r"[a-z0-9!#$%&'*+/=?^_`{|}~.-]+"
_CONTENT_ID = re.compile(rf"{_ATOMS}(?:@{_ATOMS})?", re.IGNORECASE | re.ASCII)
_MESSAGE_ID = re.compile(rf"{_ATOMS}@(?:{_ATOMS}|\[[!-Z^-~]+\])", re.IGNORECASE | re.ASCII)  # RFC 5322 section 3.6.4


def header_pairs(value: object, field_name: str, reserved: frozenset[str], count_max: int) -> HeaderPairs:
    """Names and values, in order. `reserved` are names in small letters. Raises InvalidEmail."""
    pairs = value.items() if isinstance(value, Mapping) else value
    if isinstance(pairs, str | set | frozenset) or not isinstance(pairs, Iterable):
        raise InvalidEmail(field_name, "must be a mapping or a list of (name, value) pairs")
    headers = tuple(_header(pair, field_name, reserved) for pair in pairs)
    if len(headers) > count_max:
        raise InvalidEmail(field_name, f"{len(headers)} headers; at most {count_max}")
    return headers


def _header(pair: object, field_name: str, reserved: frozenset[str]) -> tuple[str, str]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidEmail(field_name, "each is a pair of name and value")
    name = plain_text(pair[0], field_name)
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise InvalidEmail(field_name, f"{shorten(name)!r} is not a header name")
    if name.casefold() in reserved:
        raise InvalidEmail(f"{field_name}.{name}", "is set from the email's own fields")
    return name, one_line(pair[1], f"{field_name}.{name}")


def content_type(value: object, field_name: str, set_by_us: frozenset[str]) -> str:
    """`type/subtype` in small letters with its parameters, but those `set_by_us`. Raises InvalidEmail."""
    given = one_line(value, field_name, CONTENT_TYPE_CHARS_MAX).strip()
    found = _CONTENT_TYPE.fullmatch(given)
    if found is None:
        raise InvalidEmail(field_name, f"{shorten(given)!r} is not a content type such as image/png")
    parameters = [parameter.strip() for parameter in found["parameters"].split(";")[1:]]
    for parameter in parameters:
        if (name := parameter.partition("=")[0].lower()) in set_by_us:
            raise InvalidEmail(field_name, f"{name} is set by us")
    return "; ".join([found["type"].lower(), *parameters])


def content_id(value: object, field_name: str) -> str:
    """The id without angle brackets, empty where there is none. Raises InvalidEmail."""
    bare = _without_brackets(one_line(value, field_name, ID_CHARS_MAX))
    if bare and not _CONTENT_ID.fullmatch(bare):
        raise InvalidEmail(field_name, f"{shorten(bare)!r} is not a content id such as logo or logo@shop.example")
    return bare


def message_id(value: object, field_name: str) -> str:
    """The id in its angle brackets. Raises InvalidEmail."""
    bare = _without_brackets(one_line(value, field_name, ID_CHARS_MAX))
    if not _MESSAGE_ID.fullmatch(bare):
        raise InvalidEmail(field_name, f"{shorten(bare)!r} is not a message id such as <order-1042@shop.example>")
    return f"<{bare}>"


def _without_brackets(given: str) -> str:
    return given[1:-1] if given.startswith("<") and given.endswith(">") else given
