"""Which hosts are near enough for a credential without TLS: this machine's, and those of its own network."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

NEARBY_DOMAINS: Final = ("localhost", "local", "internal", "test", "home.arpa")
"""Names below these mean nothing in the DNS of the world: RFC 6761, 6762, 8375; ICANN for `internal` (2024-07-29)."""

_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)


def in_clear_text(url: str) -> bool:
    """Whether a call there can be read on the way: HTTP without TLS, to a host that may be anywhere."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_nearby(parts.hostname or "")


def is_nearby(host: str) -> bool:
    """Whether it is this machine, or one that only its own network knows by that name or address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _is_nearby_name(host.lower())
    return not (getattr(address, "ipv4_mapped", None) or address).is_global


def _is_nearby_name(name: str) -> bool:
    """One word is a name of the own network, such as a service's in Docker Compose; a number is an address."""
    if "." not in name:
        return not _NUMBER.fullmatch(name)
    return any(name.endswith(f".{domain}") for domain in NEARBY_DOMAINS)
