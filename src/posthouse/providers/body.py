"""A JSON body from a mapping: constants stay, placeholders take the message's parts.

A text that is exactly one placeholder takes the part's own type: `"{to}"` becomes a list. Within other words a
placeholder takes text: `"Re: {subject}"`. What is empty is left out, and so is a table or list whose placeholders
are all empty. A literal brace is written twice. `docs/providers/http.md` lists placeholders and filters.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from email_validator import validate_email

from posthouse.address import Address
from posthouse.providers.port import OutgoingMessage

OUR_ID: Final = "posthouse_id"
"""The name of our id in the metadata that goes out."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NOTHING: Final = object()
_EMPTY: Final[tuple[object, ...]] = (None, [], {}, ())
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Item(StrEnum):
    """What a value, or each value of a list, is."""

    ADDRESS = "addresses"
    TEXT = "text"
    PLAIN = "finished values"
    PAIRS = "names with values"


@dataclass(frozen=True, slots=True)
class _Pipe:
    """How one placeholder gets its value from a message."""

    item: Item
    many: bool
    get: Callable[[OutgoingMessage], Any]
    takes_one: bool = False  # of a list, the first alone

    def each(self, function: Callable[[Any], Any], item: Item) -> _Pipe:
        """Applies `function` to the value, or to each of the list, leaving out what is None."""
        get = self.get
        if self.many:
            return replace(self, item=item, get=lambda m: [y for x in get(m) if (y := function(x)) is not None])
        return replace(self, item=item, get=lambda m: None if (value := get(m)) is None else function(value))


def _metadata(message: OutgoingMessage) -> list[tuple[str, str]]:
    """In one order whatever the store made of it, so that a replay has the same bytes."""
    return sorted({**message.metadata, OUR_ID: message.idempotency_key}.items())


PLACEHOLDERS: Final = {
    "from": _Pipe(Item.ADDRESS, False, lambda m: m.sender),
    "to": _Pipe(Item.ADDRESS, True, lambda m: m.to),
    "cc": _Pipe(Item.ADDRESS, True, lambda m: m.cc),
    "bcc": _Pipe(Item.ADDRESS, True, lambda m: m.bcc),
    "reply_to": _Pipe(Item.ADDRESS, True, lambda m: m.reply_to),
    "subject": _Pipe(Item.TEXT, False, lambda m: m.subject),
    "text": _Pipe(Item.TEXT, False, lambda m: m.text),
    "html": _Pipe(Item.TEXT, False, lambda m: m.html),
    "headers": _Pipe(Item.PAIRS, False, lambda m: m.headers),
    "tags": _Pipe(Item.TEXT, True, lambda m: m.tags),
    "metadata": _Pipe(Item.PAIRS, False, _metadata),
    "id": _Pipe(Item.TEXT, False, lambda m: m.idempotency_key),
}

DEFAULT_BODY: Final[Mapping[str, Any]] = {
    name: f"{{{name}}}"
    for name in ("from", "to", "cc", "bcc", "reply_to", "subject", "text", "html", "headers", "tags", "metadata")
}
"""The shape that most APIs take in one variant or another."""


def _wire(address: Address) -> str:
    """The bare address with its domain in ASCII, which every API takes."""
    local, _, domain = address.email.rpartition("@")
    return address.email if domain.isascii() else f"{local}@{_ascii_domain(address.email)}"


def _ascii_domain(email: str) -> str:
    return validate_email(email, check_deliverability=False, globally_deliverable=False).ascii_domain


def _as_text(address: Address) -> str:
    return str(address if address.email.isascii() else Address(_wire(address), address.name))


def _as_object(email: str = "email", name: str = "name") -> Callable[[Address], dict[str, str]]:
    return lambda a: {email: _wire(a), name: a.name} if a.name else {email: _wire(a)}


def _finished(pipe: _Pipe, address_format: str) -> _Pipe:
    """The pipe as it ends where no filter says otherwise."""
    if pipe.item is Item.ADDRESS:
        return pipe.each(_as_text if address_format == "text" else _as_object(), Item.PLAIN)
    return pipe.each(dict, Item.PLAIN) if pipe.item is Item.PAIRS else pipe


