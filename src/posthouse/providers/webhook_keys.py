"""What the webhooks of one route are verified with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from posthouse.errors import ConfigError
from posthouse.providers.webhook import Webhook
from posthouse.setting_values import Secret

KEPT_S: Final = 1.0
"""They are not read for every call."""


class WebhookKeys:
    """Its secrets, read again after a second, so that a rotation is seen. `now` is in seconds.

    One that can't be read stops none of the others, and is taken as it was where it could be read before.
    """

    def __init__(self, place: str, webhook: Webhook, now: Callable[[], float]) -> None:
        self.setting = f"{place}.{webhook.setting}"
        self.webhook = webhook
        self._now = now
        self._keys: dict[Secret, Any] = {}
        self._read_at: float | None = None
        self._faults: list[ConfigError] = []  # what was wrong when they were read last

    def current(self) -> list[Any]:
        """The keys that count now. Raises ConfigError where there is none."""
        if self._read_at is None or abs(self._now() - self._read_at) >= KEPT_S:
            self._read_at = self._now()
            self._read()
        if not self._keys:
            raise self._faults[0]
        return [*self._keys.values()]

    def faults(self) -> list[ConfigError]:
        """What is wrong with them now."""
        self._read()
        return self._faults

    def _read(self) -> None:
        before, self._keys, self._faults = self._keys, {}, []
        for secret in self.webhook.secrets:
            try:
                self._keys[secret] = self._key(secret)
            except ConfigError as error:
                self._faults.append(ConfigError(self.setting, error.reason))
                if secret in before:
                    self._keys[secret] = before[secret]

    def _key(self, secret: Secret) -> Any:
        value = secret.reveal().strip()
        if not value:
            raise ConfigError(self.setting, "one of them is empty")
        return self.webhook.key(value)
