"""A refusal that is really the route's fault must not burn the queue.

The same refusal for several different messages in a row, with none accepted between, says more about the route
than about the messages: from the last on it counts as misconfigured, and the earlier ones get another life.
Refused recipients never count: fifty unknown addresses in a row are fifty unknown addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from posthouse.core.outcome import Outcome, Subject, Verdict

SAME_REFUSALS_MAX: Final = 5
"""So many different messages refused alike in a row are the route's fault."""

_VARIABLE = re.compile(r"[\w.+-]+@[\w.-]+|[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{16,}\b|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RefusalStreak:
    """The refusals alike since the last acceptance on one route, in one worker."""

    signature: str = ""
    send_ids: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.send_ids)


def signature(code: str, text: str) -> str:
    """What is the same where the same is said of different messages: without addresses, ids and numbers."""
    return f"{code} {_VARIABLE.sub('#', text)}"


def in_full(code: str, text: str) -> str:
    """What was said with its code before it, such as `550 5.7.26`, as far as the words don't have it themselves."""
    parts = [rf"(?<![\w.]){re.escape(part)}(?!\.?\w)" for part in code.split()]
    if all(re.search(part, text) for part in parts):
        return text
    for part in parts:
        text = re.sub(rf"\A#?{part}[\s-]*", "", text)
    return f"{code} {text}".strip()


def judge(streak: RefusalStreak, send_id: int, verdict: Verdict) -> tuple[RefusalStreak, Verdict, tuple[int, ...]]:
    """The streak after `verdict`, the verdict as it now counts, and the sends to revive."""
    if verdict.outcome is Outcome.ACCEPTED:
        return RefusalStreak(), verdict, ()
    if verdict.outcome is not Outcome.REJECTED or verdict.subject is Subject.RECIPIENT:
        return streak, verdict, ()
    said = signature(verdict.code, verdict.text)
    earlier = streak.send_ids if said == streak.signature else ()
    others = tuple(other for other in earlier if other != send_id)
    # One more than needed is remembered, so that a send that is tried again has enough others beside itself.
    streak = RefusalStreak(said, (*others, send_id)[-SAME_REFUSALS_MAX:])
    if len(others) + 1 < SAME_REFUSALS_MAX:
        return streak, verdict, ()
    route_fault = replace(
        verdict,
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        text=f"the same refusal for {len(others) + 1} messages in a row: {verdict.text}",
        rule="same refusal in a row",
    )
    return streak, route_fault, others if len(earlier) < SAME_REFUSALS_MAX else ()


ALONE_MIN: Final = 5
"""A message that stopped the route so often, while others were accepted in between, is at fault itself."""

ALONE: Final = "refused alone"
"""The rule by which it is."""

SUSPECTS_MAX: Final = 100
CREDENTIAL_CODES: Final = frozenset({"401", "535"})


@dataclass(frozen=True, slots=True)
class Suspect:
    """One send that stopped the route: how often, and whether another was accepted since."""

    times: int
    works_for_others: bool = False


@dataclass(frozen=True, slots=True)
class Suspects:
    """The sends that stopped one route, in one worker. A bad credential says nothing about the message."""

    by_send: Mapping[int, Suspect] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_send)


def judge_alone(suspects: Suspects, send_id: int, verdict: Verdict) -> tuple[Suspects, Verdict]:
    """The other way round: a stop that only this one message meets is the message's own fault, and rejects it.

    Else one email with a sender of its own that the provider doesn't know would stop the route for all, again and
    again, until it expires.
    """
    if verdict.outcome is Outcome.ACCEPTED:
        others = {other: replace(suspect, works_for_others=True) for other, suspect in suspects.by_send.items()}
        others.pop(send_id, None)
        return Suspects(others), verdict
    if verdict.outcome is not Outcome.MISCONFIGURED or verdict.code in CREDENTIAL_CODES:
        return suspects, verdict
    known = suspects.by_send.get(send_id)
    times = 1 if known is None else known.times + known.works_for_others
    if times >= ALONE_MIN:
        rest = {other: suspect for other, suspect in suspects.by_send.items() if other != send_id}
        text = f"only this message is refused so, {times} times, while others are accepted: {verdict.text}"
        return Suspects(rest), replace(
            verdict, outcome=Outcome.REJECTED, subject=Subject.MESSAGE, text=text, rule=ALONE
        )
    newest = dict([*suspects.by_send.items(), (send_id, Suspect(times))][-SUSPECTS_MAX:])
    return Suspects(newest), verdict
