"""The outcome of an SMTP reply, as data: the first rule that matches decides.

Four refusals sound alike and are not: a greylist (the same recipient, in a few minutes), a full mailbox (the same
recipient, much later), a policy that blocks the message (never, unless our set-up changes), and a fault of our own
credential or sender (nothing goes out until somebody mends it).

Sources: RFC 5321, 4954, 3207, 3463, 5248, 6409, 7504, 7505 and the IANA registry of enhanced status codes; the
wordings of Postfix, Exim, Sendmail and Exchange, and of the providers' submission servers.
"""

from __future__ import annotations

import re
from typing import Final

from posthouse.core.answers import said
from posthouse.core.outcome import Outcome, Subject
from posthouse.core.smtp_replies import (
    EVERY_PHASE,
    MESSAGE_PHASES,
    SESSION_PHASES,
    Fault,
    FaultRule,
    Phase,
    Reply,
    Scope,
    SmtpRule,
    codes,
)

_2YZ: Final = codes(range(200, 300))
_4YZ: Final = codes(range(400, 500))
_5YZ: Final = codes(range(500, 600))
_REFUSALS: Final = _4YZ | _5YZ
_AFTER_AUTH: Final = frozenset({Phase.RSET}) | MESSAGE_PHASES
_GREETING: Final = frozenset({Phase.CONNECT, Phase.BANNER, Phase.EHLO, Phase.RSET})

GREYLIST_WAIT_S: Final = 300.0
MAILBOX_FULL_WAIT_S: Final = 3600.0

_RATE: Final = (
    r"throttl(?:ed|ing)|\brate[ -]?(?:limit|exceeded|control)|sending rate|unusual rate|too (?:fast|quickly|frequent)"
    r"|too many (?:\w+ ){0,3}?(?:connections?|messages?|mails?|emails?|sessions?|logins?|attempts?)\b"
    r"|(?:connection|message|session|sending|mail) (?:count |rate )?limit\b|maximum number of (?:connections|messages)"
    r"|(?:daily|hourly|monthly|sending) (?:\w+ )?(?:quota|limit)\b|slow down"
    r"|too much mail|too many (?:recipients|auth commands) from"
)
_STATUS_RATE: Final = r"7\.28|4\.5"
_MAILBOX_FULL: Final = (
    r"mail ?box\b.{0,40}\b(?:full|over ?quota|exceed)|over ?quota|(?:user|recipient|account)\b.{0,40}\bquota"
    r"|quota exceeded for (?:user|recipient|mail)|out of storage|insufficient storage in (?:the )?mailbox"
)
_RELAY: Final = (
    r"relay(?:ing)?\b.{0,20}\b(?:denied|not (?:permitted|allowed)|prohibited|disabled)|(?:unable|not allowed) to relay"
    r"|(?:do not|don't|cannot|can't|not) relay"
)
_AUTH_WANTED: Final = (
    r"authenticat(?:e first|ion (?:is )?(?:required|needed))|must (?:authenticate|issue a? ?starttls|log ?in)"
    r"|not (?:authenticated|logged in)|(?:requires|need) (?:smtp )?auth|starttls (?:is )?(?:required|first)"
)
_OUR_SENDER: Final = (
    r"(?:sender|from|domain|identity|identities|email address)\b.{0,80}?"
    r"\b(?:not|isn't|un)[ -]?(?:yet )?(?:verified|confirmed|validated|authori[sz]ed|owned|allowed|registered)"
    r"|(?:not (?:allowed|permitted|authori[sz]ed)|unauthori[sz]ed) to (?:send|use)|sender (?:signature|identity)"
    r"|(?:your account|sending)\b.{0,40}\b(?:suspended|disabled|paused|blocked|deactivated)"
)
_NO_MAILBOX: Final = (
    r"(?:no such|unknown|non-?existent) (?:user|recipient|mailbox|account|local)"
    r"|(?:user|recipient|mailbox|account)\b.{0,60}?"
    r"\b(?:unknown|not found|(?:does not|doesn't|not) exist)\b"
    r"|(?:mailbox|account)\b.{0,40}?\b(?:disabled|deactivated)\b"
)
_NOT_THERE: Final = (
    r"(?:no such|unknown|non-?existent) address|invalid (?:user|recipient|mailbox|address|account|local)"
    r"|address\b.{0,60}?\b(?:unknown|not found|(?:does not|doesn't|not) exist)\b"
    r"|(?:user|recipient|mailbox|address|account)\b.{0,60}?\b(?:invalid|inactive|suppressed|unavailable)\b"
)
_POLICY: Final = (
    r"spam|blocked|block[ -]?list|blacklist|spamhaus|policy|reputation|prohibited|content (?:rejected|denied)"
    r"|virus|malware|\bd(?:marc|kim)\b|\bspf\b|unsolicited"
)

