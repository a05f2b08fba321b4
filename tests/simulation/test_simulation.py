"""The production worker and the production SQL in virtual time, under every fault at once.

A failing run prints its seed; replay it with:  python -m tests.simulation SEED
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from posthouse.content import Content
from posthouse.core.delivery import Delivery, delivery
from posthouse.core.lanes import DueLane, Share, share
from posthouse.core.outcome import Verdict
from posthouse.core.policy import Priority
from posthouse.core.sends import Change, SendState
from posthouse.core.settlement import release
from posthouse.core.suppression import Suppression, SuppressionCause
from posthouse.providers import api
from posthouse.providers.port import OutgoingMessage
from posthouse.store import events as store_events
from posthouse.store.taking import ClaimedSend
from posthouse.worker import dispatcher, slots
from posthouse.worker.gates import Gates
from posthouse.worker.pace import Leave, Pace
from posthouse.worker.places import Places
from posthouse.worker.starter import Starter
from posthouse.worker.suppressed import SuppressionCheck
from tests.simulation import invariants
from tests.simulation.calls import Noting
from tests.simulation.routes import draw_natures
from tests.simulation.world import World, simulate

SEEDS = int(os.environ.get("POSTHOUSE_SIMULATION_SEEDS", "40"))
SEEDS_A_TEST = 10
WORLDS_MAX = 10
FIRST = int(os.environ.get("POSTHOUSE_SIMULATION_FIRST", "0"))


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, SEEDS_A_TEST))
def test_the_promise_holds_whatever_happens(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        assert_holds(seed)


def test_it_holds_where_workers_claim_twice_as_many_as_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider of a simulated world is quick enough for that. Seed 44 finds it where what needs leave is claimed
    ahead."""
    monkeypatch.setattr(slots, "claim_ahead", lambda at_once, *_: at_once)
    for seed in range(40, 40 + SEEDS_A_TEST):
        assert_holds(seed)


def assert_holds(seed: int) -> None:
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
    assert_found(invariants.nobody_ever_tries_twice, (simulate(seed) for seed in range(WORLDS_MAX)))


async def unlimited(_self: Pace, _lane: str, _route: str, want: int) -> Leave:
    return Leave(want, 0.0)


async def let_go(self: Starter, claimed: ClaimedSend, *_: object) -> bool:
    """Gives each send back once, as if that were a call."""
    first = claimed.state.fence == 1
    if first:
        self._settle(claimed.state, partial(spending, again_at=self._now()))
    return not first


def spending(send: SendState, again_at: float) -> Change | None:
    change = release(send, again_at)
    return change and replace(change, spends_attempt=True)


async def stops_nobody(_self: SuppressionCheck, _type: str, _content: Content) -> dict[str, Suppression]:
    return {}


async def stops_everybody(_self: SuppressionCheck, _type: str, content: Content) -> dict[str, Suppression]:
    why = Suppression(0, "", SuppressionCause.MANUAL, "", None, "", "", 0.0)
    return {each.email: why for each in content.recipients}


async def unseen(self: Noting, message: OutgoingMessage) -> Verdict:
    return await self._provider.send(message)


def serving(chosen: Callable[[Priority], bool], others: bool) -> Callable[..., list[Share]]:
    """Serves only some priorities: for ever, or while there is mail of them."""

    def serve(lanes: Sequence[DueLane], free: int, turn: int = 0) -> list[Share]:
        served = [lane for lane in lanes if chosen(lane.priority)]
        return share(served or (lanes if others else ()), free, turn)

    return serve


@dataclass(frozen=True)
class Broken:
    """A part that is broken on purpose, the invariant that has to find it, and the first world to look at."""

    invariant: Callable[[World], None]
    owner: object  # what is replaced
    part: str
    by: object
    seed: int
    forced: Mapping[str, object] = field(default_factory=dict)


WIDE_OPEN = {"rate": "100/second", "burst": 50, "concurrency": 50, "quota": "1000/min", "total_concurrency": 50}

BROKEN = {
    "rates are not asked": Broken(invariants.no_rate_is_exceeded, Pace, "ask", unlimited, 6),
    "quotas are not asked": Broken(invariants.no_quota_is_exceeded, Pace, "ask", unlimited, 6, {"quota": "5/min"}),
    "everybody takes all places": Broken(
        invariants.no_route_has_more_calls_at_once_than_its_total,
        Places,
        "allowed",
        lambda *_: 10,
        6,
        {"total_concurrency": 1, "concurrency": 10},
    ),
    "switches close nothing": Broken(
        invariants.nothing_begins_while_it_is_closed, Gates, "closing", lambda *_: None, 0
    ),
    "suppressions are not asked for": Broken(
        invariants.nothing_begins_to_whom_must_not_get_it, SuppressionCheck, "stopped", stops_nobody, 0
    ),
    "everybody is suppressed": Broken(
        invariants.only_who_must_not_get_it_is_left_out, SuppressionCheck, "stopped", stops_everybody, 0
    ),
    "all comes back at once": Broken(
        invariants.what_is_opened_comes_back_slowly, Gates, "pace", lambda *_: [], 31, WIDE_OPEN
    ),
    "giving back costs an attempt": Broken(invariants.only_calls_cost_attempts, Starter, "_on_time", let_go, 6),
    "bulk goes first": Broken(
        invariants.urgent_mail_never_waits_behind_bulk,
        dispatcher,
        "share",
        serving(lambda priority: priority is Priority.BULK, others=True),
        2,
    ),
    "bulk goes last": Broken(
        invariants.bulk_never_starves,
        dispatcher,
        "share",
        serving(lambda priority: priority is not Priority.BULK, others=False),
        2,
    ),
    "codes are forgotten": Broken(
        invariants.a_code_begins_soon_when_all_is_well,
        dispatcher,
        "share",
        serving(lambda priority: priority is not Priority.URGENT, others=False),
        2,
    ),
    "the latest event wins": Broken(
        invariants.events_count_once_in_any_order,
        store_events,
        "delivery",
        lambda _, kinds: delivery(Delivery.NONE, list(kinds)[-1:]),
        0,
    ),
    "events resolve nothing": Broken(
        invariants.nobody_is_asked_what_an_event_has_told, store_events, "resolve", lambda *_: None, 0
    ),
    "a batch whose answer is lost is taken for refused": Broken(
        invariants.nothing_is_doubled_silently, api, "for_each", lambda _: None, 33
    ),
    "calls are not noted": Broken(invariants.every_message_came_by_a_call_that_was_noted, Noting, "send", unseen, 3),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_invariant_finds_the_part_that_is_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = BROKEN[name]
    monkeypatch.setattr(broken.owner, broken.part, broken.by)
    seeds = range(broken.seed, broken.seed + WORLDS_MAX)
    assert_found(broken.invariant, (simulate(seed, **broken.forced) for seed in seeds))


def assert_found(invariant: Callable[[World], None], worlds: Iterable[World]) -> None:
    for world in worlds:
        try:
            invariant(world)
        except AssertionError:
            return
    raise AssertionError(f"{invariant.__name__} has found nothing")
