"""What the settings of webhooks have in common."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator

from posthouse.setting_values import PositiveDuration, SecretValue

TOLERANCE_MAX_S: Final = 30 * 86_400.0


def _remembered(value: float) -> float:
    if value > TOLERANCE_MAX_S:
        raise ValueError(f"must be at most {TOLERANCE_MAX_S / 86_400.0:.0f}d")
    return value


Tolerance = Annotated[PositiveDuration, AfterValidator(_remembered)]
"""How old a signature may be: no older than what is remembered of the calls that came with it."""

WebhookSecrets = tuple[SecretValue, ...]
"""Several while they are rotated: each of them counts."""
