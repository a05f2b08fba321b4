"""`/unsubscribe/TOKEN`: a GET shows a page and changes nothing, a POST acts (RFC 8058)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from aiohttp import web

from posthouse.address import fold
from posthouse.core.events import Event, EventKind
from posthouse.core.policy import TypePolicy
from posthouse.core.suppression import Suppress, SuppressionCause
from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.store.store import Store
from posthouse.unsubscribe import LIST_UNSUBSCRIBE, ONE_CLICK, WHO, Unsubscription, verified
from posthouse.web import unsubscribe_page as page

FORM_OCTETS_MAX: Final = 4096
"""Either form has one short field."""
FORM_WITHIN_S: Final = 10.0
SAID: Final = "by the link in a message"

log = logging.getLogger("posthouse.web")


class UnsubscribeDesk:
    """The store's side of it: blocking calls alone, each of which may be made again."""

    def __init__(self, store: Store, policies: Mapping[str, TypePolicy]) -> None:
        self._store = store
        self._policies = policies

    def unsubscribe(self, wish: Unsubscription, token: str) -> None:
        """Writes the suppression, and the news of the send, in one transaction. Raises DatabaseUnavailable.

        Who has the link has read the message, so the news also says that it was accepted.
        """
        now = self._store.ledger.now()
        event = Event(
            EventKind.UNSUBSCRIBED,
            now,
            wish.address,
            key=wish.send_key,
            provider_event_id=sha256(token.encode()).hexdigest(),
            text=SAID,
        )
        suppress = Suppress(fold(wish.address), SuppressionCause.UNSUBSCRIBE, wish.scope, reason=SAID, who=WHO)
        self._store.events.unsubscribe(event, suppress, self._policies, now)

    def undo(self, wish: Unsubscription) -> None:
        """Removes exactly that suppression, and notes it in the audit. Raises DatabaseUnavailable."""
        now, cause = self._store.ledger.now(), SuppressionCause.UNSUBSCRIBE
        self._store.suppressions.remove(wish.address, who=WHO, now=now, cause=cause, scope=wish.scope)


class Unsubscribe:
    """Answers people and their mail programs. Each of the `secrets` verifies."""

    def __init__(self, secrets: Sequence[str], desk: UnsubscribeDesk, access: StoreAccess) -> None:
        self._secrets = secrets
        self._desk = desk
        self._access = access

    async def show(self, request: web.Request) -> web.Response:
        """The page. It asks the database nothing, and so is there in an outage too."""
        wish = verified(request.match_info["token"], self._secrets)
        return page.unknown_link() if wish is None else page.asks(wish)

    async def act(self, request: web.Request) -> web.Response:
        """What the posted form says; answered once it is written."""
        token = request.match_info["token"]
        wish = verified(token, self._secrets)
        if wish is None:
            return page.unknown_link()
        try:
            return await self._act(request, wish, token)
        except DatabaseUnavailable:  # told by the way to the store, once
            return page.try_again(503, "We can't write this down at the moment.")
        except Exception:
            log.exception("an unsubscription could not be written down")
            return page.try_again(500, "That was a fault of ours.")

    async def _act(self, request: web.Request, wish: Unsubscription, token: str) -> web.Response:
        form = await _form(request)
        if isinstance(form, web.Response):
            return form
        if form.get(LIST_UNSUBSCRIBE) == ONE_CLICK:
            await self._access.run(self._desk.unsubscribe, wish, token)
            return page.unsubscribed(wish)
        if page.UNDO in form:
            await self._access.run(self._desk.undo, wish)
            return page.undone(wish)
        return page.asks(wish, 400, "Nothing was changed: unsubscribe?")


async def _form(request: web.Request) -> Mapping[str, object] | web.Response:
    """The fields, in either encoding that RFC 8058 section 3.2 allows; or what is wrong with the way they came."""
    try:
        async with asyncio.timeout(FORM_WITHIN_S):
            return await request.clone(client_max_size=FORM_OCTETS_MAX).post()
    except web.HTTPRequestEntityTooLarge:
        return page.try_again(413, f"A form has at most {FORM_OCTETS_MAX} bytes.")
    except TimeoutError:
        return page.try_again(408, "The form took too long to arrive.")
    except (web.RequestPayloadError, ConnectionError, ValueError, LookupError):
        return page.try_again(400, "The form could not be read.")
