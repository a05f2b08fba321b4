"""What people do while mail goes out: they cancel, pause and resume, suppress, and take routes out of use."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from posthouse.address import fold
from posthouse.core.intervention import cancel
from posthouse.core.lanes import group_of, service_of, type_of
from posthouse.core.policy import Category
from posthouse.core.routing import FOR_EVER, RouteHealth, RouteState
from posthouse.core.suppression import STOPS, Suppress, SuppressionCause
from posthouse.core.switches import Scope, Switch
from posthouse.errors import NotPossible
from posthouse.store.store import Store


@dataclass
class Closing:
    """What a person has closed, from when until when."""

    scope: Scope
    value: str
    since: float
    until: float = math.inf  # inf: until somebody opens it

    def concerns(self, lane: str, route: str) -> bool:
        """Whether a call for this lane on this route is among what is closed."""
        mine = {
            Scope.ALL: "",
            Scope.TYPE: type_of(lane),
            Scope.SERVICE: service_of(lane),
            Scope.GROUP: group_of(lane),
            Scope.LANE: lane,
            Scope.ROUTE: route,
        }
        return mine[self.scope] == self.value


@dataclass
class Suppressed:
    """An address that must not get mail any more, from when until when."""

    address: str  # folded
    cause: SuppressionCause
    since: float
    until: float = math.inf  # inf: nobody has taken it back

    def concerns(self, category: Category, to: Collection[str]) -> bool:
        """Whether a call with mail of this category is to somebody who must not get it."""
        return self.address in to and category in STOPS[self.cause].categories


class People:
    """Draws what they do; `closings` tells of all that they have closed, `cancelled` of what they have cancelled,
    `suppressed` of all whom they have suppressed."""

    def __init__(
        self, store: Store, chance: random.Random, now: Callable[[], float], tell: Callable[[str], None]
    ) -> None:
        self.closings: list[Closing] = []
        self.cancelled: dict[str, float] = {}
        self.suppressed: list[Suppressed] = []
        self._store = store
        self._chance = chance
        self._now = now
        self._tell = tell

    async def cancel_some(self, committed: Callable[[], list[str]], pause_max_s: float) -> None:
        """Somebody cancels some of the emails."""
        for _ in range(self._chance.randint(0, 4)):
            await asyncio.sleep(self._chance.uniform(1, pause_max_s))
            if keys := committed():
                self._cancel(self._chance.choice(keys))

    def _cancel(self, key: str) -> None:
        state = self._store.ledger.story(key).state
        try:
            status = self._store.operations.intervene(
                state.id,
                cancel,
                action="cancel",
                who="somebody",
                detail="",
                now=self._now(),
                max_age_s=0.0,
                new_key=lambda: "unused",
            )
        except NotPossible:
            return
        self._tell(f"{key} is cancelled: {status}")
        self.cancelled[key] = self._now()

    async def suppress_some(
        self,
        preferred: Callable[[], list[str]],
        others: Callable[[], list[str]],
        pause_max_s: float,
        chance: random.Random,
    ) -> None:
        """Somebody suppresses some who get mail, and takes some of that back; in every other world. The `preferred` as
        soon as there are some."""
        for _ in range(chance.choice([0, chance.randint(1, 12)])):
            seconds = chance.uniform(0, pause_max_s)
            while seconds > 0 and not (known := self._not_yet(preferred())):
                await asyncio.sleep(min(seconds, 1.0))
                seconds -= 1.0
            standing = [each for each in self.suppressed if each.until == math.inf]
            if standing and chance.random() < 0.2:
                self._unsuppress(chance.choice(standing))
            elif known := known or self._not_yet(others()):
                self._suppress(fold(chance.choice(known)), chance.choice(list(SuppressionCause)))

    def _not_yet(self, addresses: Sequence[str]) -> list[str]:
        """Those whom nobody has suppressed before."""
        before = {each.address for each in self.suppressed}
        return [address for address in addresses if fold(address) not in before]

    def _suppress(self, address: str, cause: SuppressionCause) -> None:
        now = self._now()
        self._store.suppressions.add([Suppress(address, cause, who="somebody")], now)
        self.suppressed.append(Suppressed(address, cause, now))
        self._tell(f"{address} is suppressed, {cause}")

    def _unsuppress(self, one: Suppressed) -> None:
        self._store.suppressions.remove(one.address, who="somebody", now=self._now(), cause=one.cause)
        for each in self.suppressed:
            if (each.address, each.cause) == (one.address, one.cause):
                each.until = min(each.until, self._now())
        self._tell(f"{one.address} is suppressed no more, {one.cause}")

    async def close_some(self, things: list[tuple[Scope, str]], pause_max_s: float) -> None:
        """Somebody closes this and that, with an end or without one, and opens some of it again."""
        for _ in range(self._chance.randint(0, 6)):
            await asyncio.sleep(self._chance.uniform(1, pause_max_s))
            closed = self._closed()
            if closed and self._chance.random() < 0.4:
                self._open(self._chance.choice(closed))
                continue
            scope, value = self._chance.choice(things)
            if (scope, value) not in [(each.scope, each.value) for each in closed]:
                self._close(scope, value, self._chance.choice([None, None, self._chance.uniform(1, 60)]))

    async def hold_back(self, type_: str, for_s: float) -> None:
        """Somebody pauses a type while a lot of its mail is written, and lets it go then."""
        if any(closing.scope is Scope.TYPE and closing.value == type_ for closing in self._closed()):
            return
        self._close(Scope.TYPE, type_, None)
        await asyncio.sleep(for_s)
        for closing in self._closed():
            if closing.scope is Scope.TYPE and closing.value == type_:
                self._open(closing)

    def open_all(self) -> None:
        """The last of them opens what is closed."""
        for closing in self._closed():
            self._open(closing)

    def _closed(self) -> list[Closing]:
        return [closing for closing in self.closings if closing.until > self._now()]

    def _close(self, scope: Scope, value: str, for_s: float | None) -> None:
        now = self._now()
        until = None if for_s is None else now + for_s
        if scope is Scope.ROUTE:
            closed = RouteHealth(value, RouteState.CLOSED, FOR_EVER if until is None else until, "by somebody")
            self._store.operations.change_route(closed, who="somebody", action="close route", detail="", now=now)
        else:
            self._store.switches.pause(Switch(scope, value, "", "somebody", now, until))
        self.closings.append(Closing(scope, value, now, math.inf if until is None else until))
        self._tell(f"{scope} {value} is closed{'' if for_s is None else f' for {for_s:.1f} s'}")

    def _open(self, closing: Closing) -> None:
        now = self._now()
        if closing.scope is Scope.ROUTE:
            open_ = RouteHealth(closing.value)
            self._store.operations.change_route(open_, who="somebody", action="open route", detail="", now=now)
        else:
            self._store.switches.resume(closing.scope, closing.value, who="somebody", now=now)
        closing.until = now
        self._tell(f"{closing.scope} {closing.value} is opened")
