"""What one attempt means: `Outcome` and the `Verdict` that every provider returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from posthouse.values import value


class Outcome(StrEnum):
    """What one call to a provider means for the send."""

    ACCEPTED = "accepted"  # the provider took it
    THROTTLED = "throttled"  # too fast: the route waits, the send loses no attempt
    TRANSIENT = "transient"  # a passing fault: again later, with the same key
    REJECTED = "rejected"  # this message or recipient is refused for good
    MISCONFIGURED = "misconfigured"  # the route is at fault: it stops, the send loses nothing
    UNKNOWN = "unknown"  # the call was made and its answer was lost


class Subject(StrEnum):
    """Whom a refusal is about, where the answer says so."""

    RECIPIENT = "recipient"  # this address; says nothing about the route
    MESSAGE = "message"  # this content, or we can't tell
    ROUTE = "route"  # our account, credential, endpoint or network


@value
class Verdict:
    """One attempt, judged.

    `maybe_accepted` is the question failover and retries ask: could the provider have taken the message? It is
    False only where that is certain. `spends_attempt` is False for outages and throttles, which never count
    against `max_attempts`.
    """

    outcome: Outcome
    maybe_accepted: bool = False
    spends_attempt: bool = True
    subject: Subject = Subject.MESSAGE
    code: str = ""  # "503", "connect_refused": short, stable, countable
    text: str = ""  # what the provider or the network said, shortened, secrets removed
    message_id: str | None = None  # the provider's id for the accepted message
    request_id: str | None = None  # the provider's id for this call
    retry_after_s: float | None = None  # what the answer asked for
    full_for_s: float | None = None  # for so long nothing more fits on the route, whatever became of this call
    rule: str = ""  # the name of the rule that decided
    raw: str | None = None  # the answer's beginning, for `posthouse show`
    remainders: tuple[Remainder, ...] = ()  # of an acceptance for some of the recipients: the others
    bad_addresses: tuple[
        str, ...
    ] = ()  # recipients, as the email has them, of whom it says: nothing ever arrives there

    def __post_init__(self) -> None:
        certain = self.outcome in (Outcome.THROTTLED, Outcome.REJECTED, Outcome.MISCONFIGURED)
        if certain and self.maybe_accepted:
            raise ValueError(f"{self.outcome} means that the message was certainly not accepted")
        if self.outcome is Outcome.UNKNOWN and not self.maybe_accepted:
            raise ValueError("unknown means that the message may have been accepted")


@dataclass(frozen=True, slots=True)
class Remainder:
    """Recipients who were refused alike in a call that was accepted for others."""

    addresses: tuple[str, ...]  # as the email has them
    verdict: Verdict  # what the call means for them; never accepted, never unknown
    message_id: str  # the Message-ID header of the message, which stays the same for them


class Found(StrEnum):
    """What a look-up at the provider said about a send whose outcome is unknown."""

    ACCEPTED = "accepted"  # the provider has it
    MISSING = "missing"  # the provider doesn't know it (counts only after its indexing lag)
    UNSURE = "unsure"  # no usable answer


@dataclass(frozen=True, slots=True)
class LookUp:
    """The answer of one look-up."""

    found: Found
    message_id: str | None = None
    text: str = ""
