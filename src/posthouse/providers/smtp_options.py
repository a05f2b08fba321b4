"""What one email may ask of an `smtp` route: its `options`, under `smtp` or the route's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator

from posthouse.errors import ConfigError
from posthouse.setting_faults import validated

Report = Literal["never", "success", "failure", "delay"]


class SmtpOptions(BaseModel):
    """What else the server is told. One that doesn't offer it gets no message: nothing asked for is left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    require_tls: StrictBool = Field(
        False, description="Every server on the way to the recipient must use TLS, or send it back (RFC 8689)."
    )
    dsn_notify: tuple[Report, ...] = Field(
        (),
        description=(
            "What the sender's mailbox (MAIL FROM) gets a report about: a list of `success`, `failure`, `delay`, or "
            "`never` alone (RFC 3461)."
        ),
    )
    dsn_return: Literal["full", "headers"] | None = Field(
        None, description="How much of the message a report of a failure holds."
    )

    @field_validator("dsn_notify")
    @classmethod
    def _never_is_alone(cls, value: tuple[Report, ...]) -> tuple[Report, ...]:
        if "never" in value and len(value) > 1:
            raise ValueError("never stands alone")
        return value

    @property
    def needs(self) -> frozenset[str]:
        """The extensions that the server must offer for it."""
        reports = {"dsn"} if self.dsn_notify or self.dsn_return else set()
        return frozenset({"requiretls"} | reports if self.require_tls else reports)

    @property
    def for_mail(self) -> list[str]:
        """Parameters of MAIL."""
        returned = {"full": ["RET=FULL"], "headers": ["RET=HDRS"], None: []}[self.dsn_return]
        return [*(["REQUIRETLS"] if self.require_tls else []), *returned]

    @property
    def for_rcpt(self) -> list[str]:
        """Parameters of RCPT."""
        return [f"NOTIFY={','.join(self.dsn_notify).upper()}"] if self.dsn_notify else []


NO_OPTIONS: Final = SmtpOptions()


def refused_options(table: Mapping[str, Any]) -> list[str]:
    """What is wrong with them, empty where nothing is."""
    try:
        validated(SmtpOptions, table, "options")
    except ConfigError as error:
        return [str(fault) for fault in error.faults]
    return []
