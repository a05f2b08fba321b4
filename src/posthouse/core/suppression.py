"""Who must not get mail, of which kind, and why; and what news makes an address one of these.

A suppression is a row: an address, a cause, a scope. What each cause stops is `STOPS`; the scope narrows it. What a
bounce means for its address is `AFTER_BOUNCE`. Both are data, with the reasons beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from posthouse.address import Address, fold
from posthouse.config import Config
from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.policy import Category
from posthouse.core.refusals import in_full
from posthouse.errors import InvalidEmail
from posthouse.text import unstorable


class SuppressionCause(StrEnum):
    """Why an address must not get mail; in this order where several causes stop the same email."""

    HARD_BOUNCE = "hard_bounce"  # nothing arrives there
    COMPLAINT = "complaint"  # the recipient called a mail spam
    UNSUBSCRIBE = "unsubscribe"  # the recipient wants no more of such mail
    MANUAL = "manual"  # a person said so


@dataclass(frozen=True, slots=True)
class Stops:
    """The categories that a cause stops, and why these."""

    categories: frozenset[Category]
    why: str


STOPS: Final[Mapping[SuppressionCause, Stops]] = {
    SuppressionCause.HARD_BOUNCE: Stops(
        frozenset(Category),
        "nothing arrives there, and each try costs reputation with the receiver",
    ),
    SuppressionCause.COMPLAINT: Stops(
        frozenset({Category.MARKETING, Category.TRANSACTIONAL}),
        "who called it spam will do so again; a code or a reset link is asked for by the recipient and still goes",
    ),
    SuppressionCause.UNSUBSCRIBE: Stops(
        frozenset({Category.MARKETING}),
        "it takes back a consent, and receipts and codes need none",
    ),
    SuppressionCause.MANUAL: Stops(
        frozenset(Category),
        "a person knows why; the scope says it where less is meant",
    ),
}


class After(StrEnum):
    """What a bounce does to its address."""

    SUPPRESS = "suppress"  # at once, as a hard bounce
    REVIEW = "review"  # nothing at once; several of them put it on the list that people look through
    NOTHING = "nothing"  # it says nothing about the address


@dataclass(frozen=True, slots=True)
class Bounce:
    """What a bounce of one cause does, where the provider calls it hard and where it doesn't, and why."""

    hard: After
    soft: After
    why: str


AFTER_BOUNCE: Final[Mapping[Cause, Bounce]] = {
    Cause.NO_MAILBOX: Bounce(After.SUPPRESS, After.REVIEW, "there is nobody; a name server may have erred once"),
    Cause.MAILBOX_DISABLED: Bounce(After.SUPPRESS, After.REVIEW, "nobody reads it, and it seldom comes back"),
    Cause.MAILBOX_FULL: Bounce(After.REVIEW, After.REVIEW, "it has room on another day, or is abandoned: time tells"),
    Cause.GREYLISTED: Bounce(After.NOTHING, After.NOTHING, "come again in some minutes"),
    Cause.TOO_FAST: Bounce(After.NOTHING, After.NOTHING, "our speed is ours to mend"),
    Cause.BLOCKED: Bounce(After.NOTHING, After.NOTHING, "the receiver's policy, or our reputation there"),
    Cause.NOT_AUTHENTIC: Bounce(After.NOTHING, After.NOTHING, "our own SPF, DKIM or DMARC: people would be blocked"),
    Cause.CONTENT: Bounce(After.NOTHING, After.NOTHING, "this message, and no other"),
    Cause.EXPIRED: Bounce(After.REVIEW, After.REVIEW, "one outage at the receiver's explains one, not five"),
    Cause.UNREACHABLE: Bounce(After.REVIEW, After.REVIEW, "one outage at the receiver's explains one, not five"),
    Cause.LISTED: Bounce(After.SUPPRESS, After.REVIEW, "the provider doesn't even try, and says whether for good"),
    Cause.AUTO_REPLY: Bounce(After.NOTHING, After.NOTHING, "no bounce at all: somebody is away"),
    Cause.OTHER: Bounce(After.SUPPRESS, After.REVIEW, "the provider has judged it, and says no more"),
    Cause.NONE: Bounce(After.SUPPRESS, After.REVIEW, "the provider has judged it, and says no more"),
}

REVIEW_AFTER: Final = 5
"""So many bounces that say REVIEW, of messages of one address,"""
REVIEW_WITHIN_S: Final = 14 * 86_400.0
"""within this time put it on the list that people look through."""

REVIEWED: Final = tuple(
    (cause, hard)
    for cause, bounce in AFTER_BOUNCE.items()
    for hard, after in ((True, bounce.hard), (False, bounce.soft))
    if after is After.REVIEW
)
"""What a bounce must be to count for that list."""

_SCOPE: Final = re.compile(r"(?P<kind>type|category) (?P<name>[a-z0-9][a-z0-9._-]{0,62})")


def parse_scope(text: str) -> str:
    """The scope that somebody wrote: `type newsletter`, `category marketing`, or nothing for all mail.

    Raises ValueError.
    """
    scope = " ".join(text.split())
    found = _SCOPE.fullmatch(scope)
    if scope and found is None:
        raise ValueError(f"{text!r} is no scope: give `type NAME`, `category NAME`, or nothing for all mail")
    if found is not None and found["kind"] == "category" and found["name"] not in set(Category):
        raise ValueError(f"{found['name']!r} is no category (there are: {', '.join(Category)})")
    return scope


def address_of(text: str) -> str:
    """The one address that somebody wrote, folded. Raises InvalidEmail, also for what looks like a pattern.

    By the letter `*@example.com` is an address; nobody has ever meant it.
    """
    folded = Address.parse(text).folded
    if folded.startswith("*@"):
        raise InvalidEmail("address", f"{folded!r}: there are no wildcards; a whole domain is never suppressed")
    return folded


