"""The settings of an `smtp` route, next to those that every route has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import unquote, urlsplit

import idna
from pydantic import BeforeValidator, Field, PlainSerializer, field_validator

from posthouse.address import Address
from posthouse.config import Settings
from posthouse.core.bounce_address import KEY_CHARS, address_fault, bounce_address
from posthouse.errors import InvalidEmail
from posthouse.providers.mime_headers import ascii_domain
from posthouse.setting_values import Clash, Duration, PositiveDuration, SecretValue, SenderValue

_SELECTOR = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_HOSTNAME = re.compile(r"[A-Za-z0-9.-]+|\[[0-9A-Za-z:.]+\]")


class Security(StrEnum):
    """How a connection is encrypted."""

    TLS = "smtps"  # TLS from the first byte (RFC 8314)
    STARTTLS = "smtp+starttls"  # TLS before anything is said; a server without it is refused
    NONE = "smtp"  # never with a credential


_PORTS: Final = {Security.TLS: 465, Security.STARTTLS: 587, Security.NONE: 25}


@dataclass(frozen=True, slots=True)
class Server:
    """Where messages are handed in, and as whom."""

    security: Security
    host: str
    port: int
    user: str | None = None

    def __str__(self) -> str:
        user = "" if self.user is None else "…@"
        return f"{self.security}://{user}{self.host}:{self.port}"


def _server(value: object) -> Server:
    if isinstance(value, Server):
        return value
    text = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        security, host, port = Security(parts.scheme), parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.path.strip("/") or parts.query or parts.fragment or not text.isprintable() or " " in text:
        raise ValueError("is not an address such as smtp+starttls://user@smtp.example.com:587, smtps:// or smtp://")
    if parts.password is not None:
        raise ValueError("must not hold the password; give it as password")
    user = unquote(parts.username) if parts.username else None
    return Server(security, host, port or _PORTS[security], user)


class SmtpSettings(Settings):
    """`[routes.NAME]` with `provider = "smtp"`."""

    url: Annotated[Server, BeforeValidator(_server), PlainSerializer(str)] = Field(
        description=(
            "The server: `smtp+starttls://user@smtp.example.com:587` (TLS before anything is said, and nothing "
            "without it), `smtps://user@smtp.example.com:465` (TLS from the first byte) or `smtp://127.0.0.1:25` (no "
            "TLS, and so no credential). A user's name with an `@` is written with `%40`."
        )
    )
    password: SecretValue | None = Field(
        None,
        description=(
            "The password of the user in `url`, or the access token for `xoauth2`: `env:NAME` or `file:PATH`. Read "
            "anew for each connection."
        ),
    )
    auth_method: Literal["plain", "login", "cram-md5", "xoauth2"] | None = Field(
        None, description="How to authenticate. Default: the first of `plain`, `login`, `cram-md5` that is offered."
    )
    envelope_sender: SenderValue | None = Field(
        None, description="The address that bounces go to (MAIL FROM). Default: the email's own From."
    )
    bounce_address: str | None = Field(
        None,
        description=(
            "The same, with the send's id in it, such as `bounces+{id}@shop.example`: whatever comes back says which "
            "send it is about, in any words. What comes there must be read: see `posthouse bounce`."
        ),
    )
    local_hostname: str | None = Field(
        None, description="The name that we greet with (EHLO). Default: our own address, such as `[192.0.2.7]`."
    )
    ca_file: Path | None = Field(
        None, description="A PEM file with the authorities to trust instead of the system's, for a private server."
    )
    max_messages: int = Field(
        100, ge=1, description="So many messages on one connection; then it is closed and another one made."
    )
    idle_close: Duration = Field(
        "30s",  # type: ignore[assignment]
        description="How long an idle connection is kept; `0s` makes one for each message.",
    )
    content_timeout: PositiveDuration = Field(
        "3m",  # type: ignore[assignment]
        description="The longest time for the content to leave, its final dot excluded.",
    )
    final_timeout: PositiveDuration = Field(
        "10m",  # type: ignore[assignment]
        description=(
            "The wait for the answer after the final dot. A short one makes duplicates: the server has the message "
            "and we don't know it (RFC 1047, RFC 5321 section 4.5.3.2.6)."
        ),
    )

    dkim_domain: str | None = Field(
        None,
        description=(
            "Sign with DKIM for this domain (`d=`): that of the From, or one above it. Needs `pip install "
            "'posthouse[dkim]'`, `dkim_selector` and `dkim_key`."
        ),
    )
    dkim_selector: str | None = Field(
        None, description="Where the public key is: the TXT record at `SELECTOR._domainkey.DOMAIN`."
    )
    dkim_key: SecretValue | None = Field(
        None,
        description=(
            "The private key: RSA or Ed25519 in PEM, or an Ed25519 key in base64, as `file:PATH` or `env:NAME`. Read "
            "anew for each message."
        ),
    )

    @field_validator("local_hostname")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not _HOSTNAME.fullmatch(value):
            raise ValueError(f"{value!r} is neither a host's name nor an address in brackets such as [192.0.2.7]")
        return value

    @field_validator("bounce_address")
    @classmethod
    def _is_a_bounce_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if (fault := address_fault(value)) is not None:
            raise ValueError(fault)
        try:
            ascii_domain(Address(bounce_address(value, "0" * KEY_CHARS)).checked("bounce_address"))
        except InvalidEmail as error:
            raise ValueError(error.reason) from None
        return value

    @field_validator("ca_file")
    @classmethod
    def _readable(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError(f"there is no file {value}")
        return value

    def clashes(self) -> Iterator[Clash]:
        """One address for bounces, a whole credential that is encrypted, and a whole signature."""
        yield from super().clashes()
        if self.bounce_address and self.envelope_sender:
            yield "bounce_address", "is the address that bounces go to, and so is envelope_sender; give one"
        yield from self._wrong_credential()
        if self.ca_file is not None and self.url.security is Security.NONE:
            yield "ca_file", "is of no use with smtp://, which has no TLS"
        signed = {"dkim_domain": self.dkim_domain, "dkim_selector": self.dkim_selector, "dkim_key": self.dkim_key}
        missing = [name for name, value in signed.items() if value is None]
        if len(missing) < len(signed):
            for name in missing:
                yield name, "is missing: dkim_domain, dkim_selector and dkim_key go together"

    def _wrong_credential(self) -> Iterator[Clash]:
        user, encrypted = self.url.user, self.url.security is not Security.NONE
        if not encrypted and (user or self.password or self.auth_method):
            yield "url", "a credential never goes over smtp://, which is clear text; use smtp+starttls:// or smtps://"
        elif user and self.password is None:
            yield "password", "is missing: the url names a user"
        elif user is None and (self.password or self.auth_method):
            yield "url", "names no user, whom password and auth_method need: smtp+starttls://user@host:587"

    @field_validator("dkim_domain")
    @classmethod
    def _in_a_labels(cls, value: str | None) -> str | None:
        try:
            return None if value is None else idna.encode(value, uts46=True).decode()
        except idna.IDNAError:
            raise ValueError(f"{value!r} is not a domain") from None

    @field_validator("dkim_selector")
    @classmethod
    def _is_a_selector(cls, value: str | None) -> str | None:
        if value is not None and not _SELECTOR.fullmatch(value):
            raise ValueError(f"{value!r} is not a selector: letters, digits, hyphens and dots")
        return value
