"""The shell of the sandbox's webhooks: makes the calls that are due, and serves what they refer to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp
from aiohttp import web

from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.gate import Clock
from posthouse.sandbox.webhooks import Due, Webhooks

CHECK_S: Final = 0.02
"""How late a call may be."""

ANSWER_WITHIN_S: Final = 10.0
AT_ONCE_MAX: Final = 20


def webhook_pages(api: SandboxApi) -> list[web.RouteDef]:
    """What calls to webhooks refer to, such as a certificate."""
    tellers = [address.teller for address in api.webhooks.addresses.values()]
    return [web.get(path, _served(api, page)) for teller in tellers for path, page in teller.pages.items()]


def _served(api: SandboxApi, page: Callable[[str], bytes]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve(_: web.Request) -> web.StreamResponse:
        return web.Response(body=page(api.webhooks.secret))

    return serve


async def tell(webhooks: Webhooks, clock: Clock) -> None:
    """Makes every call when it is due, until it is cancelled. Redirects are not followed."""
    if not webhooks.addresses:
        return
    room = asyncio.Semaphore(AT_ONCE_MAX)
    timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as calls:

        async def call(due: Due) -> None:
            async with room:
                webhooks.answered(due, await _answer(session, due), clock())

        while True:
            for due in webhooks.due(clock()):
                calls.create_task(call(due))
            await asyncio.sleep(CHECK_S)


async def _answer(session: aiohttp.ClientSession, due: Due) -> int | None:
    """The status; None where there is none."""
    try:
        async with session.post(due.url, data=due.call.body, headers=due.call.headers, allow_redirects=False) as answer:
            return answer.status
    except (aiohttp.ClientError, TimeoutError):
        return None
