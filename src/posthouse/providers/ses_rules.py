"""What SES means otherwise than the general rules say, by the class of its error, which stands in a header.

`Message` classes are those of `SendEmail` in the model `sesv2/2019-09-27`; the others every service of AWS has.
"""

from __future__ import annotations

import re
from typing import Final

from posthouse.core.answers import Answer, Rule, said
from posthouse.core.outcome import Outcome, Subject

_HEADER: Final = "x-amzn-errortype"


def _named(*names: str) -> tuple[str, re.Pattern[str]]:
    """The class, as a header has it: alone, or before a colon and an address; some add `Exception` to it."""
    return _HEADER, said(rf"\A(?:{'|'.join(names)})(?:Exception)?\s*(?::|\Z)")


def _message(words: str) -> re.Pattern[str]:
    """In the answer's own member: within another member's text its quotes would be escaped."""
    return said(rf'"message"\s*:\s*"(?:[^"\\]|\\.)*?(?:{words})')


def _error(status: int, name: str, message: str = "") -> Answer:
    headers = {_HEADER: f"{name}:http://internal.amazon.com/coral/com.amazonaws.ses/"} if name else {}
    return Answer(status, f'{{"message":"{message}"}}', headers)


_NOT_VERIFIED: Final = "Email address is not verified. The following identities failed the check in region EU-WEST-1: "
_PAUSED: Final = "Sending paused for this account. For more information, please check the inbox of your account."
_PAUSED_SET: Final = "Sending is paused for configuration set receipts"
_SKEWED: Final = "Signature expired: 20270115T080000Z is now earlier than 20270115T081500Z"

_4XX: Final = frozenset({400, 401, 403})

