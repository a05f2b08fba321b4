"""A JSON body from a mapping: constants stay, placeholders take the message's parts.

A text that is exactly one placeholder takes the part's own type: `"{to}"` becomes a list. Within other words a
placeholder takes text: `"Re: {subject}"`. What is empty is left out, and so is a table or list whose placeholders
are all empty. A literal brace is written twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from posthouse.providers.options import merged
from posthouse.providers.placeholders import ENCODER, Item, Pipe, as_text, finished, pipe_of
from posthouse.providers.port import OutgoingMessage

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NOTHING: Final = object()
_EMPTY: Final[tuple[object, ...]] = (None, [], {}, ())

_WHO_AND_WHICH: Final = frozenset({"to", "cc", "bcc", "recipients", "id", "metadata", "mime"})
"""Who gets the message, and which one it is: what no option may replace."""

DEFAULT_BODY: Final[Mapping[str, Any]] = {
    name: f"{{{name}}}"
    for name in ("from", "to", "cc", "bcc", "reply_to", "subject", "text", "html", "headers", "tags", "metadata")
} | {
    "attachments": "{attachments}",
    "alternatives": "{alternatives}",
    "raw": "{raw}",
    "envelope_sender": "{envelope_sender|email}",
    "message_id": "{message_id}",
    "track_opens": "{track_opens}",
    "track_clicks": "{track_clicks}",
}
"""The shape that most APIs take in one variant or another, as far as they take it at all."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A compiled part of the mapping."""

    render: Callable[[OutgoingMessage], Any]  # _NOTHING: to be left out
    uses: frozenset[str] = frozenset()  # the placeholders in it
    table: Mapping[str, _Node] = field(default_factory=dict)  # its members, where it is a table


class Body:
    """A compiled mapping. Raises ValueError, with the place in the mapping, where it can't be compiled."""

    def __init__(self, mapping: Mapping[str, Any], address_format: str = "text") -> None:
        self._address_format = address_format
        self._takes: dict[str, float] = {}
        self.headers_as_table = False  # a table holds each name once
        self._root = self._node(mapping, "")

    def takes(self, part: str) -> float:
        """How many of a part it carries: 0, 1, or any number."""
        return self._takes.get(part, 0)

    @property
    def uses(self) -> frozenset[str]:
        """The placeholders in it."""
        return self._root.uses

    def taken(self, options: Mapping[str, Any]) -> list[str]:
        """Where `options` would replace what says who gets the message, or which one it is."""
        return list(_taken(self._root, options, ""))

    def fields(self, message: OutgoingMessage, options: Mapping[str, Any] = {}) -> dict[str, Any]:
        """The body for `message` with `options` laid over it, its members in the same order every time."""
        value = self._root.render(message)
        return merged({} if value is _NOTHING else value, options)

    def render(self, message: OutgoingMessage, options: Mapping[str, Any] = {}) -> bytes:
        """The same as JSON; the same message gives the same bytes every time."""
        return encoded(self.fields(message, options))

    def _node(self, value: Any, place: str) -> _Node:
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, Mapping):
            nodes = {str(k): self._node(v, f"{place}.{k}".lstrip(".")) for k, v in value.items()}
            return _Node(_container(nodes, dict), _uses(nodes), nodes)
        if isinstance(value, list | tuple):
            items = {index: self._node(item, f"{place}.{index}") for index, item in enumerate(value)}
            return _Node(_container(items, lambda made: list(made.values())), _uses(items))
        if value is None or isinstance(value, bool | int | float):
            return _Node(lambda _: value)
        raise ValueError(f"{place}: a {type(value).__name__} has no form in JSON")

    def _text(self, text: str, place: str) -> _Node:
        found = list(_PLACEHOLDER.finditer(text))
        if any(match.group() in ("{", "}") for match in found):
            raise ValueError(f"{place}: a single brace; a literal one is written twice")
        inner = [match.group(1) for match in found if match.group(1) is not None]
        if not inner:
            constant = _unescaped(text)
            return _Node(lambda _: constant)
        return self._value(inner[0], place) if text == f"{{{inner[0]}}}" else self._sentence(text, place)

    def _value(self, expression: str, place: str) -> _Node:
        name, pipe = pipe_of(expression, place)
        get = self._placed(name, finished(pipe, self._address_format)).get
        return _Node(lambda m: value if (value := get(m)) or value not in _EMPTY else _NOTHING, frozenset({name}))

    def _sentence(self, text: str, place: str) -> _Node:
        """Words with placeholders among them; left out when every placeholder is empty."""
        parts: list[str | Pipe] = []
        names = set[str]()
        end = 0
        for match in _PLACEHOLDER.finditer(text):
            if match.group(1) is not None:
                name, pipe = self._word(match.group(1), place)
                parts += [_unescaped(text[end : match.start()]), pipe]
                names.add(name)
                end = match.end()
        parts.append(_unescaped(text[end:]))

        def render(message: OutgoingMessage) -> Any:
            values = [part if isinstance(part, str) else part.get(message) for part in parts]
            filled = any(v is not None for v, part in zip(values, parts, strict=True) if isinstance(part, Pipe))
            return "".join(v or "" for v in values) if filled else _NOTHING

        return _Node(render, frozenset(names))

    def _word(self, expression: str, place: str) -> tuple[str, Pipe]:
        name, pipe = pipe_of(expression, place)
        if pipe.item is Item.ADDRESS and not pipe.many:
            pipe = pipe.each(as_text, Item.TEXT)
        if pipe.many or pipe.item is not Item.TEXT:
            raise ValueError(f"{place}: {{{expression}}} is not text; within other words it needs `join` or the like")
        return name, self._placed(name, pipe)

    def _placed(self, name: str, pipe: Pipe) -> Pipe:
        """Notes what has its place here."""
        for part in pipe.carries:
            self._takes[part] = max(self._takes.get(part, 0), 1 if pipe.takes_one else math.inf)
        self.headers_as_table |= name == "headers" and not pipe.many
        return pipe


def encoded(fields: Any) -> bytes:
    """A value as JSON in UTF-8."""
    return ENCODER.encode(fields).encode()


def _uses(nodes: Mapping[Any, _Node]) -> frozenset[str]:
    return frozenset().union(*(node.uses for node in nodes.values()))


def _container(nodes: Mapping[Any, _Node], build: Callable[[dict[Any, Any]], Any]) -> Callable[[OutgoingMessage], Any]:
    """Renders a table or list; left out when it has placeholders and every one of them is empty."""
    live = any(node.uses for node in nodes.values())

    def render(message: OutgoingMessage) -> Any:
        made, filled = {}, not live
        for key, node in nodes.items():
            if (value := node.render(message)) is not _NOTHING:
                made[key] = value
                filled = filled or bool(node.uses)
        return build(made) if filled else _NOTHING

    return render


def _taken(node: _Node, options: Mapping[str, Any], place: str) -> Iterator[str]:
    for name, value in options.items():
        member = node.table.get(name)
        if member is None or member.uses.isdisjoint(_WHO_AND_WHICH):
            continue
        if member.table and isinstance(value, Mapping):
            yield from _taken(member, value, f"{place}{name}.")
        else:
            yield f"{place}{name}"


def _unescaped(text: str) -> str:
    return text.replace("{{", "{").replace("}}", "}")
