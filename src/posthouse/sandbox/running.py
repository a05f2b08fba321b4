"""A sandbox as a process has it: its servers, from a command's options."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from posthouse.errors import ConfigError
from posthouse.sandbox.api import WEBHOOK_SECRET, SandboxApi
from posthouse.sandbox.fault_text import FaultSettings
from posthouse.sandbox.faults import FaultPlan
from posthouse.sandbox.gate import Clock
from posthouse.sandbox.http import serve
from posthouse.sandbox.ledger import Ledger
from posthouse.sandbox.limit import SendLimit
from posthouse.sandbox.smtp import serve_smtp

KEPT: Final = 10_000
"""So many of its newest messages and calls a sandbox keeps whole."""
KEPT_OCTETS: Final = 256 * 1024 * 1024
"""So much the kept messages are together."""


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """A sandbox as `posthouse sandbox` is told to be; see `SandboxApi`."""

    host: str
    port: int  # 0: any free one
    faults: FaultSettings
    api_key: str | None = None
    idempotency: bool = True
    look_up: bool = True
    look_up_lag_s: float = 0.0
    limit: SendLimit | None = None
    smtp_port: int | None = None  # None: no SMTP; with a certificate, STARTTLS is offered
    smtps_port: int | None = None  # None: no SMTP that begins with TLS; needs the certificate
    certificate: Path | None = None  # a PEM file with the chain and its key
    webhooks: Mapping[str, str] = field(default_factory=dict)  # addresses by their providers' names
    webhook_secret: str | None = None  # None: the one that everybody knows


@dataclass(frozen=True, slots=True)
class StartedSandbox:
    """What a sandbox says of itself when it listens."""

    urls: Sequence[str]  # HTTP first
    seed: int  # which replays it
    webhooks: Mapping[str, Mapping[str, str]]  # by provider: `url`, and the setting that lets its calls in


async def run(
    settings: SandboxSettings, seed: int, clock: Clock, started: Callable[[StartedSandbox], None], stop: asyncio.Event
) -> None:
    """A sandbox until `stop`. Raises ConfigError."""
    api = _api(settings, seed, clock())
    webhooks = api.webhooks.shown()

    if settings.smtps_port is not None and settings.certificate is None:
        raise ConfigError("smtps-port", "needs a certificate; give one with its key as --certificate FILE")
    tls = None if settings.certificate is None else _server_tls(settings.certificate)

    async with contextlib.AsyncExitStack() as servers:
        first = await serve(api, clock=clock, host=settings.host, port=settings.port)
        servers.push_async_callback(first.close)
        urls = [first.url]
        for port, implicit_tls in ((settings.smtp_port, False), (settings.smtps_port, True)):
            if port is not None:
                server = await serve_smtp(
                    api, clock=clock, host=settings.host, port=port, tls=tls, implicit_tls=implicit_tls
                )
                servers.push_async_callback(server.close)
                urls.append(server.url)
        started(StartedSandbox(urls, seed, webhooks))
        await stop.wait()


def _api(settings: SandboxSettings, seed: int, started_at: float) -> SandboxApi:
    return SandboxApi(
        Ledger(kept_max=KEPT, kept_octets_max=KEPT_OCTETS),
        FaultPlan(settings.faults.faults),
        chance=random.Random(seed),  # noqa: S311
        started_at=started_at,
        api_key=settings.api_key,
        idempotency=settings.idempotency,
        look_up=settings.look_up,
        look_up_lag_s=settings.look_up_lag_s,
        limit=settings.limit,
        webhooks=settings.webhooks,
        webhook_secret=settings.webhook_secret or WEBHOOK_SECRET,
        webhook_chance=random.Random(f"{seed} webhooks"),  # noqa: S311
    )


def _server_tls(certificate: Path) -> ssl.SSLContext:
    """A server's side of TLS with this certificate. Raises ConfigError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate)
    except OSError as error:  # an SSLError is one
        reason = f"{certificate}: no PEM file with a certificate and its key: {error.strerror or error}"
        raise ConfigError("certificate", reason) from None
    return context