_OK: Final = Reply(Phase.DOT, 250, "2.0.0 Ok: queued as 4F1A2")
_NO_USER: Final = Reply(Phase.RCPT, 550, "5.1.1 <bob@example.com>: no such user")

STEP_RULES: Final = (
    SmtpRule(
        name="accepted",
        phases={Phase.DOT},
        codes=_2YZ,
        outcome=Outcome.ACCEPTED,
        source="RFC 5321 section 4.2.5: the server has taken the responsibility",
        matches=(_OK, Reply(Phase.DOT, 250), Reply(Phase.DOT, 251, "will forward")),
        not_matches=(Reply(Phase.RCPT, 250, "2.1.5 Ok"), Reply(Phase.DOT, 354, "go ahead")),
    ),
    SmtpRule(
        name="no final answer after the final dot",
        # Most likely a reply to something earlier: the true one may have said yes.
        phases={Phase.DOT},
        codes=codes(range(100, 200), range(300, 400)),
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        subject=Subject.ROUTE,
        source="RFC 5321 section 4.3.2 knows no such answer: the two sides are out of step",
        matches=(Reply(Phase.DOT, 354, "go ahead"), Reply(Phase.DOT, 150)),
        not_matches=(_OK, Reply(Phase.DATA, 250, "2.0.0 Ok")),
    ),
    SmtpRule(
        name="a reply that doesn't fit the command",
        phases=EVERY_PHASE - {Phase.DOT},
        codes=codes(range(100, 400)),
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 5321 section 4.3.2: the two sides are out of step, and the content was not sent",
        matches=(Reply(Phase.DATA, 250, "2.0.0 Ok"), Reply(Phase.RCPT, 354, "go ahead"), Reply(Phase.AUTH, 250)),
        not_matches=(_OK, Reply(Phase.DATA, 451)),
    ),
)

RECIPIENT_RULES: Final = (
    SmtpRule(
        name="too many recipients at once",
        phases={Phase.RCPT},
        codes=codes(452, 552, 550, 554),
        status=re.compile(r"5\.3"),
        says=said(r"too many recipients|recipient (?:count|limit)"),
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.RECIPIENT,
        source="RFC 5321 section 4.5.3.1.10: it says nothing against the recipient",
        matches=(Reply(Phase.RCPT, 452, "4.5.3 Too many recipients"), Reply(Phase.RCPT, 552, "too many recipients")),
        not_matches=(Reply(Phase.DOT, 554, "Recipient count exceeds 50."), _NO_USER),
    ),
    SmtpRule(
        name="greylisted",
        phases=MESSAGE_PHASES,
        codes=_4YZ - {421},
        says=said(r"gr[ae]y-?list"),
        outcome=Outcome.TRANSIENT,
        subject=Subject.RECIPIENT,
        wait_s=GREYLIST_WAIT_S,
        source="RFC 6647: again in a few minutes, from the same address",
        matches=(
            Reply(Phase.RCPT, 450, "4.2.0 <a@b.example>: Recipient address rejected: Greylisted, see the help page"),
            Reply(Phase.RCPT, 451, "4.7.1 Greylisting in action, please come back in 5 minutes"),
            Reply(Phase.DATA, 451, "4.7.1 graylisted"),
        ),
        not_matches=(Reply(Phase.RCPT, 450, "4.7.1 try again later"), Reply(Phase.RCPT, 550, "5.7.1 greylisted")),
    ),
    SmtpRule(
        name="the recipient gets mail too fast",
        phases={Phase.RCPT, Phase.DOT},
        codes=_4YZ - {421},
        scopes={Scope.RECIPIENT},
        says=said(r"(?:user|recipient|mailbox)\b.{0,80}\b(?:receiving|too (?:fast|quickly|many))"),
        outcome=Outcome.TRANSIENT,
        subject=Subject.RECIPIENT,
        wait_s=GREYLIST_WAIT_S,
        source="Gmail 450 4.2.1: a limit of one mailbox, not of ours",
        matches=(
            Reply(Phase.RCPT, 450, "4.2.1 The user you are trying to contact is receiving mail too quickly."),
            Reply(Phase.DOT, 452, "4.2.1 this mailbox has too many messages a minute"),
        ),
        not_matches=(Reply(Phase.RCPT, 450, "4.7.1 You are sending too fast"),),
    ),
    SmtpRule(
        name="the mailbox is full",
        phases={Phase.RCPT, Phase.DOT},
        codes=_REFUSALS - {421},
        status=re.compile(r"2\.2"),
        says=said(_MAILBOX_FULL),
        outcome=Outcome.TRANSIENT,
        subject=Subject.RECIPIENT,
        wait_s=MAILBOX_FULL_WAIT_S,
        source="RFC 3463 X.2.2: it may have room on another day, so neither at once nor never",
        matches=(
            Reply(Phase.RCPT, 452, "4.2.2 The email account that you tried to reach is over quota"),
            Reply(Phase.RCPT, 552, "5.2.2 <bob@example.com>: mailbox full"),
            Reply(Phase.RCPT, 550, "Mailbox is full"),
            Reply(Phase.DOT, 554, "5.2.2 user has exceeded their quota"),
        ),
        not_matches=(
            Reply(Phase.RCPT, 452, "4.3.1 Insufficient system storage"),
            Reply(Phase.DOT, 454, "Throttling failure: Daily message quota exceeded"),
            Reply(Phase.RCPT, 421, "4.2.2 mailbox full"),
        ),
    ),
)