def _first(pipe: _Pipe) -> _Pipe:
    get = pipe.get
    return replace(pipe, many=False, takes_one=True, get=lambda m: next(iter(get(m)), None))


def _join(pipe: _Pipe) -> _Pipe:
    texts = pipe.each(_as_text, Item.TEXT) if pipe.item is Item.ADDRESS else pipe
    return replace(texts, many=False, get=lambda m: ", ".join(texts.get(m)) or None)


def _pairs(pipe: _Pipe, name: str = "name", value: str = "value") -> _Pipe:
    get = pipe.get
    return replace(pipe, item=Item.PLAIN, many=True, get=lambda m: [{name: n, value: v} for n, v in get(m)])


@dataclass(frozen=True, slots=True)
class _Filter:
    """What follows a `|`: what it takes, how many words after its colon, and what it makes."""

    takes: frozenset[Item]
    apply: Callable[..., _Pipe]
    words: frozenset[int] = frozenset({0})
    of_lists: bool = False


_ADDRESS: Final = frozenset({Item.ADDRESS})

FILTERS: Final = {
    "text": _Filter(_ADDRESS, lambda pipe: pipe.each(_as_text, Item.TEXT)),
    "email": _Filter(_ADDRESS, lambda pipe: pipe.each(_wire, Item.TEXT)),
    "name": _Filter(_ADDRESS, lambda pipe: pipe.each(lambda a: a.name or None, Item.TEXT)),
    "object": _Filter(
        _ADDRESS, lambda pipe, *names: pipe.each(_as_object(*names), Item.PLAIN), words=frozenset({0, 2})
    ),
    "wrap": _Filter(
        frozenset({Item.TEXT, Item.PLAIN}),
        lambda pipe, name: pipe.each(lambda value: {name: value}, Item.PLAIN),
        words=frozenset({1}),
    ),
    "first": _Filter(frozenset({Item.ADDRESS, Item.TEXT, Item.PLAIN}), _first, of_lists=True),
    "join": _Filter(frozenset({Item.ADDRESS, Item.TEXT}), _join, of_lists=True),
    "pairs": _Filter(frozenset({Item.PAIRS}), _pairs, words=frozenset({0, 2})),
    "json": _Filter(
        frozenset({Item.PAIRS}),
        lambda pipe: pipe.each(lambda pairs: _ENCODER.encode(dict(pairs)) if pairs else None, Item.TEXT),
    ),
}


def _pipe(expression: str, place: str) -> tuple[str, _Pipe]:
    """The placeholder's name and its pipe. Raises ValueError that names the place."""
    name, *filters = (part.strip() for part in expression.split("|"))
    if name not in PLACEHOLDERS:
        raise ValueError(f"{place}: there is no placeholder {{{name}}}{_nearest(name, PLACEHOLDERS)}")
    pipe = PLACEHOLDERS[name]
    for text in filters:
        pipe = _filtered(pipe, text, f"{place}: {{{expression}}}")
    return name, pipe


def _filtered(pipe: _Pipe, text: str, place: str) -> _Pipe:
    name, _, rest = text.partition(":")
    words = [word.strip() for word in rest.split(",")] if rest else []
    if name not in FILTERS:
        raise ValueError(f"{place}: there is no filter {name!r}{_nearest(name, FILTERS)}")
    chosen = FILTERS[name]
    if len(words) not in chosen.words or not all(words):
        wanted = " or ".join(map(str, sorted(chosen.words)))
        raise ValueError(f"{place}: {name!r} takes {wanted} names after a colon, such as object:Email,Name")
    if pipe.item not in chosen.takes:
        raise ValueError(f"{place}: {name!r} can't be used on {pipe.item}")
    if chosen.of_lists and not pipe.many:
        raise ValueError(f"{place}: {name!r} is for lists")
    return chosen.apply(pipe, *words)


