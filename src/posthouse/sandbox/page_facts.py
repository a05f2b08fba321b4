"""What the page of a caught message lists of it: names with values, in any shape that came."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from posthouse.sandbox.ledger import Acceptance

_JSON_CHARS_MAX: Final = 1000


def moment(at: float) -> str:
    """A time as people read it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def size(octets: int) -> str:
    """A size as people read it."""
    if octets < 1000:
        return f"{octets} octets"
    return f"{octets / 1000:.1f} kB" if octets < 1_000_000 else f"{octets / 1_000_000:.1f} MB"


def facts_of(message: Acceptance, body: Mapping[str, Any], times_accepted: int) -> list[tuple[str, str]]:
    """What the message page lists above the bodies: names and values, empty ones left out."""
    facts = [
        ("Accepted (UTC)", moment(message.at)),
        ("Accepted with this key", f"{times_accepted} times" if times_accepted > 1 else ""),
        ("Message id", message.message_id),
        ("Key", message.key or ""),
        ("Recipients", ", ".join(message.recipients)),
        ("Envelope sender", _envelope_sender(message)),
        *((name, _shown(body.get(field))) for name, field in _ADDRESS_FIELDS),
        ("Tags", _shown(body.get("tags"))),
        *((name, _shown(body.get(field))) for name, field in _SETTINGS),
        *((f"Metadata: {name}", value) for name, value in _pairs(body.get("metadata"))),
        *((f"Header: {name}", value) for name, value in _pairs(body.get("headers"))),
        *((f"Also: {name}", _as_json(value)) for name, value in body.items() if name not in _KNOWN),
    ]
    return [(name, value) for name, value in facts if value]


_ADDRESS_FIELDS: Final = (("From", "from"), ("To", "to"), ("Cc", "cc"), ("Bcc", "bcc"), ("Reply-To", "reply_to"))
_SETTINGS: Final = (
    ("Message-ID", "message_id"),
    ("Opens are tracked", "track_opens"),
    ("Clicks are tracked", "track_clicks"),
)
_KNOWN: Final = frozenset(
    "from to cc bcc reply_to subject text html headers tags metadata alternatives envelope_sender message_id "
    "track_opens track_clicks".split()
)


def _envelope_sender(message: Acceptance) -> str:
    if message.envelope_sender is None:
        return ""
    return message.envelope_sender or "<> (none: this message asks for no bounces)"


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _shown(value: object) -> str:
    """Addresses and words in any shape that the API takes."""
    if isinstance(value, Mapping) and "email" in value:
        return f"{value['name']} <{value['email']}>" if value.get("name") else str(value["email"])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_shown(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _as_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _JSON_CHARS_MAX else f"{text[:_JSON_CHARS_MAX]}…"


def _pairs(value: Any) -> list[tuple[str, str]]:
    """Names and values of a table, or of a list of pairs or of `{"name": ..., "value": ...}`."""
    if isinstance(value, Mapping):
        return [(str(name), _shown(one)) for name, one in value.items()]
    return [pair for one in _listed(value) if (pair := _pair(one)) is not None]


def _pair(value: Any) -> tuple[str, str] | None:
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"]), _shown(value.get("value"))
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        return str(value[0]), _shown(value[1])
    return None
