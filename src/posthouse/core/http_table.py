"""The outcome of an HTTP answer, as data: the first rule that matches decides.

Two mistakes are possible, and they are not alike. To take an accepted message for refused doubles it; to take a
refused one for accepted loses it. So a rule says *certainly not accepted* only where the status or the words leave
no doubt, and *accepted* only for a 2xx that nothing contradicts. All else is *maybe*, and is looked into.

Sources: RFC 9110 and the RFCs of single statuses, the error tables that providers publish, and what proxies and
content networks in front of them document. A provider's own rules come before these.
"""

from __future__ import annotations

from typing import Final

from posthouse.core.answers import EVERY_STATUS, Answer, FailurePhase, FailureRule, Kind, Rule, said
from posthouse.core.outcome import Outcome, Subject

_2XX: Final = frozenset(range(200, 300))
_4XX: Final = frozenset(range(400, 500))
_5XX: Final = frozenset(range(500, 600))

_PAGE: Final = "<!DOCTYPE html><html><head><title>Welcome</title></head><body>Hello</body></html>"
_PROXY_PAGE: Final = (
    "<html>\r\n<head><title>Sorry</title></head>\r\n<body><center><h1>Sorry</h1></center></body></html>"
)

_TOO_FAST: Final = (
    r"throttl(?:ed|ing)|too many requests|rate[ _-]?limit|\brate exceeded|sending rate"
    r"|(?:request|recipient|bytes|sending|message) limit exceeded"
)
_QUOTA: Final = (
    r"quotas?[ _-](?:has been |is |was )?exceeded|maximum credits exceeded"
    r"|(?:daily|monthly|hourly)[ _-](?:[a-z]+[ _-])?(?:quota|limit)"
    r"|exceeded (?:your|the) (?:[a-z]+ )?(?:quota|sending limit)"
)
_RECIPIENT: Final = (
    r"(?:invalid|inactive|suppressed|blocked|unsubscribed|non-?existent|unknown)[ _-]"
    r"(?:recipients?|to address|recipient address|addresses)\b"
    r"|recipients?\b[^.]{0,60}\b(?:invalid|not (?:a )?valid|inactive|suppressed|block(?:ed|listed)|unsubscribed"
    r"|rejected|refused|does(?: not|n't) exist|is required)"
    r"|\bto\b['\"`]? (?:field|parameter|address)\b[^.]{0,40}\b(?:invalid|not (?:a )?valid)"
    r"|invalid ['\"`]to['\"`]|['\"](?:[\w.]+\.)?to(?:\.\d+|\[\d+\])"
)
_SENDER: Final = (
    r"(?:sender|from|domain|identity|identities|email address)\b.{0,80}?"
    r"\b(?:not|isn't)[ _-](?:yet |been )?(?:verified|confirmed|validated|authori[sz]ed|registered|match)"
    r"|un(?:verified|configured)[ _-](?:sending[ _-])?(?:sender|domain|identity|address)"
    r"|sender (?:signature|identity)|\bsender\b.{0,80}?\bnot valid\b|\bdomain\b[^.]{0,40}\bmust be verified"
)
_ACCOUNT: Final = (
    r"not (?:allowed|permitted|authori[sz]ed) to send|pending approval|under[ _]validation"
    r"|(?:account|sending)\b.{0,40}\b(?:suspended|disabled|paused|deactivated)"
    r"|(?:invalid|missing|unknown|expired|revoked)[ _-](?:api[ _-]?)?(?:key|token|credentials?)\b"
)
_SAYS_NO: Final = (
    r"\A\s*\[?\s*\{[^{}\[\]]*?\"(?:success|ok|accepted)\"\s*:\s*false\b"
    r"|\A\s*\[?\s*\{[^{}\[\]]*?\"status\"\s*:\s*\"(?:error|failed|failure|rejected|invalid)\""
)

