"""What becomes of a message after it was accepted. It is settled with the acceptance, by each recipient's local part.

Webhooks tell it, and so do the logs of the providers that have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class NewsKind(StrEnum):
    """One thing that becomes of a message."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"  # the receiver wants it later
    BOUNCED = "bounced"  # there is no such mailbox
    FULL = "full"  # given up: the mailbox stayed full
    BLOCKED = "blocked"  # given up: the receiver's policy
    SUPPRESSED = "suppressed"  # not even tried: the provider has the recipient on its list
    COMPLAINED = "complained"  # the recipient calls it spam
    OPENED = "opened"
    CLICKED = "clicked"
    UNSUBSCRIBED = "unsubscribed"


@dataclass(frozen=True, slots=True)
class Said:
    """What the receiver's server said: its code, the enhanced code (RFC 3463) and words."""

    code: int
    status: str
    words: str

    @property
    def line(self) -> str:
        """As a server says it."""
        return f"{self.code} {self.status} {self.words}"


SAID: Final[Mapping[NewsKind, Said]] = MappingProxyType(
    {
        NewsKind.DELIVERED: Said(250, "2.0.0", "OK"),
        NewsKind.DEFERRED: Said(451, "4.3.0", "Temporary failure, try again later"),
        NewsKind.BOUNCED: Said(550, "5.1.1", "The account does not exist"),
        NewsKind.FULL: Said(552, "5.2.2", "Mailbox full"),
        NewsKind.BLOCKED: Said(554, "5.7.1", "Message rejected due to local policy"),
        NewsKind.SUPPRESSED: Said(550, "5.1.1", "The recipient bounced before"),
    }
)
"""Of the others nothing is said: people do them."""


@dataclass(frozen=True, slots=True)
class News:
    """One piece of it. `number` tells it from the others of the same message."""

    number: int
    kind: NewsKind
    recipient: str
    after_s: float  # since the acceptance

    @property
    def said(self) -> Said | None:
        """What the receiver's server said; None where it has no part in it."""
        return SAID.get(self.kind)


_K = NewsKind
MAGIC_FATES: Final[Mapping[str, tuple[NewsKind, ...]]] = MappingProxyType(
    {
        "delivered": (_K.DELIVERED,),
        "deferred": (_K.DEFERRED, _K.DELIVERED),
        "bounced": (_K.BOUNCED,),
        "full": (_K.DEFERRED, _K.FULL),
        "blocked": (_K.BLOCKED,),
        "suppressed": (_K.SUPPRESSED,),
        "complained": (_K.DELIVERED, _K.COMPLAINED),
        "opened": (_K.DELIVERED, _K.OPENED),
        "clicked": (_K.DELIVERED, _K.OPENED, _K.CLICKED),
        "unsubscribed": (_K.DELIVERED, _K.UNSUBSCRIBED),
    }
)
"""What a recipient's local part asks for, at any domain and with any `+tag`. Anybody else's mail is delivered."""

STEP_S: Final = 1.0
"""From one thing to the next."""


def magic_name(recipient: str) -> str:
    """The part of an address that asks for something: `bounced` of `bounced+42@example.com`."""
    return recipient.partition("@")[0].partition("+")[0]


def fates_of(recipients: Iterable[str]) -> tuple[News, ...]:
    """What will become of a message for these."""

    def each() -> Iterator[tuple[NewsKind, str, float]]:
        for recipient in dict.fromkeys(recipients):
            fate = MAGIC_FATES.get(magic_name(recipient), MAGIC_FATES["delivered"])
            for step, kind in enumerate(fate, start=1):
                yield kind, recipient, step * STEP_S

    return tuple(News(number, *one) for number, one in enumerate(each(), start=1))
