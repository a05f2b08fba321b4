"""How the processes of Posthouse behave: workers, the web server, whoever reads a mailbox."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from posthouse.setting_values import (
    Clash,
    FolderName,
    PositiveDuration,
    PositiveSize,
    SecretValue,
    SenderValue,
    Settings,
    text_of_form,
)

_PUBLIC_URL: Final = text_of_form(
    r"https?://[^\s/?#]+(/[^\s?#]*)?", "an address such as https://mail.shop.example, without ? and #"
)

LINKABLE_URL: Final = re.compile(r"https://[\w.:\[\]-]+(/[\w.~/%-]*)?", re.ASCII)
"""What can begin a link in a header: RFC 8058 section 3.1 takes HTTPS alone."""
LINKABLE_URL_CHARS_MAX: Final = 200
"""With the longest address's token behind it the header is still one line of 998 bytes."""


class WorkerSettings(Settings):
    """`[worker]`: how worker processes behave. Most installations need none of these."""

    shutdown_grace: PositiveDuration = Field(
        "30s",  # type: ignore[assignment]
        description="After SIGTERM: the time to finish the calls that are under way. Keep it above every `timeout`.",
    )
    poll_min: PositiveDuration = Field("250ms", description="The shortest wait between looks for due mail when idle.")  # type: ignore[assignment]
    poll_max: PositiveDuration = Field("600ms", description="The longest wait between looks for due mail when idle.")  # type: ignore[assignment]
    heartbeat: PositiveDuration = Field("3s", description="How often a worker says that it lives.")  # type: ignore[assignment]
    dead_after: PositiveDuration = Field(
        "15s",  # type: ignore[assignment]
        description=(
            "A worker that was silent for so long is dead; its open calls become unknown. It starts no call itself "
            "once it could not say that it lives for half of this."
        ),
    )
    sweep: PositiveDuration = Field(
        "5s",  # type: ignore[assignment]
        description="How often to look for dead workers, ended lives, dependencies and unknown outcomes.",
    )

    def clashes(self) -> Iterator[Clash]:
        """Beats come before death, and the shortest wait is no longer than the longest."""
        if self.heartbeat * 3 > self.dead_after:
            yield "dead_after", "must be at least three heartbeats"
        if self.poll_min > self.poll_max:
            yield "poll_min", "is longer than poll_max"


class MailboxSettings(Settings):
    """`[mailboxes.NAME]`: a mailbox that bounces come to, read over IMAP. Give it to nobody else."""

    host: str = Field(description="The IMAP server.")
    port: int | None = Field(None, ge=1, le=65535, description="Its port. Default: 993, or 143 with `starttls`.")
    security: Literal["tls", "starttls"] = Field(
        "tls", description="TLS from the first byte, or before anything is said. There is no way without it."
    )
    user: str = Field(description="The user.")
    password: SecretValue = Field(description="The user's password.")
    folder: FolderName = Field("INBOX", description="The folder that is read: what is unread in it.")
    move_to: FolderName | None = Field(
        None,
        description=(
            "The folder that read mail is moved to, once it is written down. What nobody understands stays, marked as "
            "read. Default: all of it stays, marked as read."
        ),
    )
    route: str | None = Field(None, description="The route for what is about no send that is known.")
    ca_file: Path | None = Field(
        None, description="A PEM file with the authorities to trust instead of the system's, for a private server."
    )
    timeout: PositiveDuration = Field("60s", description="The longest wait for each of the server's answers.")  # type: ignore[assignment]


class WebSettings(Settings):
    """`[web]`: where `posthouse serve` listens, and to what."""

    host: str = Field(
        "127.0.0.1", description="Where it listens. Put it behind a server that speaks TLS with the world."
    )
    port: int = Field(8026, ge=0, le=65535, description="The port; `0` for any free one.")
    public_url: Annotated[str, _PUBLIC_URL] | None = Field(
        None,
        description=(
            "Where the world reaches it, such as `https://mail.shop.example`; it tells at its start which address each "
            "provider is to call, and links in messages begin with it. Default: where it listens."
        ),
    )
    unsubscribe_secrets: tuple[SecretValue, ...] = Field(
        (),
        description=(
            "Secrets of the links by which people unsubscribe: the first signs new ones, each of them verifies. Read "
            "at the start of a process. Needs a `public_url` with `https://`."
        ),
    )
    unsubscribe_mailto: SenderValue | None = Field(
        None,
        description=(
            "An address that people read, for mail programs that unsubscribe by mail alone; it stands beside the link."
        ),
    )
    body_max: PositiveSize = Field(
        "4MB",  # type: ignore[assignment]
        description="The largest call that it reads. It is held in memory, before anybody knows whom it comes from.",
    )
    shutdown_grace: PositiveDuration = Field(
        "10s",  # type: ignore[assignment]
        description="After SIGTERM: the time to answer the calls that are under way.",
    )

    @property
    def has_unsubscribe_links(self) -> bool:
        """Whether messages can have a link by which people unsubscribe."""
        return self.public_url is not None and bool(self.unsubscribe_secrets)

    def clashes(self) -> Iterator[Clash]:
        """What links need to be of use."""
        url = self.public_url or ""
        if self.unsubscribe_secrets and not LINKABLE_URL.fullmatch(url):
            yield "unsubscribe_secrets", "need a public_url such as https://mail.shop.example, in ASCII"
        if self.unsubscribe_secrets and len(url) > LINKABLE_URL_CHARS_MAX:
            yield "public_url", f"has at most {LINKABLE_URL_CHARS_MAX} characters where links begin with it"
        if self.unsubscribe_mailto is not None and not self.unsubscribe_secrets:
            yield "unsubscribe_mailto", "stands beside the link: give unsubscribe_secrets as well"
        if self.unsubscribe_mailto is not None and not self.unsubscribe_mailto.email.isascii():
            yield "unsubscribe_mailto", "must be in ASCII, with its domain as xn--…"
