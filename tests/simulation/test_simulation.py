"""The production worker and the production SQL in virtual time, under every fault at once.

A failing run prints its seed; replay it with:  python -m tests.simulation SEED
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter

import pytest

from tests.simulation import invariants
from tests.simulation.routes import draw_natures
from tests.simulation.world import simulate

SEEDS = int(os.environ.get("POSTHOUSE_SIMULATION_SEEDS", "200"))
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


def test_about_half_of_the_worlds_have_a_route_over_smtp_before_behind_or_beside_one_over_http() -> None:
    drawn = Counter(tuple(n.smtp for n in draw_natures(random.Random(seed)).values()) for seed in range(300))
    assert min(drawn[both] for both in itertools.product([False, True], repeat=2)) > 10
    assert 0.4 < sum(count for smtp, count in drawn.items() if any(smtp)) / 300 < 0.6


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = simulate(7), simulate(7)
    assert {nature.smtp for nature in one.natures.values()} == {False, True}
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
