"""The credential of one route: read when it is needed, so that a rotation is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from posthouse.errors import ConfigError
from posthouse.providers.auth import Auth, LetIn
from posthouse.providers.rotation import Rotation
from posthouse.setting_values import Secret

KEPT_S: Final = 1.0
"""It is not read for every call."""

SECRETS_MAX: Final = 8  # the present credential's and those before it


class Credential:
    """What lets us in: kept for a second, and not at all once it was refused. `now` is in seconds."""

    def __init__(self, place: str, auth: Auth, now: Callable[[], float]) -> None:
        self._place = place
        self._auth = auth
        self._now = now
        self._kept: LetIn | None = None
        self._read_at = 0.0
        self._rotation = Rotation(self._read)
        self.secrets: tuple[str, ...] = ()  # what must not show in a text

    def let_in(self) -> LetIn:
        """What lets the next call in. Raises ConfigError where the credential can't be read."""
        if self._kept is None or abs(self._now() - self._read_at) >= KEPT_S:
            self._kept = self._fresh(self._kept)
            self._read_at = self._now()
        return self._kept

    def forget(self, refused: LetIn) -> None:
        """Reads it again next time, unless it was replaced already."""
        self._rotation.refused(refused)
        if self._kept == refused:
            self._kept = None

    def changed(self) -> bool:
        """Whether it reads otherwise than what was refused last."""
        return self._rotation.changed()

    def _fresh(self, before: LetIn | None) -> LetIn:
        """As it reads now; where it can't be read, as it was `before`, which nobody has refused. Raises ConfigError."""
        try:
            return self._read()
        except ConfigError:
            if before is not None:
                return before
            self._rotation.refused(None)
            raise

    def _read(self) -> LetIn:
        values = {setting: self._reveal(setting, secret) for setting, secret in self._auth.secrets.items()}
        try:
            let_in = self._auth.make(values)
        except ConfigError as error:
            raise ConfigError(f"{self._place}.{error.setting}", error.reason) from None
        self._hide(*let_in.hidden)
        return let_in

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
