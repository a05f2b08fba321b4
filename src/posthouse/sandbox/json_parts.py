"""Reads what came in JSON, part by part; what doesn't fit is a `Misfit` that says which part and why."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn


@dataclass(frozen=True, slots=True)
class Unusable:
    """A send that can't: a stable code, a sentence for people, and the field that is meant, where it is one."""

    error: str
    message: str
    field: str = ""


class Misfit(Exception):
    """What came can't be read; `unusable` says why."""

    def __init__(self, error: str, message: str, field: str = "") -> None:
        self.unusable = Unusable(error, message, field)
        super().__init__(message)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def decoded(raw: bytes) -> Any:
    """Any JSON."""
    try:
        return _DECODER.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise Misfit("invalid_json", f"the body is not JSON: {error}") from None


def decoded_object(raw: bytes) -> dict[str, Any]:
    """A JSON object."""
    body = decoded(raw)
    if not isinstance(body, dict):
        raise Misfit("invalid_json", "the body is not a JSON object")
    return body


def decoded_list(raw: bytes) -> list[Any]:
    """A JSON array."""
    body = decoded(raw)
    if not isinstance(body, list):
        raise Misfit("invalid_json", "the body is not a JSON array")
    return body


def encoded(document: Any) -> bytes:
    """A part of a call as octets of its own."""
    return json.dumps(document, ensure_ascii=False, sort_keys=True).encode(errors="surrogatepass")


def a_text(value: object, place: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise unfit(place, "not text")
    return value


def an_object(value: object, place: str) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise unfit(place, "not an object")
    return value


def objects(value: object, place: str) -> list[dict[str, Any]]:
    """A list of objects; nothing is none of them."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise unfit(place, "not a list of objects")
    return value


def pairs(value: object, place: str, name: str, text: str) -> dict[str, Any]:
    """A list of objects that each have a name of their own and a text."""
    return dict(in_order(value, place, name, text))


def in_order(value: object, place: str, name: str, text: str) -> list[list[Any]]:
    """The same as pairs, where several may have one name, as headers may."""
    return [[a_text(one.get(name), f"{place}.{name}"), one.get(text)] for one in objects(value, place)]


_BETWEEN_COMMAS: Final = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*"?)+')


def addresses_in(value: object, place: str) -> list[str]:
    """The addresses of a text with commas between them."""
    return [one.strip() for one in _BETWEEN_COMMAS.findall(a_text(value, place)) if one.strip()]


def in_base64(value: object, place: str) -> bytes:
    """The octets that a text in base64 stands for."""
    try:
        return base64.b64decode(a_text(value, place), validate=True)
    except ValueError:
        raise unfit(place, "not base64") from None


def a_flag(value: object, place: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise unfit(place, "neither true nor false")


def unfit(place: str, what: str) -> Misfit:
    """Says what a part is instead of what it has to be."""
    return Misfit("invalid_part", f"{place} is {what}", place)
