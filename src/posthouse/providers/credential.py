"""The credential of one route: read when it is needed, so that a rotation is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from posthouse.errors import ConfigError
from posthouse.providers.auth import Auth
from posthouse.providers.rotation import Rotation
from posthouse.setting_values import Secret

KEPT_S: Final = 1.0
"""It is not read for every call."""

SECRETS_MAX: Final = 8  # the present credential's and those before it


class Credential:
    """The header that lets us in: kept for a second, and not at all once it was refused. `now` is in seconds."""

    def __init__(self, place: str, auth: Auth, now: Callable[[], float]) -> None:
        self._place = place
        self._auth = auth
        self._now = now
        self._header: dict[str, str] | None = None
        self._read_at = 0.0
        self._rotation = Rotation(self._read)
        self.secrets: tuple[str, ...] = ()  # what must not show in a text

    def header(self) -> Mapping[str, str]:
        """The header to send. Raises ConfigError where the credential can't be read."""
        if self._header is None or abs(self._now() - self._read_at) >= KEPT_S:
            self._header = self._fresh(self._header)
            self._read_at = self._now()
        return self._header

    def forget(self, refused: Mapping[str, str]) -> None:
        """Reads it again next time, unless it was replaced already."""
        self._rotation.refused(dict(refused))
        if self._header == refused:
            self._header = None

    def changed(self) -> bool:
        """Whether it reads otherwise than what was refused last."""
        return self._rotation.changed()

    def _fresh(self, before: dict[str, str] | None) -> dict[str, str]:
        """As it reads now; where it can't be read, as it was `before`, which nobody has refused. Raises ConfigError."""
        try:
            return self._read()
        except ConfigError:
            if before is not None:
                return before
            self._rotation.refused(None)
            raise

    def _read(self) -> dict[str, str]:
        values = {setting: self._reveal(setting, secret) for setting, secret in self._auth.secrets.items()}
        try:
            let_in = self._auth.make(values)
        except ConfigError as error:
            raise ConfigError(f"{self._place}.{error.setting}", error.reason) from None
        self._hide(*let_in.hidden)
        return dict(let_in.headers)

    def _hide(self, *secrets: str) -> None:
        """Answers to calls under an earlier credential may still come, so those stay hidden too."""
        self.secrets = tuple(dict.fromkeys((*secrets, *self.secrets)))[:SECRETS_MAX]

    def _reveal(self, setting: str, secret: Secret) -> str:
        try:
            value = secret.reveal().strip()
        except ConfigError as error:
            raise ConfigError(f"{self._place}.{setting}", error.reason) from None
        if not value:
            raise ConfigError(f"{self._place}.{setting}", "is empty")
        return value
