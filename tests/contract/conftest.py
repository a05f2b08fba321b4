"""What every contract test of the store starts from."""

from __future__ import annotations

import pytest

from posthouse.store.store import Store
from tests.contract.store_support import Bench


@pytest.fixture
def bench(store: Store) -> Bench:
    """A store on an empty database of each kind, with one worker."""
    return Bench(store)
