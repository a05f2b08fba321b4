"""Telling people: in the log and, where one is configured, at an address that takes messages."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from posthouse.errors import DatabaseUnavailable
from posthouse.providers.transport import HttpAnswer, HttpRequest, Transport
from posthouse.store.access import StoreAccess
from posthouse.store.alerts import Alerts

TELLING_TIMEOUT_S: Final = 10.0

log = logging.getLogger("posthouse.alerts")


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """How people are told."""

    quiet_s: float = 900.0  # the same alert is not raised again within this time
    transport: Transport | None = None
    url: Callable[[], str] | None = None  # read anew each time; None: the log alone


class Alarm:
    """Raises alerts, each by one worker and not again too soon. Never waits, and never fails for whoever raises one."""

    def __init__(self, alerts: Alerts, access: StoreAccess, settings: AlarmSettings, now: Callable[[], float]) -> None:
        self._alerts = alerts
        self._access = access
        self._settings = settings
        self._now = now
        self._raised_at: dict[str, float] = {}
        self._telling: set[asyncio.Task[None]] = set()

    def sound(self, name: str, text: str, quiet_s: float | None = None) -> None:
        """Raises an alert about `name`, such as `route main`; the same not again within `quiet_s`, else as set."""
        now = self._now()
        quiet_s = self._settings.quiet_s if quiet_s is None else quiet_s
        raised_at = self._raised_at.get(name)
        if raised_at is not None and now - raised_at < quiet_s:
            return
        self._raised_at[name] = now
        task = asyncio.create_task(self._tell(name, text, now, quiet_s))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, name: str, text: str, now: float, quiet_s: float) -> None:
        try:
            ours = await self._access.run(self._alerts.raise_once, name, text, now, quiet_s)
        except DatabaseUnavailable:
            ours = True  # better twice than not at all
        if not ours:
            return
        log.error("%s: %s", name, text)
        if self._settings.url is not None and self._settings.transport is not None:
            await self._post(self._settings.transport, self._settings.url, name, text)

    async def _post(self, transport: Transport, url: Callable[[], str], name: str, text: str) -> None:
        body = json.dumps({"text": f"Posthouse: {name}: {text}", "name": name}, ensure_ascii=False).encode()
        try:
            request = HttpRequest("POST", url(), {"Content-Type": "application/json"}, body)
            answer = await transport.request(request, timeout_s=TELLING_TIMEOUT_S)
        except Exception as error:
            log.exception("the alert could not be sent: %s", type(error).__name__)
            return
        if not isinstance(answer, HttpAnswer) or answer.status // 100 != 2:
            said = answer.status if isinstance(answer, HttpAnswer) else answer.code
            log.error("the alert could not be sent to [alerts] url: %s", said)

    async def close(self) -> None:
        """Waits for what is being told."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=TELLING_TIMEOUT_S)
        if self._settings.transport is not None:
            await self._settings.transport.close()
