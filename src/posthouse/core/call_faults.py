"""What an SMTP server's refusal at the call says about us: the same causes as in news that comes later.

An attempt's words begin with ours: at which step it was, that others were refused alike, whom of several it is about.
They are read back here, so that what was said alike is told together and nobody takes our words for the receiver's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from posthouse.core.causes import cause_of
from posthouse.core.events import Cause
from posthouse.core.group_health import OUR_FAULTS
from posthouse.core.outcome import Outcome
from posthouse.core.refusals import ALONE
from posthouse.core.smtp_replies import Phase
from posthouse.core.smtp_table import SMTP_RULES

REFUSALS: Final = (Outcome.REJECTED, Outcome.TRANSIENT, Outcome.THROTTLED, Outcome.MISCONFIGURED)

OF_THE_ADDRESS: Final = tuple(sorted(rule.name for rule in SMTP_RULES if rule.bad_address))
"""Rules by which a refusal is about the recipient alone: it is in their record already."""

_SET_UP: Final = frozenset({*(rule.name for rule in SMTP_RULES if rule.set_up), ALONE})
"""Rules by which a policy is no judgement on our mail: on our credential, our right to relay or to a sender."""

_ABOUT_SEVERAL = re.compile(
    r"\A(?:the same refusal for \d+ messages in a row"
    r"|only this message is refused so, \d+ times, while others are accepted): "
)
_EACH = re.compile(rf"(?:\A|; )(\S+@\S+): (?:{'|'.join(REFUSALS)}), (\w+) (?=at )")
_STEP = re.compile(rf"\Aat (?:{'|'.join(re.escape(phase) for phase in Phase)}): ")


@dataclass(frozen=True, slots=True)
class Refused:
    """What a server said of one recipient, and why."""

    recipient: str
    cause: Cause
    code: str
    text: str


def faults_of_call(recipient: str, code: str, text: str, rule: str) -> list[Refused]:
    """What of a refusal is our own fault. `recipient` is whom it is about where its words name none."""
    text = _ABOUT_SEVERAL.sub("", text)
    told = ((each, code_, words, _cause(words, rule)) for each, code_, words in _each(recipient, code, text))
    return [Refused(each, cause, code_, words) for each, code_, words, cause in told if cause in OUR_FAULTS]


def _cause(text: str, rule: str) -> Cause:
    cause = cause_of("", _STEP.sub("", text))
    return Cause.OTHER if cause is Cause.BLOCKED and rule in _SET_UP else cause


def _each(recipient: str, code: str, text: str) -> Iterator[tuple[str, str, str]]:
    """Each recipient with what was said of them."""
    found = list(_EACH.finditer(text))
    if not found:
        yield recipient, code, text
        return
    ends = [*(other.start() for other in found[1:]), len(text)]
    for one, end in zip(found, ends, strict=True):
        yield one[1], one[2], text[one.end() : end]
