"""The sandbox's own API, which looks like no provider's: `docs/sandbox.md` describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from posthouse.sandbox.json_parts import Unusable, decoded_object
from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.limit import Standing
from posthouse.sandbox.replies import Answer, Refusal, json_answer, phrase
from posthouse.sandbox.shape import Headers, Health, LookUp, Request, Send, Shape, Taken, bearer_of, matches
from posthouse.sandbox.submission import submission_of

SEND_PATH: Final = "/v1/send"
LOOK_UP_PATH: Final = "/v1/messages/by-key/"


def _send(request: Request) -> Send:
    return Send([submission_of(decoded_object(request.body), request.body)], _accepted)


def _accepted(taken: Taken) -> Answer:
    return json_answer(200, {"id": next(one.message_id for one in taken if not isinstance(one, Unusable))})


def _look_up(request: Request) -> LookUp:
    key = request.within["key"]
    return LookUp(lambda ledger: ledger.by_key(key), _found, key)


def _found(found: Sequence[Acceptance]) -> Answer:
    if not found:
        return json_answer(404, {"error": "unknown_key"})
    return json_answer(200, {"id": found[0].message_id, "status": "accepted"})


def _health(_: Request) -> Health:
    return Health(json_answer(200, {"status": "ok"}))


def _refuses(headers: Headers, api_key: str | None) -> Refusal | None:
    if matches(bearer_of(headers), api_key):
        return None
    return Refusal(401, "unauthorised", "the bearer token is wrong or missing")


def _refused(refusal: Refusal) -> Answer:
    """A stable code, and a sentence where there is more to say."""
    message = refusal.message or ("" if refusal.error else "a fault of the sandbox")
    error = refusal.error or phrase(refusal.status).lower().replace(" ", "_")
    return json_answer(refusal.status, {"error": error, **({"message": message} if message else {})})


def _limit_headers(standing: Standing) -> Mapping[str, str]:
    return {
        "RateLimit-Limit": str(standing.sends),
        "RateLimit-Remaining": str(standing.remaining),
        "RateLimit-Reset": str(standing.ends_in_s),
    }


OWN: Final = Shape(
    name="http",
    calls={
        SEND_PATH: {"POST": _send},
        f"{LOOK_UP_PATH}{{key}}": {"GET": _look_up},
        "/v1/health": {"GET": _health},
    },
    refuses=_refuses,
    refused=_refused,
    key_header="idempotency-key",
    limit_headers=_limit_headers,
)
