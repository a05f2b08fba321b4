"""Hypothesis for the core: many examples, no stop-watch; a failure prints the line that replays it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("core", max_examples=300, deadline=None, print_blob=True)
settings.load_profile("core")
