"""Signature Version 4 as a server checks it: from what came over the wire and the secret alone.

Written from AWS's description of the protocol, with nothing of botocore's, which made the signature.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from tests.providers.loopback import Received

ALGORITHM: Final = "AWS4-HMAC-SHA256"
GOOD_FOR_S: Final = 300.0

_AUTHORIZATION = re.compile(rf"{ALGORITHM} Credential=(\S+), ?SignedHeaders=(\S+), ?Signature=([0-9a-f]{{64}})")
_MUST_BE_COVERED: Final = {"host", "x-amz-date"}


@dataclass(frozen=True)
class Account:
    """Who may call, and where."""

    key_id: str
    secret: str
    region: str
    service: str = "ses"
    token: str | None = None  # of a temporary key

    def refusal(self, got: Received, now: float) -> str | None:
        """Why the call is not let in, in the words of AWS's error classes; None when it is."""
        found = _AUTHORIZATION.fullmatch(got.headers.get("authorization", ""))
        if found is None:
            return "MissingAuthenticationToken"
        credential, names, signature = found.groups()
        at = got.headers.get("x-amz-date", "")
        if credential != f"{self.key_id}/{self._scope(at)}":
            return "InvalidClientTokenId"
        if got.headers.get("x-amz-security-token") != self.token:
            return "InvalidClientTokenId"
        must = _MUST_BE_COVERED | {name for name in got.headers if name.startswith("x-amz-")}
        if not must <= set(names.split(";")):
            return "IncompleteSignature"
        if abs(now - datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()) > GOOD_FOR_S:
            return "RequestTimeTooSkewed"
        return None if hmac.compare_digest(signature, self._signature(got, names, at)) else "SignatureDoesNotMatch"

    def _scope(self, at: str) -> str:
        return f"{at[:8]}/{self.region}/{self.service}/aws4_request"

    def _signature(self, got: Received, names: str, at: str) -> str:
        canonical = sha256(canonical_form(got, names).encode()).hexdigest()
        key = f"AWS4{self.secret}".encode()
        for step in self._scope(at).split("/"):
            key = hmac.digest(key, step.encode(), "sha256")
        return hmac.new(key, "\n".join([ALGORITHM, at, self._scope(at), canonical]).encode(), "sha256").hexdigest()


def canonical_form(got: Received, names: str) -> str:
    """The call as it is signed: `names` are the headers that the signature covers, with semicolons between."""
    url = urlsplit(got.path)
    return "\n".join(
        [
            got.method,
            quote(unquote(url.path), safe="/~"),
            "&".join(sorted(url.query.split("&"))),
            *(f"{name}:{_trimmed(got.headers, name)}" for name in names.split(";")),
            "",
            names,
            sha256(got.body).hexdigest(),
        ]
    )


def covered(got: Received) -> list[str]:
    """The headers that a call's signature covers."""
    found = _AUTHORIZATION.fullmatch(got.headers["authorization"])
    assert found is not None
    return found[2].split(";")


def _trimmed(headers: Mapping[str, str], name: str) -> str:
    return " ".join(headers.get(name, "").split())