RULES: Final = (
    Rule(
        name="the daily quota is used up",
        statuses=frozenset({400, 403, 429}),
        says=_message("daily (?:message|sending) quota"),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES, whatever the class: not certain which one has it. It counts the last 24 hours",
        matches=(
            _error(400, "LimitExceededException", "Daily message quota exceeded."),
            _error(429, "TooManyRequestsException", "Daily message quota exceeded."),
            _error(400, "Throttling", "Daily message quota exceeded."),
        ),
        not_matches=(_error(429, "TooManyRequestsException", "Maximum sending rate exceeded."),),
    ),
    Rule(
        name="a limit of the account is reached",
        statuses=frozenset({400}),
        header=_named("LimitExceeded"),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES LimitExceededException",
        matches=(_error(400, "LimitExceededException", "There are too many instances of the resource."),),
        not_matches=(_error(400, "BadRequestException", "Recipient count exceeds 50."),),
    ),
    Rule(
        name="too fast for the account",
        statuses=frozenset({400, 403, 429, 503}),
        header=_named("TooManyRequests", "Throttling", "Throttled", "RequestLimitExceeded"),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES TooManyRequestsException; ThrottlingException of any service. Neither says until when",
        matches=(
            _error(429, "TooManyRequestsException", "Maximum sending rate exceeded."),
            _error(400, "ThrottlingException", "Rate exceeded"),
            _error(503, "ThrottlingException", "Rate exceeded"),
        ),
        not_matches=(_error(503, "ServiceUnavailable"), _error(400, "SendingPausedException", _PAUSED)),
    ),
    Rule(
        name="the time of our signature is refused: is this machine's clock right?",
        statuses=_4XX,
        header=_named("RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="AWS RequestTimeTooSkewed, RequestExpired, RequestInTheFuture",
        matches=(
            _error(403, "RequestTimeTooSkewed", "The difference between the times is too large."),
            _error(400, "RequestExpired"),
            _error(403, "RequestInTheFuture"),
        ),
        not_matches=(_error(403, "ExpiredTokenException"), _error(400, "BadRequestException")),
    ),
    Rule(
        name="the time of our signature is refused, in words: is this machine's clock right?",
        statuses=_4XX,
        says=_message("signature expired|signature not yet current"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="AWS InvalidSignatureException and SignatureDoesNotMatch, where their words name the time",
        matches=(
            _error(403, "InvalidSignatureException", _SKEWED),
            _error(403, "SignatureDoesNotMatch", "Signature not yet current: 20270115T081500Z is still later"),
        ),
        not_matches=(_error(403, "InvalidSignatureException", "The request signature we calculated does not match"),),
    ),
    Rule(
        name="our key or its signature is refused",
        statuses=_4XX,
        header=_named(
            "SignatureDoesNotMatch",
            "InvalidSignature",
            "IncompleteSignature",
            "MissingAuthenticationToken",
            "InvalidClientTokenId",
            "UnrecognizedClient",
            "ExpiredToken",
            "InvalidToken",
            "AuthFailure",
            "OptInRequired",
        ),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="AWS SignatureDoesNotMatch, InvalidClientTokenId, UnrecognizedClientException, ExpiredToken and others",
        matches=(
            _error(403, "SignatureDoesNotMatch", "The request signature we calculated does not match"),
            _error(403, "InvalidClientTokenId", "The security token included in the request is invalid."),
            _error(403, "UnrecognizedClientException"),
            _error(403, "ExpiredTokenException", "The security token included in the request is expired"),
            _error(400, "IncompleteSignature"),
            _error(400, "MissingAuthenticationToken"),
            _error(403, "OptInRequired"),
        ),
        not_matches=(_error(403, "AccessDeniedException"), _error(400, "MessageRejected")),
    ),
    Rule(
        name="our key may not send this",
        statuses=_4XX,
        header=_named("AccessDenied", "NotAuthorized"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="AWS AccessDenied: a policy of the key or of the identity",
        matches=(
            _error(403, "AccessDeniedException", "User is not authorized to perform ses:SendEmail"),
            _error(403, "AccessDenied"),
            _error(400, "AccessDeniedException"),
        ),
        not_matches=(_error(403, "InvalidClientTokenId"),),
    ),
    Rule(
        name="the account is suspended",
        statuses=frozenset({400, 403}),
        header=_named("AccountSuspended"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES AccountSuspendedException: for good",
        matches=(_error(400, "AccountSuspendedException", "Your account is suspended."),),
        not_matches=(_error(400, "SendingPausedException", _PAUSED),),
    ),
    Rule(
        name="sending is paused for the configuration set",
        statuses=frozenset({400, 403}),
        says=_message(r"(?:paused|disabled)\b[^\"]{0,40}\bconfiguration set|configuration set\b[^\"]{0,80}\bpaused"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES SendingPausedException, where its words name the set",
        matches=(
            _error(400, "SendingPausedException", _PAUSED_SET),
            _error(400, "SendingPausedException", "Email sending is disabled for configuration set receipts."),
        ),
        not_matches=(_error(400, "SendingPausedException", _PAUSED), _error(429, "", _PAUSED_SET)),
    ),
    Rule(
        name="sending is paused for the account",
        statuses=frozenset({400, 403}),
        header=_named("SendingPaused", "AccountSendingPaused"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES SendingPausedException",
        matches=(_error(400, "SendingPausedException", _PAUSED), _error(400, "SendingPausedException")),
        not_matches=(_error(400, "AccountSuspendedException"),),
    ),
    Rule(
        name="the sending domain is not verified",
        statuses=frozenset({400, 403}),
        header=_named("MailFromDomainNotVerified"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES MailFromDomainNotVerifiedException",
        matches=(_error(400, "MailFromDomainNotVerifiedException", "The MAIL FROM domain is not verified."),),
        not_matches=(_error(400, "MessageRejected", _NOT_VERIFIED),),
    ),
    Rule(
        name="an address is not verified, or the account may not send yet",
        statuses=frozenset({400, 403}),
        says=_message(r"address(?:es)? (?:is|are) not verified|identities failed the check|sending (?:is )?paused"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES MessageRejected, where its words name no message: an identity, a recipient of a sandbox, a pause",
        matches=(
            _error(400, "MessageRejected", f"{_NOT_VERIFIED}orders@shop.example"),
            _error(400, "MessageRejected", _PAUSED),
        ),
        not_matches=(_error(400, "MessageRejected", "The message has a file of a forbidden type."),),
    ),
    Rule(
        name="what the route names is not there",
        statuses=frozenset({404}),
        header=_named("NotFound"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES NotFoundException: a configuration set, a tenant, a contact list",
        matches=(_error(404, "NotFoundException", "Configuration set <receipts> does not exist."),),
        not_matches=(Answer(404, ""), _error(404, "UnknownOperationException")),
    ),
    Rule(
        name="a recipient's address is not one",
        # The From and the like stand in the message, and are of the application's own making.
        statuses=frozenset({400}),
        header=_named("BadRequest", "InvalidParameterValue"),
        says=_message(
            r"illegal address|missing (?:final '@domain'|domain|local)"
            r"|(?:domain|local (?:address|part|name))(?: name)? (?:contains|starts|ends|is (?:too|missing))"
        ),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source="SES BadRequestException: one such address refuses the whole message",
        matches=(
            _error(400, "BadRequestException", "Illegal address"),
            _error(400, "BadRequestException", "Missing final '@domain'"),
            _error(400, "BadRequestException", "Domain contains illegal character"),
            _error(400, "BadRequestException", "Local address contains control or whitespace"),
        ),
        not_matches=(
            _error(400, "BadRequestException", "Invalid EmailTags."),
            _error(400, "MessageRejected", "Illegal address"),
        ),
    ),
    Rule(
        name="the message is refused",
        statuses=frozenset({400}),
        header=_named("MessageRejected", "BadRequest", "InvalidParameterValue", "Validation", "ValidationError"),
        outcome=Outcome.REJECTED,
        source="SES MessageRejected, BadRequestException",
        matches=(
            _error(400, "MessageRejected", "The message has a file of a forbidden type."),
            _error(400, "BadRequestException", "Recipient count exceeds 50."),
            _error(400, "ValidationException"),
        ),
        not_matches=(_error(400, "SendingPausedException"), _error(500, "InternalFailure")),
    ),
    Rule(
        name="out of service, and nobody says since when",
        statuses=frozenset({503}),
        outcome=Outcome.TRANSIENT,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="SES promises for no 5xx that the message was not queued before",
        matches=(_error(503, "ServiceUnavailable", "Service is unavailable"), Answer(503, "")),
        not_matches=(_error(500, "InternalFailure"), _error(429, "TooManyRequestsException")),
    ),
)
"""Asked before the general rules."""