TOO_FAST: Final = SmtpRule(
    name="too fast, or a quota is used up",
    phases=EVERY_PHASE,
    codes=_REFUSALS,
    status=re.compile(_STATUS_RATE),
    says=said(_RATE),
    outcome=Outcome.THROTTLED,
    spends_attempt=False,
    subject=Subject.ROUTE,
    source="SES 454 after the content, Gmail 421 4.7.28 and 550 5.4.5, Mailtrap 535, limits of Postfix and Exim",
    matches=(
        Reply(Phase.DOT, 454, "Throttling failure: Maximum sending rate exceeded."),
        Reply(Phase.DOT, 454, "Throttling failure: Daily message quota exceeded."),
        Reply(Phase.MAIL, 450, "4.7.1 Error: too much mail from 192.0.2.7"),
        Reply(Phase.RCPT, 450, "4.7.1 Error: too many recipients from 192.0.2.7"),
        Reply(Phase.AUTH, 450, "4.7.1 Error: too many AUTH commands from 192.0.2.7"),
        Reply(Phase.BANNER, 421, "4.7.0 Too many connections from your host"),
        Reply(Phase.RCPT, 421, "4.7.28 Our system has detected an unusual rate of unsolicited mail"),
        Reply(Phase.RCPT, 451, "4.7.1 rate limit exceeded, try again later"),
        Reply(Phase.MAIL, 452, "4.4.5 try later"),
        Reply(Phase.MAIL, 550, "5.4.5 Daily user sending quota exceeded."),
        Reply(Phase.AUTH, 535, "5.7.8 Too many connections per account"),
        Reply(Phase.AUTH, 535, "5.7.0 Monthly messages limit reached"),
    ),
    not_matches=(
        Reply(Phase.RCPT, 452, "4.5.3 Too many recipients"),
        Reply(Phase.AUTH, 535, "5.7.8 authentication failed"),
        Reply(Phase.DOT, 552, "5.3.4 Message size exceeds fixed limit"),
        Reply(Phase.MAIL, 552, "message size limit reached"),
        Reply(Phase.DOT, 554, "5.7.1 too many links"),
    ),
)

PACE_RULES: Final = (
    TOO_FAST,
    SmtpRule(
        name="the server is going down",
        phases=EVERY_PHASE,
        codes=codes(421),
        status=re.compile(r"3\.[02]"),
        says=said(r"shut(?:ting)?[ -]?down|restart|maintenance"),
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 5321 section 3.8, RFC 3463 X.3.2",
        matches=(Reply(Phase.MAIL, 421, "4.3.2 System not accepting"), Reply(Phase.RSET, 421, "shutting down")),
        not_matches=(Reply(Phase.MAIL, 421, "4.4.2 idle too long"), Reply(Phase.BANNER, 554, "maintenance")),
    ),
    SmtpRule(
        name="the server wants a pause",
        phases=EVERY_PHASE,
        codes=codes(421),
        outcome=Outcome.THROTTLED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 5321 section 4.2.2: it closes the connection; to answer with more of them makes it worse",
        matches=(Reply(Phase.BANNER, 421, "not now"), Reply(Phase.DOT, 421, "4.7.0 come back later")),
        not_matches=(Reply(Phase.BANNER, 450, "not now"),),
    ),
)

