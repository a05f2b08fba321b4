"""Installations with real processes, and the providers that they send to."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.installation import Installation
from tests.acceptance.postgres_outage import StoppablePostgres
from tests.acceptance.sandbox_thread import SandboxThread
from tests.conftest import OwnPostgres
from tests.migrated import sqlite_url

MakeSandbox = Callable[..., SandboxThread]


@pytest.fixture(params=["sqlite", "postgresql"])
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    """One installation on each kind of database, which no worker of another test has ever seen."""
    if request.param == "postgresql":
        own: OwnPostgres = request.getfixturevalue("postgres")
        made = Installation(tmp_path, own.create())
    else:
        made = Installation(tmp_path, sqlite_url(tmp_path))
    yield made
    made.close()


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Installation]:
    """One installation on a SQLite file."""
    made = Installation(tmp_path, sqlite_url(tmp_path))
    yield made
    made.close()


@pytest.fixture
def on_postgresql(tmp_path: Path, postgres: OwnPostgres) -> Iterator[Installation]:
    """One installation on PostgreSQL."""
    made = Installation(tmp_path, postgres.create())
    yield made
    made.close()


@pytest.fixture(scope="session")
def _stoppable_postgres() -> Iterator[StoppablePostgres]:
    folder = Path(tempfile.mkdtemp(prefix="posthouse-postgres-"))
    folder.chmod(0o755)
    own = StoppablePostgres(folder / "data")
    yield own
    own.server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_postgres(_stoppable_postgres: StoppablePostgres) -> Iterator[StoppablePostgres]:
    """A PostgreSQL server of these tests' own, which they may take away; the other tests' goes on."""
    yield _stoppable_postgres
    _stoppable_postgres.bring_back()


@pytest.fixture
def on_own_postgresql(tmp_path: Path, own_postgres: StoppablePostgres) -> Iterator[Installation]:
    """One installation on it."""
    made = Installation(tmp_path, own_postgres.create())
    yield made
    own_postgres.bring_back()
    made.close()


@pytest.fixture
def make_sandbox() -> Iterator[MakeSandbox]:
    """Starts providers; each call makes one."""
    made: list[SandboxThread] = []

    def make(*faults: str, **settings: Any) -> SandboxThread:
        made.append(SandboxThread(*faults, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def sandbox(make_sandbox: MakeSandbox) -> SandboxThread:
    """A provider without a fault."""
    return make_sandbox()
