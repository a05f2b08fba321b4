"""Notices that are combined, in some worlds; drawn apart from all else. A message names each that is in it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from posthouse.email import Email

TYPE: Final = "notice"
TEMPLATES: Final = Path(__file__).parent / "templates"


class Notices:
    """What one world has of them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"notices of {seed}")
        self._count = self._chance.choice([0, 0, 0, self._chance.randint(3, 10)])

    def types(self, routes: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Their type's settings."""
        chance = self._chance
        settings = {
            "category": chance.choice(["security", "transactional"]),
            "max_age": chance.choice(["2m", "15m"]),
            "routes": chance.sample(routes, chance.randint(1, len(routes))),
            "retry_first": "1s",
            "retry_max": "30s",
            "on_unknown": chance.choice(["resend", "hold"]),
            "unknown_wait": "20s",
            "combine": chance.choice(["1s", "10s", "40s"]),
        }
        return {TYPE: settings}

    def emails(self, within_s: float) -> Iterator[tuple[float, Email]]:
        """Each with the wait before it, so that all are asked for in this time."""
        chance = self._chance
        for number in range(self._count):
            key = f"notice-{number}"
            to = f"{chance.choice(['ada', 'bob'])}@example.com"
            email = Email(key=key, to=to, type=TYPE, template=TYPE, variables={"key": key})
            yield chance.uniform(0, within_s / self._count), email
