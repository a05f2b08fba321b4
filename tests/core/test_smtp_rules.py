"""The outcome of every kind of SMTP reply and fault."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.answers import rule_faults
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.core.smtp_replies import FAULT_CODES, Fault, FaultRule, Phase, Reply, Scope, SmtpRule, codes
from posthouse.core.smtp_rules import (
    all_refused,
    decide_fault,
    decide_reply,
    judge_fault,
    judge_reply,
    partly_accepted,
    queue_id,
    smtp_rules_as_markdown,
)
from posthouse.core.smtp_table import FAULT_RULES, SMTP_RULES
from posthouse.providers.transport import CONNECT_CODES

# What a reply must mean, written down apart from the rules: outcome, may have been accepted, spends an attempt.
ACCEPTED = (Outcome.ACCEPTED, False, True)
THROTTLED = (Outcome.THROTTLED, False, False)
OUTAGE = (Outcome.TRANSIENT, False, False)
LATER = (Outcome.TRANSIENT, False, True)
REJECTED = (Outcome.REJECTED, False, True)
MISCONFIGURED = (Outcome.MISCONFIGURED, False, False)
UNKNOWN = (Outcome.UNKNOWN, True, True)

Meaning = tuple[Outcome, bool, bool]

REPLIES: list[tuple[Phase, int, str, Meaning]] = [
    # Postfix
    (Phase.BANNER, 421, "4.7.0 mx.example Error: too many connections from 192.0.2.7", THROTTLED),
    (Phase.BANNER, 554, "5.7.1 <unknown>: Client host rejected: Access denied", MISCONFIGURED),
    (Phase.MAIL, 450, "4.7.1 <shop>: Client rate limit: too many mails", THROTTLED),
    (Phase.MAIL, 452, "4.3.1 Insufficient system storage", OUTAGE),
    (Phase.MAIL, 552, "5.3.4 Message size exceeds fixed limit", REJECTED),
    (Phase.MAIL, 530, "5.7.0 Must issue a STARTTLS command first", MISCONFIGURED),
    (Phase.RCPT, 450, "4.1.8 <a@b.example>: Sender address rejected: Domain not found", LATER),
    (Phase.RCPT, 450, "4.2.0 <bob@example.com>: Recipient address rejected: Greylisted for 5 minutes", LATER),
    (Phase.RCPT, 452, "4.5.3 Error: too many recipients", OUTAGE),
    (Phase.RCPT, 550, "5.1.1 <bob@example.com>: Recipient address rejected: User unknown in table", REJECTED),
    (Phase.RCPT, 553, "5.7.1 <a@b.example>: Sender address rejected: not owned by user shop", MISCONFIGURED),
    (Phase.RCPT, 554, "5.7.1 <bob@example.com>: Relay access denied", MISCONFIGURED),
    (Phase.RCPT, 454, "4.7.1 <bob@example.com>: Relay access denied", MISCONFIGURED),
    (Phase.RCPT, 554, "5.7.1 Service unavailable; Client host [192.0.2.7] blocked using zen.example", REJECTED),
    (Phase.DOT, 250, "2.0.0 Ok: queued as 4F1A2", ACCEPTED),
    (Phase.DOT, 451, "4.3.0 Error: queue file write error", LATER),
    (Phase.DOT, 550, "5.7.1 Blocked by SpamAssassin", REJECTED),
    # Exim, Sendmail, Exchange
    (Phase.RCPT, 550, "relay not permitted", MISCONFIGURED),
    (Phase.RCPT, 451, "Greylisting in action, please come back later", LATER),
    (Phase.RCPT, 550, "Unrouteable address", REJECTED),
    (Phase.RCPT, 550, "5.7.1 Unable to relay", MISCONFIGURED),
    (Phase.MAIL, 530, "5.7.57 Client not authenticated to send mail", MISCONFIGURED),
    (Phase.AUTH, 535, "5.7.3 Authentication unsuccessful", MISCONFIGURED),
    (Phase.DOT, 554, "5.2.252 SendAsDenied; shop not allowed to send as orders", MISCONFIGURED),
    (Phase.RCPT, 552, "5.2.2 mailbox full", LATER),
    (Phase.RCPT, 552, "storage allocation exceeded", LATER),
    # Gmail
    (Phase.RCPT, 421, "4.7.28 Our system has detected an unusual rate of unsolicited mail", THROTTLED),
    (Phase.RCPT, 450, "4.2.1 The user you are trying to contact is receiving mail too quickly.", LATER),
    (Phase.RCPT, 452, "4.2.2 The email account that you tried to reach is over quota.", LATER),
    (Phase.RCPT, 550, "5.1.1 The email account that you tried to reach does not exist.", REJECTED),
    (Phase.RCPT, 550, "5.2.1 The email account that you tried to reach is disabled.", REJECTED),
    (Phase.MAIL, 550, "5.4.5 Daily user sending quota exceeded.", THROTTLED),
    (Phase.DOT, 550, "5.7.26 This mail is unauthenticated, which poses a security risk", REJECTED),
    (Phase.AUTH, 534, "5.7.9 Application-specific password required", MISCONFIGURED),
    (Phase.AUTH, 454, "4.7.0 Too many login attempts, please try again later.", THROTTLED),
    # SES
    (Phase.AUTH, 535, "Authentication Credentials Invalid", MISCONFIGURED),
    (Phase.DOT, 454, "Throttling failure: Maximum sending rate exceeded.", THROTTLED),
    (Phase.DOT, 454, "Throttling failure: Daily message quota exceeded.", THROTTLED),
    (Phase.DOT, 554, "Message rejected: Email address is not verified.", MISCONFIGURED),
    (Phase.DOT, 554, "Transaction failed: Recipient count exceeds 50.", REJECTED),
    (Phase.BANNER, 421, "Too many concurrent SMTP connections", THROTTLED),
    # Mailtrap
    (Phase.AUTH, 535, "5.7.8 Too many connections per account", THROTTLED),
    (Phase.AUTH, 535, "5.7.0 Monthly messages limit reached", THROTTLED),
    # Whatever the words
    (Phase.STARTTLS, 454, "", OUTAGE),
    (Phase.STARTTLS, 502, "", MISCONFIGURED),
    (Phase.EHLO, 502, "", MISCONFIGURED),
    (Phase.AUTH, 432, "4.7.12 A password transition is needed", MISCONFIGURED),
    (Phase.AUTH, 451, "", OUTAGE),
    (Phase.RCPT, 556, "5.1.10 Recipient domain has a null MX", REJECTED),
    (Phase.DATA, 503, "5.5.1 RCPT first", LATER),
    (Phase.DATA, 250, "", OUTAGE),
    (Phase.DOT, 354, "", UNKNOWN),
    (Phase.DOT, 552, "message size limit exceeded", REJECTED),
    (Phase.DOT, 421, "4.3.2 shutting down", OUTAGE),
]


@pytest.mark.parametrize(("phase", "code", "text", "means"), REPLIES, ids=lambda value: str(value)[:50])
def test_a_reply_means(phase: Phase, code: int, text: str, means: Meaning) -> None:
    judged = judge_reply(Reply(phase, code, text))
    assert (judged.outcome, judged.maybe_accepted, judged.spends_attempt) == means, judged


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("code", ["timeout", "lost", "bad_reply", "out_of_step"])
def test_what_is_lost_before_the_final_dot_was_not_accepted_and_after_it_nobody_knows(phase: Phase, code: str) -> None:
    judged = judge_fault(Fault(phase, code), "gone")
    means = UNKNOWN if phase is Phase.DOT else OUTAGE
    assert (judged.outcome, judged.maybe_accepted, judged.spends_attempt) == means


FAULTS: list[tuple[Phase, str, Meaning]] = [
    (Phase.CONNECT, "dns", OUTAGE),
    (Phase.CONNECT, "connect_refused", OUTAGE),
    (Phase.CONNECT, "connect_timeout", OUTAGE),
    (Phase.CONNECT, "tls", MISCONFIGURED),
    (Phase.CONNECT, "tls_verify", MISCONFIGURED),
    (Phase.STARTTLS, "tls_verify", MISCONFIGURED),
    (Phase.EHLO, "no_starttls", MISCONFIGURED),
    (Phase.AUTH, "no_auth", MISCONFIGURED),
    (Phase.AUTH, "no_credential", MISCONFIGURED),
    (Phase.MAIL, "no_smtputf8", REJECTED),
    (Phase.MAIL, "no_dkim_key", MISCONFIGURED),
    (Phase.MAIL, "no_8bitmime", REJECTED),
    (Phase.MAIL, "no_requiretls", REJECTED),
    (Phase.MAIL, "no_dsn", REJECTED),
    (Phase.MAIL, "too_large", REJECTED),
]


@pytest.mark.parametrize(("phase", "code", "means"), FAULTS)
def test_a_fault_means(phase: Phase, code: str, means: Meaning) -> None:
    judged = judge_fault(Fault(phase, code), "what happened")
    assert (judged.outcome, judged.maybe_accepted, judged.spends_attempt) == means


@pytest.mark.parametrize(("rule", "example"), [(rule, e) for rule in SMTP_RULES for e in rule.matches])
def test_every_rule_decides_its_own_examples(rule: SmtpRule, example: Reply) -> None:
    assert decide_reply(example) is rule


@pytest.mark.parametrize(("rule", "example"), [(rule, e) for rule in FAULT_RULES for e in rule.matches])
def test_every_rule_about_faults_decides_its_own_examples(rule: FaultRule, example: Fault) -> None:
    assert decide_fault(example) is rule


def test_no_rule_is_dead_shadowed_or_too_wide() -> None:
    assert rule_faults(SMTP_RULES) == []
    assert rule_faults(FAULT_RULES) == []


def rule(**changes: object) -> SmtpRule:
    parts: dict[str, object] = {
        "name": "refused",
        "phases": {Phase.RCPT},
        "codes": codes(550),
        "outcome": Outcome.REJECTED,
        "source": "here",
        "matches": (Reply(Phase.RCPT, 550),),
        "not_matches": (Reply(Phase.RCPT, 450),),
    }
    return SmtpRule(**(parts | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ([rule(), rule()], "several rules"),
        ([rule(), rule(name="again")], "shadowed by 'refused'"),
        ([rule(codes=codes(551))], "dead"),
        ([rule(not_matches=())], "needs an answer"),
        ([rule(not_matches=(Reply(Phase.RCPT, 550),))], "matches what it must not"),
    ],
)
def test_a_faulty_rule_is_found(rules: list[SmtpRule], complaint: str) -> None:
    assert any(complaint in fault for fault in rule_faults(rules))


def test_a_rule_that_contradicts_itself_can_not_be_written() -> None:
    with pytest.raises(ValueError):
        rule(outcome=Outcome.UNKNOWN)
    with pytest.raises(ValueError, match="only a rejection of the recipient"):
        rule(bad_address=True)


@pytest.mark.parametrize(
    ("code", "text", "bad"),
    [
        (550, "5.1.1 <bob@example.com>: Recipient address rejected: User unknown in virtual mailbox table", True),
        (550, "5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup", True),
        (550, "5.2.1 The email account that you tried to reach is disabled.", True),
        (556, "5.1.10 <bob@example.com>: Domain does not accept mail (nullMX)", True),
        (551, "5.1.6 User has moved to bob@example.net", True),
        (550, "No such user here", True),
        (550, "5.2.1 The user you are trying to contact is receiving mail at a rate that prevents more", False),
        (550, "Requested action not taken: mailbox unavailable", False),
        (552, "5.2.2 mailbox full", False),
        (550, "5.7.1 Our policy blocks you", False),
        (550, "5.7.26 unauthenticated", False),
        (550, "5.1.4 ambiguous", False),
        (553, "sender address does not exist", False),
        (450, "4.1.1 unverified address", False),
        (452, "4.5.3 too many recipients", False),
    ],
)
def test_only_what_surely_says_that_nothing_arrives_there_makes_an_address_a_bad_one(
    code: int, text: str, bad: bool
) -> None:
    verdict = judge_reply(Reply(Phase.RCPT, code, text), recipient="bob@example.com")
    assert verdict.bad_addresses == (("bob@example.com",) if bad else ())
    assert judge_reply(Reply(Phase.RCPT, code, text)).bad_addresses == ()


def test_every_code_at_every_step_is_decided() -> None:
    for phase, code in product(Phase, range(100, 600)):
        assert decide_reply(Reply(phase, code))
    for phase, name in product(Phase, [*FAULT_CODES, *CONNECT_CODES]):
        assert decide_fault(Fault(phase, name))


def test_only_a_success_after_the_final_dot_is_an_acceptance() -> None:
    for phase, code in product(Phase, range(100, 600)):
        accepted = decide_reply(Reply(phase, code)).outcome is Outcome.ACCEPTED
        assert accepted == (phase is Phase.DOT and 200 <= code < 300)


def test_nothing_may_have_been_accepted_before_the_final_dot() -> None:
    assert {phase for rule in SMTP_RULES if rule.maybe_accepted for phase in rule.phases} == {Phase.DOT}
    assert {phase for rule in FAULT_RULES if rule.maybe_accepted for phase in rule.phases} == {Phase.DOT}


# The parts of a reply.


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        (550, "5.1.1 no such user", "1.1"),
        (550, " 5.7.26\tno", "7.26"),
        (550, "no such user", ""),
        (450, "5.1.1 contradicts the code", ""),
        (550, "5.1.1.1 is no status", "1.1"),
        (550, "see 5.1.1", ""),
    ],
)
def test_an_enhanced_status_code_stands_first_and_agrees_with_the_code(code: int, text: str, status: str) -> None:
    assert Reply(Phase.RCPT, code, text).status == status


def test_whom_a_reply_can_be_about() -> None:
    assert Reply(Phase.AUTH, 535).scope is Scope.SESSION
    assert Reply(Phase.MAIL, 550).scope is Scope.TRANSACTION
    assert Reply(Phase.RCPT, 550).scope is Scope.RECIPIENT
    assert Reply(Phase.DOT, 550).scope is Scope.RECIPIENT
    assert Reply(Phase.DOT, 550, alone=False).scope is Scope.TRANSACTION


def test_a_late_refusal_of_one_recipient_among_several_is_about_the_message() -> None:
    assert judge_reply(Reply(Phase.DOT, 550, "5.1.1 no such user")).subject is Subject.RECIPIENT
    assert judge_reply(Reply(Phase.DOT, 550, "5.1.1 no such user", alone=False)).subject is Subject.MESSAGE


def test_a_policy_that_blocks_says_nothing_against_the_recipient() -> None:
    assert judge_reply(Reply(Phase.RCPT, 550, "5.7.1 Access denied")).subject is Subject.MESSAGE


# Verdicts.


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("4.7.1 Greylisted, try again in 7 minutes", 420),
        ("4.7.1 Greylisted for 300 seconds", 300),
        ("4.7.1 greylisting: retry after 90s", 90),
        ("4.7.1 Greylisted", 300),
        ("4.2.2 mailbox full", 3600),
        ("4.7.1 rate limit exceeded, retry in 1 hour", 3600),
        ("4.7.1 rate limit exceeded, retry in 999999 hours", 86400),
        ("4.7.1 rate limit exceeded", None),
        ("4.2.1 busy with 5 minutes of work", None),
    ],
)
def test_how_long_to_wait_is_what_the_words_say_or_the_rule(text: str, wait_s: float | None) -> None:
    assert judge_reply(Reply(Phase.RCPT, 450, text)).retry_after_s == wait_s


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("2.0.0 Ok: queued as 4F1A2", "4F1A2"),
        ("OK id=1sXyZ-0001aB-2C", "1sXyZ-0001aB-2C"),
        ("2.0.0 4AB3kQ2x012345 Message accepted for delivery", "4AB3kQ2x012345"),
        ("Ok 0100018f00000000-abcd-1234-000000", "0100018f00000000-abcd-1234-000000"),
        ("2.6.0 <abc@mail.example> [InternalId=1] Queued mail for delivery", None),
        ("Message accepted for delivery", None),
        ("2.0.0 Ok", None),
        ("", None),
    ],
)
def test_the_servers_own_id_is_found_in_its_words(text: str, identifier: str | None) -> None:
    assert queue_id(text) == identifier


def test_a_verdict_says_at_which_step_and_shows_no_secret() -> None:
    judged = judge_reply(Reply(Phase.AUTH, 535, "5.7.8 swordfish is wrong"), secrets=["swordfish"])
    assert judged.code == "535"
    assert judged.text == "at AUTH: 5.7.8 *** is wrong"
    assert "swordfish" not in repr(judged)
    assert "swordfish" not in repr(judge_fault(Fault(Phase.AUTH, "lost"), "swordfish", secrets=["swordfish"]))


def verdicts(*outcomes: Outcome) -> list[tuple[str, Verdict]]:
    return [(f"{outcome}@example.com", Verdict(outcome, code="550")) for outcome in outcomes]


def test_a_recipient_who_may_get_it_later_keeps_a_send_alive_and_our_own_fault_comes_first() -> None:
    assert all_refused(verdicts(Outcome.REJECTED, Outcome.TRANSIENT)).outcome is Outcome.TRANSIENT
    assert all_refused(verdicts(Outcome.TRANSIENT, Outcome.THROTTLED)).outcome is Outcome.THROTTLED
    assert all_refused(verdicts(Outcome.THROTTLED, Outcome.MISCONFIGURED)).outcome is Outcome.MISCONFIGURED
    assert all_refused(verdicts(Outcome.REJECTED, Outcome.REJECTED)).outcome is Outcome.REJECTED


def test_a_partly_accepted_message_names_those_who_did_not_get_it() -> None:
    judged = partly_accepted(Verdict(Outcome.ACCEPTED, message_id="m-1"), verdicts(Outcome.REJECTED), "<i@x.example>")
    assert (judged.outcome, judged.message_id, judged.rule) == (Outcome.ACCEPTED, "m-1", "partly accepted")
    assert "rejected@example.com" in judged.text


def test_those_who_were_refused_alike_remain_together() -> None:
    refused = [
        ("a@example.com", Verdict(Outcome.REJECTED, code="550")),
        ("b@example.com", Verdict(Outcome.TRANSIENT, code="451", retry_after_s=300.0)),
        ("c@example.com", Verdict(Outcome.REJECTED, code="553")),
    ]
    judged = partly_accepted(Verdict(Outcome.ACCEPTED), refused, "<i@x.example>")
    gone, later = judged.remainders
    assert (gone.addresses, gone.verdict.outcome) == (("a@example.com", "c@example.com"), Outcome.REJECTED)
    assert (later.addresses, later.verdict.retry_after_s) == (("b@example.com",), 300.0)
    assert {gone.message_id, later.message_id} == {"<i@x.example>"}


@given(st.sampled_from(Phase), st.integers(100, 599), st.text())
def test_whatever_is_said_is_judged_and_can_be_stored(phase: Phase, code: int, text: str) -> None:
    judged = judge_reply(Reply(phase, code, text))
    for stored in (judged.text, judged.message_id or "", judged.raw or ""):
        assert "\0" not in stored
        stored.encode()


def test_the_documentation_has_a_row_for_every_rule() -> None:
    table = smtp_rules_as_markdown()
    names = [rule.name for rule in SMTP_RULES] + [rule.name for rule in FAULT_RULES]
    assert all(name in table for name in names)
