"""Asking APIs that can't be asked for our id: step by step, through the records of one recipient."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from posthouse.core.answers import Answer
from posthouse.core.outcome import LookUp
from posthouse.providers.placeholders import wire
from posthouse.providers.port import OutgoingMessage


@dataclass(frozen=True, slots=True)
class Question:
    """One call of a look-up: GET, or POST where it has a body, in JSON.

    `read` gets the answer and its decoded JSON (None where it is none); it gives the next question, or what the
    look-up says in the end, or None where the answer says neither yes nor no. A no must be certain.
    """

    url: str
    read: Callable[[Answer, Any], Question | LookUp | None]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpSteps:
    """A look-up of several calls. Times in seconds."""

    first: Callable[[OutgoingMessage, Mapping[str, Any]], Question | LookUp | None]  # None: can't be asked about it
    lag_s: float  # how long after a call the API may not know the message yet
    kept_s: float  # how long it knows a message: about an older one its no means nothing


CLOCKS_APART_S: Final = 3600.0
"""Their records may begin so much before our own time of the first call."""

_PLAIN = re.compile(r"[\w.+'=/-]+@[\w.-]+", re.ASCII)


def spellings(message: OutgoingMessage) -> tuple[str, ...]:
    """How the first recipient's address may stand in the records; empty where it can't stand in a query."""
    address = wire(message.recipients[0])
    return tuple(dict.fromkeys((address, address.lower()))) if _PLAIN.fullmatch(address) else ()


def asked_from_s(message: OutgoingMessage) -> float:
    """From when on a record may be of this send, in seconds since 1970."""
    return max(0.0, message.date - CLOCKS_APART_S)
