"""What providers tell of accepted messages, in some worlds: lost, doubled, out of order, and before their own answer.

Drawn apart from all else, so that the other worlds stay as they are. It comes in as from a receiver of webhooks that
says "again" while it can't be stored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from posthouse.core.events import Event, EventKind
from posthouse.core.policy import TypePolicy
from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.ledger import Acceptance
from posthouse.store.events import JOIN_FOR_S
from posthouse.store.store import Store

LOOK_EVERY_S = 0.2
AGAIN_AFTER_S = 5.0
LOST_SHARE = 0.15
LATE_MAX_S = 60.0

STORIES = (
    (EventKind.SENT, EventKind.DELIVERED),
    (EventKind.SENT, EventKind.DEFERRED, EventKind.DELIVERED, EventKind.OPENED),
    (EventKind.DEFERRED, EventKind.BOUNCED),
    (EventKind.DELIVERED, EventKind.COMPLAINED),
    (EventKind.DELIVERED, EventKind.BOUNCED),
)


@dataclass(frozen=True)
class Heard:
    """One event that was stored, and where it came in."""

    route: str
    event: Event


@dataclass
class News:
    """The news of one world: what comes in, and what of it was stored."""

    seed: int
    store: Store
    policies: Mapping[str, TypePolicy]
    now: Callable[[], float]
    is_away: Callable[[], bool]  # whether the database can't be reached
    heard: list[Heard] = field(default_factory=list)
    coming: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._chance = random.Random(f"news of {self.seed}")
        self._tells = self._chance.random() < 0.5
        self._names_our_id = self._chance.random() < 0.7

    async def tell(self, apis: Mapping[str, SandboxApi]) -> None:
        """Tells of everything that is accepted from now on, for ever."""
        told = dict.fromkeys(apis, 0)
        while self._tells:
            await asyncio.sleep(LOOK_EVERY_S)
            for route, api in apis.items():
                accepted = api.ledger.acceptances[told[route] :]
                told[route] += len(accepted)
                for message in accepted:
                    for event in self._draw(message):
                        task = asyncio.create_task(self._bring(route, event))
                        self.coming.add(task)
                        task.add_done_callback(self.coming.discard)

    async def until_told(self) -> None:
        """Until everything has come, and was joined."""
        if self._tells:
            await asyncio.sleep(LOOK_EVERY_S)
            await asyncio.gather(*self.coming)
            # What came early is looked for again after as long as it has waited: here, at once.
            self.store.events.join(self.policies, self.now() + JOIN_FOR_S)

    def _draw(self, message: Acceptance) -> Iterator[Event]:
        """What is told of one message, some of it several times."""
        chance = self._chance
        for recipient in message.recipients:
            for place, kind in enumerate(chance.choice(STORIES)):
                event = Event(
                    kind,
                    message.at + place,
                    chance.choice([recipient, recipient.upper()]),
                    message.key if self._names_our_id and message.raw is None else None,
                    message.message_id,
                    f"{message.message_id}-{recipient}-{place}",
                )
                if chance.random() >= LOST_SHARE:
                    yield event
                    for copy in range(chance.choice([0, 0, 1, 3])):
                        again = chance.choice([event.provider_event_id, f"{event.provider_event_id}-{copy}"])
                        yield replace(event, provider_event_id=again)

    async def _bring(self, route: str, event: Event) -> None:
        late_s = self._chance.choice([0.0, self._chance.uniform(0.0, 5.0), self._chance.uniform(0.0, LATE_MAX_S)])
        await asyncio.sleep(late_s)
        while self.is_away():  # noqa: ASYNC110  # as a provider does
            await asyncio.sleep(AGAIN_AFTER_S)
        self.store.events.store(route, [event], self.policies, self.now())
        self.heard.append(Heard(route, event))
