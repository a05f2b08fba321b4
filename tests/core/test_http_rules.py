"""The outcome of every kind of HTTP answer and failure."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.answers import EVERY_STATUS, Answer, FailurePhase, Kind, Rule, rule_faults, said
from posthouse.core.http_rules import decide, judge, judge_failure, one_line, redact, rules_as_markdown
from posthouse.core.http_table import FAILURE_RULES, RULES
from posthouse.core.outcome import Outcome, Subject, Verdict

NOW = 1_800_000_000.0
PAGE = "<html><head><title>403 Forbidden</title></head><body>nginx</body></html>"


def verdict(status: int, text: str = "", **headers: str) -> Verdict:
    return judge(status, {name.replace("_", "-"): value for name, value in headers.items()}, text, True, NOW)


# What an answer must mean, written down apart from the rules: outcome, may have been accepted, spends an attempt.
ACCEPTED = (Outcome.ACCEPTED, False, True)
THROTTLED = (Outcome.THROTTLED, False, False)
OUTAGE = (Outcome.TRANSIENT, False, False)
FAULT = (Outcome.TRANSIENT, True, True)
REJECTED = (Outcome.REJECTED, False, True)
MISCONFIGURED = (Outcome.MISCONFIGURED, False, False)
UNKNOWN = (Outcome.UNKNOWN, True, True)

Meaning = tuple[Outcome, bool, bool]

ANSWERS: list[tuple[int, str, Meaning]] = [
    # SES
    (200, '{"MessageId":"0100018f-000000"}', ACCEPTED),
    (429, '{"message":"Maximum sending rate exceeded."}', THROTTLED),
    (400, '{"message":"Maximum sending rate exceeded."}', THROTTLED),
    (400, '{"message":"Daily message quota exceeded"}', THROTTLED),
    (400, '{"message":"Account is suspended."}', MISCONFIGURED),
    (400, '{"message":"Sending paused for this configuration set"}', MISCONFIGURED),
    (400, '{"message":"Email address is not verified. The following identities failed the check"}', MISCONFIGURED),
    (404, '{"message":"Configuration set <x> does not exist."}', MISCONFIGURED),
    (400, '{"message":"Missing final \'@domain\'"}', REJECTED),
    (403, '{"message":"The security token included in the request is expired"}', MISCONFIGURED),
    (500, '{"message":"InternalFailure"}', FAULT),
    (503, '{"message":"ServiceUnavailable"}', OUTAGE),
    # SendGrid
    (202, "", ACCEPTED),
    (400, '{"errors":[{"message":"The subject is required","field":"subject"}]}', REJECTED),
    (401, '{"errors":[{"message":"The provided authorization grant is invalid, expired, or revoked"}]}', MISCONFIGURED),
    (401, '{"errors":[{"message":"Maximum credits exceeded"}]}', THROTTLED),
    (403, '{"errors":[{"message":"The from address does not match a verified Sender Identity."}]}', MISCONFIGURED),
    (406, "", MISCONFIGURED),
    (413, '{"errors":[{"message":"payload too large"}]}', REJECTED),
    (429, '{"errors":[{"message":"too many requests"}]}', THROTTLED),
    (451, '{"errors":[{"message":"data residency: use the other region"}]}', MISCONFIGURED),
    # Postmark
    (200, '{"To":"a@b.example","MessageID":"u","ErrorCode":0,"Message":"OK"}', ACCEPTED),
    (401, '{"ErrorCode":10,"Message":"No Account or Server API tokens were supplied"}', MISCONFIGURED),
    (422, '{"ErrorCode":300,"Message":"Zero recipients specified"}', REJECTED),
    (
        422,
        '{"ErrorCode":400,"Message":"The \'From\' address is not a Sender Signature on your account"}',
        MISCONFIGURED,
    ),
    (422, '{"ErrorCode":405,"Message":"You are not allowed to send: out of credits"}', MISCONFIGURED),
    (422, '{"ErrorCode":406,"Message":"You tried to send to recipients that have been marked as inactive."}', REJECTED),
    (422, '{"ErrorCode":412,"Message":"Your account is pending approval"}', MISCONFIGURED),
    (403, PAGE, MISCONFIGURED),
    # Mailgun
    (200, '{"id":"<20260101.1.ABC@x.example>","message":"Queued. Thank you."}', ACCEPTED),
    (200, "Mailgun Magnificent API", MISCONFIGURED),
    (400, '{"message":"to parameter is not a valid address. please check documentation"}', REJECTED),
    (400, '{"message":"Domain x is not allowed to send: Free accounts are for test purposes only."}', MISCONFIGURED),
    (401, "Forbidden", MISCONFIGURED),
    (402, "", MISCONFIGURED),
    (404, '{"message":"Domain not found: x.example"}', MISCONFIGURED),
    # Resend
    (409, '{"name":"invalid_idempotent_request","message":"Same key, other payload"}', UNKNOWN),
    (409, '{"name":"concurrent_idempotent_requests","message":"wait"}', UNKNOWN),
    (400, '{"name":"invalid_idempotency_key","message":"1 to 256 characters"}', MISCONFIGURED),
    (403, '{"name":"invalid_api_key","message":"API key is invalid"}', MISCONFIGURED),
    (422, '{"name":"validation_error","message":"Invalid `to` field."}', REJECTED),
    (422, '{"name":"validation_error","message":"Invalid `from` field."}', REJECTED),
    (429, '{"name":"monthly_quota_exceeded"}', THROTTLED),
    (451, '{"name":"security_error"}', REJECTED),
    (405, '{"name":"method_not_allowed"}', MISCONFIGURED),
    # Brevo, Mailjet, SparkPost, MailerSend, Mailtrap, Mandrill, Scaleway, Azure
    (201, '{"messageId":"<1@relay.example>"}', ACCEPTED),
    (400, '{"code":"duplicate_parameter","message":"already used"}', UNKNOWN),
    (409, '{"code":"duplicate_request"}', UNKNOWN),
    (402, '{"code":"not_enough_credits"}', MISCONFIGURED),
    (400, '{"ErrorCode":"mj-0004","ErrorMessage":"Type mismatch","StatusCode":400}', REJECTED),
    (420, '{"errors":[{"message":"Exceed Sending Limit (daily)","code":"2102"}]}', THROTTLED),
    (422, '{"errors":[{"message":"At least one valid recipient is required","code":"5002"}]}', REJECTED),
    (421, '{"message":"maintenance"}', OUTAGE),
    (422, '{"message":"The from.email domain must be verified in your account. #MS42207"}', MISCONFIGURED),
    (429, '{"errors":"Rate limit exceeded"}', THROTTLED),
    (200, '{"success":false,"errors":["suppressed"]}', REJECTED),
    (200, '[{"email":"a@b.example","status":"queued","_id":"1"}]', ACCEPTED),
    (200, '[{"email":"a@b.example","status":"rejected","reject_reason":"hard-bounce"}]', REJECTED),
    (404, '{"status":"error","name":"Unknown_Template","message":"No such template"}', REJECTED),
    (403, '{"type":"quotas_exceeded","message":"quota exceeded"}', THROTTLED),
    (202, '{"id":"op","status":"Running","error":null}', ACCEPTED),
    # proxies, portals, networks
    (200, PAGE, UNKNOWN),
    (200, '{"id": "4d0', ACCEPTED),
    (200, "%$&", ACCEPTED),
    (204, "", ACCEPTED),
    (301, PAGE, MISCONFIGURED),
    (302, "", UNKNOWN),
    (303, "", UNKNOWN),
    (308, "", MISCONFIGURED),
    (400, PAGE, MISCONFIGURED),
    (400, "", REJECTED),
    (404, PAGE, MISCONFIGURED),
    (408, "", FAULT),
    (409, "", UNKNOWN),
    (409, '{"message":"the list is archived"}', REJECTED),
    (425, "", OUTAGE),
    (429, PAGE, THROTTLED),
    (499, "", FAULT),
    (500, PAGE, FAULT),
    (501, "", MISCONFIGURED),
    (502, PAGE, FAULT),
    (503, PAGE, OUTAGE),
    (503, "upstream connect error or disconnect/reset before headers. reset reason: remote reset", FAULT),
    (504, "upstream request timeout", FAULT),
    (511, PAGE, MISCONFIGURED),
    (520, "", FAULT),
    (521, "", OUTAGE),
    (524, PAGE, FAULT),
    (101, "", UNKNOWN),
    (999, "", UNKNOWN),
]

FAILURES: list[tuple[FailurePhase, str, Meaning]] = [
    (FailurePhase.CONNECT, "dns", OUTAGE),
    (FailurePhase.CONNECT, "connect_refused", OUTAGE),
    (FailurePhase.CONNECT, "connect_timeout", OUTAGE),
    (FailurePhase.CONNECT, "connect_reset", OUTAGE),
    (FailurePhase.CONNECT, "unreachable", OUTAGE),
    (FailurePhase.CONNECT, "never seen before", OUTAGE),
    (FailurePhase.CONNECT, "tls", MISCONFIGURED),
    (FailurePhase.CONNECT, "tls_verify", MISCONFIGURED),
    (FailurePhase.EXCHANGE, "read_timeout", UNKNOWN),
    (FailurePhase.EXCHANGE, "reset", UNKNOWN),
    (FailurePhase.EXCHANGE, "closed", UNKNOWN),
    (FailurePhase.EXCHANGE, "bad_answer", UNKNOWN),
    (FailurePhase.EXCHANGE, "never seen before", UNKNOWN),
]


def meaning(found: Verdict) -> Meaning:
    return found.outcome, found.maybe_accepted, found.spends_attempt


@pytest.mark.parametrize(("status", "text", "means"), ANSWERS, ids=lambda value: str(value)[:60])
def test_an_answer_means(status: int, text: str, means: Meaning) -> None:
    assert meaning(verdict(status, text)) == means


@pytest.mark.parametrize(("phase", "code", "means"), FAILURES, ids=str)
def test_a_failure_without_an_answer_means(phase: FailurePhase, code: str, means: Meaning) -> None:
    assert meaning(judge_failure(phase, code, "text")) == means


@pytest.mark.parametrize(
    ("rule", "example"), [(rule, example) for rule in RULES for example in rule.matches], ids=lambda v: str(v)[:40]
)
def test_every_rule_decides_its_own_examples(rule: Rule, example: Answer) -> None:
    assert decide(example) is rule


def test_no_rule_is_dead_shadowed_or_too_wide() -> None:
    assert rule_faults(RULES) == []


RULE = Rule(
    name="teapot",
    statuses=frozenset({418}),
    outcome=Outcome.REJECTED,
    source="here",
    matches=(Answer(418),),
    not_matches=(Answer(419),),
)


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ([replace(RULE, says=said("coffee"))], "'teapot' is dead"),
        ([RULE, replace(RULE, name="second")], "'second' is shadowed by 'teapot'"),
        ([RULE, replace(RULE, matches=(Answer(419),), statuses={419})], "'teapot' is the name of several rules"),
        ([replace(RULE, matches=())], "'teapot' needs an answer that it matches"),
        ([replace(RULE, not_matches=())], "'teapot' needs an answer that it matches"),
        ([replace(RULE, not_matches=(Answer(418),))], "'teapot' matches what it must not"),
    ],
)
def test_a_faulty_rule_is_found(rules: list[Rule], complaint: str) -> None:
    assert any(fault.startswith(complaint) for fault in rule_faults(rules))


def test_a_rule_can_be_about_a_header() -> None:
    rule = replace(RULE, header=("x-kind", re.compile("short")))
    assert rule.covers(Answer(418, "", {"x-kind": "short and stout"}))
    assert not rule.covers(Answer(418, "", {"x-kind": "tall"}))
    assert not rule.covers(Answer(418))


def test_a_rule_that_contradicts_itself_can_not_be_written() -> None:
    with pytest.raises(ValueError, match="certainly not accepted"):
        replace(RULE, maybe_accepted=True)


def test_every_status_and_kind_of_body_is_decided() -> None:
    for status in EVERY_STATUS:
        for text in ("", "{}", "words", PAGE):
            assert decide(Answer(status, text)) in RULES


def test_a_providers_own_rules_come_first() -> None:
    own = replace(RULE, name="own", statuses={200}, says=said("teapot"), matches=(Answer(200, "teapot"),))
    assert judge(200, {}, "teapot", True, NOW, extra_rules=[own]).rule == "own"
    assert judge(200, {}, "fine", True, NOW, extra_rules=[own]).outcome is Outcome.ACCEPTED
    assert rule_faults([own, *RULES]) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", Kind.EMPTY),
        (" \r\n", Kind.EMPTY),
        ('{"a":1}', Kind.JSON),
        (' \n[{"a"', Kind.JSON),
        ("<!DOCTYPE html><p>", Kind.HTML),
        ("\n<HTML lang=en>", Kind.HTML),
        ("<h1>Sorry</h1>", Kind.HTML),
        ("<?xml version='1.0'?><ok/>", Kind.TEXT),
        ("<headerless>", Kind.TEXT),
        ("Queued", Kind.TEXT),
    ],
)
def test_a_body_is_what_it_begins_like(text: str, kind: Kind) -> None:
    assert Answer(200, text).kind is kind


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ('{"error":"invalid recipient"}', Subject.RECIPIENT),
        ('{"ErrorCode":406,"Message":"Found inactive addresses: a@b.example"}', Subject.RECIPIENT),
        ('{"errors":[{"message":"x","field":"personalizations.0.to.0.email"}]}', Subject.RECIPIENT),
        ('{"errors":{"to.0.email":["must be valid"]}}', Subject.RECIPIENT),
        ('{"error":"the subject is missing"}', Subject.MESSAGE),
        ('{"error":"Unable to send: the text is invalid"}', Subject.MESSAGE),
        ('{"error":"Invalid `from` field"}', Subject.MESSAGE),
        ('{"error":"too many recipients"}', Subject.MESSAGE),
    ],
)
def test_a_refusal_says_whom_it_is_about(text: str, subject: Subject) -> None:
    found = verdict(422, text)
    assert (found.outcome, found.subject) == (Outcome.REJECTED, subject)


def test_what_is_the_routes_fault_is_said_to_be() -> None:
    for status in (401, 403, 404, 429, 500, 503):
        assert verdict(status).subject is Subject.ROUTE
    assert judge_failure("connect", "dns", "").subject is Subject.ROUTE


@pytest.mark.parametrize(
    ("headers", "text", "wait_s"),
    [
        ({"retry_after": "30"}, "", 30.0),
        ({"retry_after": "Fri, 15 Jan 2027 08:01:00 GMT"}, "", 60.0),
        ({}, "", None),
        ({"retry_after": "soon"}, "", None),
        ({"x_ratelimit_reset": str(int(NOW) + 20)}, "", 20.0),
        ({"x_ratelimit_reset": str(int(NOW * 1000) + 20_000)}, "", 20.0),
        ({"ratelimit_reset": "7"}, "", 7.0),
        ({"x_sib_ratelimit_reset": "9"}, "", 9.0),
        ({"x_ratelimit_reset": str(int(NOW) - 20)}, "", None),
        ({"x_ratelimit_reset": "99999999"}, "", None),
        ({"x_ratelimit_reset": "later"}, "", None),
        ({"retry_after": "5", "ratelimit_reset": "7"}, "", 5.0),
        ({"retry_after": "0", "ratelimit_reset": "7"}, "", 7.0),
        ({}, '{"message":"limit exceeded, try again after Fri, 15 Jan 2027 08:02:00 GMT"}', 120.0),
    ],
)
def test_a_throttled_answer_says_how_long_to_wait(headers: dict[str, str], text: str, wait_s: float | None) -> None:
    assert verdict(429, text, **headers).retry_after_s == wait_s


def test_an_answer_says_that_nothing_more_fits_whatever_else_it_says() -> None:
    full = {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "30"}
    assert verdict(202, **full).full_for_s == 30.0
    assert verdict(422, **full).full_for_s == 30.0
    assert verdict(202, **full | {"x_ratelimit_remaining": "1"}).full_for_s is None
    too_fast = verdict(429, **full)
    assert (too_fast.retry_after_s, too_fast.full_for_s) == (30.0, None), "said once"
    assert verdict(429, **full, retry_after="5").retry_after_s == 5.0, "its own word for it comes first"


def test_a_reset_of_the_rate_window_holds_back_nothing_but_a_throttled_call() -> None:
    assert verdict(503, x_ratelimit_reset="60").retry_after_s is None
    assert verdict(503, retry_after="60").retry_after_s == 60.0
    assert verdict(200, '{"id":"1"}', retry_after="60").retry_after_s is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"message":"no\\nsubject"}', "no subject"),
        ('{"errors":[{"message":"first"},{"message":"second"}]}', "first"),
        ('{"error":{"code":1,"message":"inner"}}', "inner"),
        ('{"ErrorCode":300,"Message":"Zero recipients"}', "Zero recipients"),
        ('{"success":false,"errors":["listed"]}', "listed"),
        ('{"a":{"b":1}}', '{"a":{"b":1}}'),
        ('{"message":"cut', '{"message":"cut'),
        ("plain\r\n  words", "plain words"),
        ("<html><title>Bad Gateway</title><body>x</body></html>", "Bad Gateway"),
        ("<html><style>p{}</style><body>Back <b>soon</b></body></html>", "Back soon"),
        ("[" * 5000, "[" * 299 + "…"),
    ],
)
def test_the_text_is_what_the_answer_says_to_a_person(body: str, text: str) -> None:
    assert verdict(400 if "<" not in body else 502, body).text == text


def test_a_redirect_says_where_to() -> None:
    assert verdict(308, location="https://api.example.com/v2").text == "https://api.example.com/v2"


def test_a_cut_answer_says_so_and_stays_accepted() -> None:
    found = judge(200, {}, '{"id":"4', False, NOW)
    assert (found.outcome, found.text) == (Outcome.ACCEPTED, "(the answer was cut off)")


def test_a_verdict_carries_the_code_the_rule_the_request_id_and_the_raw_answer() -> None:
    found = verdict(422, '{"message":"no subject"}', x_request_id="req-7")
    assert (found.code, found.rule, found.request_id) == ("422", "refused", "req-7")
    assert found.raw == '{"message":"no subject"}'
    assert verdict(200, '{"id":"1"}').raw is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer re_9f8e7d6c5b4a", "Authorization: Bearer ***"),
        ("key SG.abcdefgh12.zyx987 is unknown", "key *** is unknown"),
        ('{"api_key": "k3y-abcdef"}', '{"api_key": "***"}'),
        ("password=hunter22", "password=***"),
        ("Basic authentication is required", "Basic authentication is required"),
        ("token: invalid", "token: invalid"),
        ("the word swordfish", "the word ***"),
    ],
)
def test_secrets_are_taken_out(text: str, shown: str) -> None:
    assert redact(text, ["swordfish", "", "a"]) == shown


def test_a_verdict_shows_no_secret_anywhere() -> None:
    body = '{"message":"bad key swordfish"}'
    found = judge(401, {"x-request-id": "swordfish"}, body, True, NOW, secrets=["swordfish"])
    assert "swordfish" not in repr(found)
    assert "swordfish" not in repr(judge_failure("connect", "dns", "swordfish.example", secrets=["swordfish"]))
    cut = judge(500, {}, "x" * 1995 + "swordfish", True, NOW, secrets=["swordfish"])
    assert "sword" not in repr(cut)


def test_a_line_is_one_line_and_short() -> None:
    assert one_line(" a\r\n\tb\x00\ud800c ") == "a b c"
    assert one_line("x" * 1000) == "x" * 299 + "…"


@given(
    status=st.integers(0, 999),
    text=st.text(max_size=200) | st.sampled_from(['{"message":"\\ud800\\u0000"}', '{"message":{"message":[]}}']),
    complete=st.booleans(),
    headers=st.dictionaries(st.sampled_from(["retry-after", "x-ratelimit-reset", "x-request-id"]), st.text()),
)
def test_whatever_comes_is_judged_and_can_be_stored(
    status: int, text: str, complete: bool, headers: dict[str, str]
) -> None:
    found = judge(status, headers, text, complete, NOW)
    for shown in (found.text, found.raw or "", found.request_id or ""):
        assert "\x00" not in shown
        shown.encode()
    assert "\n" not in found.text
    assert found.retry_after_s is None or 0 <= found.retry_after_s <= 86400


def test_the_documentation_has_a_row_for_every_rule() -> None:
    table = rules_as_markdown()
    assert all(rule.name in table and rule.source in table for rule in (*RULES, *FAILURE_RULES))
    assert "| 409, 423: an earlier call under this key is running | unknown | yes | yes |" in table
    assert "| 5xx: a server fault | transient | yes | yes |" in table
