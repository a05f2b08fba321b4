"""How one provider's API looks. What it does is the same behind all of them: `SandboxApi`.

A shape is data and a few pure functions: what a request asks for, and how an answer is worded.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from posthouse.sandbox.json_parts import Unusable
from posthouse.sandbox.ledger import Acceptance, Ledger
from posthouse.sandbox.limit import Standing
from posthouse.sandbox.replies import Answer, Refusal
from posthouse.sandbox.submission import OUR_ID, Submission
from posthouse.sandbox.telling import Teller

Headers = Mapping[str, str]
"""By their names in lower case."""

Taken = Sequence[Acceptance | Unusable]
"""What became of each message of a call."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call as it arrives. `within` are the parts of its path that have names, `query` is decoded too."""

    headers: Headers
    body: bytes = b""
    within: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    now: float = 0.0  # seconds since 1970


@dataclass(frozen=True, slots=True)
class Send:
    """Asks for messages to be sent. With `together`, one that is unusable refuses them all."""

    messages: Sequence[Submission | Unusable]
    answer: Callable[[Taken], Answer]
    together: bool = True


@dataclass(frozen=True, slots=True)
class LookUp:
    """Asks what was accepted: those `among` the ledger's that are meant. `key` is the send's, where it is named."""

    among: Callable[[Ledger], Iterable[Acceptance]]  # may raise Misfit
    answer: Callable[[Sequence[Acceptance]], Answer]
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Asks how the provider is. Needs no credential."""

    answer: Answer


Asked = Send | LookUp | Health
Reader = Callable[[Request], Asked]
"""Understands a request. Raises Misfit."""

_PART: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One provider's API."""

    name: str  # as a route has it
    calls: Mapping[str, Mapping[str, Reader]]  # by path, such as `/v3/{domain}/messages`, and by method
    refuses: Callable[[Headers, str | None], Refusal | None]  # where the credential is not the API key, None for any
    refused: Callable[[Refusal], Answer]
    key_header: str | None = None  # that carries the idempotency key, where it has one
    limit_headers: Callable[[Standing], Mapping[str, str]] = lambda _: {}
    teller: Teller | None = None  # where it tells what became of a message


@dataclass(frozen=True, slots=True)
class Place:
    """What stands at a path."""

    shape: Shape
    calls: Mapping[str, Reader]
    within: Mapping[str, str]

    def request(self, headers: Headers, query: str, body: bytes, now: float) -> Request:
        """The request that was made here."""
        return Request(headers, body, self.within, dict(parse_qsl(query, keep_blank_values=True)), now)


class Map:
    """Where the calls of several shapes are; their paths must differ."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        self._places = [(_pattern(path), shape, calls) for shape in shapes for path, calls in shape.calls.items()]

    def at(self, path: str) -> Place | None:
        """What is at a path, which is still percent-encoded; None where nothing is."""
        for pattern, shape, calls in self._places:
            if (found := pattern.fullmatch(path)) is not None:
                return Place(shape, calls, {name: unquote(text) for name, text in found.groupdict().items()})
        return None


def _pattern(path: str) -> re.Pattern[str]:
    """A part with a name goes up to the next slash, the last one to the end."""
    pieces = _PART.split(path)
    names = [
        f"(?P<{name}>{'.*' if not after else '[^/]+'})" for name, after in zip(pieces[1::2], pieces[2::2], strict=True)
    ]
    return re.compile("".join(re.escape(text) + name for text, name in zip(pieces[::2], [*names, ""], strict=True)))


def matches(presented: str | None, api_key: str | None) -> bool:
    """Whether a credential is the API key, None for any; how long it takes doesn't tell how much of it is right."""
    if api_key is None:
        return True
    return hmac.compare_digest((presented or "").encode(errors="replace"), api_key.encode())


def bearer_of(headers: Headers) -> str | None:
    """The token of `Authorization: Bearer TOKEN`; None without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token if scheme == "Bearer" else None


def metadata_of(acceptance: Acceptance) -> Mapping[str, str]:
    """What the application gave with the message: of one that is no longer kept, our id alone."""
    given = (acceptance.body or {}).get("metadata")
    if isinstance(given, dict):
        return given
    return {} if acceptance.key is None else {OUR_ID: acceptance.key}


def iso(at: float) -> str:
    """A time in ISO 8601."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def listed(value: object) -> list[Any]:
    """A list, however many there are: one may stand alone, and nothing is none."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
