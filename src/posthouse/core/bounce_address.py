"""An envelope sender of each send's own (VERP): a bounce in any words comes back to an address that says which send.

The id in it is the send's idempotency key: random, so nobody makes one up; hexadecimal in small letters, so a server
that folds an address's case does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

ID: Final = "{id}"
KEY_CHARS: Final = 32
LOCAL_CHARS_MAX: Final = 64
"""RFC 5321 section 4.5.3.1.1."""

_KEY: Final = r"([0-9a-f]{32})"


def address_fault(template: str) -> str | None:
    """What is wrong with such an address, None where nothing is."""
    local, at, domain = template.rpartition("@")
    if not at or not domain or local.count(ID) != 1 or "{" in domain:
        return f"{template!r} is not of the form bounces+{ID}@shop.example"
    if (length := len(local) - len(ID) + KEY_CHARS) > LOCAL_CHARS_MAX:
        return f"before its @ there would be {length} characters, {KEY_CHARS} of them the id; at most {LOCAL_CHARS_MAX}"
    return None


def bounce_address(template: str, key: str) -> str:
    """The envelope sender of the send with this key."""
    return template.replace(ID, key)


def route_and_key(address: str, templates: Mapping[str, str]) -> tuple[str, str] | None:
    """The route whose bounce address it is, and the key of the send; None for any other address."""
    for route, template in templates.items():
        before, _, after = template.partition(ID)
        pattern = rf"{re.escape(before)}{_KEY}{re.escape(after)}"
        if (found := re.fullmatch(pattern, address, re.IGNORECASE)) is not None:
            return route, found[1].lower()
    return None
