"""AWS Signature Version 4: each call is signed anew, over its own bytes and the moment at which it leaves.

The canonical form and the arithmetic are botocore's; the time is given, so that nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from posthouse.errors import ConfigError
from posthouse.providers.auth import Auth, LetIn
from posthouse.providers.transport import HttpRequest
from posthouse.setting_values import Secret

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_COVERED: Final = ("Content-Type",)  # beside the host and what is added here: a proxy may change others


@dataclass(frozen=True, slots=True)
class _Keys:
    """The credential in the words of botocore's signer."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SigV4:
    """Signs calls to one service in one region."""

    service: str  # as signatures name it: `ses`
    region: str
    keys: _Keys = field(repr=False)

    def __call__(self, request: HttpRequest, now: float) -> dict[str, str]:
        """The headers that sign `request`, good for some minutes from `now`, in seconds since 1970."""
        from botocore.auth import SigV4Auth  # an extra, which only those need who sign
        from botocore.awsrequest import AWSRequest

        at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
        added = {"X-Amz-Date": at}
        if self.keys.token is not None:
            added["X-Amz-Security-Token"] = self.keys.token
        covered = {name: request.headers[name] for name in _COVERED if name in request.headers}
        aws = AWSRequest(request.method, request.url, {**covered, **added}, request.body)
        aws.context["timestamp"] = at
        signer = SigV4Auth(self.keys, self.service, self.region)
        signature = signer.signature(signer.string_to_sign(aws, signer.canonical_request(aws)), aws)
        headers = signer.headers_to_sign(aws)
        parts = {
            "Credential": signer.scope(aws),
            "SignedHeaders": signer.signed_headers(headers),
            "Signature": signature,
        }
        authorization = ", ".join(f"{name}={value}" for name, value in parts.items())
        return {**added, "Host": headers["host"], "Authorization": f"{_ALGORITHM} {authorization}"}


def sigv4(service: str, region: str, key_id: Secret, secret_key: Secret, session_token: Secret | None) -> Auth:
    """Calls signed with an access key, which may be a temporary one. Raises ConfigError without the signing package."""
    try:
        import botocore.auth
        import botocore.awsrequest  # noqa: F401 - loaded once, before the first call
    except ImportError:
        raise ConfigError("provider", "needs the package botocore: pip install 'posthouse[ses]'") from None

    def make(values: Mapping[str, str]) -> LetIn:
        for name, value in values.items():
            if not value.isascii() or not value.isprintable() or " " in value:
                raise ConfigError(name, "has a character that no AWS credential has")
        keys = _Keys(values["access_key_id"], values["secret_access_key"], values.get("session_token"))
        return LetIn({}, tuple(values.values()), SigV4(service, region, keys))

    temporary = {} if session_token is None else {"session_token": session_token}
    return Auth({"access_key_id": key_id, "secret_access_key": secret_key, **temporary}, make)
