"""What `posthouse serve` answers, and where it listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from posthouse.config import WebSettings
from posthouse.core.policy import TypePolicy
from posthouse.errors import ConfigError, PosthouseError
from posthouse.providers.transport import Transport
from posthouse.providers.webhook_keys import WebhookKeys
from posthouse.store.access import StoreAccess
from posthouse.store.migrate import check
from posthouse.store.store import Store
from posthouse.store.threads import StoreExecutor
from posthouse.unsubscribe import path_of as unsubscribe_path
from posthouse.web.intake import Intake
from posthouse.web.outward import Outward
from posthouse.web.unsubscribe import Unsubscribe, UnsubscribeDesk
from posthouse.web.webhooks import Webhooks, path_of

READY_WITHIN_S: Final = 5.0

log = logging.getLogger("posthouse.web")


@dataclass(frozen=True, slots=True)
class WebParts:
    """All that the server is given; nothing in it is built by the server itself."""

    store: Store
    executor: StoreExecutor
    policies: Mapping[str, TypePolicy]
    webhooks: Mapping[str, WebhookKeys]  # by route
    unsubscribe_secrets: Sequence[str]  # of links in messages; none: there are no links
    transport: Transport  # for what a provider's call asks for
    settings: WebSettings
    now: Callable[[], float]  # seconds since 1970


class WebServer:
    """A server that listens. Close it when done."""

    def __init__(self, runner: web.AppRunner, url: str) -> None:
        self._runner = runner
        self.url = url

    async def close(self) -> None:
        """Listens no longer, answers what is under way within the grace, and closes every connection."""
        await self._runner.cleanup()


async def serve(parts: WebParts) -> WebServer:
    """Listens where the settings say. Raises ConfigError where that is not possible."""
    settings = parts.settings
    runner = web.AppRunner(
        application(parts), access_log=None, logger=http_log, shutdown_timeout=settings.shutdown_grace
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
    except OSError as error:
        await runner.cleanup()
        reason = f"can't listen on {settings.host}:{settings.port}: {error.strerror or error}"
        raise ConfigError("web.port", reason) from None
    host, port = runner.addresses[0][:2]
    server = WebServer(runner, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    log.info("serves at %s", server.url)
    if not parts.webhooks:
        level = logging.INFO if parts.unsubscribe_secrets else logging.WARNING  # then it is here for something
        log.log(level, "no route has webhook_secrets (or webhook_topics), so no webhooks are taken")
    for name in parts.webhooks:
        log.info("webhooks of %s: %s%s", name, (settings.public_url or server.url).rstrip("/"), path_of(name))
    if parts.unsubscribe_secrets and settings.public_url:
        log.info("unsubscribe links: %s%s", settings.public_url.rstrip("/"), unsubscribe_path("…"))
    return server


def application(parts: WebParts) -> web.Application:
    """Everything that it answers."""
    meanwhile = "webhooks are sent away, to be sent again,"  # and people asked to try again
    access = StoreAccess(parts.executor, asyncio.get_running_loop().time, meanwhile)
    outward = Outward(parts.transport)
    webhooks = Webhooks(parts.webhooks, Intake(parts.store, parts.policies), access, outward, parts.now)
    app = web.Application(client_max_size=parts.settings.body_max)

    async def close(_: web.Application) -> None:
        await outward.close()

    app.on_cleanup.append(close)
    app.router.add_post(path_of("{route}"), webhooks.receive)
    if parts.unsubscribe_secrets:
        desk = UnsubscribeDesk(parts.store, parts.policies)
        unsubscribe = Unsubscribe(parts.unsubscribe_secrets, desk, access)
        app.router.add_get(unsubscribe_path("{token}"), unsubscribe.show)  # HEAD as well
        app.router.add_post(unsubscribe_path("{token}"), unsubscribe.act)
    app.router.add_get("/healthz", _alive)
    app.router.add_get("/readyz", _Readiness(parts.store, access).answer)
    return app


class _NoNews(logging.Filter):
    """Leaves out what is no HTTP at all: it is answered 400, and anybody may say it as often as they like."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether anybody needs to know."""
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


http_log = logging.getLogger("posthouse.web.http")
http_log.addFilter(_NoNews())


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="alive\n")


class _Readiness:
    """Whether calls can be taken in."""

    def __init__(self, store: Store, access: StoreAccess) -> None:
        self._store = store
        self._access = access

    async def answer(self, _: web.Request) -> web.Response:
        """200 where the database answers and has this release's tables."""
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                await self._access.run(check, self._store.database)
        except (PosthouseError, TimeoutError) as error:
            log.warning("not ready: %s", error or f"the database did not answer within {READY_WITHIN_S:.0f} s")
            return web.Response(status=503, text="not ready: see the log\n")
        return web.Response(text="ready\n")
