"""What each field of an email may be: checked, and frozen as it is now."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from posthouse.address import Address
from posthouse.errors import InvalidEmail
from posthouse.text import one_line, plain_text, shorten

T = TypeVar("T")

KEY_CHARS_MAX: Final = 190
TAG_CHARS_MAX: Final = 128
TAGS_MAX: Final = 20
METADATA_MAX: Final = 50
STORABLE_YEARS: Final = range(1970, 9000)
"""Far enough from the ends of what databases and Python take, whatever the time zone and the maximum age."""
NUMBER_BITS_MAX: Final = 4096  # far below what Python still turns into decimal digits

_LANE_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def checked_key(value: object, field_name: str) -> str:
    """A dedupe key. Raises InvalidEmail, as all of these."""
    return _name(value, field_name, "it must name this one email, such as order-1042-receipt")


def family(value: object) -> str:
    """The name of a family of emails."""
    return _name(value, "family", "it must name emails that replace each other, such as code:user-42")


def _name(value: object, field_name: str, meant: str) -> str:
    name = one_line(value, field_name, KEY_CHARS_MAX)
    if not name.strip():
        raise InvalidEmail(field_name, f"is empty; {meant}")
    if name != name.strip():
        raise InvalidEmail(field_name, f"{shorten(name)!r} begins or ends with a space")
    return name


def lane_word(value: object, field_name: str) -> str:
    """A name that can be part of a lane's."""
    word = plain_text(value, field_name)
    if not _LANE_WORD.fullmatch(word):
        raise InvalidEmail(
            field_name,
            f"{shorten(word)!r} is not a name: small letters, digits and . _ -, at most 63 characters",
        )
    return word


def optional_line(value: object, field_name: str, chars_max: int) -> str | None:
    """Text that can stand in a header, or None."""
    return None if value is None else one_line(value, field_name, chars_max)


def optional_text(value: object, field_name: str) -> str | None:
    """Any text, or None."""
    return None if value is None else plain_text(value, field_name)


def address(value: object, field_name: str) -> Address:
    """One address, given as text or as an Address."""
    if isinstance(value, Address):
        return value.checked(field_name)
    return Address.parse(plain_text(value, field_name), field_name)


def addresses(value: object, field_name: str) -> tuple[Address, ...]:
    """One address or a list of them."""
    if isinstance(value, str | Address):
        return (address(value, field_name),)
    if isinstance(value, Mapping | set | frozenset) or not isinstance(value, Iterable):
        raise InvalidEmail(field_name, f"must be an address or a list of them, not {type(value).__name__}")
    return tuple(address(item, f"{field_name}[{place}]") for place, item in enumerate(value))


def template_name(value: object) -> str:
    """The name of a template in the templates folder."""
    name = plain_text(value, "template")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*", name):
        raise InvalidEmail("template", f"{shorten(name)!r} is not the name of a template in the templates folder")
    return name


def variables(value: object) -> dict[str, Any]:
    """A template's variables: a deep copy that JSON gives back unchanged."""
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


def tags(value: object) -> tuple[str, ...]:
    """Up to TAGS_MAX short texts."""
    if isinstance(value, str | Mapping | set | frozenset) or not isinstance(value, Iterable):
        raise InvalidEmail("tags", f"must be a list of texts, not {type(value).__name__}")
    tags = tuple(optional_line(item, "tags", TAG_CHARS_MAX) or "" for item in value)
    if not all(tags):
        raise InvalidEmail("tags", "an empty tag")
    if len(tags) > TAGS_MAX:
        raise InvalidEmail("tags", f"{len(tags)} tags; at most {TAGS_MAX}")
    return tags


def metadata(value: object) -> dict[str, str]:
    """Up to METADATA_MAX names with texts."""
    if not isinstance(value, Mapping):
        raise InvalidEmail("metadata", f"must be a mapping of text to text, not {type(value).__name__}")
    if len(value) > METADATA_MAX:
        raise InvalidEmail("metadata", f"{len(value)} entries; at most {METADATA_MAX}")
    return dict(_metadata_entry(name, item) for name, item in value.items())


def _metadata_entry(name: object, item: object) -> tuple[str, str]:
    checked = one_line(name, "metadata")
    return checked, one_line(item, f"metadata.{checked}")


def moment(value: object, field_name: str) -> float | None:
    """An aware datetime as seconds since 1970, or None."""
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


def yes_or_no(value: object, field_name: str) -> bool | None:
    """True, False, or None for whatever the provider's account says."""
    if value is not None and not isinstance(value, bool):
        raise InvalidEmail(field_name, f"must be True, False or None, not {type(value).__name__}")
    return value


def options(value: object) -> dict[str, dict[str, Any]]:
    """Settings for single routes or providers, each a table by its name."""
    if not isinstance(value, Mapping):
        raise InvalidEmail("options", f"must be a mapping of routes or providers, not {type(value).__name__}")
    return {plain_text(name, "options"): _table(table, f"options.{name}") for name, table in value.items()}


def _table(value: object, field_name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidEmail(field_name, f"must be a mapping, not {type(value).__name__}")
    frozen: dict[str, Any] = _frozen(value, field_name)
    return frozen


def several(value: object, field_name: str, kind: type[T], count_max: int) -> tuple[T, ...]:
    """A list of objects of one kind."""
    if not isinstance(value, list | tuple):
        raise InvalidEmail(field_name, f"must be a list of posthouse.{kind.__name__}, not {type(value).__name__}")
    for item in value:
        if not isinstance(item, kind):
            raise InvalidEmail(field_name, f"must hold posthouse.{kind.__name__}, not {type(item).__name__}")
    if len(value) > count_max:
        raise InvalidEmail(field_name, f"{len(value)} of them; at most {count_max}")
    return tuple(value)
