"""The values in one item of a webhook, by their paths. Nothing is taken for granted but what is asked for by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parseaddr
from typing import Any, Final, TypeVar

from posthouse.providers.answer_paths import as_id, at
from posthouse.providers.webhook import Unreadable

T = TypeVar("T")

EARLIEST: Final = 946_684_800.0  # 2000
LATEST: Final = 4_102_444_800.0  # 2100
"""A time outside of these two is not in seconds."""


def text_at(item: Any, path: str) -> str:
    """The text at a path; empty where there is none."""
    value = at(item, path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def address_at(item: Any, path: str) -> str:
    """The address at a path, without a name beside it; empty where there is none."""
    text = text_at(item, path).strip()
    return parseaddr(text)[1] or text


def id_within(item: Any, path: str, name: str) -> str | None:
    """Our id among the metadata at a path. A name may have dots, so it is no step of a path."""
    metadata = at(item, path)
    return as_id(metadata.get(name)) if isinstance(metadata, dict) else None


def moment_at(item: Any, path: str) -> float:
    """The time at a path: seconds since 1970, or ISO 8601, which is in UTC where it doesn't say. Raises Unreadable."""
    moment = _moment(at(item, path))
    if moment is None or not EARLIEST < moment < LATEST:
        raise Unreadable(f"there is no time at {path}")
    return moment


def _moment(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        pass
    try:
        read = datetime.fromisoformat(str(value))
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def meant_by(table: Mapping[str, T], item: Any, path: str) -> T:
    """What the word at a path stands for. Raises Unreadable for one that the table doesn't know."""
    word = at(item, path)
    if not isinstance(word, str) or word not in table:
        raise Unreadable(f"{path} is {word!r:.60}" if isinstance(word, str) else f"there is no {path}")
    return table[word]


_REPLY = re.compile(r"\b([245]\d\d)(?:[ -]+#?([245]\.\d{1,3}\.\d{1,3})\b)?")
_STATUS = re.compile(r"(?<![\d.])[245]\.\d{1,3}\.\d{1,3}(?![\d.])")


def code_in(*texts: str) -> str:
    """The SMTP reply in what a receiver said, such as `550 5.1.1`, or as much of it as is there (RFC 3463)."""
    said = " ".join(texts)
    status = _STATUS.search(said)
    reply = _REPLY.search(said)
    both = (reply[1] if reply else "", (reply and reply[2]) or (status[0] if status else ""))
    return " ".join(filter(None, both))
