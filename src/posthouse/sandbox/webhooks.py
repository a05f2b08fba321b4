"""What the sandbox tells to webhooks, without a network: which calls are due, and what follows from their answers.

A shell makes the calls that `due` returns, and says of each what was answered. Nothing here waits.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import filterfalse, groupby
from typing import Final

from posthouse.sandbox.faults import Action, Call, CallKind, Fault
from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.news import News, NewsKind
from posthouse.sandbox.telling import Occasion, Teller, WebhookCall, derived, event_id

REPEATS_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)
"""How long after each failure a call is repeated; then it is given up. Real providers go on for hours or days."""

AGAIN_S: Final = 1.0
"""So much later comes what comes twice."""

SWAPPED_S: Final = 10.0
"""So long what is swapped waits for another call to overtake it."""

KEPT_MAX: Final = 10_000
"""So many calls are remembered."""

Draw = Callable[[Call, float], Fault | None]
"""The fault that hits a call to a webhook, at a time."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the news of one provider's messages goes."""

    teller: Teller
    url: str


@dataclass(frozen=True, slots=True)
class Telling:
    """One piece of news on its way. `tries` have failed."""

    acceptance: Acceptance
    news: News
    tries: int = 0
    drawn: bool = False  # whether chance has had its say
    waits_for_another: bool = False
    forged: bool = False

    @property
    def provider(self) -> str:
        """Whose words it is told in."""
        return self.acceptance.provider


@dataclass(frozen=True, slots=True)
class Due:
    """A call for the shell to make."""

    url: str
    call: WebhookCall
    tellings: Sequence[Telling]


class TellingResult(StrEnum):
    """How one try to tell something ended."""

    TOLD = "told"
    FAILED = "failed"  # it will be tried again
    REFUSED = "refused"  # by an answer after which its provider doesn't try again, or because it was forged
    GIVEN_UP = "given_up"
    LOST = "lost"  # by a fault: no call was made


@dataclass(frozen=True, slots=True)
class WebhookRecord:
    """What became of one telling. `status` is None where nothing was answered, or no call was made."""

    at: float
    provider: str
    message_id: str
    kind: NewsKind
    recipient: str
    result: TellingResult
    status: int | None = None
    forged: bool = False


