"""What the caller gets to see: the answer a call deserves, bent by the effect that hit it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from posthouse.sandbox.faults import Action, Effect, RetryAfter

_JSON: Final = {"Content-Type": "application/json"}
_HTML: Final = {"Content-Type": "text/html; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: _JSON)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call is not served, before any provider has put it into its own words.

    `status` is the sandbox's own, or a fault's; `error` a stable code, "" for a fault; `field` what is meant, where it
    is one field; `message` is for people.
    """

    status: int
    error: str = ""
    message: str = ""
    field: str = ""


class ReplyKind(StrEnum):
    """How a shell gives the reply."""

    ANSWER = "answer"  # after `delay_s`, whole
    DRIP = "drip"  # status and headers at once, the body spread over `delay_s`
    TRUNCATE = "truncate"  # `body` is less than the Content-Length announces; the connection ends after it
    DROP = "drop"  # no answer: the connection is reset
    STALL = "stall"  # no answer: the connection stays open until the caller leaves
    REFUSE = "refuse"  # no connection; one that is open already is reset


@dataclass(frozen=True, slots=True)
class Reply:
    """What a shell has to do for one call. Header names are in their usual case; only TRUNCATE has a Content-Length."""

    kind: ReplyKind
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay_s: float = 0.0


_WITHOUT_ANSWER: Final = {
    Action.DROP: Reply(ReplyKind.DROP),
    Action.STALL: Reply(ReplyKind.STALL),
    Action.REFUSE: Reply(ReplyKind.REFUSE),
}


def json_answer(status: int, document: Any) -> Answer:
    """An answer in JSON."""
    return Answer(status, json.dumps(document).encode())


def plain_reply(answer: Answer) -> Reply:
    """The answer of a call that no fault has hit."""
    return Reply(ReplyKind.ANSWER, answer.status, answer.headers, answer.body)


def fault_reply(effect: Effect, deserved: Answer | None, refused: Callable[[Refusal], Answer], now: float) -> Reply:
    """The reply under `effect`. `deserved` is the provider's own answer, None where the call never got so far;
    `refused` is how it words an error.
    """
    if (reply := _WITHOUT_ANSWER.get(effect.action)) is not None:
        return reply
    # A request that the provider refuses is never told 200 by a garbled body.
    status = deserved.status if deserved is not None and deserved.status >= 400 else effect.status
    if effect.action is Action.HTML:
        return plain_reply(Answer(status, _web_page(status), _HTML))
    if effect.action is Action.MALFORMED:
        return plain_reply(Answer(status, b'{"id": "sandbox-'))
    if effect.action is Action.STATUS or deserved is None:
        deserved = _with_retry_after(refused(Refusal(effect.status, message=effect.text)), effect.retry_after, now)
    if effect.action is Action.TRUNCATED:
        return _truncated(status, deserved)
    kind = ReplyKind.DRIP if effect.action is Action.DRIP else ReplyKind.ANSWER
    return Reply(kind, deserved.status, deserved.headers, deserved.body, effect.delay_s)


def _truncated(status: int, answer: Answer) -> Reply:
    announced = {**answer.headers, "Content-Length": str(len(answer.body))}
    return Reply(ReplyKind.TRUNCATE, status, announced, answer.body[: len(answer.body) // 2])


def _with_retry_after(answer: Answer, asked: RetryAfter | None, now: float) -> Answer:
    if asked is None:
        return answer
    return replace(answer, headers={**answer.headers, "Retry-After": _retry_after(asked, now)})


def _retry_after(asked: RetryAfter, now: float) -> str:
    """RFC 9110 section 10.2.3. A date has whole seconds: it is rounded up, so that it never asks for less."""
    if not asked.as_date:
        return str(asked.seconds)
    return formatdate(math.ceil(now + asked.seconds), usegmt=True)


def phrase(status: int) -> str:
    """What HTTP calls a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


def _web_page(status: int) -> bytes:
    title = f"{status} {phrase(status)}"
    return f"<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n".encode()
