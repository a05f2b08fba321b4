"""What an SMTP reply is to the rules, how far a call had come, and what a rule is: data with examples.

The same code means different things at different steps of the conversation: 554 as a greeting is about us, at RCPT
about one recipient, after the final dot about the message. So a rule is about steps first. In SMTP the step also
tells what HTTP can't: whatever is lost before the final dot was certainly not accepted (RFC 5321 section 4.1.1.4).
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.values import value


class Phase(StrEnum):
    """How far the conversation had come."""

    CONNECT = "connect"  # the name, TCP, and TLS where it comes first
    BANNER = "greeting"  # the server's first words
    EHLO = "EHLO"  # what it can do
    STARTTLS = "STARTTLS"  # the agreement on TLS
    AUTH = "AUTH"  # our credential
    RSET = "RSET"  # the sign that a connection in use again still works
    MAIL = "MAIL FROM"  # the envelope's sender: the transaction begins
    RCPT = "RCPT TO"  # one recipient
    DATA = "DATA"  # the leave to send the content
    CONTENT = "the content"  # the content is on its way, its final dot is not
    DOT = "the final dot"  # the message is complete: from here on only the server knows


class Scope(StrEnum):
    """Whom a reply can be about."""

    SESSION = "session"  # the connection and our account: no message is concerned yet
    TRANSACTION = "transaction"  # the message, for all of its recipients
    RECIPIENT = "recipient"  # one recipient


SESSION_PHASES: Final = frozenset({Phase.CONNECT, Phase.BANNER, Phase.EHLO, Phase.STARTTLS, Phase.AUTH, Phase.RSET})
MESSAGE_PHASES: Final = frozenset({Phase.MAIL, Phase.RCPT, Phase.DATA, Phase.CONTENT, Phase.DOT})
EVERY_PHASE: Final = frozenset(Phase)

_ENHANCED = re.compile(r"\s*([245])\.(\d{1,3}\.\d{1,3})\b[ \t]*")


@value
class Reply:
    """One reply, all of its lines: the text has a line break between them, and no codes but enhanced ones."""

    phase: Phase
    code: int
    text: str = ""
    alone: bool = True  # the transaction has one recipient, so that a reply about the message may be about them

    @property
    def scope(self) -> Scope:
        """Whom it can be about."""
        if self.phase in SESSION_PHASES:
            return Scope.SESSION
        one = self.phase is Phase.RCPT or (self.phase is Phase.DOT and self.alone)
        return Scope.RECIPIENT if one else Scope.TRANSACTION

    @property
    def status(self) -> str:
        """Subject and detail of the enhanced status code, such as `1.1`; empty where there is none.

        One whose class contradicts the code is not believed (RFC 2034 section 4).
        """
        found = _ENHANCED.match(self.text)
        return found[2] if found and found[1] == str(self.code)[:1] else ""


def codes(*parts: int | range) -> frozenset[int]:
    """A set of reply codes from single ones and ranges."""
    return frozenset(code for part in parts for code in (part if isinstance(part, range) else (part,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpRule:
    """Decides the replies at one of `phases` with one of `codes`, if their enhanced status code or words fit.

    A rule with `status` and `says` matches where either fits; with one of them, where that fits; with none, always.
    """

    name: str
    phases: Set[Phase]
    codes: Set[int]
    scopes: Set[Scope] = frozenset(Scope)
    status: re.Pattern[str] | None = None  # the whole of subject and detail, such as `1.1`
    says: re.Pattern[str] | None = None  # found in the text
    outcome: Outcome
    maybe_accepted: bool = False
    spends_attempt: bool = True
    subject: Subject = Subject.MESSAGE
    bad_address: bool = False  # it says that nothing ever arrives at the recipient's address
    set_up: bool = False  # it is about how we are let in there, whatever we send
    wait_s: float | None = None  # before the next try, where the reply names no time itself
    source: str  # where the rule comes from
    matches: tuple[Reply, ...]
    not_matches: tuple[Reply, ...]

    def __post_init__(self) -> None:
        Verdict(self.outcome, self.maybe_accepted)  # raises where the two contradict each other
        if self.bad_address and (self.outcome, self.subject) != (Outcome.REJECTED, Subject.RECIPIENT):
            raise ValueError("only a rejection of the recipient can say that the address is bad")

    def covers(self, reply: Reply, /) -> bool:
        """Whether every condition fits, whatever earlier rules say."""
        if reply.phase not in self.phases or reply.code not in self.codes or reply.scope not in self.scopes:
            return False
        if self.status is None and self.says is None:
            return True
        if self.status is not None and self.status.fullmatch(reply.status):
            return True
        return self.says is not None and bool(self.says.search(reply.text))


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that ended without a reply to judge: `code` is one of FAULT_CODES."""

    phase: Phase
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """Decides faults at one of `phases` with one of `codes` (empty: any)."""

    name: str
    phases: Set[Phase]
    codes: Set[str] = frozenset()
    outcome: Outcome
    maybe_accepted: bool = False
    spends_attempt: bool = True
    subject: Subject = Subject.ROUTE
    source: str
    matches: tuple[Fault, ...]
    not_matches: tuple[Fault, ...]

    def __post_init__(self) -> None:
        Verdict(self.outcome, self.maybe_accepted)

    def covers(self, fault: Fault, /) -> bool:
        """Whether phase and code fit."""
        return fault.phase in self.phases and (not self.codes or fault.code in self.codes)


FAULT_CODES: Final = {
    "timeout": "no reply within the timeout",
    "lost": "the connection was lost",
    "out_of_step": "the server said something that nobody had asked for",
    "bad_reply": "what came back is no SMTP reply",
    "no_starttls": "the server offers no STARTTLS, and nothing is sent in clear text",
    "no_auth": "the server offers no way to authenticate that this route may use",
    "bad_challenge": "the server's challenge can't be read",
    "no_credential": "the credential can't be read",
    "no_dkim_key": "the key that signs the message can't be read",
    "no_smtputf8": "an address (before its @) or another header is not ASCII, and the server offers no SMTPUTF8",
    "no_8bitmime": "the message has 8-bit bytes, and the server offers no 8BITMIME",
    "no_requiretls": "the email asks for TLS on the whole way, and the server offers no REQUIRETLS: use another route",
    "no_dsn": "the email asks for reports of its delivery, and the server offers no DSN: use another route",
    "too_large": "the message is larger than the server takes",
}
"""How a conversation can end without a reply to judge, beside those of a connection that is never made."""