class Webhooks:
    """Everything that is to be told to the webhooks at `addresses`, by the names of their providers.

    `secret` is what each provider's keys are made of; `draw` says which fault hits a call.
    """

    def __init__(self, addresses: Mapping[str, Address], *, secret: str, draw: Draw) -> None:
        self.addresses: Final = addresses
        self.secret: Final = secret
        self._draw = draw
        self.sandbox_url = ""
        self.clear()

    def clear(self) -> None:
        """Forgets what is to be told, and what was."""
        self._waiting: list[tuple[float, int, Telling]] = []
        self._numbers = itertools.count(1)
        self._greeted: set[str] = set()
        self._under_way = 0
        self.records: deque[WebhookRecord] = deque(maxlen=KEPT_MAX)

    @property
    def waiting(self) -> int:
        """How many tellings have not ended."""
        return len(self._waiting) + self._under_way

    def shown(self) -> dict[str, dict[str, str]]:
        """Of each provider: the address, and what its routes need to let these calls in. Raises ConfigError."""
        return {
            name: {"url": one.url, one.teller.setting: one.teller.shown(self.secret)}
            for name, one in self.addresses.items()
        }

    def accepted(self, acceptance: Acceptance) -> None:
        """A message was taken: what becomes of it will be told."""
        for news in acceptance.news:
            self.tell(acceptance, news)

    def tell(self, acceptance: Acceptance, news: News) -> None:
        """One piece of news, when its time comes."""
        if acceptance.provider in self.addresses:
            self._push(Telling(acceptance, news), acceptance.happened_at(news))

    def due(self, now: float) -> list[Due]:
        """The calls to be made now. Each has to be `answered`."""
        found = list(self._due_tellings(now))
        found += self._overtaken({one.provider for one in found if not one.waits_for_another})
        calls = [call for one in self._by_call(found) if (call := self._call(one, now)) is not None]
        greetings = [greeting for call in calls if (greeting := self._greeting(call, now)) is not None]
        self._under_way += sum(len(call.tellings) for call in calls)
        return greetings + calls

    def answered(self, due: Due, status: int | None, now: float) -> None:
        """What a call was told; None where nothing was."""
        self._under_way -= len(due.tellings)
        for one in due.tellings:
            teller = self.addresses[one.provider].teller
            if status is not None and status // 100 == 2:
                self._record(one, TellingResult.TOLD, now, status)
            elif one.forged or status in teller.final:
                self._record(one, TellingResult.REFUSED, now, status)
            elif one.tries >= len(REPEATS_S):
                self._record(one, TellingResult.GIVEN_UP, now, status)
            else:
                self._record(one, TellingResult.FAILED, now, status)
                self._push(replace(one, tries=one.tries + 1), now + REPEATS_S[one.tries])

    # What is due.

    def _push(self, telling: Telling, due_at: float) -> None:
        heapq.heappush(self._waiting, (due_at, next(self._numbers), telling))

    def _due_tellings(self, now: float) -> Iterator[Telling]:
        while self._waiting and self._waiting[0][0] <= now:
            one = heapq.heappop(self._waiting)[-1]
            if one.drawn or self._goes_on(one, now):
                yield one

    def _goes_on(self, one: Telling, now: float) -> bool:
        """Whether chance lets it be told now; else it has taken it elsewhere."""
        fault = self._draw(Call(CallKind.WEBHOOK, (one.news.recipient,), one.acceptance.key), now)
        action = None if fault is None else fault.effect.action
        drawn = replace(one, drawn=True)
        if fault is not None and action is Action.SLOW:
            self._push(drawn, now + fault.effect.delay_s)
        elif action is Action.SWAPPED:
            self._push(replace(drawn, waits_for_another=True), now + SWAPPED_S)
        elif action is Action.LOST:
            self._record(one, TellingResult.LOST, now, None)
        elif action is Action.TWICE:
            self._push(drawn, now + AGAIN_S)
        elif action is Action.FORGED:
            untruth = replace(one.news, kind=NewsKind.COMPLAINED)
            self._push(replace(drawn, news=untruth, forged=True), now)
        return action not in (Action.SLOW, Action.SWAPPED, Action.LOST)

    def _overtaken(self, providers: set[str]) -> list[Telling]:
        """What has waited for another call of its provider: it comes right behind."""

        def comes_now(waiting: tuple[float, int, Telling]) -> bool:
            return waiting[-1].waits_for_another and waiting[-1].provider in providers

        found = sorted(filter(comes_now, self._waiting)) if providers else []
        if found:
            self._waiting = list(filterfalse(comes_now, self._waiting))
            heapq.heapify(self._waiting)
        return [one for _, _, one in found]

    def _by_call(self, tellings: Sequence[Telling]) -> Iterator[Sequence[Telling]]:
        """Those that share a call, as far as their provider puts several into one."""
        together = sorted(tellings, key=lambda one: (one.provider, one.forged))  # the sort is stable
        for (provider, _), group in groupby(together, lambda one: (one.provider, one.forged)):
            some, size = list(group), self.addresses[provider].teller.items_max
            yield from (some[start : start + size] for start in range(0, len(some), size))

    def _call(self, tellings: Sequence[Telling], now: float) -> Due | None:
        address = self.addresses[tellings[0].provider]
        items = [(one, address.teller.item(one.acceptance, one.news)) for one in tellings]
        told = [(one, item) for one, item in items if item is not None]
        if not told:
            return None
        first = told[0][0]
        secret = f"not {self.secret}" if first.forged else self.secret
        name = f"{event_id(first.acceptance, first.news)} {first.news.kind}"
        call = address.teller.call([item for _, item in told], self._occasion(secret, name, now))
        return Due(address.url, call, [one for one, _ in told])

    def _greeting(self, due: Due, now: float) -> Due | None:
        """The first call to an address, where its provider introduces itself."""
        teller = self.addresses[due.tellings[0].provider].teller
        if teller.greeting is None or due.url in self._greeted:
            return None
        self._greeted.add(due.url)
        return Due(due.url, teller.greeting(self._occasion(self.secret, f"greeting {now}", now)), ())

    def _occasion(self, secret: str, name: str, now: float) -> Occasion:
        """What is told again by itself has the name that it had."""
        return Occasion(secret, derived(self.secret, name).hex()[:32], now, self.sandbox_url)

    def _record(self, one: Telling, result: TellingResult, now: float, status: int | None) -> None:
        self.records.append(
            WebhookRecord(
                now,
                one.provider,
                one.acceptance.message_id,
                one.news.kind,
                one.news.recipient,
                result,
                status,
                one.forged,
            )
        )