OWN_FAULT_RULES: Final = (
    SmtpRule(
        name="the password must be changed",
        phases={Phase.AUTH},
        codes=codes(432),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="RFC 4954 section 4.7, RFC 5248 X.7.12",
        matches=(Reply(Phase.AUTH, 432, "4.7.12 A password transition is needed"),),
        not_matches=(Reply(Phase.AUTH, 454, "4.7.0 Temporary authentication failure"),),
    ),
    SmtpRule(
        name="our credential is refused",
        phases={Phase.AUTH},
        codes=codes(535),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="RFC 4954 section 6; tried again blindly it would lock the account",
        matches=(Reply(Phase.AUTH, 535, "5.7.8 Authentication credentials invalid"), Reply(Phase.AUTH, 535)),
        not_matches=(Reply(Phase.AUTH, 454, "4.7.0 Temporary authentication failure"), Reply(Phase.RCPT, 535)),
    ),
    SmtpRule(
        name="our way to authenticate is refused",
        phases={Phase.AUTH},
        codes=_5YZ,
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="RFC 4954 section 6: 534 too weak, 538 not encrypted, 504 unknown, 501 not understood",
        matches=(
            Reply(Phase.AUTH, 534, "5.7.9 mechanism is too weak"),
            Reply(Phase.AUTH, 504, "5.5.4 Unrecognized authentication type"),
            Reply(Phase.AUTH, 538, "5.7.11 Encryption required"),
        ),
        not_matches=(Reply(Phase.AUTH, 454, "4.7.0"), Reply(Phase.MAIL, 550, "5.7.1")),
    ),
    SmtpRule(
        name="authentication is asked for",
        phases=EVERY_PHASE,
        codes=codes(523, 530, 534, 535, 538),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="RFC 4954 section 6, RFC 3207 section 4: without it nothing is taken from us",
        matches=(Reply(Phase.MAIL, 530, "5.7.0 Authentication required"), Reply(Phase.EHLO, 530, "Must STARTTLS")),
        not_matches=(Reply(Phase.MAIL, 550, "5.7.1"),),
    ),
    SmtpRule(
        name="authentication is asked for, under another code",
        phases=_AFTER_AUTH | {Phase.EHLO},
        codes=_REFUSALS,
        says=said(_AUTH_WANTED),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="servers that say 503, 550, 553 or 554 for it",
        matches=(
            Reply(Phase.MAIL, 550, "5.7.1 Client was not authenticated"),
            Reply(Phase.RCPT, 503, "5.5.1 This mail server requires authentication: need AUTH first"),
            Reply(Phase.MAIL, 451, "4.7.1 you must authenticate"),
        ),
        not_matches=(Reply(Phase.DOT, 550, "5.7.26 unauthenticated mail is prohibited"),),
    ),
    SmtpRule(
        name="relay denied",
        phases=_AFTER_AUTH,
        codes=_REFUSALS,
        says=said(_RELAY),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="Postfix 454 and 554 5.7.1, Exim 550: the server doesn't know us as one who may send",
        matches=(
            Reply(Phase.RCPT, 554, "5.7.1 <bob@example.com>: Relay access denied"),
            Reply(Phase.RCPT, 454, "4.7.1 <bob@example.com>: Relay access denied"),
            Reply(Phase.RCPT, 550, "relay not permitted"),
            Reply(Phase.RCPT, 550, "5.7.1 Unable to relay"),
        ),
        not_matches=(_NO_USER, Reply(Phase.RCPT, 550, "5.7.1 Access denied")),
    ),
    SmtpRule(
        name="our sender or account is refused",
        phases=MESSAGE_PHASES,
        codes=_5YZ,
        status=re.compile(r"1\.8|7\.13"),
        says=said(_OUR_SENDER),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="SES 554 and Postmark after the content, Postfix 553 5.7.1, RFC 3463 X.1.8",
        matches=(
            Reply(Phase.DOT, 554, "Message rejected: Email address is not verified."),
            Reply(Phase.RCPT, 553, "5.7.1 <a@shop.example>: Sender address rejected: not owned by user shop"),
            Reply(Phase.MAIL, 550, "5.1.8 Bad sender's system address"),
            Reply(Phase.MAIL, 550, "Your account has been suspended"),
            Reply(Phase.DOT, 550, "5.7.60 Client does not have permissions: not allowed to send as this sender"),
        ),
        not_matches=(
            Reply(Phase.RCPT, 550, "5.2.1 The account is disabled"),
            Reply(Phase.DOT, 550, "5.7.1 looks like spam"),
            Reply(Phase.MAIL, 501, "5.1.7 Bad sender address syntax"),
        ),
    ),
    SmtpRule(
        name="our host is refused",
        phases=MESSAGE_PHASES,
        codes=_5YZ,
        says=said(r"(?:client host|helo command) rejected"),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="Postfix 554 5.7.1 and 504 5.5.2: what it has against our address or name it says at RCPT",
        matches=(
            Reply(Phase.RCPT, 554, "5.7.1 <unknown[192.0.2.7]>: Client host rejected: Access denied"),
            Reply(Phase.RCPT, 504, "5.5.2 <shop>: Helo command rejected: need fully-qualified hostname"),
        ),
        not_matches=(
            Reply(Phase.RCPT, 554, "5.7.1 Service unavailable; Client host [192.0.2.7] blocked using zen.example"),
            Reply(Phase.RCPT, 554, "5.7.1 <bob@example.com>: Recipient address rejected: Access denied"),
            Reply(Phase.RCPT, 450, "4.7.25 Client host rejected: cannot find your hostname"),
        ),
    ),
    SmtpRule(
        name="our sender is blocked",
        phases={Phase.MAIL},
        codes=_5YZ,
        status=re.compile(r"7\.\d+"),
        says=said(_POLICY),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 3463 X.7: before a recipient is named it can only be about us",
        matches=(Reply(Phase.MAIL, 550, "5.7.1 not accepted"), Reply(Phase.MAIL, 554, "blocked using a block list")),
        not_matches=(Reply(Phase.RCPT, 550, "5.7.1 not accepted"), Reply(Phase.MAIL, 501, "5.1.7 bad syntax")),
    ),
    SmtpRule(
        name="TLS can't be started now",
        phases={Phase.STARTTLS},
        codes=_4YZ,
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="RFC 3207 section 4: 454, TLS not available due to temporary reason; never without it",
        matches=(Reply(Phase.STARTTLS, 454, "4.7.0 TLS not available"),),
        not_matches=(Reply(Phase.STARTTLS, 502, "5.5.1 not implemented"),),
    ),
    SmtpRule(
        name="TLS is refused",
        phases={Phase.STARTTLS},
        codes=_5YZ,
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="RFC 3207: nothing is sent in clear text where TLS was asked for",
        matches=(Reply(Phase.STARTTLS, 502, "5.5.1 not implemented"), Reply(Phase.STARTTLS, 554, "5.7.0 no")),
        not_matches=(Reply(Phase.STARTTLS, 454, "4.7.0 TLS not available"),),
    ),
    SmtpRule(
        name="we are refused at the door",
        phases=_GREETING,
        codes=_5YZ,
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 5321 section 3.1, RFC 7504: our address or name isn't welcome, or no mail is taken here",
        matches=(
            Reply(Phase.BANNER, 554, "5.7.1 blocked using zen.example"),
            Reply(Phase.BANNER, 521, "no mail here"),
            Reply(Phase.EHLO, 550, "who are you?"),
        ),
        not_matches=(Reply(Phase.BANNER, 450, "later"), Reply(Phase.MAIL, 550)),
    ),
)

