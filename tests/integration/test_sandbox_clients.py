"""The sandbox's SMTP server as clients see it that nobody here wrote: swaks, and Postfix's smtp-source."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import trustme

from posthouse.sandbox.ledger import CallResult, Ledger
from posthouse.sandbox.received import read_message
from posthouse.sandbox.smtp import serve_smtp
from tests.integration.programs import ENDS_WITHIN_S, program
from tests.sandbox.conftest import make_bench

SENDER, ADA, BOB = "shop@shop.example", "ada@example.com", "bob@example.com"
PASSWORD = "swordfish"


@dataclass(frozen=True)
class Certified:
    """A certificate for 127.0.0.1, as a server has it, and the file with the authority that vouches for it."""

    server: ssl.SSLContext
    authority: Path


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    authority, file = trustme.CA(), tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return Certified(context, file)


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that listens."""

    ledger: Ledger
    port: int


@asynccontextmanager
async def sandbox(
    *faults: str, tls: ssl.SSLContext | None = None, implicit_tls: bool = False, **settings: Any
) -> AsyncIterator[Sandbox]:
    bench = make_bench(*faults, **settings)
    server = await serve_smtp(bench.api, clock=bench.clock, tls=tls, implicit_tls=implicit_tls)
    try:
        yield Sandbox(bench.ledger, server.port)
    finally:
        await server.close()


async def run(*command: str) -> tuple[int, str]:
    """A program to its end: its exit code and all that it said."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), ENDS_WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, said.decode(errors="replace")


async def swaks(to: Sandbox, *options: str, recipients: str = ADA) -> tuple[int, str]:
    """One message by swaks; its exit code and its transcript of the conversation."""
    where = ["--server", "127.0.0.1", "--port", str(to.port), "--helo", "shop.example", "--timeout", "5s"]
    envelope = ["--from", SENDER, "--to", recipients]
    return await run(program("swaks", "swaks"), *where, *envelope, *options)


def replies(transcript: str) -> list[int]:
    """The codes of the server's replies, one a reply."""
    return [int(code) for code in re.findall(r"^<[~*-][ *-] +(\d{3}) ", transcript, re.MULTILINE)]


# Messages.


async def test_a_message_is_taken_and_the_transcript_is_that_of_a_server() -> None:
    async with sandbox() as server:
        code, transcript = await swaks(server, "--body", "Thank you.", "--header", "Subject: Your order")
        assert code == 0, transcript
        assert replies(transcript) == [220, 250, 250, 250, 354, 250, 221]
        (accepted,) = server.ledger.acceptances
    assert (accepted.envelope_sender, accepted.recipients, accepted.subject) == (SENDER, (ADA,), "Your order")
    assert f"queued as {accepted.message_id}" in transcript
    assert accepted.raw is not None
    assert accepted.raw.endswith(b"\r\n\r\nThank you.\r\n\r\n\r\n")


async def test_what_is_hard_about_a_message_arrives() -> None:
    words = r".\n..\n.hidden\nGrüße\n" + "x" * 990
    async with sandbox() as server:
        code, transcript = await swaks(server, "--body", words, "--header", "Subject: Grüße", "--attach", "a file\\n")
        assert code == 0, transcript
        (accepted,) = server.ledger.acceptances
    assert accepted.raw is not None
    caught = read_message(accepted.raw)
    body = caught.body
    assert body["subject"] == "Grüße"
    assert body["text"].splitlines() == words.split(r"\n")
    assert [len(file.content) for file in caught.files] == [len("a file\\n")]


async def test_commands_that_come_together_are_taken() -> None:
    async with sandbox("550:at=rcpt,to=bob@example.com") as server:
        code, transcript = await swaks(server, "--pipeline", recipients=f"{BOB},{ADA}")
        assert code == 0, transcript
        assert replies(transcript) == [220, 250, 250, 550, 250, 354, 250, 221]
        assert [one.recipients for one in server.ledger.acceptances] == [(ADA,)]


async def test_a_client_that_leaves_before_its_final_dot_has_sent_nothing() -> None:
    async with sandbox() as server:
        code, transcript = await swaks(server, "--drop-after", "DATA")
        assert code == 0, transcript
        assert replies(transcript)[-1] == 354
        assert (await swaks(server))[0] == 0
        assert len(server.ledger.acceptances) == 1


