"""`posthouse sandbox`: its options, read and told."""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from posthouse.cli import sandbox
from posthouse.sandbox.fault_text import fault_text
from posthouse.sandbox.running import SandboxSettings, StartedSandbox
from tests.cli.conftest import Shell


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[SandboxSettings]:
    """The settings that a sandbox would have been run with; it says that it started, and ends at once."""
    seen: list[SandboxSettings] = []

    def run(settings: SandboxSettings, started: Callable[[StartedSandbox], None]) -> None:
        seen.append(settings)
        smtp = [] if settings.smtp_port is None else [f"smtp://127.0.0.1:{settings.smtp_port}"]
        webhooks = {name: {"url": url, "webhook_secrets": "whsec_x"} for name, url in settings.webhooks.items()}
        started(StartedSandbox(["http://127.0.0.1:8025", *smtp], 7, webhooks))

    monkeypatch.setattr(sandbox, "run_sandbox", run)
    return seen


def test_a_sandbox_needs_no_configuration_and_tells_where_it_is(empty_shell: Shell, given: list[Any]) -> None:
    ran = empty_shell.run("sandbox")

    assert ran.code == 0
    assert "Sandbox at http://127.0.0.1:8025, seed 7." in ran.out
    assert "http://127.0.0.1:8025/v1/send" in ran.out
    assert (given[0].host, given[0].port, given[0].idempotency, given[0].look_up) == ("127.0.0.1", 8025, True, True)


def test_to_whom_it_tells_what_and_what_lets_that_in_is_said(empty_shell: Shell, given: list[Any]) -> None:
    url = "http://127.0.0.1:8026/webhooks/main"
    ran = empty_shell.run("sandbox", "--webhook", f"resend={url}", "--webhook-secret", "s3cret")

    assert f"tells         {url} as resend" in ran.out
    assert 'its route has webhook_secrets = ["whsec_x"]' in ran.out
    assert (given[0].webhooks, given[0].webhook_secret) == ({"resend": url}, "s3cret")
    assert empty_shell.json("sandbox", "--webhook", f"resend={url}")["webhooks"]["resend"]["url"] == url


@pytest.mark.parametrize("text", ["resend", "resend=", "=http://127.0.0.1/", "resend=127.0.0.1:8026", "resend=ftp://x"])
def test_a_webhook_without_a_provider_or_an_address_is_refused(empty_shell: Shell, text: str) -> None:
    ran = empty_shell.run("sandbox", "--webhook", text)

    assert ran.code == 2
    assert "write the provider and an address" in ran.err


def test_every_option_reaches_the_sandbox(
    empty_shell: Shell, given: list[SandboxSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_KEY", "s3cret")
    (empty_shell.folder / "faults.toml").write_text('faults = ["slow=8s"]\nseed = 3\n')

    document = empty_shell.json(
        *("sandbox", "--host", "localhost", "--port", "0", "--fault", "503:share=0.2", "--fault", "429"),
        *("--faults", "faults.toml", "--no-idempotency", "--no-look-up", "--look-up-lag", "5s"),
        *("--api-key", "env:SANDBOX_KEY"),
    )

    settings = given[0]
    assert [fault_text(fault) for fault in settings.faults.faults] == ["503:share=0.2", "429", "slow=8s"]
    assert (settings.host, settings.port, settings.api_key, settings.look_up_lag_s) == ("localhost", 0, "s3cret", 5.0)
    assert (settings.idempotency, settings.look_up, settings.faults.seed) == (False, False, 3)
    assert document == {
        "url": "http://127.0.0.1:8025",
        "seed": 7,
        "faults": ["503:share=0.2", "429", "slow=8s"],
    }


def test_smtp_is_asked_for_and_told(empty_shell: Shell, given: list[SandboxSettings]) -> None:
    args = ("sandbox", "--smtp-port", "1025", "--smtps-port", "1465", "--certificate", "sandbox.pem")

    assert "SMTP          smtp://127.0.0.1:1025" in empty_shell.run(*args).out
    assert empty_shell.json(*args)["smtp"] == ["smtp://127.0.0.1:1025"]
    assert (given[0].smtp_port, given[0].smtps_port, str(given[0].certificate)) == (1025, 1465, "sandbox.pem")


def test_a_sandbox_takes_mail_over_smtp_with_tls_and_a_password(empty_shell: Shell) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(empty_shell.folder / "own.pem"))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    process = empty_shell.start(
        *("sandbox", "--port", "0", "--smtp-port", "0", "--smtps-port", "0", "--certificate", "own.pem"),
        *("--api-key", "s3cret", "--fault", "451:at=rcpt,first=1", "--json"),
    )
    assert process.stdout is not None
    started = json.loads(process.stdout.readline())
    starttls, implicit = (urlsplit(url) for url in started["smtp"])
    assert (starttls.scheme, implicit.scheme) == ("smtp", "smtps")

    with smtplib.SMTP("127.0.0.1", starttls.port or 0, timeout=10) as client:
        client.starttls(context=trust)
        client.login("apikey", "s3cret")
        with pytest.raises(smtplib.SMTPRecipientsRefused):
            client.sendmail("shop@shop.example", ["ada@example.com"], "Message-ID: <1@x>\r\n\r\nHi")
    with smtplib.SMTP_SSL("127.0.0.1", implicit.port or 0, timeout=10, context=trust) as client:
        client.login("apikey", "s3cret")
        client.sendmail("shop@shop.example", ["ada@example.com"], "Message-ID: <1@x>\r\n\r\nHi")
    with urllib.request.urlopen(f"{started['url']}/_sandbox/stats") as answer:  # noqa: S310  # our own sandbox
        stats = json.load(answer)
    assert (stats["accepted"], stats["faults"]) == (1, {"451:first=1,at=rcpt": 1})


def test_the_command_lines_seed_is_taken_before_the_files(empty_shell: Shell, given: list[SandboxSettings]) -> None:
    (empty_shell.folder / "faults.json").write_text('{"faults": [], "seed": 3}')

    empty_shell.run("sandbox", "--faults", "faults.json", "--seed", "9")

    assert given[0].faults.seed == 9


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--fault", "slwo=8s"], "did you mean 'slow'?"),
        (["--faults", "missing.toml"], "missing.toml: can't be read"),
        (["--limit", "10"], "--limit: '10' is not a rate"),
        (["--look-up-lag", "5"], "--look-up-lag: '5' is not a duration"),
        (["--api-key", "env:NO_SUCH_KEY"], "NO_SUCH_KEY is not set"),
        (["--port", "99999"], "--port"),
        (["--smtps-port", "0"], "smtps-port: needs a certificate"),
        (["--port", "0", "--certificate", "missing.pem"], "missing.pem: no PEM file with a certificate and its key"),
        (["--host", "192.0.2.1"], "can't listen on 192.0.2.1"),
    ],
)
def test_what_is_wrong_is_said_before_it_starts(empty_shell: Shell, args: list[str], said: str) -> None:
    ran = empty_shell.run("sandbox", *args)

    assert ran.code == 2
    assert said in ran.err
