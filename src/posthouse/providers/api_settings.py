"""The settings that every route to an HTTP API has, next to those of any route."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator

from posthouse.config import Settings
from posthouse.providers.nearby import in_clear_text
from posthouse.setting_values import Clash, Duration, SecretValue

Ignorable = Literal[
    "from",
    "subject",
    "reply_to",
    "text",
    "html",
    "alternatives",
    "attachments",
    "inline",
    "part_headers",
    "headers",
    "tags",
    "metadata",
    "message_id",
    "envelope_sender",
    "track_opens",
    "track_clicks",
]


def url_value(value: object) -> str:
    """An address of an API. Raises ValueError."""
    text = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("is not an address such as https://api.example.com/v1/send")
    if parts.username is not None:
        raise ValueError("must not hold credentials; give auth, username and password")
    return text.partition("#")[0]


UrlValue = Annotated[str, BeforeValidator(url_value)]


class UrlSettings(Settings):
    """Where an API is. Each provider gives `url` a default."""

    url: UrlValue = Field(description="Where the API is.")

    def at(self, path: str) -> str:
        """An address of the API, where `url` is its root."""
        return self.url.rstrip("/") + path


class KeySettings(UrlSettings):
    """What lets us in, where that is one key."""

    api_key: SecretValue = Field(
        description=(
            "The key that lets us in: `env:NAME` or `file:PATH`. Read at the first call, and again after the provider "
            "refused it."
        )
    )


class CallSettings(UrlSettings):
    """How an API is called, whatever lets us in."""

    ignore: frozenset[Ignorable] = Field(
        frozenset(),
        description=(
            "Parts of an email that may be left out silently where the API has no place for them, such as `tags` or "
            "`message_id`. An email with any other such part is refused when it is enqueued."
        ),
    )
    health_url: UrlValue | None = Field(
        None, description="An address that answers 2xx, with GET, while the provider is well. It must not send mail."
    )
    keepalive: Duration = Field(
        "15s",  # type: ignore[assignment]
        description=(
            "How long an idle connection is kept for the next call; `0s` makes one for each. Keep it below the "
            "provider's own idle time: a connection closed just as it is used leaves the outcome unknown."
        ),
    )
    ca_file: Path | None = Field(
        None, description="A PEM file with the authorities to trust instead of the system's, for a private API."
    )

    @property
    def has_credential(self) -> bool:
        """Whether a call carries something that lets us in."""
        return True

    @property
    def addresses(self) -> dict[str, str | None]:
        """Where calls go, by setting."""
        return {"url": self.url, "health_url": self.health_url}

    def clashes(self) -> Iterator[Clash]:
        """A credential goes in clear text to nobody but a host nearby."""
        yield from super().clashes()
        for setting, url in self.addresses.items():
            if url is not None and self.has_credential and in_clear_text(url):
                yield setting, f"a credential never goes over http:// to {urlsplit(url).hostname}; use https://"

    @field_validator("ca_file")
    @classmethod
    def _readable(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError(f"there is no file {value}")
        return value


class ApiSettings(CallSettings, KeySettings):
    """`[routes.NAME]` of a provider with an HTTP API that takes a key."""
