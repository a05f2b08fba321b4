"""What the provider tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def docs_page() -> str:
    """The reference page of the `http` provider."""
    return (Path(__file__).parents[2] / "docs" / "providers" / "http.md").read_text(encoding="utf-8")
