"""Resend's email API: `/emails`, `/emails/batch` and `/emails/{id}`, with its idempotency keys.

Facts: resend.com/docs (api-reference/emails, dashboard/emails/idempotency-keys, api-reference/errors), as of 2026.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from posthouse.sandbox.json_parts import (
    Misfit,
    Unusable,
    an_object,
    decoded_list,
    decoded_object,
    encoded,
    pairs,
)
from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.limit import Standing
from posthouse.sandbox.received import shown
from posthouse.sandbox.replies import Answer, Refusal, json_answer, phrase
from posthouse.sandbox.shape import (
    Headers,
    LookUp,
    Request,
    Send,
    Shape,
    Taken,
    bearer_of,
    iso,
    listed,
    matches,
    metadata_of,
)
from posthouse.sandbox.shapes.resend_news import RESEND_NEWS
from posthouse.sandbox.submission import Submission, each_usable, given, renamed_files, rest, submission_of

BATCH_MAX: Final = 100
KEY_CHARS_MAX: Final = 256

_WORDS: Final = ("from", "to", "cc", "bcc", "reply_to", "subject", "text", "html", "headers")
_FILE: Final = {
    "filename": "filename",
    "content": "content",
    "content_type": "content_type",
    "content_id": "content_id",
}


def _submission(call: dict[str, Any], octets: bytes | None = None) -> Submission:
    words = {name: call.get(name) for name in _WORDS}
    words["headers"] = None if words["headers"] is None else an_object(words["headers"], "headers")
    words["metadata"] = pairs(call.get("tags") or [], "tags", "name", "value")
    words["attachments"] = [_in_base64(file) for file in renamed_files(call.get("attachments"), _FILE)]
    spoken = rest(given(call), _WORDS) | given(words)
    return submission_of(spoken, encoded(call) if octets is None else octets, required=("from", "subject"))


def _in_base64(file: dict[str, Any]) -> dict[str, Any]:
    """Its SDKs give octets as a list of numbers too."""
    content = file.get("content")
    if not isinstance(content, list):
        return file
    try:
        return file | {"content": base64.b64encode(bytes(content)).decode()}
    except (TypeError, ValueError):
        raise Misfit("invalid_part", "attachments: the content is neither base64 nor octets", "attachments") from None


def _checked(request: Request) -> None:
    if len(request.headers.get("idempotency-key", "")) > KEY_CHARS_MAX:
        raise Misfit("invalid_idempotency_key", f"an idempotency key has 1 to {KEY_CHARS_MAX} characters")


def _send(request: Request) -> Send:
    _checked(request)
    message = _submission(decoded_object(request.body), request.body)
    return Send([message], lambda taken: json_answer(200, _ids(taken)[0]))


def _send_batch(request: Request) -> Send:
    """All of them or none, unless the call says that it is permissive."""
    _checked(request)
    documents = decoded_list(request.body)
    if not 0 < len(documents) <= BATCH_MAX:
        raise Misfit("too_many_messages", f"a batch has 1 to {BATCH_MAX} emails")
    permissive = request.headers.get("x-batch-validation") == "permissive"
    return Send(each_usable(_submission, documents), _batch_taken, together=not permissive)


def _batch_taken(taken: Taken) -> Answer:
    errors = [{"index": at, "message": one.message} for at, one in enumerate(taken) if isinstance(one, Unusable)]
    return json_answer(200, {"data": _ids(taken), **({"errors": errors} if errors else {})})


def _ids(taken: Taken) -> list[dict[str, str]]:
    return [{"id": one.message_id} for one in taken if not isinstance(one, Unusable)]


def _look_up(request: Request) -> LookUp:
    message_id = request.within["message_id"]
    return LookUp(lambda ledger: filter(None, [ledger.by_id(message_id)]), _found)


def _found(found: Sequence[Acceptance]) -> Answer:
    if not found:
        return _refused(Refusal(404, "not_found", "Email not found"))
    [one] = found
    caught = shown(one)
    body = caught.body if caught else {}
    return json_answer(
        200,
        {
            "object": "email",
            "id": one.message_id,
            "created_at": iso(one.at),
            "from": body.get("from"),
            **{name: listed(body.get(name)) for name in ("to", "cc", "bcc", "reply_to")},
            "subject": one.subject,
            "html": body.get("html"),
            "text": body.get("text"),
            "tags": [{"name": name, "value": value} for name, value in metadata_of(one).items()],
            "last_event": "sent",
        },
    )


# What it says.


def _refuses(headers: Headers, api_key: str | None) -> Refusal | None:
    if matches(presented := bearer_of(headers), api_key):
        return None
    if presented is None:
        return Refusal(401, "missing_api_key", "Missing API Key")
    return Refusal(403, "invalid_api_key", "API key is invalid")


_NAMES: Final = {
    400: "validation_error",
    401: "missing_api_key",
    403: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    409: "concurrent_idempotent_requests",
    422: "validation_error",
    429: "rate_limit_exceeded",
    451: "security_error",
    500: "internal_server_error",
}

_OWN_NAMES: Final = {
    "missing_api_key": (401, "missing_api_key"),
    "invalid_api_key": (403, "invalid_api_key"),
    "idempotency_key_reused": (409, "invalid_idempotent_request"),
    "idempotency_key_in_progress": (409, "concurrent_idempotent_requests"),
    "invalid_idempotency_key": (400, "invalid_idempotency_key"),
    "invalid_json": (400, "validation_error"),
    "missing_field": (422, "missing_required_field"),
    "missing_recipients": (422, "missing_required_field"),
}


def _refused(refusal: Refusal) -> Answer:
    status = refusal.status
    status, name = _OWN_NAMES.get(refusal.error, (status, _NAMES.get(status, "application_error")))
    if name == "validation_error" and refusal.field.startswith("attachments"):
        name = "invalid_attachment"
    return json_answer(status, {"statusCode": status, "name": name, "message": _message(refusal)})


def _message(refusal: Refusal) -> str:
    if refusal.error in ("missing_field", "missing_recipients"):
        return f"Missing `{refusal.field}` field."
    if refusal.error == "invalid_recipient":
        return f"Invalid `{refusal.field}` field."
    return refusal.message or phrase(refusal.status)


def _limit_headers(standing: Standing) -> Mapping[str, str]:
    return {
        "ratelimit-limit": str(standing.sends),
        "ratelimit-remaining": str(standing.remaining),
        "ratelimit-reset": str(standing.ends_in_s),
    }


RESEND: Final = Shape(
    name="resend",
    calls={
        "/emails": {"POST": _send},
        "/emails/batch": {"POST": _send_batch},
        "/emails/{message_id}": {"GET": _look_up},
    },
    refuses=_refuses,
    refused=_refused,
    key_header="idempotency-key",
    limit_headers=_limit_headers,
    teller=RESEND_NEWS,
)
