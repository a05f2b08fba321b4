"""How the processes of Posthouse behave: workers, the web server, whoever reads a mailbox."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from posthouse.setting_values import FolderName, PositiveDuration, PositiveSize, SecretValue, Settings


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

    @model_validator(mode="after")
    def _beats_before_death(self) -> Self:
        if self.heartbeat * 3 > self.dead_after:
            raise ValueError("dead_after must be at least three heartbeats")
        if self.poll_min > self.poll_max:
            raise ValueError("poll_min is longer than poll_max")
        return self


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
    public_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$",
        description=(
            "Where the world reaches it, such as `https://mail.shop.example`; it tells at its start which address each "
            "provider is to call. Default: where it listens."
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
