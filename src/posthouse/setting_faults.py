"""What is wrong with a table of settings, each fault in our own words: what, in which setting, what to do."""

from __future__ import annotations

import difflib
import re
import typing
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from posthouse.errors import ConfigError
from posthouse.setting_values import Clashes

_TABLE: Final = "a table"
_TYPES: Final = (
    ("string_", "text in quotes"),
    ("int_", "a whole number"),
    ("float_", "a number"),
    ("finite_number", "a number"),
    ("bool_", "true or false, without quotes"),
    ("tuple_", "a list in brackets"),
    ("frozen_set_", "a list in brackets"),
    ("dict_", _TABLE),
    ("model_", _TABLE),
    ("path_", "a path, as text in quotes"),
    ("date_", "a day such as 2026-12-01"),
)
"""How the validator's words for a wrong type begin, and what it has to be."""

_GIVEN: Final = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (list, "a list"),
    (Mapping, _TABLE),
    (date, "a date"),
)
_BOUNDS: Final = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
}


Table = TypeVar("Table", bound=BaseModel)
Place = tuple[int | str, ...]


def validated(model: type[Table], document: Any, prefix: str = "", beside: Collection[str] = ()) -> Table:
    """The settings in a decoded document. Raises a ConfigError that tells of everything that is wrong.

    `prefix` is where the document stands; `beside` are names that the same table may have as well.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        found = error.errors()
    unknown = [each["loc"] for each in found if each["type"] == "extra_forbidden"]
    if len(unknown) == len(found):  # what doesn't go together is looked for only where nothing else is wrong
        try:
            model.model_validate(_without(document, unknown))
        except ValidationError as error:
            found += error.errors()
    raise ConfigError.together(fault for each in found for fault in _faults(each, model, prefix, beside))


def _without(document: Any, places: Collection[Place]) -> Any:
    """A document without what stands at these places."""
    if not isinstance(document, Mapping):
        return document
    deeper: dict[int | str, list[Place]] = defaultdict(list)
    for first, *rest in places:
        deeper[first].append(tuple(rest))
    return {
        name: _without(value, deeper[name]) if name in deeper else value
        for name, value in document.items()
        if () not in deeper.get(name, ())
    }


def nearest(word: str, words: Collection[str]) -> str:
    """What somebody may have meant; with nothing like it, what there is."""
    near = _near(word, words)
    return near or (f" (there are: {', '.join(words)})" if words else "")


def _near(word: str, words: Collection[str]) -> str:
    near = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _faults(error: ErrorDetails, model: type[BaseModel], prefix: str, beside: Collection[str]) -> Iterator[ConfigError]:
    place = error["loc"]
    names = [prefix, *(part for part in place if isinstance(part, str))]
    refused = error.get("ctx", {}).get("error")
    if isinstance(refused, Clashes):
        for setting, reason in refused.clashes:
            yield ConfigError(_dotted([*names, setting]), reason)
        return
    entry = next((f"entry {part + 1} " for part in place if isinstance(part, int)), "")
    table = _table_at(model, place)
    known = [*table.model_fields, *(beside if len(place) == 1 else ())]
    yield ConfigError(_dotted(names), entry + _reason(error, table, known))


def _dotted(names: Iterable[str]) -> str:
    return ".".join(filter(None, names))


def _reason(error: ErrorDetails, table: type[BaseModel], known: Collection[str]) -> str:
    kind, place, context = error["type"], error["loc"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"there is no such setting{nearest(str(place[-1]), known)}"
    if kind == "missing":
        return f"is missing{_purpose(table, str(place[-1]))}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"must be {context['expected']}{_meant(error['input'], context['expected'])}"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"must be {words} {context[bound]:g}"
    return _wrong_type(error)


def _wrong_type(error: ErrorDetails) -> str:
    wanted = next((words for start, words in _TYPES if error["type"].startswith(start)), None)
    if wanted is None:
        return error["msg"]
    given = next((words for type_, words in _GIVEN if isinstance(error["input"], type_)), "")
    return f"must be {wanted}, not {given}" if given and not wanted.startswith(given) else f"must be {wanted}"


def _meant(given: object, expected: str) -> str:
    """Only what was expected is repeated: the value itself may be a secret in the wrong place."""
    return _near(given, re.findall(r"'([^']*)'", expected)) if isinstance(given, str) else ""


def _purpose(table: type[BaseModel], name: str) -> str:
    """What a setting is for: the first sentence of its documentation."""
    field = table.model_fields.get(name)
    first = (field.description or "").partition(". ")[0].rstrip(".") if field else ""
    return f" ({first[:1].lower()}{first[1:]})" if first else ""


def _table_at(model: type[BaseModel], place: Place) -> type[BaseModel]:
    """The table that the last name of a place stands in."""
    parts = iter(place[:-1])
    for part in parts:
        field = model.model_fields.get(str(part))
        inner = _table_in(field.annotation) if field else None
        if field is None or inner is None:
            break
        model = inner
        if typing.get_origin(field.annotation) is dict:
            next(parts, None)  # a name that people gave, such as a route's
    return model


def _table_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_table_in(argument) for argument in typing.get_args(annotation))
    return next((table for table in inner if table is not None), None)
