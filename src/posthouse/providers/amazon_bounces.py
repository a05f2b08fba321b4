"""What Amazon calls a bounce, which is what those say who send through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from posthouse.core.events import Cause

CAUSES: Final[Mapping[str, Cause]] = {
    "NoEmail": Cause.NO_MAILBOX,
    "Suppressed": Cause.LISTED,
    "OnAccountSuppressionList": Cause.LISTED,
    "UnsubscribedRecipient": Cause.LISTED,
    "MailboxFull": Cause.MAILBOX_FULL,
    "MessageTooLarge": Cause.CONTENT,
    "ContentRejected": Cause.CONTENT,
    "AttachmentRejected": Cause.CONTENT,
    "CustomTimeoutExceeded": Cause.EXPIRED,
}
"""By a bounce's subtype; any other says nothing of why."""

NOT_THE_ADDRESS: Final = frozenset({"OnAccountSuppressionList", "UnsubscribedRecipient"})
"""Permanent, and yet no word about the mailbox."""


def is_hard(type_: str, subtype: str) -> bool:
    """Whether the address is bad for good."""
    return type_ == "Permanent" and subtype not in NOT_THE_ADDRESS
