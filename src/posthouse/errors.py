"""Exceptions, split by who must act: the caller, the operator, or us.

Expected outcomes of a send are values (`core.outcome`), never exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime


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


class QueueFull(CallerError):
    """So much waits already that this email is refused; later there may be room. Urgent mail is never refused.

    `setting` is what is full, such as `outbox.max_pending`; `pending` is what was counted, about.
    """

    def __init__(self, setting: str, max_pending: int, pending: int, priority: str, count: int) -> None:
        self.setting = setting
        self.max_pending = max_pending
        self.pending = pending
        self.priority = priority
        self.count = count
        what = f"{count:,} more emails are" if count > 1 else "another email is"
        super().__init__(
            f"{pending:,} sends are pending and {setting} is {max_pending:,}: {what} refused ({priority} mail); try "
            "again later, and see why so much waits with: posthouse status"
        )


class TooSoon(CallerError):
    """Another email of this type and family was asked for within the type's cooldown.

    `again_in_s` and `again_at` (an aware datetime) say when the next one may be, by the database's clock.
    """

    def __init__(self, type_: str, family: str, again_in_s: float, again_at: datetime) -> None:
        self.type = type_
        self.family = family
        self.again_in_s = again_in_s
        self.again_at = again_at
        super().__init__(
            f"another email of the family {family!r} was asked for a moment ago; the next one may be in "
            f"{again_in_s:.0f} s (types.{type_}.cooldown)"
        )


class UnsupportedConnection(CallerError, TypeError):
    """`enqueue` was handed something it can't write through."""


class OperatorError(PosthouseError):
    """Whoever runs Posthouse must change a setting, a file or a service."""


class ConfigError(OperatorError):
    """A setting is missing or wrong. `setting` is its dotted name, such as `routes.main.timeout`.

    `others` are what else was found to be wrong with it; the text has a line for each.
    """

    def __init__(self, setting: str, reason: str, others: Sequence[ConfigError] = ()) -> None:
        self.setting = setting
        self.reason = reason
        self.others = tuple(others)
        said = f"{setting}: {reason}" if setting else reason
        super().__init__("\n".join([said, *(str(other) for other in others)]))

    @classmethod
    def together(cls, faults: Iterable[ConfigError]) -> ConfigError:
        """One error that tells of all of these; at least one."""
        first, *others = (single for fault in faults for single in fault.faults)
        return cls(first.setting, first.reason, others)

    @property
    def faults(self) -> tuple[ConfigError, ...]:
        """Each by itself, in the order in which they were found."""
        return ConfigError(self.setting, self.reason), *self.others


class DatabaseUnavailable(OperatorError):
    """The database did not answer, or not in time. Nothing is known about the statement's effect."""


class MailboxUnavailable(OperatorError):
    """A mailbox did not answer, or refused something. What was not written down stays in it as it is."""


class SchemaError(OperatorError):
    """The tables are missing, older or newer than this release."""


class NotPossible(CallerError):
    """A command that the send's state does not allow; the text says what is possible instead."""


class UnknownSend(CallerError, LookupError):
    """No send has this key or id."""
