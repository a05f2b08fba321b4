"""How a call is let in: which secrets it takes, and what headers they become."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from posthouse.errors import ConfigError
from posthouse.providers.transport import HttpRequest
from posthouse.setting_values import Secret

Sign = Callable[[HttpRequest, float], Mapping[str, str]]
"""The headers that sign one call at one moment, in seconds since 1970. Equal where the same secrets sign."""


@dataclass(frozen=True, slots=True)
class LetIn:
    """The headers of every call, and what of them must not show in a text. A signature is made anew for each call."""

    headers: Mapping[str, str] = field(repr=False)
    hidden: tuple[str, ...] = field(default=(), repr=False)
    sign: Sign | None = field(default=None, repr=False)

    def admitted(self, request: HttpRequest, now: float) -> HttpRequest:
        """The call with what lets it in."""
        if not (self.sign or self.headers):
            return request
        signature = self.sign(request, now) if self.sign else {}
        headers = {**request.headers, **self.headers, **signature}
        return HttpRequest(request.method, request.url, headers, request.body, request.answer_bytes_max)


@dataclass(frozen=True, slots=True)
class Auth:
    """Secrets by the name of their setting, and what is made of their values; `make` may raise ConfigError."""

    secrets: Mapping[str, Secret]
    make: Callable[[Mapping[str, str]], LetIn]


NO_AUTH: Final = Auth({}, lambda _: LetIn({}))


def in_header(api_key: Secret, header: str, prefix: str = "") -> Auth:
    """The key in a header of its own."""

    def make(values: Mapping[str, str]) -> LetIn:
        key = values["api_key"]
        if not key.isascii() or not key.isprintable():
            raise ConfigError("api_key", "has a character that can't stand in a header")
        return LetIn({header: f"{prefix}{key}"}, (key,))

    return Auth({"api_key": api_key}, make)


def bearer(api_key: Secret) -> Auth:
    """`Authorization: Bearer KEY` (RFC 6750)."""
    return in_header(api_key, "Authorization", "Bearer ")


def basic(secrets: Mapping[str, Secret]) -> Auth:
    """`Authorization: Basic …` (RFC 7617): the first secret is the name, the second, if any, the password."""

    def make(values: Mapping[str, str]) -> LetIn:
        username, password = [*values.values(), ""][:2]
        both = base64.b64encode(f"{username}:{password}".encode()).decode()
        # Some APIs take the key as a name without a password.
        return LetIn({"Authorization": f"Basic {both}"}, (both, password or username))

    return Auth(secrets, make)


def basic_as(username: str, api_key: Secret) -> Auth:
    """The same, under a name that is no secret."""

    def make(values: Mapping[str, str]) -> LetIn:
        both = base64.b64encode(f"{username}:{values['api_key']}".encode()).decode()
        return LetIn({"Authorization": f"Basic {both}"}, (both, values["api_key"]))

    return Auth({"api_key": api_key}, make)
