"""The credential of one route: read when it is first needed, and again after the provider refused it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from posthouse.errors import ConfigError
from posthouse.providers.http_settings import HttpSettings
from posthouse.setting_values import Secret

SECRETS_MAX: Final = 8  # the present credential's and those before it


class Credential:
    """The header that lets us in: read when it is first needed, and again after it was refused."""

    def __init__(self, place: str, settings: HttpSettings) -> None:
        self._place = place
        self._settings = settings
        self._header: dict[str, str] | None = None
        self.secrets: tuple[str, ...] = ()  # what must not show in a text

    def header(self) -> Mapping[str, str]:
        """The header to send. Raises ConfigError where the credential can't be read."""
        if self._header is None:
            self._header = self._read()
        return self._header

    def forget(self, refused: Mapping[str, str]) -> None:
        """Reads it again next time, unless that has happened already."""
        if self._header is refused:
            self._header = None

    def _read(self) -> dict[str, str]:
        settings = self._settings
        if settings.auth == "none":
            return {}
        if settings.auth == "basic":
            username = self._reveal("username")
            password = self._reveal("password") if settings.password else ""
            encoded = base64.b64encode(f"{username}:{password}".encode()).decode()
            self._hide(encoded, password or username)  # some APIs take the key as a name without a password
            return {"Authorization": f"Basic {encoded}"}
        key = self._reveal("api_key")
        if not key.isascii() or not key.isprintable():
            raise ConfigError(f"{self._place}.api_key", "has a character that can't stand in a header")
        self._hide(key)
        if settings.auth == "bearer":
            return {"Authorization": f"Bearer {key}"}
        return {settings.auth_header: f"{settings.auth_prefix}{key}"}

    def _hide(self, *secrets: str) -> None:
        """Answers to calls under an earlier credential may still come, so those stay hidden too."""
        self.secrets = tuple(dict.fromkeys((*secrets, *self.secrets)))[:SECRETS_MAX]

    def _reveal(self, setting: str) -> str:
        secret: Secret = getattr(self._settings, setting)
        try:
            value = secret.reveal().strip()
        except ConfigError as error:
            raise ConfigError(f"{self._place}.{setting}", error.reason) from None
        if not value:
            raise ConfigError(f"{self._place}.{setting}", "is empty")
        return value
