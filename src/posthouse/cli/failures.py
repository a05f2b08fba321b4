"""How a command fails: which exit code, what is said, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from posthouse.cli.output import Json
from posthouse.config import Config
from posthouse.errors import (
    CallerError,
    ConfigError,
    DatabaseUnavailable,
    InvalidEmail,
    KeyReused,
    MailboxUnavailable,
    OperatorError,
    PosthouseError,
    QueueFull,
    SchemaError,
    UnknownSend,
)


class Exit(IntEnum):
    """The exit codes, as `docs/operations.md` lists them."""

    OK = 0  # done
    NOT_POSSIBLE = 1  # understood, but it can't be done, or there is no such thing
    WRONG = 2  # the command line, the configuration or the tables are wrong
    NO_DATABASE = 3  # the database did not answer; nothing is known about what was under way
    FAULT = 70  # a fault in Posthouse itself; the log has it
    TRY_AGAIN = 75  # `bounce` could not keep all: what it didn't is still with the mail server (EX_TEMPFAIL)
    INTERRUPTED = 130  # Ctrl-C


class WrongUsage(CallerError):
    """Options that don't go together; the text says which do."""


class TryAgain(OperatorError):
    """Whatever went wrong with a message that a mail server handed over: it must keep the message."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, told."""

    exit_code: Exit
    error: str
    setting: str | None = None
    field: str | None = None
    hint: str | None = None  # a command to run next
    faults: Sequence[ConfigError] = ()  # of a configuration, where there is more than one

    @property
    def document(self) -> Json:
        """For programs."""
        faults = [{"setting": fault.setting, "text": fault.reason} for fault in self.faults]
        named = {"setting": self.setting, "field": self.field, "faults": faults}
        return {"error": self.error, **{name: word for name, word in named.items() if word}, "hint": self.hint}

    @property
    def lines(self) -> list[str]:
        """For people, on standard error."""
        said = [f"posthouse: {error}" for error in self.faults or (self.error,)]
        if self.hint and self.hint not in self.error:
            said.append(f"  try: {self.hint}")
        return said


_TOP_SETTINGS: Final = frozenset(Config.model_fields)


def failure_of(error: PosthouseError) -> Failure:
    """What to say about an error that was raised on purpose."""
    return Failure(
        _exit_code(error),
        str(error),
        setting=(error.setting or None) if isinstance(error, ConfigError) else None,
        field=error.field if isinstance(error, InvalidEmail) else None,
        hint=hint_for(error),
        faults=error.faults if isinstance(error, ConfigError) and error.others else (),
    )


def _exit_code(error: PosthouseError) -> Exit:
    if isinstance(error, TryAgain | MailboxUnavailable):
        return Exit.TRY_AGAIN
    if isinstance(error, DatabaseUnavailable):
        return Exit.NO_DATABASE
    if isinstance(error, OperatorError | InvalidEmail | WrongUsage):
        return Exit.WRONG
    return Exit.NOT_POSSIBLE


def hint_for(error: PosthouseError) -> str | None:
    """The command that helps, where there is one."""
    if isinstance(error, TryAgain) and isinstance(error.__cause__, PosthouseError):
        return hint_for(error.__cause__)
    if isinstance(error, KeyReused):
        return f"posthouse show {shlex.quote(error.key)}"
    if isinstance(error, ConfigError):
        if "posthouse init" in str(error):
            return "posthouse init"
        return "posthouse config check" if error.setting.partition(".")[0] in _TOP_SETTINGS else None
    if isinstance(error, SchemaError):
        return "posthouse migrate" if "posthouse migrate" in str(error) else None
    hints = {
        DatabaseUnavailable: "posthouse config check",
        QueueFull: "posthouse status",
        UnknownSend: "posthouse find WORDS",
    }
    return hints.get(type(error))
