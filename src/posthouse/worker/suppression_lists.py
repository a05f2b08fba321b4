"""Reading a provider's own suppression list, and putting on it what it lacks: one call at a time, with pauses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.provider_lists import Listed
from posthouse.core.suppression import SuppressionCause
from posthouse.providers.port import Provider
from posthouse.providers.suppression_lists import ListCall, ListPage, OpenLists
from posthouse.worker.trail import CIRCLE, Trail

T = TypeVar("T")

PAUSE_S: Final = 0.25
"""After each call: providers count them, and sending needs them more."""


class ListFailed(Exception):
    """The list can't be read or written on now. The text says why."""


@dataclass(frozen=True, slots=True)
class Put:
    """What became of some addresses."""

    taken: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)  # and why


async def read_list(opened: OpenLists) -> AsyncIterator[Sequence[Listed]]:
    """All that is on it, page by page. Raises ListFailed."""
    call: ListCall[ListPage] | None = opened.lists.first
    trail = Trail()
    while call is not None:
        if trail.comes_back(call):
            raise ListFailed(CIRCLE)
        page = await _ask(opened, call)
        if isinstance(page, Verdict):
            raise ListFailed(_said(page))
        yield page.listed
        call = page.further


async def put_on_list(opened: OpenLists, wanted: Mapping[str, SuppressionCause]) -> AsyncIterator[Put]:
    """Puts addresses on it, batch by batch. Raises ListFailed; what was told until then is done."""
    for cause in dict.fromkeys(wanted.values()):
        addresses = [address for address, why in wanted.items() if why is cause]
        for begin in range(0, len(addresses), opened.lists.batch):
            async for put in _put(opened, cause, addresses[begin : begin + opened.lists.batch]):
                yield put


async def _put(opened: OpenLists, cause: SuppressionCause, addresses: Sequence[str]) -> AsyncIterator[Put]:
    """One batch; where it is refused as a whole, its halves, until it is known whom that is about."""
    answer = await _ask(opened, opened.lists.push(cause, addresses))
    if not isinstance(answer, Verdict):
        yield Put([each for each in addresses if each not in answer.refused], answer.refused)
    elif answer.outcome is not Outcome.REJECTED:
        raise ListFailed(_said(answer))
    elif len(addresses) == 1:
        yield Put((), {addresses[0]: _said(answer)})
    else:
        middle = len(addresses) // 2
        for half in (addresses[:middle], addresses[middle:]):
            async for put in _put(opened, cause, half):
                yield put


async def _ask(opened: OpenLists, call: ListCall[Any]) -> Any | Verdict:
    answer = await opened.ask(call)
    await asyncio.sleep(PAUSE_S)
    return answer


def _said(answer: Verdict) -> str:
    return f"{answer.code} {answer.text or answer.rule or 'no usable answer'}".strip()


async def closed_after(provider: Provider, work: Coroutine[Any, Any, T]) -> T:
    """What work with a provider comes to; its connections are closed in any case."""
    try:
        return await work
    finally:
        await provider.close()
