"""One call for several messages, where an API takes them: what it looks like, and what it means for each.

Each message's own result is judged as if it had been the answer to a call of its own. What there is for the call as a
whole means the same for all, but for a refusal: nobody knows whom it is about, so it is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from posthouse.core.answers import Answer
from posthouse.core.http_rules import read_json
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.providers.port import OutgoingMessage
from posthouse.providers.transport import HttpAnswer

_NO_SUCH_ADDRESS: Final = frozenset({"404", "405", "410", "415", "501"})
"""The address for several may be missing, or want another form, where the one for a single message doesn't."""

_BRACKETS: Final = 2
_COMMA: Final = 1


@dataclass(frozen=True, slots=True)
class Payload:
    """A body as it leaves. The same message must give the same bytes every time."""

    content_type: str
    content: bytes


def as_list(payloads: Sequence[Payload]) -> Payload:
    """JSON bodies as a list of them."""
    return Payload(payloads[0].content_type, b"[" + b",".join(payload.content for payload in payloads) + b"]")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCall:
    """How an API takes several messages by one call. It has no idempotency key: one would be that of them all.

    `read` gets the decoded JSON of a 2xx and the messages. It gives for each of these, in their order, the answer that
    a call of its own would have had, None where there is none for it; or None where it can't be said whose is which.
    """

    url: str
    most: int  # messages in one call
    bytes_max: int  # of the whole call
    join: Callable[[Sequence[Payload]], Payload] = as_list
    read: Callable[[Any, Sequence[OutgoingMessage]], Sequence[Answer | None] | None]
    answer_bytes_each: int = 16 * 1024  # as much of the answer is read for each message

    def results(self, answer: HttpAnswer, messages: Sequence[OutgoingMessage]) -> Sequence[Answer | None] | None:
        """The answer for each message; None where the call was not taken, or nobody can read what became of it."""
        if answer.status // 100 != 2 or not answer.complete:
            return None
        return self.read(read_json(answer.body.decode("utf-8", "replace")), messages)


def fitting(sizes: Mapping[int, int], bytes_max: int) -> list[int]:
    """The places of those that fit into one call: in their order the first, and each one that still does."""
    places: list[int] = []
    total = _BRACKETS - _COMMA  # there is none before the first
    for place, size in sizes.items():
        if not places or total + size + _COMMA <= bytes_max:
            total += size + _COMMA
            places.append(place)
    return places


def for_each(whole: Verdict) -> Verdict | None:
    """What a call without a result for each message means for every one of them; None: nothing, each is sent apart."""
    if whole.outcome is Outcome.REJECTED and not whole.code.startswith("2"):
        return None
    if whole.outcome is Outcome.MISCONFIGURED and whole.code in _NO_SUCH_ADDRESS:
        return None
    if whole.code.startswith("2") and whole.code.isdecimal():
        # Refusals of single messages stand within a success: one that can't be read is nobody's acceptance.
        return replace(
            whole,
            outcome=Outcome.UNKNOWN,
            maybe_accepted=True,
            spends_attempt=True,
            subject=Subject.ROUTE,
            text=whole.text or "the answer doesn't say what became of each message",
            rule="a success without a result for each",
        )
    return whole
