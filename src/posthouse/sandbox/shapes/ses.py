"""Amazon SES, API version 2: `SendEmail`, with a message as parts or as a whole.

Of a signature its form is checked, and whose key it is. Facts: botocore's model `sesv2/2019-09-27`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from posthouse.sandbox.envelopes import named_in, words_of
from posthouse.sandbox.json_parts import Misfit, Unusable, an_object, decoded_object, in_base64, in_order, pairs
from posthouse.sandbox.replies import Answer, Refusal, json_answer
from posthouse.sandbox.shape import Headers, Request, Send, Shape, Taken, listed, matches
from posthouse.sandbox.shapes.ses_news import SES_NEWS
from posthouse.sandbox.submission import given, renamed_files, rest, submission_of

_DESTINATION: Final = {"ToAddresses": "to", "CcAddresses": "cc", "BccAddresses": "bcc"}
_FILE: Final = {
    "FileName": "filename",
    "RawContent": "content",
    "ContentType": "content_type",
    "ContentId": "content_id",
    "ContentDisposition": "disposition",
}
_TRACKING: Final = {"OpenTrackingEnabled": "track_opens", "ClickTrackingEnabled": "track_clicks"}
_KNOWN: Final = frozenset(
    "FromEmailAddress Destination Content ReplyToAddresses FeedbackForwardingEmailAddress EmailTags "
    "ConfigurationOverrides".split()
)


def _send(request: Request) -> Send:
    call = given(decoded_object(request.body))
    content = an_object(call.get("Content"), "Content")
    words = rest(call, _KNOWN) | given(
        {
            "from": call.get("FromEmailAddress"),
            "reply_to": call.get("ReplyToAddresses"),
            "envelope_sender": call.get("FeedbackForwardingEmailAddress"),
            "metadata": pairs(call.get("EmailTags", []), "EmailTags", "Name", "Value"),
            **_tracking(call),
        }
    )
    destination = an_object(call.get("Destination", {}), "Destination")
    envelope = {ours: listed(destination.get(theirs)) for theirs, ours in _DESTINATION.items()}
    if "Simple" in content:
        words |= envelope | _simple(an_object(content["Simple"], "Content.Simple"))
        return Send([submission_of(words, request.body, required=("from",))], _accepted)
    if "Raw" not in content:
        raise Misfit("no_template", "the sandbox knows no templates", "Content")
    raw = in_base64(an_object(content["Raw"], "Content.Raw").get("Data"), "Content.Raw.Data")
    envelope = envelope if any(envelope.values()) else named_in(raw)
    return Send([submission_of(words | words_of(raw, envelope), request.body, envelope=envelope)], _accepted)


def _simple(content: dict[str, Any]) -> dict[str, Any]:
    body = an_object(content.get("Body", {}), "Content.Simple.Body")
    words = {
        "subject": _data(content.get("Subject")),
        "text": _data(body.get("Text")),
        "html": _data(body.get("Html")),
        "headers": in_order(content.get("Headers") or [], "Headers", "Name", "Value") or None,
        "attachments": [_file(file) for file in renamed_files(content.get("Attachments"), _FILE)],
    }
    return given(words)


def _file(file: dict[str, Any]) -> dict[str, Any]:
    return file | ({"disposition": str(file["disposition"]).lower()} if "disposition" in file else {})


def _data(part: object) -> Any:
    return None if part is None else an_object(part, "Content.Simple").get("Data")


def _tracking(call: dict[str, Any]) -> dict[str, bool]:
    overrides = an_object(call.get("ConfigurationOverrides", {}), "ConfigurationOverrides")
    tracking = an_object(overrides.get("Tracking", {}), "ConfigurationOverrides.Tracking")
    return {ours: tracking[theirs] == "ENABLED" for theirs, ours in _TRACKING.items() if theirs in tracking}


def _accepted(taken: Taken) -> Answer:
    return json_answer(200, {"MessageId": next(one.message_id for one in taken if not isinstance(one, Unusable))})


# What it says.

_SIGNED: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/\s]+)/\d{8}/[\w-]+/ses/aws4_request, ?SignedHeaders=\S+, ?Signature=[0-9a-f]{64}"
)


def _refuses(headers: Headers, api_key: str | None) -> Refusal | None:
    """Every call is signed, and the id of the access key is the API key."""
    signed = _SIGNED.fullmatch(headers.get("authorization", ""))
    if signed is None:
        return Refusal(403, "unsigned", "The request has no signature for the service ses.")
    return None if matches(signed[1], api_key) else Refusal(403, "unauthorised")


_CLASSES: Final = {
    401: ("InvalidClientTokenId", "The security token included in the request is invalid."),
    403: ("InvalidClientTokenId", "The security token included in the request is invalid."),
    404: ("NotFoundException", "There is no such resource."),
    429: ("TooManyRequestsException", "Maximum sending rate exceeded."),
    500: ("InternalFailure", "Internal failure."),
    503: ("ServiceUnavailable", "Service is unavailable."),
}
_OTHER_CLASSES: Final = (("BadRequestException", "Bad request."), ("InternalFailure", "Internal failure."))
"""Of statuses below 500, and from there on."""

_OWN_CLASSES: Final = {
    "unsigned": (403, "MissingAuthenticationToken"),
    "no_template": (404, "NotFoundException"),
}


def _refused(refusal: Refusal) -> Answer:
    """What is wrong with a call has the status 400."""
    status = 400 if refusal.error and refusal.status == 422 else refusal.status
    name, words = _CLASSES.get(status, _OTHER_CLASSES[status >= 500])
    status, name = _OWN_CLASSES.get(refusal.error, (status, name))
    message = "Illegal address" if refusal.error == "invalid_recipient" else refusal.message or words
    answer = json_answer(status, {"message": message})
    return replace(answer, headers={**answer.headers, "x-amzn-ErrorType": name})


SES: Final = Shape(
    name="ses",
    calls={"/v2/email/outbound-emails": {"POST": _send}},
    refuses=_refuses,
    refused=_refused,
    teller=SES_NEWS,
)
