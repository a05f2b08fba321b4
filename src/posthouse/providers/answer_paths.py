"""Values in an answer by their path, such as `messages.0.id`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from posthouse.core.http_rules import ID_CHARS_MAX, one_line, read_json

HEADER_PREFIX: Final = "header:"

ABSENT: Final = object()
"""There is no such place."""


def at(document: Any, path: str) -> Any:
    """The value at a dotted path; None where a list is too short or a null ends it; ABSENT where there is no place."""
    for step in path.split("."):
        if document is None:
            return None
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list) and step.isdecimal():
            document = document[int(step)] if int(step) < len(document) else None
        else:
            return ABSENT
    return document


def id_at(document: Any, path: str) -> str | None:
    """The provider's id at a path."""
    return as_id(at(document, path))


def message_id_in(headers: Mapping[str, str], text: str, where: str) -> str | None:
    """The provider's id at a path of the body, or in a header: `header:x-message-id`."""
    if where.startswith(HEADER_PREFIX):
        return as_id(headers.get(where.removeprefix(HEADER_PREFIX)))
    return id_at(read_json(text), where)


def as_id(value: Any) -> str | None:
    """A provider's id as text that can be stored and found again, else None."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip()
    return text if 0 < len(text) <= ID_CHARS_MAX and one_line(text, ID_CHARS_MAX) == text else None
