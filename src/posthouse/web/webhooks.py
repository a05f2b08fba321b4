"""`POST /webhooks/ROUTE`: what a provider tells is verified, stored, and only then answered."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from posthouse.errors import ConfigError, DatabaseUnavailable
from posthouse.providers.webhook import CertificateNeeded, Genuine, Reading, Refused, WebhookCall
from posthouse.providers.webhook_keys import WebhookKeys
from posthouse.store.access import StoreAccess
from posthouse.web.intake import Intake
from posthouse.web.outward import NoAnswer, Outward

BODY_WITHIN_S: Final = 30.0
"""Who takes longer to say something is no provider."""

WARNED_EVERY_S: Final = 60.0
"""Not every call that is refused is worth a line."""

REASONS_TOLD: Final = 3
"""So many of the reasons why items of one call could not be read."""

log = logging.getLogger("posthouse.web")


def path_of(route: str) -> str:
    """Where the webhooks of a route are taken."""
    return f"/webhooks/{route}"


class Webhooks:
    """The webhooks of every route. `now` gives seconds since 1970."""

    def __init__(
        self,
        routes: Mapping[str, WebhookKeys],
        intake: Intake,
        access: StoreAccess,
        outward: Outward,
        now: Callable[[], float],
    ) -> None:
        self._routes = routes
        self._intake = intake
        self._access = access
        self._outward = outward
        self._now = now
        self._seldom = _Seldom(now)

    async def receive(self, request: web.Request) -> web.Response:
        """One call. Whatever goes wrong here, its provider is told to send it again."""
        name = request.match_info["route"]
        keys = self._routes.get(name)
        if keys is None:
            return _answer(404, f"no route {name!r} takes webhooks here")
        try:
            call = await _read(request)
            return call if isinstance(call, web.Response) else await self._receive(name, keys, call)
        except DatabaseUnavailable:  # told by the way to the store, once
            return _answer(keys.webhook.again, "the database is away; send it again")
        except NoAnswer as error:
            self._seldom.warn(name, f"a webhook of {name} could not be verified, and is asked for again: {error}")
            return _answer(keys.webhook.again, "it can't be verified now; send it again")
        except ConfigError as error:
            self._seldom.warn(name, f"the webhooks of {name} are sent away, to be sent again: {error}")
            return _answer(keys.webhook.again, "its secrets can't be read here; send it again")
        except Exception:
            log.exception("a webhook of %s could not be taken in; it is asked for again", name)
            return _answer(keys.webhook.again, "a fault of ours; send it again")

    async def _receive(self, name: str, keys: WebhookKeys, call: WebhookCall) -> web.Response:
        verified = keys.webhook.verify(call, keys.current(), self._now())
        if isinstance(verified, CertificateNeeded):
            verified = verified.decide(await self._outward.certificate(verified.url))
        taken: Genuine | Reading | Refused = verified
        if isinstance(taken, Genuine):
            if taken.visit is not None:
                await self._outward.get(taken.visit)
                log.info("the webhooks of %s are confirmed", name)
            taken = await self._access.run(self._intake.take, name, keys.webhook, call, taken)
        if isinstance(taken, Refused):
            # Never a status that ends a provider's tries: while our secret is the wrong one, its news must not be lost.
            self._seldom.warn(name, f"a webhook of {name} was refused: {taken.reason}")
            return _answer(401, taken.reason, {"WWW-Authenticate": keys.webhook.challenge})
        if taken.unread:
            reasons = ", ".join(sorted({one.reason for one in taken.unread})[:REASONS_TOLD])
            told = "%d of what %s told could not be read (%s); it is in email_quarantine"
            log.warning(told, len(taken.unread), name, reasons)
        # What can't be read is no better the next time, and a person has it now: it must not hold up the rest.
        return _answer(200, f"{len(taken.events)} taken in, {len(taken.unread)} unreadable")


async def _read(request: web.Request) -> WebhookCall | web.Response:
    """The call, or what is wrong with the way it came."""
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return _answer(413, "the body is larger than web.body_max")
    except TimeoutError:
        return _answer(408, f"the body took longer than {BODY_WITHIN_S:.0f} s")
    except (web.RequestPayloadError, ConnectionError):
        return _answer(400, "the body was cut off")
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers.setdefault(name.lower(), value)
    return WebhookCall(headers, body)


class _Seldom:
    """Warns once a minute for each route, however often it is asked to: anybody may call."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told_at: dict[str, float] = {}
        self._untold: Counter[str] = Counter()

    def warn(self, route: str, text: str) -> None:
        """Something to be said about a call of `route`."""
        now = self._now()
        if abs(now - self._told_at.get(route, 0.0)) < WARNED_EVERY_S:
            self._untold[route] += 1
            return
        more = self._untold.pop(route, 0)
        log.warning("%s%s", text, f" ({more} more since the last such line)" if more else "")
        self._told_at[route] = now


def _answer(status: int, text: str, headers: Mapping[str, str] = {}) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers=headers)