async def test_many_sessions_at_once_lose_nothing() -> None:
    sessions, messages, recipients = "8", "96", "3"
    async with sandbox() as server:
        many = ["-s", sessions, "-m", messages, "-r", recipients, "-N", "-d", "-l", "5000"]
        addresses = ["-f", SENDER, "-t", ADA, "-M", "shop.example"]
        code, said = await run(program("smtp-source", "postfix"), *many, *addresses, f"inet:127.0.0.1:{server.port}")
        assert code == 0, said
        assert server.ledger.results == {CallResult.ACCEPTED: 96}
        taken = [recipient for one in server.ledger.acceptances for recipient in one.recipients]
    assert len(set(taken)) == 96 * 3


# Encryption and passwords.


@pytest.mark.parametrize("implicit", [False, True], ids=["STARTTLS", "TLS from the start"])
async def test_the_certificate_can_be_verified(certified: Certified, implicit: bool) -> None:
    way = "--tls-on-connect" if implicit else "--tls"
    trust = ["--tls-verify", "--tls-ca-path", str(certified.authority)]
    async with sandbox(tls=certified.server, implicit_tls=implicit) as server:
        code, transcript = await swaks(server, way, *trust)
        assert code == 0, transcript
        assert "=== TLS started with cipher TLSv1.3" in transcript
        code, transcript = await swaks(server, way, "--tls-verify")
        assert code == 29, transcript
        assert len(server.ledger.acceptances) == 1


@pytest.mark.parametrize("implicit", [False, True], ids=["STARTTLS", "TLS from the start"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "CRAM-MD5"])
async def test_a_password_lets_in_and_a_wrong_one_does_not(
    certified: Certified, mechanism: str, implicit: bool
) -> None:
    way = ["--tls-on-connect" if implicit else "--tls", "--auth", mechanism, "--auth-user", "shop"]
    async with sandbox(tls=certified.server, implicit_tls=implicit, api_key=PASSWORD) as server:
        code, transcript = await swaks(server, *way, "--auth-password", PASSWORD)
        assert code == 0, transcript
        assert 235 in replies(transcript)
        code, transcript = await swaks(server, *way, "--auth-password", "guessed")
        assert code == 28, transcript
        assert "535 5.7.8" in transcript
        assert server.ledger.results == {CallResult.ACCEPTED: 1, CallResult.UNAUTHORISED: 1}


async def test_nobody_is_asked_for_a_password_in_clear_text(certified: Certified) -> None:
    async with sandbox(tls=certified.server, api_key=PASSWORD) as server:
        code, transcript = await swaks(server, "--auth", "PLAIN", "--auth-user", "shop", "--auth-password", PASSWORD)
        assert code == 28, transcript
        assert "Host did not advertise authentication" in transcript
        code, transcript = await swaks(server)
        assert code == 23, transcript
        assert "530 5.7.0 Must issue a STARTTLS command first" in transcript


async def test_without_a_password_nothing_is_taken() -> None:
    async with sandbox(api_key=PASSWORD) as server:
        code, transcript = await swaks(server)
        assert code == 23, transcript
        assert "530 5.7.0 Authentication required" in transcript
        assert not server.ledger.acceptances


# Faults.

FAULTS: Final = {
    "554:at=banner": 21,
    "502:at=ehlo": 22,
    "502:at=ehlo,first=1,per=all": 0,  # it says HELO instead
    "450:at=mail": 23,
    "550:at=rcpt": 24,
    "451:at=data": 25,
    "554:at=dot": 26,
    "drop:at=data": 6,
    "drop-accepted:at=dot": 6,
    "truncated:at=dot": 6,
    "454:at=starttls": 29,
    "535:at=auth": 28,
}
"""A fault of the sandbox, and the exit code with which swaks names it."""


@pytest.mark.parametrize(("fault", "means"), FAULTS.items())
async def test_a_fault_is_what_it_is_called(certified: Certified, fault: str, means: int) -> None:
    encrypted = ["--tls", "--auth", "PLAIN", "--auth-user", "shop", "--auth-password", PASSWORD]
    options = encrypted if fault.endswith(("starttls", "auth")) else []
    async with sandbox(fault, tls=certified.server if options else None) as server:
        code, transcript = await swaks(server, *options)
        assert code == means, transcript
        assert len(server.ledger.acceptances) == (means == 0 or "accepted" in fault or "truncated" in fault)