@dataclass(frozen=True, slots=True)
class Suppress:
    """A suppression to be written. Times in seconds since 1970."""

    address: str  # folded
    cause: SuppressionCause
    scope: str = ""
    until: float | None = None  # None: for good
    reason: str = ""
    who: str = ""  # a person, or the route that told of it
    event: str | None = None  # the digest of the news that it comes from


@dataclass(frozen=True, slots=True)
class Suppression:
    """A suppression as it stands. Times in seconds since 1970."""

    id: int
    address: str
    cause: SuppressionCause
    scope: str
    until: float | None
    reason: str
    who: str
    at: float  # when it was said last

    def stops(self, type_: str, category: Category) -> bool:
        """Whether it stops mail of this type."""
        return category in STOPS[self.cause].categories and self.scope in ("", f"type {type_}", f"category {category}")

    def is_on(self, now: float) -> bool:
        """Whether it has not run out."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class SuppressionPolicy:
    """What the configuration says about suppressions."""

    at_enqueue: bool = False
    hard_bounce_for_s: float | None = None  # None: for good

    def hard_bounce(self, address: str, reason: str, who: str, now: float, event: str | None = None) -> Suppress:
        """An address at which nothing arrives."""
        until = None if self.hard_bounce_for_s is None else now + self.hard_bounce_for_s
        return Suppress(fold(address), SuppressionCause.HARD_BOUNCE, "", until, reason, who, event)


FOR_GOOD: Final = SuppressionPolicy()
"""Where nothing is configured: no suppression runs out by itself."""


def suppression_policy(config: Config) -> SuppressionPolicy:
    """The policy of a configuration."""
    return SuppressionPolicy(config.suppression.at_enqueue, config.suppression.hard_bounce_for)


def after_bounce(event: Event) -> After:
    """What a bounce does to its address."""
    bounce = AFTER_BOUNCE[event.cause]
    return bounce.hard if event.hard else bounce.soft


@dataclass(frozen=True, slots=True)
class About:
    """The send that news is about, as far as it is known."""

    type: str = ""
    category: Category | None = None  # None: nobody knows
    recipients: tuple[str, ...] = ()  # folded


def what_follows(
    event: Event, about: About, policy: SuppressionPolicy, who: str, now: float, digest: str | None = None
) -> Suppress | None:
    """The suppression that news brings: of its own recipient, never of the others of the same email, nor of anybody
    whom the email was not for.

    `who` is the route that told of it, `digest` what the news is kept under.
    """
    address = fold(event.recipient) or (about.recipients[0] if len(about.recipients) == 1 else "")
    if "@" not in address or unstorable(address) or (about.recipients and address not in about.recipients):
        return None
    if event.kind is EventKind.BOUNCED and after_bounce(event) is After.SUPPRESS:
        return policy.hard_bounce(address, in_full(event.code, event.text), who, now, digest)
    of_type = f"about {about.type} mail" if about.type else ""
    if event.kind is EventKind.COMPLAINED:
        wide = about.category in (Category.TRANSACTIONAL, None)
        scope = "" if wide else f"category {Category.MARKETING}"
        return Suppress(address, SuppressionCause.COMPLAINT, scope, None, of_type, who, digest)
    if event.kind is EventKind.UNSUBSCRIBED:
        scope = f"type {about.type}" if about.category is Category.MARKETING else ""
        return Suppress(address, SuppressionCause.UNSUBSCRIBE, scope, None, of_type, who, digest)
    return None


def stopping(suppressions: Iterable[Suppression], type_: str, category: Category, now: float) -> Suppression | None:
    """The one of an address's suppressions that stops mail of this type."""
    on = [each for each in suppressions if each.is_on(now) and each.stops(type_, category)]
    causes = list(SuppressionCause)
    return min(on, key=lambda each: causes.index(each.cause), default=None)


def stopped(
    recipients: Sequence[str],
    known: Mapping[str, Sequence[Suppression]],
    type_: str,
    category: Category,
    now: float,
) -> dict[str, Suppression]:
    """Those of the recipients who must not get it, and what stops each; `known` is by folded address."""
    found = ((each, stopping(known.get(fold(each), ()), type_, category, now)) for each in recipients)
    return {address: stopping_it for address, stopping_it in found if stopping_it is not None}


_DID: Final = {
    SuppressionCause.HARD_BOUNCE: "bounced for good on {day}",
    SuppressionCause.COMPLAINT: "complained on {day}",
    SuppressionCause.UNSUBSCRIBE: "unsubscribed on {day}",
    SuppressionCause.MANUAL: "was suppressed on {day} by {who}",
}


def why_not(stopped: Mapping[str, Suppression]) -> str:
    """Why an email doesn't go out to these addresses, in one sentence."""
    (address, first), *others = stopped.items()
    more = f", and so for {len(others)} more" if others else ""
    return f"not sent: {address} {told(first)}{more}; unsuppress with: {remedy(address)}"


def told(suppression: Suppression) -> str:
    """What happened, in words that follow the address."""
    day = f"{datetime.fromtimestamp(suppression.at, UTC):%Y-%m-%d}"
    said = _DID[suppression.cause].format(day=day, who=suppression.who)
    about = _SCOPE.fullmatch(suppression.scope)
    of = f", for {about['name']} mail" if about else ""
    reason = " ".join(suppression.reason.split())
    return f"{said}{of}" + (f" ({reason})" if reason else "")


def remedy(address: str) -> str:
    """The command that lets mail through again, as it can be pasted into a shell."""
    plain = re.fullmatch(r"[\w@.+-]+", address)
    quoted = address if plain else "'" + address.replace("'", "'\"'\"'") + "'"
    return f"posthouse unsuppress {quoted}"
