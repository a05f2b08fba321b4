"""Signatures by the Standard Webhooks specification (standardwebhooks.com), which Svix signs by as well."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from posthouse.errors import ConfigError
from posthouse.providers.webhook import Genuine, Refused, WebhookCall
from posthouse.providers.webhook_times import stale

PREFIX: Final = "whsec_"
"""How a secret begins."""

VERSION: Final = "v1"

HEADERS: Final = ("svix", "webhook")
"""The headers are named like `svix-id`, or like `webhook-id`."""


def signing_key(secret: str) -> bytes:
    """The bytes of a secret such as `whsec_MfKQ…`. Raises ConfigError."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ConfigError("", f"one of them is no signing secret such as {PREFIX}…, which goes on in base64")
    return key


def signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    """What a sender puts into its header: over id, timestamp and body, with dots between them."""
    signed = b".".join([message_id.encode("utf-8", "replace"), timestamp.encode("utf-8", "replace"), body])
    return f"{VERSION},{base64.b64encode(hmac.digest(key, signed, sha256)).decode()}"


def verify(call: WebhookCall, keys: Sequence[bytes], now: float, *, tolerance_s: float) -> Genuine | Refused:
    """Of several signatures by several keys, any one is enough."""
    prefix = next((one for one in HEADERS if f"{one}-signature" in call.headers), None)
    if prefix is None:
        return Refused("it has no signature")
    message_id, timestamp = call.headers.get(f"{prefix}-id", ""), call.headers.get(f"{prefix}-timestamp", "")
    if reason := stale(timestamp, now, tolerance_s):
        return Refused(reason)
    given = [one.encode("utf-8", "replace") for one in call.headers[f"{prefix}-signature"].split(" ")]
    ours = [signature(key, message_id, timestamp, call.body).encode() for key in keys]
    if any(hmac.compare_digest(one, other) for one in ours for other in given):
        return Genuine()
    return Refused("its signature is by none of webhook_secrets")
