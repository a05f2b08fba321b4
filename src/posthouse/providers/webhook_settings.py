"""What the settings of webhooks have in common."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from posthouse.setting_values import SecretValue, parse_duration

TOLERANCE_MAX_S: Final = 30 * 86_400.0

Tolerance = Annotated[float, BeforeValidator(parse_duration), Field(gt=0, le=TOLERANCE_MAX_S)]
"""How old a signature may be: no older than what is remembered of the calls that came with it."""

WebhookSecrets = tuple[SecretValue, ...]
"""Several while they are rotated: each of them counts."""
