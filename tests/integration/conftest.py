"""Which kinds of connections exist on which database, and the mail servers that nobody here wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.installation import Installation
from tests.integration.policy_server import PolicyServer, go_on
from tests.integration.postfix import Postfix, own_postfix
from tests.migrated import sqlite_url

pytest.register_assert_rewrite("tests.integration.hard_messages")

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


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Installation]:
    """One installation on a SQLite file."""
    made = Installation(tmp_path, sqlite_url(tmp_path))
    yield made
    made.close()


@pytest.fixture(scope="session")
def _policy_server() -> Iterator[PolicyServer]:
    server = PolicyServer()
    yield server
    server.close()


@pytest.fixture
def policy(_policy_server: PolicyServer) -> Iterator[PolicyServer]:
    """What Postfix's port `policy` asks; without a policy it has nothing against anything."""
    yield _policy_server
    _policy_server.policy = go_on


@pytest.fixture(scope="session")
def _postfix(_policy_server: PolicyServer) -> Iterator[Postfix]:
    with own_postfix(_policy_server) as made:
        yield made


@pytest.fixture
def postfix(_postfix: Postfix) -> Postfix:
    """A Postfix of the tests' own, which runs."""
    _postfix.start()
    return _postfix
