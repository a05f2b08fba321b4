"""What a provider's own suppression list and ours have to tell each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from posthouse.address import fold
from posthouse.core.suppression import Suppress, Suppression, SuppressionCause


@dataclass(frozen=True, slots=True)
class Listed:
    """An address on a provider's list."""

    address: str
    cause: SuppressionCause
    at: float | None = None  # since when, in seconds since 1970; None where nobody says
    reason: str = ""  # what the provider says of it


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A person let mail to an address go out again."""

    cause: SuppressionCause | None  # None: nobody knows which
    at: float
    scope: str = ""


def to_pull(
    listed: Listed, known: Sequence[Suppression], taken_back: Sequence[TakenBack], who: str, now: float
) -> Suppress | None:
    """What is to be written of an address on their list; None where it is known, or was taken back since.

    What we know already says more, such as the type that somebody has unsubscribed from. A word of theirs without a
    cause may be our own, pushed before.
    """
    on = [each for each in known if each.is_on(now)]
    same = any(each.cause is listed.cause for each in on)
    echo = listed.cause is SuppressionCause.MANUAL and any(not each.scope for each in on)
    if same or echo or taken_back_since(listed.cause, listed.at, taken_back):
        return None
    return Suppress(fold(listed.address), listed.cause, "", None, listed.reason or "on the provider's list", who)


def taken_back_since(
    cause: SuppressionCause, at: float | None, taken_back: Sequence[TakenBack], *, scope: str | None = None
) -> bool:
    """Whether what happened then was taken back since, in its scope or for all mail; None: in whatever scope.

    Of a provider's word without a cause, whatever was taken back: it may be our own.
    """
    mine = (each for each in taken_back if cause in (SuppressionCause.MANUAL, each.cause) or each.cause is None)
    return any(at is None or at <= each.at for each in mine if scope is None or each.scope in ("", scope))


def to_push(
    ours: Sequence[Suppression], theirs: Collection[str], causes: Collection[SuppressionCause], now: float
) -> Mapping[str, SuppressionCause]:
    """The addresses that they lack, and why, in the order of ours.

    What has a scope or an end stays here: their list stops all mail for good.
    """
    wanted: dict[str, SuppressionCause] = {}
    for each in ours:
        if each.cause in causes and not each.scope and each.until is None and each.address not in theirs:
            wanted.setdefault(each.address, each.cause)
    return wanted
