"""What the provider tests share."""

from __future__ import annotations

import pytest

from tests.providers.docs_tables import PAGE


@pytest.fixture(scope="session")
def docs_page() -> str:
    """The reference page of the `http` provider."""
    return PAGE.read_text(encoding="utf-8")