def _nearest(word: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {near[0]!r}?" if near else f" (there are: {', '.join(words)})"


@dataclass(frozen=True, slots=True)
class _Node:
    """A compiled part of the mapping."""

    render: Callable[[OutgoingMessage], Any]  # _NOTHING: to be left out
    live: bool  # holds a placeholder


class Body:
    """A compiled mapping. Raises ValueError, with the place in the mapping, where it can't be compiled."""

    def __init__(self, mapping: Mapping[str, Any], address_format: str = "text") -> None:
        self._address_format = address_format
        self._takes: dict[str, float] = {}
        self.headers_as_table = False  # a table holds each name once
        self._root = self._node(mapping, "")

    def takes(self, name: str) -> float:
        """How many of a part it carries: 0, 1, or any number."""
        return self._takes.get(name, 0)

    def render(self, message: OutgoingMessage) -> bytes:
        """The body for `message`; the same message gives the same bytes every time."""
        value = self._root.render(message)
        return _ENCODER.encode({} if value is _NOTHING else value).encode()

    def _node(self, value: Any, place: str) -> _Node:
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, Mapping):
            return _container({str(k): self._node(v, f"{place}.{k}".lstrip(".")) for k, v in value.items()}, dict)
        if isinstance(value, list | tuple):
            nodes = {index: self._node(item, f"{place}.{index}") for index, item in enumerate(value)}
            return _container(nodes, lambda made: list(made.values()))
        if value is None or isinstance(value, bool | int | float):
            return _Node(lambda _: value, live=False)
        raise ValueError(f"{place}: a {type(value).__name__} has no form in JSON")

    def _text(self, text: str, place: str) -> _Node:
        found = list(_PLACEHOLDER.finditer(text))
        if any(match.group() in ("{", "}") for match in found):
            raise ValueError(f"{place}: a single brace; a literal one is written twice")
        inner = [match.group(1) for match in found if match.group(1) is not None]
        if not inner:
            constant = _unescaped(text)
            return _Node(lambda _: constant, live=False)
        return self._value(inner[0], place) if text == f"{{{inner[0]}}}" else self._sentence(text, place)

    def _value(self, expression: str, place: str) -> _Node:
        get = _finished(self._use(expression, place), self._address_format).get
        return _Node(lambda m: value if (value := get(m)) or value not in _EMPTY else _NOTHING, live=True)

    def _sentence(self, text: str, place: str) -> _Node:
        """Words with placeholders among them; left out when every placeholder is empty."""
        parts: list[str | _Pipe] = []
        end = 0
        for match in _PLACEHOLDER.finditer(text):
            if match.group(1) is not None:
                parts += [_unescaped(text[end : match.start()]), self._word(match.group(1), place)]
                end = match.end()
        parts.append(_unescaped(text[end:]))

        def render(message: OutgoingMessage) -> Any:
            values = [part if isinstance(part, str) else part.get(message) for part in parts]
            filled = any(v is not None for v, part in zip(values, parts, strict=True) if isinstance(part, _Pipe))
            return "".join(v or "" for v in values) if filled else _NOTHING

        return _Node(render, live=True)

    def _word(self, expression: str, place: str) -> _Pipe:
        pipe = self._use(expression, place)
        if pipe.item is Item.ADDRESS and not pipe.many:
            return pipe.each(_as_text, Item.TEXT)
        if pipe.many or pipe.item is not Item.TEXT:
            raise ValueError(f"{place}: {{{expression}}} is not text; within other words it needs `join` or the like")
        return pipe

    def _use(self, expression: str, place: str) -> _Pipe:
        name, pipe = _pipe(expression, place)
        self._takes[name] = max(self._takes.get(name, 0), 1 if pipe.takes_one else math.inf)
        self.headers_as_table |= name == "headers" and not pipe.many
        return pipe


def _container(nodes: Mapping[Any, _Node], build: Callable[[dict[Any, Any]], Any]) -> _Node:
    """A table or list; left out when it has placeholders and every one of them is empty."""
    live = any(node.live for node in nodes.values())

    def render(message: OutgoingMessage) -> Any:
        made, filled = {}, not live
        for key, node in nodes.items():
            if (value := node.render(message)) is not _NOTHING:
                made[key] = value
                filled = filled or node.live
        return build(made) if filled else _NOTHING

    return _Node(render, live)


def _unescaped(text: str) -> str:
    return text.replace("{{", "{").replace("}}", "}")
