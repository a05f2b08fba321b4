"""DKIM signatures, as dkimpy verifies them."""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import dkim
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as elliptic_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as rsa_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.config import RouteSettings
from posthouse.content import Content
from posthouse.core.outcome import Outcome, Subject
from posthouse.errors import ConfigError
from posthouse.providers.dkim import SIGNED, DkimSigner
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.mime import message_bytes
from posthouse.providers.port import OutgoingMessage, Provider
from posthouse.providers.registry import build_provider
from posthouse.setting_values import Secret
from tests.providers.messages import ADA, full_message, message
from tests.providers.smtp_server import scripted_server
from tests.providers.test_mime_properties import messages

DATE = 1_700_000_000.0
RSA = rsa_key(65537, 2048)
ED25519 = Ed25519PrivateKey.generate()


def pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8) -> str:
    return str(key.private_bytes(Encoding.PEM, form, NoEncryption()).decode())


def seed(key: Ed25519PrivateKey) -> str:
    return b64encode(key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())).decode()


RSA_RECORD = b"v=DKIM1; k=rsa; p=" + b64encode(
    RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
)
ED25519_RECORD = b"v=DKIM1; k=ed25519; p=" + b64encode(ED25519.public_key().public_bytes_raw())

KEYS = {
    "RSA, PKCS 8": (pem(RSA), RSA_RECORD),
    "RSA, PKCS 1": (pem(RSA, PrivateFormat.TraditionalOpenSSL), RSA_RECORD),
    "Ed25519, PEM": (pem(ED25519), ED25519_RECORD),
    "Ed25519, base64": (seed(ED25519), ED25519_RECORD),
}


def signer(key: str = pem(RSA)) -> DkimSigner:
    return DkimSigner("routes.main", "shop.example", "s1", Secret(key))


def verified(content: bytes, record: bytes = RSA_RECORD) -> bool:
    """What dkimpy says, with the record at the one place where it has to look."""

    def dns(name: bytes, timeout: int = 5) -> bytes | None:
        assert name == b"s1._domainkey.shop.example."
        return record

    return bool(dkim.verify(content, dnsfunc=dns))


def signed(given: OutgoingMessage) -> bytes:
    return signer().signed(message_bytes(given), given.date)


LISTED = (
    ("List-Unsubscribe", "<https://shop.example/u/" + "x" * 200 + ">"),
    ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
    ("List-Id", "News <news.shop.example>"),
)


@pytest.mark.parametrize(("key", "record"), KEYS.values(), ids=KEYS)
def test_a_signature_verifies(key: str, record: bytes) -> None:
    content = message_bytes(full_message(headers=LISTED, attachments=[Attachment(b"x" * 5000, "a.bin")]))
    result = signer(key).signed(content, DATE)
    assert result.endswith(content)
    assert verified(result, record)


@settings(deadline=None, print_blob=True, max_examples=60)
@given(messages())
def test_any_message_verifies_and_keeps_to_the_wires_rules(given: OutgoingMessage) -> None:
    result = signed(given)
    assert verified(result)
    header = result.partition(b"\r\nDate:")[0]
    assert max(map(len, header.split(b"\r\n"))) <= 78


@pytest.mark.parametrize(
    "raw",
    [
        b"From: orders@shop.example\r\nSubject:  a \t b\r\n\tfolded  \r\n\r\na  \t b \r\n\r\n \r\n\r\n",
        b"From: orders@shop.example\r\nX: 1\r\n\r\n",
        b"From: orders@shop.example\r\n",
        b"From: orders@shop.example\r\nTo: a@x.example\r\nTo: b@x.example\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n",
        b"FROM: orders@shop.example\r\nSubject:\r\n\r\n\r\n\r\nb\r\n",
    ],
)
def test_a_finished_message_verifies_however_it_is_written(raw: bytes) -> None:
    assert verified(signed(message(raw=raw)))


def test_a_relay_may_change_white_space_and_nothing_else() -> None:
    content = signed(full_message(text="two  words\r\nand more\r\n"))
    assert verified(content.replace(b"Subject: ", b"subject:   ").replace(b"Your order", b"Your\r\n order"))
    assert verified(content.replace(b"and more", b"and \t more  "))
    assert not verified(content.replace(b"Your order", b"Your offer"))
    assert not verified(content.replace(b"and more", b"and less"))
    assert not verified(content + b"PS\r\n")


@pytest.mark.parametrize(("name", "value"), LISTED)
def test_what_programs_act_on_is_covered(name: str, value: str) -> None:
    content = signed(message(headers=LISTED))
    line = f"{name}: {value}\r\n".encode()
    assert line in content
    assert not verified(content.replace(line, line.replace(value[1:3].encode(), b"zz")))
    assert not verified(content.replace(line, b""))


