"""A finished message whose recipients are told beside it, in the sandbox's own words."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from email.utils import getaddresses
from typing import Any

from posthouse.sandbox.received import read_message, read_summary
from posthouse.sandbox.submission import bare


def words_of(raw: bytes, envelope: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The message with its subject; whoever gets a copy and is named in no header is a blind one. Raises Misfit."""
    named = named_in(raw)
    seen = {address.casefold() for address in (*named["to"], *named["cc"])}
    everybody = [bare(address, field) for field, addresses in envelope.items() for address in addresses]
    return {
        "raw": base64.b64encode(raw).decode(),
        "subject": read_summary(raw).subject,
        "bcc": [address for address in everybody if address not in seen],
    }


def named_in(raw: bytes) -> dict[str, list[str]]:
    """The addresses in the head of a message, by `to`, `cc` and `bcc`."""
    head = read_message(raw.partition(b"\r\n\r\n")[0]).body
    listed = {name: getaddresses([head.get(name, "")]) for name in ("to", "cc", "bcc")}
    return {name: [address for _, address in found if address] for name, found in listed.items()}