TRANSIENT_RULES: Final = (
    SmtpRule(
        name="our credential can't be looked at now",
        phases={Phase.AUTH},
        codes=_4YZ,
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        set_up=True,
        source="RFC 4954 section 6: 454, a passing fault of theirs",
        matches=(Reply(Phase.AUTH, 454, "4.7.0 Temporary authentication failure"),),
        not_matches=(Reply(Phase.AUTH, 535), Reply(Phase.EHLO, 451)),
    ),
    SmtpRule(
        name="the server is not well",
        phases=SESSION_PHASES,
        codes=_4YZ,
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 5321 section 4.2.1: before any message is concerned",
        matches=(
            Reply(Phase.BANNER, 450, "later"),
            Reply(Phase.EHLO, 451, "4.3.0 local error"),
        ),
        not_matches=(Reply(Phase.RCPT, 450, "later"), Reply(Phase.AUTH, 535)),
    ),
    SmtpRule(
        name="the server takes no mail now",
        phases={Phase.MAIL, Phase.DATA},
        codes=_4YZ,
        status=re.compile(r"3\.\d+|4\.\d+"),
        says=said(r"system storage|not accepting|out of (?:disk|memory)"),
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        subject=Subject.ROUTE,
        source="RFC 3463 X.3 and X.4: its disk, its load, its network",
        matches=(
            Reply(Phase.MAIL, 452, "4.3.1 Insufficient system storage"),
            Reply(Phase.DATA, 451, "4.3.0 queue file write error"),
        ),
        not_matches=(Reply(Phase.MAIL, 450, "4.1.8 sender's domain not found"), Reply(Phase.DOT, 451, "4.3.0")),
    ),
    SmtpRule(
        name="the recipient's server can't take it now",
        phases={Phase.RCPT},
        codes=_4YZ,
        outcome=Outcome.TRANSIENT,
        subject=Subject.RECIPIENT,
        source="RFC 5321 section 4.2.1: mailbox busy, a look-up that failed, a passing policy",
        matches=(Reply(Phase.RCPT, 450, "4.2.1 mailbox busy"), Reply(Phase.RCPT, 451, "4.4.3 look-up failed")),
        not_matches=(_NO_USER, Reply(Phase.MAIL, 450)),
    ),
    SmtpRule(
        name="not now",
        phases=MESSAGE_PHASES,
        codes=_4YZ,
        outcome=Outcome.TRANSIENT,
        source="RFC 5321 section 4.2.1: the command was not carried out, the same may work later",
        matches=(Reply(Phase.DOT, 451, "4.3.0 local error in processing"), Reply(Phase.MAIL, 455, "not now")),
        not_matches=(_OK, Reply(Phase.DOT, 554)),
    ),
    SmtpRule(
        name="read as: not now",
        phases={Phase.RCPT},
        codes=codes(552),
        outcome=Outcome.TRANSIENT,
        subject=Subject.RECIPIENT,
        source="RFC 5321 section 4.5.3.1.10: old servers say 552 where 452 is meant",
        matches=(Reply(Phase.RCPT, 552, "storage allocation exceeded"),),
        not_matches=(Reply(Phase.RCPT, 550), Reply(Phase.DOT, 552)),
    ),
    SmtpRule(
        name="commands out of order",
        phases=MESSAGE_PHASES - {Phase.DOT},
        codes=codes(503),
        outcome=Outcome.TRANSIENT,
        subject=Subject.ROUTE,
        source="RFC 5321 section 4.2.4: the server has lost track of the conversation",
        matches=(Reply(Phase.DATA, 503, "5.5.1 need RCPT"), Reply(Phase.MAIL, 503, "nested MAIL command")),
        not_matches=(Reply(Phase.DOT, 503), Reply(Phase.DATA, 554)),
    ),
)

