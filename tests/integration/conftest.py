"""Which kinds of connections exist on which database."""

from __future__ import annotations

from typing import Final

import pytest

NOT_ON_MYSQL: Final = frozenset(
    {"test_connections_page", "test_enqueue_async", "test_enqueue_async_connections", "test_enqueue_django"}
)
"""Async and Django connections to MariaDB and MySQL are refused."""


@pytest.fixture(autouse=True)
def _only_where_it_exists(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    module = request.module.__name__.rpartition(".")[2]
    if module in NOT_ON_MYSQL and callspec is not None and callspec.params.get("database_url") == "mysql":
        pytest.skip("async and Django connections to MariaDB and MySQL are refused")