ACCEPTANCE_RULES: Final = (
    Rule(
        name="a page where an API should be",
        # Most likely a wrong address, a portal or a maintenance page. But a proxy may have put it in the place of
        # the API's own answer, after the API had acted; were it certain, every message would be tried again.
        statuses=_2XX,
        kinds=frozenset({Kind.HTML}),
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="a page is no acceptance, and can hide one",
        matches=(Answer(200, _PAGE), Answer(202, "\n <html><body>Log in to this network</body></html>")),
        not_matches=(Answer(200, '{"html": "<html>"}'), Answer(200, "Queued. Thank you."), Answer(200, "")),
    ),
    Rule(
        name="the greeting of another address",
        statuses=_2XX,
        says=said(r"\AMailgun Magnificent API"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="Mailgun, at an address that takes no messages",
        matches=(Answer(200, "Mailgun Magnificent API"),),
        not_matches=(Answer(200, '{"id": "<1@x>", "message": "Queued. Thank you."}'),),
    ),
    Rule(
        name="a success that says no",
        # Only members before anything nested count, so that an echo of the message decides nothing.
        statuses=_2XX,
        says=said(_SAYS_NO),
        outcome=Outcome.REJECTED,
        source="APIs that tell the failure in the body of a 200 (Mailtrap, Mandrill)",
        matches=(
            Answer(200, '{"success":false,"errors":["nothing to send"]}'),
            Answer(200, '{"code":7,"status": "error","message":"no content"}'),
            Answer(200, '[{"email":"a@b.example","status":"rejected","reject_reason":"unsigned"}]'),
        ),
        not_matches=(
            Answer(200, '{"success":true,"message_ids":["1"]}'),
            Answer(200, '{"id":"1","metadata":{"success":false}}'),
            Answer(200, '{"id":"1","status":"queued"}'),
            Answer(200, r'{"subject":"\"status\":\"error\"","id":"1"}'),
        ),
    ),
    Rule(
        name="accepted",
        # A cut or unreadable body takes the message's id away, not the acceptance.
        statuses=_2XX,
        outcome=Outcome.ACCEPTED,
        source="RFC 9110 section 15.3",
        matches=(
            Answer(200, '{"id":"4d0b"}'),
            Answer(201, '{"messageId":"<1@relay.example>"}'),
            Answer(202, "", {"x-message-id": "abc"}),
            Answer(204, ""),
            Answer(200, '{"id":"4d', complete=False),
            Answer(200, "Queued. Thank you."),
        ),
        not_matches=(Answer(301, ""), Answer(400, "{}"), Answer(199, "")),
    ),
)

REDIRECT_RULES: Final = (
    Rule(
        name="moved",
        statuses=frozenset({301, 307, 308}),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 9110 sections 15.4.2, 15.4.8, 15.4.9: to be asked elsewhere (never followed)",
        matches=(
            Answer(301, _PAGE, {"location": "https://api.example.com/v1/send"}),
            Answer(307, ""),
            Answer(308, "", {"location": "https://api.example.com/v2/send"}),
        ),
        not_matches=(Answer(302, ""), Answer(303, "")),
    ),
    Rule(
        name="see elsewhere",
        # After a POST, 302 and 303 also mean: done, and the result is over there.
        statuses=frozenset(range(300, 400)),
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="RFC 9110 sections 15.4.3, 15.4.4: done, or to be asked elsewhere (never followed)",
        matches=(Answer(302, "", {"location": "/login"}), Answer(303, "", {"location": "/emails/7"}), Answer(304, "")),
        not_matches=(Answer(200, ""), Answer(400, "")),
    ),
)

KEY_RULES: Final = (
    Rule(
        name="an earlier call under this key is running",
        statuses=frozenset({409, 423}),
        says=said(
            r"concurrent|in[ _-]progress|in[ _-]flight|being processed|still (?:running|processing)|duplicate_request\b"
        ),
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        source="Resend concurrent_idempotent_requests, Brevo duplicate_request",
        matches=(
            Answer(409, '{"name":"concurrent_idempotent_requests","message":"Another request is in progress"}'),
            Answer(409, '{"code":"duplicate_request"}'),
            Answer(423, '{"error":"this key is still being processed"}'),
        ),
        not_matches=(Answer(409, '{"message":"the list is archived"}'), Answer(400, "in progress")),
    ),
    Rule(
        name="the key was seen with other content",
        statuses=frozenset({400, 409, 422}),
        says=said(
            r"idempoten[^.]{0,120}(?:different|mismatch|already|reused|same (?:body|param|payload))"
            r"|(?:different|mismatch|already used)[^.]{0,120}idempoten|invalid_idempotent_request"
        ),
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        source="Resend invalid_idempotent_request; others say 400 or 422: an earlier call was seen",
        matches=(
            Answer(409, '{"name":"invalid_idempotent_request","message":"used with another body"}'),
            Answer(422, '{"message":"Idempotency-Key was already used with another request"}'),
            Answer(400, '{"error":"Keys for idempotent requests can only be used with the same parameters"}'),
        ),
        not_matches=(
            Answer(400, '{"name":"invalid_idempotency_key","message":"The key must be 1 to 256 characters"}'),
            Answer(422, '{"message":"different"}'),
        ),
    ),
    Rule(
        name="an earlier call was taken",
        statuses=frozenset({400, 409, 422}),
        says=said(
            r"duplicate[ _-](?:parameter|message|send|key|id)\b"
            r"|(?:message|email|request)\b[^.]{0,20}\balready (?:been )?(?:sent|accepted|processed|queued)"
        ),
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        source="Brevo duplicate_parameter; APIs that refuse an id they have",
        matches=(
            Answer(400, '{"code":"duplicate_parameter","message":"idempotencyKey"}'),
            Answer(409, '{"error":"duplicate message"}'),
            Answer(422, '{"error":"this message has already been sent"}'),
        ),
        not_matches=(Answer(422, '{"message":"duplicate recipient"}'), Answer(400, '{"code":"invalid_parameter"}')),
    ),
    Rule(
        name="a conflict that says nothing",
        # The likeliest conflict of a send under a key is an earlier call under it.
        statuses=frozenset({409}),
        kinds=frozenset({Kind.EMPTY, Kind.HTML}),
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        source="RFC 9110 section 15.5.10",
        matches=(Answer(409, ""), Answer(409, _PROXY_PAGE)),
        not_matches=(Answer(409, '{"message":"the list is archived"}'), Answer(400, "")),
    ),
    Rule(
        name="a conflict about the message",
        statuses=frozenset({409}),
        says=said(r"already exists|duplicate|\bconflict\b"),
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        source="RFC 9110 section 15.5.10",
        matches=(
            Answer(409, '{"error":"already exists"}'),
            Answer(409, "Duplicate"),
            Answer(409, '{"error":"Conflict"}'),
        ),
        not_matches=(Answer(409, '{"message":"the list is archived"}'), Answer(422, "already exists")),
    ),
    Rule(
        name="the idempotency key is refused",
        statuses=frozenset({400, 422}),
        says=said("idempoten"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="Resend invalid_idempotency_key; a key that is missing or not of the wanted form",
        matches=(
            Answer(400, '{"name":"invalid_idempotency_key","message":"The key must be 1 to 256 characters"}'),
            Answer(422, '{"message":"Idempotency-Key header is missing"}'),
        ),
        not_matches=(Answer(400, '{"message":"bad subject"}'), Answer(409, "idempotency")),
    ),
)

PACE_RULES: Final = (
    Rule(
        name="too fast",
        statuses=frozenset({420, 429, 509}),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 6585 section 4; 420: SparkPost's sending limit; 509: bandwidth limits of hosters",
        matches=(
            Answer(429, '{"message":"Maximum sending rate exceeded."}'),
            Answer(429, '{"name":"daily_quota_exceeded"}'),
            Answer(429, _PROXY_PAGE, {"retry-after": "30"}),
            Answer(429, ""),
            Answer(420, '{"errors":[{"message":"Exceed Sending Limit (daily)","code":"2102"}]}'),
            Answer(509, "Bandwidth Limit Exceeded"),
        ),
        not_matches=(Answer(400, "{}"), Answer(503, "", {"retry-after": "30"})),
    ),
    Rule(
        name="too fast, or a quota is used up, under another status",
        statuses=frozenset({400, 401, 403, 422}),
        says=said(f"{_TOO_FAST}|{_QUOTA}"),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SendGrid 401 'Maximum credits exceeded', SES 400 Throttling, Scaleway 403 quotas_exceeded",
        matches=(
            Answer(401, '{"errors":[{"message":"Maximum credits exceeded","field":null}]}'),
            Answer(400, '{"message":"Daily message quota exceeded"}'),
            Answer(400, '{"__type":"Throttling","message":"Rate exceeded"}'),
            Answer(403, '{"type":"quotas_exceeded","message":"quota exceeded"}'),
            Answer(422, '{"message":"You have reached the daily sending limit"}'),
            Answer(403, '{"message":"API rate limit exceeded for this key"}'),
        ),
        not_matches=(
            Answer(401, '{"errors":[{"message":"The provided authorization grant is invalid"}]}'),
            Answer(400, '{"message":"attachment size limit exceeded"}'),
            Answer(403, '{"message":"forbidden"}'),
        ),
    ),
)

REFUSAL_RULES: Final = (
    Rule(
        name="the recipient is refused",
        statuses=frozenset({400, 422}),
        says=said(_RECIPIENT),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source="Postmark 406, Mailgun 400, SparkPost 5002, Resend 422, SendGrid, Mailjet and MailerSend field names",
        matches=(
            Answer(422, '{"ErrorCode":406,"Message":"Found inactive addresses: a@b.example."}'),
            Answer(400, '{"message":"to parameter is not a valid address. please check documentation"}'),
            Answer(422, '{"errors":[{"message":"At least one valid recipient is required","code":"5002"}]}'),
            Answer(422, '{"message":"Invalid `to` field. The email address is malformed"}'),
            Answer(400, '{"errors":[{"message":"bad","field":"personalizations.0.to.0.email"}]}'),
            Answer(400, '{"Messages":[{"Errors":[{"ErrorCode":"mj-0013","ErrorRelatedTo":["To[0].Email"]}]}]}'),
            Answer(422, '{"errors":{"to.0.email":["must be an address"]}}'),
            Answer(400, '{"error":"invalid recipient"}'),
            Answer(422, '{"error":"recipient is suppressed"}'),
        ),
        not_matches=(
            Answer(422, '{"message":"Invalid `from` field"}'),
            Answer(400, '{"message":"Unable to send: the subject is invalid"}'),
            Answer(400, '{"errors":[{"field":"personalizations.0.subject"}]}'),
            Answer(422, '{"message":"too many recipients"}'),
        ),
    ),
    Rule(
        name="our sender or account is refused",
        statuses=frozenset({400, 412, 422}),
        says=said(f"{_SENDER}|{_ACCOUNT}"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SES MessageRejected, Postmark 400-413, Mailgun 400, SparkPost 7001, MailerSend MS42207, Brevo",
        matches=(
            Answer(400, '{"message":"Email address is not verified. The following identities failed the check: a@b"}'),
            Answer(422, '{"ErrorCode":400,"Message":"The From address is not a Sender Signature on your account."}'),
            Answer(400, '{"message":"Domain x.example is not allowed to send: disabled"}'),
            Answer(400, '{"errors":[{"message":"Unconfigured Sending Domain <x.example>","code":"7001"}]}'),
            Answer(422, '{"message":"The from.email domain must be verified in your account. #MS42207"}'),
            Answer(400, '{"code":"invalid_parameter","message":"the sender a@b.example is not valid"}'),
            Answer(400, '{"message":"Account is suspended"}'),
            Answer(412, '{"message":"domain not verified"}'),
            Answer(400, '{"message":"invalid api key"}'),
        ),
        not_matches=(
            Answer(400, '{"message":"email address is not valid"}'),
            Answer(422, '{"message":"subject is missing"}'),
            Answer(403, '{"message":"domain is not verified"}'),
        ),
    ),
    Rule(
        name="a template that isn't there",
        statuses=frozenset({404}),
        says=said(r"template"),
        outcome=Outcome.REJECTED,
        source="Mandrill Unknown_Template: about the message, not about the address",
        matches=(Answer(404, '{"name":"Unknown_Template","message":"No such template \\"a\\""}'),),
        not_matches=(Answer(404, '{"message":"not found"}'),),
    ),
    Rule(
        name="too large",
        statuses=frozenset({413}),
        outcome=Outcome.REJECTED,
        source="RFC 9110 section 15.5.14",
        matches=(Answer(413, '{"message":"message too large"}'), Answer(413, _PROXY_PAGE)),
        not_matches=(Answer(414, ""),),
    ),
    Rule(
        name="the wrong region",
        statuses=frozenset({451}),
        says=said(r"region|residency"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="SendGrid 451, data residency",
        matches=(Answer(451, '{"errors":[{"message":"this user sends from another region"}]}'),),
        not_matches=(Answer(451, '{"name":"security_error","message":"refused"}'),),
    ),
)

ROUTE_RULES: Final = (
    Rule(
        name="not let in",
        statuses=frozenset({401, 402, 403, 407}),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 9110 sections 15.5.2 to 15.5.4, 15.5.8; 402: payment; 403 with a page: a block in front of the API",
        matches=(
            Answer(401, '{"message":"API key is invalid"}'),
            Answer(401, "Forbidden"),
            Answer(402, '{"code":"not_enough_credits"}'),
            Answer(403, '{"errors":[{"message":"The from address does not match a verified Sender Identity"}]}'),
            Answer(403, _PROXY_PAGE),
            Answer(407, ""),
        ),
        not_matches=(Answer(400, "{}"), Answer(404, "{}")),
    ),
    Rule(
        name="not the endpoint",
        statuses=frozenset({404, 405, 406, 410, 411, 414, 415, 426, 431, 501, 505, 511}),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 9110 sections 15.5.5 to 15.5.7 and others, RFC 6585: the address, method or form of the call",
        matches=(
            Answer(404, '{"message":"Domain not found: x.example"}'),
            Answer(404, _PROXY_PAGE),
            Answer(405, ""),
            Answer(406, "Not Acceptable"),
            Answer(410, ""),
            Answer(415, '{"message":"send JSON"}'),
            Answer(501, ""),
            Answer(511, _PAGE),
        ),
        not_matches=(Answer(400, "{}"), Answer(413, "")),
    ),
    Rule(
        name="refused by something in front of the API",
        statuses=_4XX - {408, 409, 413, 421, 425, 429, 499},
        kinds=frozenset({Kind.HTML}),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="proxies and firewalls answer with pages, APIs don't",
        matches=(Answer(400, _PROXY_PAGE), Answer(418, _PAGE), Answer(422, _PAGE)),
        not_matches=(Answer(400, '{"message":"<html>"}'), Answer(413, _PROXY_PAGE), Answer(400, "")),
    ),
    Rule(
        name="not here, or not now",
        statuses=frozenset({421, 425}),
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 9110 section 15.5.20 (MailerSend: maintenance), RFC 8470 section 5.2: not processed, ask again",
        matches=(Answer(421, '{"message":"maintenance"}'), Answer(425, "")),
        not_matches=(Answer(429, ""), Answer(408, "")),
    ),
    Rule(
        name="a timeout or hang-up told by the server",
        # To a server, 408 means that the request never came whole; proxies also use it for a slow server behind.
        statuses=frozenset({408, 499}),
        outcome=Outcome.TRANSIENT,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="RFC 9110 section 15.5.9; 499: a proxy whose client went away",
        matches=(Answer(408, ""), Answer(408, _PROXY_PAGE), Answer(499, "")),
        not_matches=(Answer(504, ""), Answer(400, "")),
    ),
    Rule(
        name="refused",
        statuses=_4XX,
        outcome=Outcome.REJECTED,
        source="RFC 9110 section 15.5: the request is at fault",
        matches=(
            Answer(400, '{"message":"subject is too long"}'),
            Answer(400, ""),
            Answer(409, '{"message":"the list is archived"}'),
            Answer(412, "{}"),
            Answer(422, '{"name":"missing_required_field","message":"html or text"}'),
            Answer(451, '{"name":"security_error","message":"refused"}'),
        ),
        not_matches=(Answer(500, ""), Answer(200, "")),
    ),
)

SERVER_RULES: Final = (
    Rule(
        name="out of service, after the request had been passed on",
        statuses=frozenset({503}),
        says=said(
            r"reset reason: (?:connection termination|remote reset|local reset|protocol error)"
            r"|backend fetch failed|(?:first byte|between bytes) timeout|backend read error"
        ),
        outcome=Outcome.TRANSIENT,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="Envoy, Varnish and Fastly say 503 for a server that hung up or was slow after it had the request",
        matches=(
            Answer(503, "upstream connect error or disconnect/reset before headers. reset reason: remote reset"),
            Answer(503, "<html><head><title>503 Backend fetch failed</title></head></html>"),
        ),
        not_matches=(
            Answer(503, "upstream connect error or disconnect/reset before headers. reset reason: connection failure"),
            Answer(503, '{"message":"maintenance"}'),
        ),
    ),
    Rule(
        name="out of service",
        statuses=frozenset({503}),
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 9110 section 15.6.4: not handled, come back later",
        matches=(
            Answer(503, "", {"retry-after": "120"}),
            Answer(503, '{"ErrorCode":100,"Message":"Maintenance"}'),
            Answer(503, _PROXY_PAGE),
        ),
        not_matches=(Answer(500, ""), Answer(502, "")),
    ),
    Rule(
        name="the server behind the network was not reached",
        statuses=frozenset({521, 523, 525, 526}),
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="Cloudflare 521, 523, 525, 526: refused, no route, no TLS",
        matches=(Answer(521, _PROXY_PAGE), Answer(523, ""), Answer(525, ""), Answer(526, "")),
        not_matches=(Answer(520, ""), Answer(522, ""), Answer(524, "")),
    ),
    Rule(
        name="a server fault",
        statuses=_5XX,
        outcome=Outcome.TRANSIENT,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="RFC 9110 section 15.6: it may have queued the message before it failed",
        matches=(
            Answer(500, '{"name":"internal_server_error"}'),
            Answer(500, ""),
            Answer(502, _PROXY_PAGE),
            Answer(504, "upstream request timeout"),
            Answer(520, _PROXY_PAGE),
            Answer(522, ""),
            Answer(524, ""),
            Answer(599, ""),
        ),
        not_matches=(Answer(400, ""), Answer(600, "")),
    ),
    Rule(
        name="not a status of HTTP",
        statuses=EVERY_STATUS,
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="RFC 9110 section 15: statuses are 100 to 599, and 1xx is no final answer",
        matches=(Answer(101, ""), Answer(600, "{}"), Answer(999, "")),
        not_matches=(Answer(1000, ""),),
    ),
)

RULES: Final = (
    *ACCEPTANCE_RULES,
    *REDIRECT_RULES,
    *KEY_RULES,
    *PACE_RULES,
    *REFUSAL_RULES,
    *ROUTE_RULES,
    *SERVER_RULES,
)
"""The whole list, in order. It decides every answer."""

FAILURE_RULES: Final = (
    FailureRule(
        name="the certificate or the TLS set-up doesn't fit",
        phase=FailurePhase.CONNECT,
        codes=frozenset({"tls", "tls_verify"}),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        source="never sent past a certificate that can't be verified",
    ),
    FailureRule(
        name="no connection",
        phase=FailurePhase.CONNECT,
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        source="nothing was sent",
    ),
    FailureRule(
        name="no answer",
        phase=FailurePhase.EXCHANGE,
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        source="some or all of the request had left, and its fate is not known",
    ),
)
"""Decides every failure without an answer."""