def test_every_header_that_people_see_is_covered_and_no_second_from_can_be_added() -> None:
    content = signed(full_message(headers=LISTED))
    (names,) = re.findall(rb"\bh=([^;]*);", content)
    listed = re.sub(rb"\s", b"", names).decode().split(":")
    wanted = "from to cc subject date message-id reply-to mime-version content-type list-id list-unsubscribe"
    assert {*wanted.split(), "list-unsubscribe-post"} <= set(listed) <= SIGNED
    assert listed.count("from") == 2
    assert not verified(b"From: eve@evil.example\r\n" + content)
    assert not verified(content.replace(b"\r\nTo: ", b"\r\nFrom: eve@evil.example\r\nTo: "))


def test_every_attempt_has_the_same_bytes() -> None:
    assert signed(message(date=DATE)) == signed(message(date=DATE))
    assert f" t={int(DATE)};".encode() in signed(message(date=DATE))


def test_the_key_is_read_anew_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text(pem(RSA), encoding="ascii")
    one = signer(f"file:{file}")
    content = message_bytes(message())
    assert verified(one.signed(content, DATE))
    file.write_text(seed(ED25519), encoding="ascii")
    assert verified(one.signed(content, DATE), ED25519_RECORD)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("nonsense", "is neither a private key in PEM without a password nor an Ed25519 key in base64"),
        (b64encode(b"short").decode(), "is neither a private key in PEM"),
        ("-----BEGIN PRIVATE KEY-----\nxx\n-----END PRIVATE KEY-----", "is neither a private key in PEM"),
        (pem(elliptic_key(SECP256R1())), "is neither an RSA nor an Ed25519 key"),
        ("file:/nowhere/key.pem", "the file /nowhere/key.pem can't be read"),
        ("env:NO_SUCH_VARIABLE_IS_SET", "the environment variable NO_SUCH_VARIABLE_IS_SET is not set"),
    ],
)
def test_a_key_that_is_none_is_named_without_showing_it(key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        signer(key).check()
    assert caught.value.setting == "routes.main.dkim_key"
    assert caught.value.reason.startswith(reason)


# The route.

DKIM = {"dkim_domain": "shop.example", "dkim_selector": "s1", "dkim_key": pem(RSA)}


def route(url: str = "smtp://mail.example", **changes: Any) -> Provider:
    model = RouteSettings.model_validate({"provider": "smtp", "url": url} | DKIM | changes)
    return build_provider("main", model, transport_factory=AiohttpTransport, now=lambda: 0.0)


async def test_what_goes_out_is_signed() -> None:
    async with scripted_server() as server:
        provider = route(f"smtp://127.0.0.1:{server.port}")
        verdict = await provider.send(message(text=".\nb"))
        await provider.close()
    assert verdict.outcome is Outcome.ACCEPTED
    assert verified(server.contents[0].replace(b"\r\n..", b"\r\n."))


async def test_a_key_that_can_not_be_read_stops_the_route_before_anything_is_sent() -> None:
    async with scripted_server() as server:
        provider = route(f"smtp://127.0.0.1:{server.port}", dkim_key="file:/nowhere/key.pem")
        verdict, health = await provider.send(message()), await provider.health()
        await provider.close()
    assert server.heard == []
    assert health is not None
    for one in (verdict, health):
        assert (one.outcome, one.code, one.subject) == (Outcome.MISCONFIGURED, "no_dkim_key", Subject.ROUTE)
        assert not one.spends_attempt
        assert "routes.main.dkim_key: the file /nowhere/key.pem can't be read" in one.text


@pytest.mark.parametrize(
    ("sender", "covered"),
    [
        ("orders@shop.example", True),
        ("orders@mail.shop.example", True),
        ("orders@example", False),
        ("orders@myshop.example", False),
        ("orders@shop.example.evil.example", False),
    ],
)
async def test_a_sender_of_another_domain_takes_another_route(sender: str, covered: bool) -> None:
    refusals = route().refusals(Content(to=(ADA,), sender=Address(sender), subject="s", text="t"))
    assert refusals == ([] if covered else [f"sender: this route signs for shop.example, not for {sender}"])
    if not covered:
        verdict = await route().send(message(sender=Address(sender)))
        assert (verdict.outcome, verdict.code) == (Outcome.REJECTED, "unsupported")


def test_domains_are_compared_in_their_ascii_form() -> None:
    provider = route(dkim_domain="Bücher.example")
    assert provider.refusals(Content(to=(ADA,), sender=Address("a@bücher.example"), subject="s", text="t")) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"dkim_key": None}, "routes.main.dkim_key: is missing: dkim_domain, dkim_selector and dkim_key go together"),
        ({"dkim_domain": "not a domain"}, "routes.main.dkim_domain: 'not a domain' is not a domain"),
        ({"dkim_selector": "-x"}, "routes.main.dkim_selector: '-x' is not a selector"),
    ],
)
def test_a_wrong_setting_is_named(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(complaint)):
        route(**changes)


def test_without_its_package_the_configuration_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"^routes\.main\.dkim_key: .*pip install 'posthouse\[dkim\]'"):
        route()
