"""The few calls that the web server makes itself, each because a provider's call asks for it: none leaves its host."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from posthouse.providers.transport import HttpFailure, HttpRequest, Transport

WITHIN_S: Final = 5.0
CERTIFICATES_KEPT: Final = 16


class NoAnswer(Exception):
    """A provider's own address gave no usable answer."""


class Outward:
    """Fetches certificates, and confirms subscriptions. Redirects are not followed."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._certificates: OrderedDict[str, bytes] = OrderedDict()
        self._fetching = asyncio.Lock()  # one at a time: a stranger may name an address of Amazon's as well

    async def certificate(self, url: str) -> bytes:
        """What is at the address, fetched once; a failure is not remembered. Raises NoAnswer."""
        async with self._fetching:
            if url not in self._certificates:
                self._certificates[url] = await self.get(url)
                while len(self._certificates) > CERTIFICATES_KEPT:
                    self._certificates.popitem(last=False)
            return self._certificates[url]

    async def get(self, url: str) -> bytes:
        """One call. Raises NoAnswer."""
        answer = await self._transport.request(HttpRequest("GET", url, {}), timeout_s=WITHIN_S)
        if isinstance(answer, HttpFailure):
            raise NoAnswer(f"{url}: {answer.text}")
        if answer.status // 100 != 2 or not answer.complete:
            raise NoAnswer(f"{url} answers {answer.status}")
        return answer.body

    async def close(self) -> None:
        """Closes its connections."""
        await self._transport.close()
