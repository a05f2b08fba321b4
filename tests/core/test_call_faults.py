"""What a mail server's refusal at the call says about us."""

from __future__ import annotations

import pytest

from posthouse.core.call_faults import Refused, faults_of_call
from posthouse.core.events import Cause
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.refusals import ALONE_MIN, SAME_REFUSALS_MAX, RefusalStreak, Suspects, judge, judge_alone
from posthouse.core.smtp_replies import Phase, Reply
from posthouse.core.smtp_rules import all_refused, judge_reply

ADA, BOB, EVE = "ada@gmail.com", "bob+7@yahoo.com", "eve@shop.example"
DMARC = "5.7.26 This mail is unauthenticated"


def told(verdict: Verdict) -> list[Refused]:
    return faults_of_call(ADA, verdict.code, verdict.text, verdict.rule)


def said(phase: Phase, code: int, text: str) -> Verdict:
    return judge_reply(Reply(phase, code, text))


@pytest.mark.parametrize(
    ("phase", "code", "text", "cause"),
    [
        (Phase.RCPT, 550, DMARC, Cause.NOT_AUTHENTIC),
        (Phase.DOT, 550, DMARC, Cause.NOT_AUTHENTIC),
        (Phase.RCPT, 450, "4.7.25 Client host rejected: cannot find your hostname", Cause.NOT_AUTHENTIC),
        (Phase.MAIL, 550, "5.1.8 Bad sender's system address", Cause.NOT_AUTHENTIC),
        (Phase.DOT, 421, "4.7.28 unusual rate of unsolicited mail", Cause.TOO_FAST),
        (Phase.MAIL, 450, "4.7.1 Error: too much mail from 192.0.2.7", Cause.TOO_FAST),
        (Phase.BANNER, 554, "5.7.1 blocked using zen.example", Cause.BLOCKED),
        (Phase.RCPT, 550, "5.7.1 Access denied", Cause.BLOCKED),
        (Phase.RCPT, 550, "mailbox unavailable: reject due to policy restrictions", Cause.BLOCKED),
        (Phase.MAIL, 550, "5.7.1 not accepted", Cause.BLOCKED),
        (Phase.RCPT, 450, "4.7.1 try again later", Cause.BLOCKED),
    ],
)
def test_what_is_said_of_our_mail_is_our_fault_at_whatever_step(
    phase: Phase, code: int, text: str, cause: Cause
) -> None:
    assert told(said(phase, code, text)) == [Refused(ADA, cause, str(code), f"at {phase}: {text}")]


@pytest.mark.parametrize(
    ("phase", "code", "text"),
    [
        (Phase.AUTH, 535, "5.7.8 Authentication credentials invalid"),
        (Phase.AUTH, 454, "4.7.0 Temporary authentication failure"),
        (Phase.AUTH, 534, "5.7.9 mechanism is too weak"),
        (Phase.MAIL, 530, "5.7.0 Authentication required"),
        (Phase.MAIL, 550, "5.7.1 Client was not authenticated"),
        (Phase.STARTTLS, 454, "4.7.0 TLS not available"),
        (Phase.RCPT, 554, "5.7.1 <bob@example.com>: Relay access denied"),
        (Phase.MAIL, 553, "5.7.1 <a@shop.example>: Sender address rejected: not owned by user shop"),
        (Phase.RCPT, 550, "5.1.1 no such user"),
        (Phase.RCPT, 452, "4.2.2 mailbox full"),
        (Phase.RCPT, 450, "4.2.0 Greylisted"),
        (Phase.DOT, 552, "5.3.4 Message size exceeds fixed limit"),
        (Phase.CONTENT, 552, "exceeds the size limit"),
        (Phase.DOT, 554, "Transaction failed"),
    ],
)
def test_neither_how_we_are_let_in_nor_what_is_about_the_address_or_the_message_is(
    phase: Phase, code: int, text: str
) -> None:
    assert told(said(phase, code, text)) == []


def test_each_of_several_recipients_is_told_with_their_own_words() -> None:
    verdicts = [said(Phase.RCPT, 550, DMARC), said(Phase.RCPT, 452, "4.2.2 full"), said(Phase.RCPT, 550, "5.7.1 no")]
    assert told(all_refused([*zip((ADA, BOB, EVE), verdicts, strict=True)])) == [
        Refused(ADA, Cause.NOT_AUTHENTIC, "550", f"at RCPT TO: {DMARC}"),
        Refused(EVE, Cause.BLOCKED, "550", "at RCPT TO: 5.7.1 no"),
    ]


def test_what_stopped_the_route_was_said_alike() -> None:
    streak, verdict = RefusalStreak(), said(Phase.RCPT, 550, DMARC)
    for send_id in range(SAME_REFUSALS_MAX):
        streak, verdict, _ = judge(streak, send_id, said(Phase.RCPT, 550, DMARC))
    assert verdict.outcome is Outcome.MISCONFIGURED
    assert told(verdict) == told(said(Phase.RCPT, 550, DMARC))


@pytest.mark.parametrize(("text", "number"), [("5.1.8 Bad sender's system address", 1), ("5.7.1 not owned by user", 0)])
def test_what_only_one_message_meets_is_about_its_sender_and_no_policy(text: str, number: int) -> None:
    suspects = Suspects()
    for _ in range(ALONE_MIN):
        suspects, verdict = judge_alone(suspects, 1, said(Phase.MAIL, 550, text))
        suspects, _ = judge_alone(suspects, 2, Verdict(Outcome.ACCEPTED))
    assert verdict.outcome is Outcome.REJECTED
    assert [fault.text for fault in told(verdict)] == [f"at MAIL FROM: {text}"] * number
