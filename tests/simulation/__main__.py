"""Replays one seed and tells what happened:  python -m tests.simulation SEED [KEY]"""

from __future__ import annotations

import logging
import sys

from tests.simulation import invariants
from tests.simulation.world import EPOCH, World, simulate


def _tell(world: World, key: str) -> None:
    story = world.store.ledger.story(key)
    print(f"{key}: {story.send['status']} ({story.send['type']}), {story.send['last_error']}")
    for call in story.attempts:
        began, ended = call["started_at"] - EPOCH, call["ended_at"] - EPOCH
        said = f"{call['outcome']} {call['code']} {call['text'][:60]}"
        print(f"  {began:8.2f} to {ended:8.2f} fence {call['fence']} {call['via']} on {call['route']}: {said}")
    for route, api in world.apis.items():
        for copy in api.ledger.by_key(story.send["idempotency_key"]):
            print(f"  {copy.at - EPOCH:8.2f} accepted by {route} for {', '.join(copy.recipients)}")


def main() -> int:
    """Prints the history and every invariant's verdict."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    world = simulate(int(sys.argv[1]))
    print("\n".join(world.log))
    print(world.natures, world.policies, sep="\n")
    for key in sys.argv[2:] or invariants.rows(world):
        _tell(world, key)
    broken = 0
    for invariant in invariants.ALL:
        try:
            invariant(world)
        except AssertionError as error:
            broken += 1
            print(f"BROKEN {invariant.__name__}: {error}")
    return broken


if __name__ == "__main__":
    sys.exit(main())
