"""`posthouse sandbox`: a provider that fails on request and catches mail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from posthouse.app import run_sandbox
from posthouse.cli.failures import WrongUsage
from posthouse.cli.init import SANDBOX_PORT
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import duration_option
from posthouse.cli.output import Answer, Line
from posthouse.sandbox.api import SEND_PATH
from posthouse.sandbox.fault_text import FaultSettings, fault_text, parse_fault, read_faults_file
from posthouse.sandbox.limit import SendLimit
from posthouse.sandbox.running import SandboxSettings, StartedSandbox
from posthouse.setting_values import Secret, parse_rate

LimitOption = Annotated[
    str | None,
    typer.Option(help="Take so many sends, and tell in headers what still fits, such as 10/second.", metavar="RATE"),
]
ApiKeyOption = Annotated[
    str | None,
    typer.Option(help="The token, key or SMTP password that callers must have: env:NAME, file:PATH or itself."),
]
SmtpPortOption = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Take mail over SMTP too, on this port; 0 for any free one.")
]
SmtpsPortOption = Annotated[
    int | None, typer.Option(min=0, max=65535, help="The same with TLS from the beginning. Needs a certificate.")
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(help="A PEM file with a certificate and its key, for STARTTLS and TLS.", metavar="FILE"),
]
WebhookOption = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "Tell what becomes of the messages of a provider, such as resend=http://127.0.0.1:8026/webhooks/main. "
            "May be given again."
        ),
        metavar="PROVIDER=URL",
    ),
]
WebhookSecretOption = Annotated[
    str | None,
    typer.Option(help="What the keys of these calls are made of: env:NAME, file:PATH or itself. Default: no secret."),
]


def sandbox(
    call: Invocation,
    host: Annotated[str, typer.Option(help="Where to listen. Its pages and its control API have no password.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any free one.")] = SANDBOX_PORT,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="What goes wrong, such as 503:share=0.2 or slow=8s:until=5m. May be given again."),
    ] = None,
    faults: Annotated[Path | None, typer.Option(help="A TOML or JSON file with faults.", metavar="FILE")] = None,
    seed: Annotated[int | None, typer.Option(help="Replays the chances of a run. Default: any.")] = None,
    idempotency: Annotated[bool, typer.Option("--idempotency/--no-idempotency", help="Honour idempotency keys.")] = (
        True
    ),
    look_up: Annotated[bool, typer.Option("--look-up/--no-look-up", help="Answer look-ups.")] = True,
    look_up_lag: Annotated[str, typer.Option(help="So long look-ups lie behind.", metavar="DURATION")] = "0s",
    limit: LimitOption = None,
    api_key: ApiKeyOption = None,
    smtp_port: SmtpPortOption = None,
    smtps_port: SmtpsPortOption = None,
    certificate: CertificateOption = None,
    webhook: WebhookOption = None,
    webhook_secret: WebhookSecretOption = None,
) -> None:
    """Run an email provider that sends nothing, and fails on request.

    It keeps the truth about what it accepted, and shows the mail in a browser. Ctrl-C ends it, and with it all that
    it keeps. Needs no configuration.
    """
    settings = SandboxSettings(
        host=host,
        port=port,
        faults=_faults(fault or [], faults, seed),
        api_key=None if api_key is None else Secret(api_key).reveal(),
        idempotency=idempotency,
        look_up=look_up,
        look_up_lag_s=duration_option(look_up_lag, "--look-up-lag"),
        limit=None if limit is None else _limit(limit),
        smtp_port=smtp_port,
        smtps_port=smtps_port,
        certificate=certificate,
        webhooks=dict(map(_address, webhook or [])),
        webhook_secret=None if webhook_secret is None else Secret(webhook_secret).reveal(),
    )
    run_sandbox(settings, lambda started: call.output.show(_shown(started, settings), one_line=True))


def _address(text: str) -> tuple[str, str]:
    provider, _, url = text.partition("=")
    parts = urlsplit(url)
    if not provider or parts.scheme not in ("http", "https") or not parts.netloc:
        example = "resend=http://127.0.0.1:8026/webhooks/main"
        raise WrongUsage(f"--webhook {text}: write the provider and an address, such as {example}")
    return provider, url


def _limit(text: str) -> SendLimit:
    try:
        return SendLimit(*parse_rate(text))
    except ValueError as error:
        raise WrongUsage(f"--limit: {error}") from None


def _faults(texts: list[str], file: Path | None, seed: int | None) -> FaultSettings:
    """The command line's faults before the file's; the command line's seed instead of the file's."""
    read = FaultSettings() if file is None else read_faults_file(file)
    return FaultSettings((*map(parse_fault, texts), *read.faults), read.seed if seed is None else seed)


def _shown(started: StartedSandbox, settings: SandboxSettings) -> Answer:
    url, *smtp = started.urls
    faults = [fault_text(fault) for fault in settings.faults.faults]
    lines: list[Line] = [f"Sandbox at {url}, seed {started.seed}. Ctrl-C ends it."]
    lines += [f"  mail caught   {url}/", f"  email API     {url}{SEND_PATH}", f"  truth         {url}/_sandbox/stats"]
    lines += [f"  SMTP          {one}" for one in smtp]
    for provider, facts in started.webhooks.items():
        (_, address), (setting, value) = facts.items()
        lines += [f"  tells         {address} as {provider}", f'                its route has {setting} = ["{value}"]']
    lines += [f"  fault         {text}" for text in faults] or ["  no faults     try --fault 503:share=0.2"]
    known: dict[str, object] = {"url": url, **({"smtp": smtp} if smtp else {}), "seed": started.seed, "faults": faults}
    return Answer({**known, **({"webhooks": started.webhooks} if started.webhooks else {})}, lines)
