"""Exceptions, split by who must act: the caller, the operator, or us.

Expected outcomes of a send are values (`core.outcome`), never exceptions.
"""

from __future__ import annotations


class PosthouseError(Exception):
    """Everything Posthouse raises on purpose."""


class CallerError(PosthouseError):
    """The calling code must change something; nothing was written and its transaction stays usable."""


class InvalidEmail(CallerError, ValueError):
    """An email that can't be sent as it is. `field` names what is wrong, `reason` says why."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")


class KeyReused(CallerError):
    """The key already stands for an email with other content; the stored one is unchanged."""

    def __init__(self, key: str, send_id: int) -> None:
        self.key = key
        self.send_id = send_id
        super().__init__(
            f"key {key!r} is already used by send {send_id} with other content; "
            f"a new email needs a new key (look at it with: posthouse show {key})"
        )


class UnsupportedConnection(CallerError, TypeError):
    """`enqueue` was handed something it can't write through."""


class OperatorError(PosthouseError):
    """Whoever runs Posthouse must change a setting, a file or a service."""


class ConfigError(OperatorError):
    """A setting is missing or wrong. `setting` is its dotted name, such as `routes.main.timeout`."""

    def __init__(self, setting: str, reason: str) -> None:
        self.setting = setting
        self.reason = reason
        super().__init__(f"{setting}: {reason}" if setting else reason)


class DatabaseUnavailable(OperatorError):
    """The database did not answer, or not in time. Nothing is known about the statement's effect."""


class SchemaError(OperatorError):
    """The tables are missing, older or newer than this release."""


class NotPossible(CallerError):
    """A command that the send's state does not allow; the text says what is possible instead."""


class UnknownSend(CallerError, LookupError):
    """No send has this key or id."""