REFUSAL_RULES: Final = (
    SmtpRule(
        name="the message is too large",
        phases=MESSAGE_PHASES,
        codes=_5YZ,
        status=re.compile(r"3\.4|2\.3"),
        says=said(r"(?:message|size|content)\b.{0,40}\b(?:too (?:large|big)|exceeds)|too large|size limit"),
        outcome=Outcome.REJECTED,
        source="RFC 1870, RFC 3463 X.3.4 and X.2.3",
        matches=(
            Reply(Phase.MAIL, 552, "5.3.4 Message size exceeds fixed limit"),
            Reply(Phase.DOT, 552, "message too large"),
            Reply(Phase.MAIL, 552, "message size limit reached"),
            Reply(Phase.RCPT, 550, "5.2.3 longer than this mailbox takes"),
        ),
        not_matches=(Reply(Phase.DOT, 554, "5.6.0 bad content"),),
    ),
    SmtpRule(
        name="there is no such mailbox",
        phases={Phase.RCPT, Phase.DOT},
        codes=_5YZ,
        scopes={Scope.RECIPIENT},
        status=re.compile(r"1\.(?:[1236]|10)"),
        says=said(_NO_MAILBOX),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        bad_address=True,
        source="RFC 3463 X.1.1 to X.1.3 and X.1.6, RFC 7505 X.1.10",
        matches=(
            _NO_USER,
            Reply(Phase.RCPT, 556, "5.1.10 the domain takes no mail"),
            Reply(Phase.RCPT, 550, "5.2.1 The account is disabled"),
            Reply(Phase.RCPT, 553, "User unknown"),
            Reply(Phase.DOT, 550, "5.1.1 no such user"),
        ),
        not_matches=(
            Reply(Phase.DOT, 550, "5.1.1 no such user", alone=False),
            Reply(Phase.RCPT, 550, "5.7.1"),
            Reply(Phase.RCPT, 550, "5.2.1 The user you are trying to contact is receiving mail at a rate …"),
            Reply(Phase.RCPT, 550, "Requested action not taken: mailbox unavailable"),
        ),
    ),
    SmtpRule(
        name="the mailbox takes nothing",
        # It fails, and the address stays: a gateway says the same for a moment, or for reasons of its own.
        phases={Phase.RCPT, Phase.DOT},
        codes=_5YZ,
        scopes={Scope.RECIPIENT},
        status=re.compile(r"1\.[04]|2\.[01]|4\.[14]"),
        says=said(_NOT_THERE),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source="RFC 3463 X.1.0, X.1.4, X.2.0, X.2.1, X.4.1 and X.4.4; RFC 5321 section 4.2.3, whose text for 550 it is",
        matches=(
            Reply(Phase.RCPT, 550, "Requested action not taken: mailbox unavailable"),
            Reply(Phase.RCPT, 550, "5.4.4 no route"),
            Reply(Phase.RCPT, 550, "5.2.1 not now"),
        ),
        not_matches=(_NO_USER, Reply(Phase.RCPT, 550, "5.7.1")),
    ),
    SmtpRule(
        name="a policy blocks the message",
        # About us or about the content: the same for many messages in a row is then taken for the route's fault.
        phases={Phase.RCPT, Phase.DATA, Phase.CONTENT, Phase.DOT},
        codes=_5YZ,
        status=re.compile(r"7\.\d+"),
        says=said(_POLICY),
        outcome=Outcome.REJECTED,
        source="RFC 3463 X.7, RFC 7372, block lists and filters; it says nothing against the recipient",
        matches=(
            Reply(Phase.DOT, 550, "5.7.1 Message looks like spam"),
            Reply(Phase.DOT, 550, "5.7.26 This mail is unauthenticated"),
            Reply(Phase.RCPT, 554, "Client host blocked using zen.example"),
            Reply(Phase.RCPT, 550, "5.7.1 Access denied"),
        ),
        not_matches=(_NO_USER, Reply(Phase.DOT, 554, "Transaction failed")),
    ),
    SmtpRule(
        name="the recipient is refused",
        phases={Phase.RCPT},
        codes=_5YZ,
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source="RFC 5321 section 4.2.1",
        matches=(Reply(Phase.RCPT, 550), Reply(Phase.RCPT, 501, "5.5.4 arguments"), Reply(Phase.RCPT, 551)),
        not_matches=(Reply(Phase.MAIL, 550), Reply(Phase.RCPT, 450)),
    ),
    SmtpRule(
        name="the message is refused",
        phases=MESSAGE_PHASES,
        codes=_5YZ,
        outcome=Outcome.REJECTED,
        source="RFC 5321 section 4.2.1: the same would be refused again",
        matches=(Reply(Phase.DOT, 554, "Transaction failed"), Reply(Phase.MAIL, 501, "5.1.7 bad syntax")),
        not_matches=(_OK, Reply(Phase.DOT, 451)),
    ),
)

