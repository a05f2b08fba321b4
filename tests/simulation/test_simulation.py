"""The production worker and the production SQL in virtual time, under every fault at once.

A failing run prints its seed; replay it with:  python -m tests.simulation SEED
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import invariants
from tests.simulation.world import simulate

SEEDS = int(os.environ.get("POSTHOUSE_SIMULATION_SEEDS", "300"))
SEEDS_A_TEST = 10
FIRST = int(os.environ.get("POSTHOUSE_SIMULATION_FIRST", "0"))


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, SEEDS_A_TEST))
def test_the_promise_holds_whatever_happens(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        world = simulate(seed)
        for invariant in invariants.ALL:
            try:
                invariant(world)
            except AssertionError as error:
                history = "\n".join(world.log)
                raise AssertionError(
                    f"seed {seed}, {invariant.__name__}: {error}\n{history}\nreplay: python -m tests.simulation {seed}"
                ) from error


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = simulate(7), simulate(7)
    assert invariants.rows(one) == invariants.rows(two)
    assert [api.ledger.acceptances for api in one.apis.values()] == [
        api.ledger.acceptances for api in two.apis.values()
    ]


def test_the_harness_finds_what_is_not_true() -> None:
    failed = 0
    for seed in range(10):
        try:
            invariants.nobody_ever_tries_twice(simulate(seed))
        except AssertionError:
            failed += 1
    assert failed > 0