SMTP_RULES: Final = (
    *STEP_RULES,
    *RECIPIENT_RULES,
    *PACE_RULES,
    *OWN_FAULT_RULES,
    *TRANSIENT_RULES,
    *REFUSAL_RULES,
)
"""Decides every reply."""

_TOO_LARGE: Final = Fault(Phase.MAIL, "too_large")

FAULT_RULES: Final = (
    FaultRule(
        name="nothing certain after the final dot",
        phases={Phase.DOT},
        outcome=Outcome.UNKNOWN,
        maybe_accepted=True,
        source="RFC 1047: the server may have taken the message, and the news was lost",
        matches=(Fault(Phase.DOT, "timeout"), Fault(Phase.DOT, "lost"), Fault(Phase.DOT, "bad_reply")),
        not_matches=(Fault(Phase.CONTENT, "lost"),),
    ),
    FaultRule(
        name="TLS doesn't fit",
        phases=EVERY_PHASE,
        codes=frozenset({"tls", "tls_verify", "no_starttls"}),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        source="RFC 8314: never past a certificate that can't be verified, never in clear text instead",
        matches=(Fault(Phase.CONNECT, "tls_verify"), Fault(Phase.STARTTLS, "tls"), Fault(Phase.EHLO, "no_starttls")),
        not_matches=(Fault(Phase.CONNECT, "connect_reset"),),
    ),
    FaultRule(
        name="we can't authenticate",
        phases=EVERY_PHASE,
        codes=frozenset({"no_auth", "bad_challenge", "no_credential"}),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        source="RFC 4954: the server and the route have no common way, or the credential can't be read",
        matches=(Fault(Phase.AUTH, "no_auth"), Fault(Phase.AUTH, "no_credential")),
        not_matches=(Fault(Phase.AUTH, "timeout"),),
    ),
    FaultRule(
        name="we can't sign",
        phases=EVERY_PHASE,
        codes=frozenset({"no_dkim_key"}),
        outcome=Outcome.MISCONFIGURED,
        spends_attempt=False,
        source="RFC 6376: unsigned it would pass for forged",
        matches=(Fault(Phase.MAIL, "no_dkim_key"),),
        not_matches=(Fault(Phase.AUTH, "no_credential"),),
    ),
    FaultRule(
        name="the server can't carry the address",
        phases=EVERY_PHASE,
        codes=frozenset({"no_smtputf8"}),
        outcome=Outcome.REJECTED,
        subject=Subject.RECIPIENT,
        source="RFC 6531: a part before the @ that is not ASCII has no other form",
        matches=(Fault(Phase.MAIL, "no_smtputf8"),),
        not_matches=(_TOO_LARGE,),
    ),
    FaultRule(
        name="the server takes no 8-bit bytes",
        phases=EVERY_PHASE,
        codes=frozenset({"no_8bitmime"}),
        outcome=Outcome.REJECTED,
        subject=Subject.MESSAGE,
        source="RFC 6152: a finished message is not converted",
        matches=(Fault(Phase.MAIL, "no_8bitmime"),),
        not_matches=(_TOO_LARGE, Fault(Phase.MAIL, "no_smtputf8")),
    ),
    FaultRule(
        name="the server can't do what the email's options ask for",
        phases=EVERY_PHASE,
        codes=frozenset({"no_requiretls", "no_dsn"}),
        outcome=Outcome.REJECTED,
        subject=Subject.MESSAGE,
        source="RFC 8689 section 4.2.1, RFC 3461 section 4: nothing asked for is left out without a word",
        matches=(Fault(Phase.MAIL, "no_requiretls"), Fault(Phase.MAIL, "no_dsn")),
        not_matches=(Fault(Phase.MAIL, "no_8bitmime"),),
    ),
    FaultRule(
        name="the message is larger than the server says it takes",
        phases=EVERY_PHASE,
        codes=frozenset({"too_large"}),
        outcome=Outcome.REJECTED,
        subject=Subject.MESSAGE,
        source="RFC 1870 section 6.1",
        matches=(_TOO_LARGE,),
        not_matches=(Fault(Phase.MAIL, "lost"),),
    ),
    FaultRule(
        name="no connection",
        phases={Phase.CONNECT},
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        source="nothing was sent",
        matches=(Fault(Phase.CONNECT, "dns"), Fault(Phase.CONNECT, "connect_refused")),
        not_matches=(Fault(Phase.BANNER, "timeout"),),
    ),
    FaultRule(
        name="lost before the message was complete",
        phases=EVERY_PHASE - {Phase.DOT},
        outcome=Outcome.TRANSIENT,
        spends_attempt=False,
        source="RFC 5321 section 4.1.1.4: without its final dot the server must throw the message away",
        matches=(Fault(Phase.BANNER, "timeout"), Fault(Phase.RCPT, "lost"), Fault(Phase.CONTENT, "lost")),
        not_matches=(Fault(Phase.DOT, "lost"),),
    ),
)
"""Decides every fault."""
